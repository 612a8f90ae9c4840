#!/usr/bin/python3
"""Starts the kernel of one template by its kernel.json, without the gateway, and checks what its
start-up files promise. Run by the interpreter of the template: PYTHON probe.py TEMPLATE_DIR PREFIX.
Prints one line a check and `N passed, N failed, N skipped`; non-zero when one failed.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time

import ipykernel
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

TIMEOUT = 60


class Skip(Exception):
    pass


class Kernel:
    def __init__(self, template_dir, prefix, work):
        self.home = os.path.join(work, "home")
        template = self.load(template_dir, "template.json", prefix)
        spec = self.load(template_dir, next(iter(template["languages"].values()))["kernel"], prefix)
        skel = template.get("home_skel")
        if skel and os.path.isdir(skel):
            shutil.copytree(skel, self.home)
        os.makedirs(self.home, exist_ok=True)
        conn, _ = write_connection_file(
            os.path.join(work, "connection.json"),
            transport="ipc",
            ip=os.path.join(work, "k"),
        )
        argv = [a.replace("{connection_file}", conn) for a in spec["argv"]]
        self.log = open(os.path.join(work, "log"), "w+b")
        started = time.monotonic()
        self.process = subprocess.Popen(
            argv,
            env={**template["env"], **spec["env"], "HOME": self.home},
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )
        self.client = BlockingKernelClient(connection_file=conn)
        self.client.load_connection_file()
        self.wait_for_sockets(work)
        self.client.wait_for_ready(timeout=TIMEOUT)
        self.ready_ms = (time.monotonic() - started) * 1000

    def wait_for_sockets(self, work):
        """The client counts a heart that does not beat yet as a dead kernel: a slow machine is not that."""
        end = time.monotonic() + TIMEOUT
        while len([f for f in os.listdir(work) if f.startswith("k-")]) < 5:
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                sys.exit(f"the kernel did not start:\n{self.log.read().decode('utf-8', 'replace')}")
            time.sleep(0.02)
        self.client.start_channels()

    @staticmethod
    def load(folder, name, prefix):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        return json.loads(text.replace("{prefix}", prefix).replace("{template_dir}", folder))

    def run(self, code):
        """Outputs of a cell as (reply, messages); waits for both reply and idle."""
        msg_id = self.client.execute(code, store_history=True, stop_on_error=False)
        deadline = time.monotonic() + TIMEOUT
        messages = []
        while True:
            msg = self.client.get_iopub_msg(timeout=max(0.01, deadline - time.monotonic()))
            if msg["parent_header"].get("msg_id") != msg_id:
                continue
            if msg["msg_type"] == "status" and msg["content"]["execution_state"] == "idle":
                break
            messages.append(msg)
        reply = self.client.get_shell_msg(timeout=max(0.01, deadline - time.monotonic()))
        return reply["content"], messages

    def late(self, seconds):
        """Messages that come within some seconds, whatever their parent."""
        deadline = time.monotonic() + seconds
        found = []
        while time.monotonic() < deadline:
            try:
                found.append(self.client.get_iopub_msg(timeout=0.1))
            except queue.Empty:
                pass
        return found

    def close(self):
        self.client.stop_channels()
        os.killpg(self.process.pid, 9)
        self.process.wait()
        self.log.close()


def text_of(messages, name="stdout"):
    return "".join(
        m["content"]["text"]
        for m in messages
        if m["msg_type"] == "stream" and m["content"]["name"] == name
    )


def data_of(messages):
    return [m["content"]["data"] for m in messages if m["msg_type"] in ("display_data", "execute_result")]


PY = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', {!r}])"


def check_sum(k):
    reply, out = k.run("1+1")
    assert reply["status"] == "ok" and data_of(out)[0]["text/plain"] == "2"


def check_subprocess_cjk(k):
    _, out = k.run(PY.format("print('\u6f22' * 5000)"))
    text = text_of(out + k.late(0.5))
    assert text == "\u6f22" * 5000 + "\n", (len(text), text.count("\ufffd"))


def check_subprocess_bad_bytes(k):
    _, out = k.run(PY.format("import os; os.write(1, b'a\\xffb\\n')"))
    assert text_of(out + k.late(0.5)) == "a\ufffdb\n"
    _, out = k.run(PY.format("import os; os.write(1, b'half \\xe6\\xbc')"))
    assert text_of(out + k.late(0.8)) == "half \ufffd", text_of(out)
    _, out = k.run("print('next')")
    assert text_of(out) == "next\n"


def check_subprocess_20_mb(k):
    code = PY.format("import sys; [sys.stdout.write('x' * 999 + '\\n') for i in range(20000)]")
    started = time.monotonic()
    _, out = k.run(code)
    text = text_of(out + k.late(0.5))
    assert len(text) == 20_000_000, len(text)
    print(f"    20 MB in {time.monotonic() - started:.2f} s")


def check_subprocess_stderr(k):
    _, out = k.run(PY.format("import os; os.write(2, b'to stderr\\n')"))
    assert text_of(out + k.late(0.5), "stderr") == "to stderr\n"


def check_replaced_stdout_drains(k):
    code = "import sys\nkeep = sys.stdout.write\nsys.stdout.write = None\ntry:\n    "
    code += PY.format("print('y' * 300000)").replace("\n", "\n    ")
    code += "\nfinally:\n    sys.stdout.write = keep"
    reply, _ = k.run(code)
    assert reply["status"] == "ok"
    k.late(0.5)
    _, out = k.run("import os; os.system('echo alive')")
    assert "alive" in text_of(out + k.late(0.5))


def check_nan_is_null(k):
    reply, out = k.run("from IPython.display import JSON\nJSON([float('nan'), {'a': float('inf')}])")
    assert reply["status"] == "ok"
    assert data_of(out)[0]["application/json"] == [None, {"a": None}], data_of(out)
    assert text_of(out, "stderr") == ""


def check_numpy_nan_is_null(k):
    code = "import numpy as np\ndisplay({'application/json': [np.float32('nan'), np.float64('nan'), np.int64(3)]}, raw=True)"
    reply, out = k.run(code)
    assert reply["status"] == "ok", reply
    assert data_of(out)[0]["application/json"] == [None, None, 3]


def check_unserialisable_is_an_error(k):
    reply, _ = k.run("display({'application/json': object()}, raw=True)")
    assert reply["status"] == "error" and reply["ename"] == "TypeError", reply


def check_surrogate_is_not_lost(k):
    _, out = k.run("print('a\\ud800b')")
    assert len(text_of(out)) == 4, text_of(out)
    reply, out = k.run("raise Exception('\\ud800')")
    assert reply["status"] == "error" and reply["ename"] == "Exception"
    assert any(m["msg_type"] == "error" for m in out)


def check_fresh_plot_is_quiet(k):
    reply, out = k.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('t')\nplt.show()")
    assert reply["status"] == "ok", reply
    assert any("image/png" in d for d in data_of(out))
    assert text_of(out, "stderr") == "", text_of(out, "stderr")


def check_plotly_is_small(k):
    if k.run("import plotly, nbformat")[0]["status"] != "ok":
        raise Skip("plotly is not in this template")
    reply, out = k.run("import plotly.express as px\npx.line(x=[1, 2], y=[3, float('nan')])")
    assert reply["status"] == "ok", reply
    data = data_of(out)[0]
    assert "application/vnd.plotly.v1+json" in data
    assert "text/html" not in data


def thread_is_own(k, code):
    _, out = k.run(code)
    k.client.execute("2")
    late = k.late(1.0)
    texts = [m for m in late if m["msg_type"] == "stream" and "from thread" in m["content"]["text"]]
    assert texts, "the thread's output is lost"
    own = texts[0]["parent_header"].get("msg_id") == out[0]["parent_header"]["msg_id"]
    assert own or k.major < 7, "output went to the latest cell"


def check_thread_output_goes_to_its_cell(k):
    thread_is_own(k, "import threading\nthreading.Timer(0.3, lambda: print('from thread')).start()")


def check_pool_output_goes_to_its_cell(k):
    k.run("from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(int)")
    thread_is_own(k, "import time\npool.submit(lambda: (time.sleep(0.3), print('from thread')))\nNone")


def check_log_is_clean(k):
    k.log.seek(0)
    log = k.log.read().decode(errors="replace")
    assert "Traceback" not in log and "font cache" not in log, log


def main():
    template_dir, prefix = sys.argv[1:3]
    passed = failed = skipped = 0
    with tempfile.TemporaryDirectory() as work:
        kernel = Kernel(os.path.abspath(template_dir), prefix, work)
        info = kernel.client.kernel_info(reply=True, timeout=TIMEOUT)["content"]
        kernel.major = ipykernel.version_info[0]
        print(f"  ipykernel {ipykernel.__version__}, protocol {info['protocol_version']}, ready in {kernel.ready_ms:.0f} ms")
        for name, check in list(globals().items()):
            if not name.startswith("check_"):
                continue
            try:
                check(kernel)
                passed += 1
                print("  ok  ", name)
            except Skip as reason:
                skipped += 1
                print("  skip", name, "-", reason)
            except Exception as error:
                failed += 1
                print("  FAIL", name, "-", type(error).__name__, str(error)[:400])
        kernel.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())
