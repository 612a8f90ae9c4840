"""One sandbox eats what it can get, processes, memory, disk, sockets, processors; another one answers all the while."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, TEMPLATE, Daemon, slack, wait_for

HOLDS_LIMITS = ISOLATION not in ("none", "process") and os.geteuid() == 0  # users have no control groups as a rule
held = pytest.mark.skipif(not HOLDS_LIMITS, reason="nothing holds limits here: this launcher, or a user without control groups")
GVISOR = ISOLATION == "gvisor"  # needs more for itself, and what it had not sent is lost with it
PYTHON = TEMPLATE if TEMPLATE.startswith("code-interpreter-python") else "code-interpreter-python"


def sh(box: Sandbox, cmd: str | list[str], **fields: Any) -> dict[str, Any]:
    return dict(box.post("/exec", {"cmd": cmd, **fields}))


def in_background(box: Sandbox, code: str) -> dict[str, Any]:
    return dict(box.post("/exec", {"cmd": ["python3", "-c", code], "background": True}, expect=201))


class Neighbour:
    """Answers in a bound that the machine's load stretches, and has kept what it knew."""

    def __init__(self, box: Sandbox):
        self.box = box
        self.asked = 0
        assert box.run("kept = 41")["status"] == "ok"

    def answers(self) -> None:
        self.asked += 1
        got = self.box.client.http.post(f"{self.box.path}/run_code", json={"code": "kept + 1"}, timeout=15 * slack())
        assert got.status_code == 200 and got.json()["text"] == "42", got.text

    @contextlib.contextmanager
    def meanwhile(self) -> Iterator[None]:
        """It answers again and again until the block ends, at least once."""
        over, failures = threading.Event(), []

        def ask() -> None:
            try:
                while not over.is_set():
                    self.answers()
            except Exception as error:  # noqa: BLE001: told below
                failures.append(error)

        before = self.asked
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        assert not failures, failures
        assert self.asked > before
        self.answers()


@pytest.fixture(scope="module")
def neighbour(client: Client) -> Iterator[Neighbour]:
    with client.sandbox(template=PYTHON) as box:
        yield Neighbour(box)


def counts_by_groups(box: Sandbox) -> bool:
    return box.record["isolation"]["cgroup"] not in (None, "none", "rlimits")


TAME = """
import os, signal
made = []
try:
    while len(made) < 64:
        if (pid := os.fork()) == 0:
            signal.pause()
        made.append(pid)
except BlockingIOError:
    print("the limit holds")
for pid in made:
    os.kill(pid, 9)
"""


@held
@pytest.mark.skipif(GVISOR, reason="past a limit of the group gVisor's kernel ends as a whole: test_gvisor.py bombs it")
def test_fork_bomb(client: Client, neighbour: Neighbour) -> None:
    with client.sandbox(template="base", limits={"pids": 48, "memory_mib": 256, "cpus": 0.5}) as box:
        if not counts_by_groups(box):
            pytest.skip("no control groups on this host: a fork bomb would be everybody's")
        # First what ends by itself: only a limit that was seen to hold is bombed.
        tame = sh(box, ["python3", "-c", TAME])
        assert tame["stdout"] == "the limit holds\n", tame
        wait_for(lambda: box.get("/metrics")["pids"] < 8, 20 * slack())  # its children leave after it
        with neighbour.meanwhile():
            in_background(box, "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass")
            wait_for(lambda: box.get("/metrics")["pids"] >= 40, 20 * slack())
            for _ in range(5):
                assert box.get("/metrics")["pids"] <= 48
                neighbour.box.get("/metrics")
        with client.sandbox(template="base") as other:
            assert sh(other, "echo fine")["stdout"] == "fine\n"


def eat(block: str) -> str:
    return f"b = bytearray()\nfor _ in range(1024): b.extend({block} * (4 << 20))"


@held
def test_memory_bomb_in_a_run(client: Client, neighbour: Neighbour) -> None:
    with client.sandbox(template=PYTHON, limits={"memory_mib": 256}) as box:
        if not counts_by_groups(box):
            pytest.skip("no memory controller on this host")
        with neighbour.meanwhile():
            got = box.run("print('before')\n" + eat("b'x'"))
        assert (got["status"], got["error"]["name"]) == ("oom", "OutOfMemory") and (GVISOR or got["stdout"] == "before\n"), got["error"]
        assert got["usage"]["peak_memory"] > 64 << 20
        assert box.run("1 + 1")["text"] == "2"


