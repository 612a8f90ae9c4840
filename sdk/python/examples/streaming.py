"""Output as it comes, input() answered, and a run that is left early."""

from sandal import Sandal

CODE = """
import time
name = input("Who? ")
for i in range(3):
    print("hello", name, i, flush=True)
    time.sleep(0.1)  # so that a reader sees it come piece by piece
"""

with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
    with sb.run_code(CODE, stream=True) as run:
        for chunk in run:
            if chunk.type == "input":
                run.input("Ada")
            elif chunk.type == "stdout":
                print(chunk.text, end="")
            elif chunk.type == "result":
                print("ended:", chunk.status)

    # It ticks slowly, so that there is something left to interrupt.
    with sb.run_code("import time\nwhile True:\n    print('tick', flush=True)\n    time.sleep(0.05)", stream=True) as run:
        for chunk in run:
            if chunk.type == "stdout":
                break
    print("the endless one:", sb.runs.attach(str(run.id)).wait().status)