@held
@pytest.mark.parametrize("way", ["one process", "many processes", "shared memory", "files in memory"])
def test_memory_bomb_in_exec(client: Client, neighbour: Neighbour, way: str) -> None:
    """However it is eaten, it is the eater who pays."""
    code = {
        "one process": eat("b'x'"),
        "many processes": f"import os\nfor _ in range(16):\n    if os.fork() == 0:\n        {eat(chr(98) + repr('x')).replace(chr(10), chr(10) + ' ' * 8)}\n"
                          "        os._exit(0)\nwhile True: os.wait()",
        "shared memory": "import mmap\nkept = []\nwhile True:\n    m = mmap.mmap(-1, 4 << 20); m.write(b'x' * (4 << 20)); kept.append(m)",
        "files in memory": "f = open('/dev/shm/big', 'wb')\nwhile True: f.write(b'x' * (4 << 20))",
    }[way]
    with client.sandbox(template="base", limits={"memory_mib": 128, "pids": 128}) as box:
        if not counts_by_groups(box):
            pytest.skip("no memory controller on this host")
        with neighbour.meanwhile():
            got = sh(box, ["python3", "-c", code], timeout=120)
        if way == "files in memory":  # it may have a size of its own, or count as memory alone
            assert got["status"] == "oom" or (got["exit_code"] == 1 and "No space left" in got["stderr"]), got
            sh(box, "rm -f /dev/shm/big")
        elif way == "many processes":  # the parent may live on, and then has no children
            assert got["status"] in ("oom", "ok", "error") and (GVISOR or box.get("/metrics")["oom_kills"] >= 1), got
        else:
            assert (got["status"], got["signal"]) == ("oom", "SIGKILL"), got
        assert sh(box, "echo fine")["stdout"] == "fine\n"


@held
def test_full_disk(client: Client, neighbour: Neighbour) -> None:
    with client.sandbox(template="base", limits={"disk_mib": 32}) as box:
        if box.record["isolation"]["disk"] in (None, "none"):
            pytest.skip("no store with limits on this host")
        with neighbour.meanwhile():
            got = sh(box, "head -c 100000000 /dev/zero > big; for i in $(seq 400); do echo x > small-$i || break; done; head -c 9000000 /dev/zero > $HOME/more")
            assert "No space" in got["stderr"] or "quota" in got["stderr"], got
            answer = client.call("PUT", f"{box.path}/fs/file", params={"path": "by-api"}, content=b"x" * (8 << 20))
            assert answer.status_code == 507 and answer.json()["error"]["code"] == "storage_full", answer.text
        assert neighbour.box.run("open('large', 'wb').write(b'x' * (8 << 20))")["text"] == str(8 << 20)
        with client.sandbox(template="base") as other:
            assert sh(other, "echo fine > file; cat file")["stdout"] == "fine\n"
        assert sh(box, "rm -rf big small-* $HOME/more; echo fine > file; cat file")["stdout"] == "fine\n"


SOCKETS = """
import os, resource, socket, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
each = min(hard, 2048) - 64
wanted, children, reads = 10000, [], []
while wanted > 0:
    r, w = os.pipe()
    if os.fork() == 0:
        kept = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(min(each, wanted))]
        for s in kept[:200]:
            try:
                s.bind(("127.0.0.1", 0)); s.listen()
            except PermissionError:
                break  # Landlock
        os.write(w, len(kept).to_bytes(4, "big"))
        time.sleep(600)
    os.close(w)
    reads.append(r)
    wanted -= each
print(sum(int.from_bytes(os.read(r, 4), "big") for r in reads), flush=True)
time.sleep(600)
"""


@pytest.mark.smoke
def test_ten_thousand_sockets(client: Client, neighbour: Neighbour) -> None:
    if ISOLATION == "process":
        pytest.skip("isolation process has no sockets but unix ones")
    with client.sandbox(template="base") as box:
        with neighbour.meanwhile():
            made = in_background(box, SOCKETS)
            path = f"{box.path}/processes/{made['pid']}/events"
            with client.http.stream("GET", path, timeout=60 * slack()) as answer:
                line = next(line for line in answer.iter_lines() if '"stdout"' in line)
            assert "10000" in line, line
            assert sh(box, "echo fine")["stdout"] == "fine\n"
        with client.sandbox(template="base") as other:
            assert sh(other, "echo fine")["stdout"] == "fine\n"


@pytest.mark.smoke
def test_processor_hog(client: Client, daemon: Daemon, neighbour: Neighbour) -> None:
    """Four loops; where there is a limit, no more than that is used, however busy the machine."""
    limits = {"limits": {"cpus": 0.5}} if HOLDS_LIMITS else {}
    with client.sandbox(template="base", **limits) as box:
        with neighbour.meanwhile():
            in_background(box, "import os\nfor _ in range(2): os.fork()\nwhile True: pass")
            asked = neighbour.asked
            wait_for(lambda: neighbour.asked > asked + 5, 60 * slack())
            if HOLDS_LIMITS and counts_by_groups(box):
                wait_for(lambda: box.get("/metrics")["cpu_seconds"] > 1, 60 * slack(), 0.1)
                first = box.get("/metrics")["cpu_seconds"]
                took = float(sh(neighbour.box, "s=$(date +%s.%N); sleep 2; e=$(date +%s.%N); echo \"$e - $s\" | python3 -c 'print(eval(input()))'")["stdout"])
                used = box.get("/metrics")["cpu_seconds"] - first
                assert used < 0.5 * (took + 3 * slack()) + 0.5, (used, took)
        assert daemon.gateway_pid()
