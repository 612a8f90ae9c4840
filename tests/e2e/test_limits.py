"""Limits of sandboxes: checked, held, told; and the networks they are asked with."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, TEMPLATE, UID_COUNT, Daemon, wait_for
from harness.processes import inits, of_sandbox

held = pytest.mark.skipif(ISOLATION == "none" or os.geteuid() != 0,
                          reason="isolation none, and users without control groups of their own, hold no limits")

# gVisor's own kernel is in the sandbox's groups, and has what is inside as threads and memory of its own.
GVISOR = ISOLATION == "gvisor"
LEAST = {"memory_mib": 64, "pids": 128} if GVISOR else {"memory_mib": 16, "pids": 8}
one_process = pytest.mark.skipif(GVISOR, reason="past a limit of the group gVisor's kernel ends as a whole, not one process in it")

NO_DISK = ISOLATION == "process" or (ISOLATION == "bubblewrap" and os.geteuid() != 0)  # no volumes


FILES = min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1])  # by default; no more than the daemon may have


def make(client: Client, **limits: Any) -> Sandbox:
    return client.sandbox(template="base", limits=limits)


def sh(box: Sandbox, cmd: str, **fields: Any) -> dict[str, Any]:
    return box.post("/exec", {"cmd": cmd, **fields})


def test_bad_limits_are_refused(client: Client) -> None:
    for limits, pointer in (({"memory_mib": 0}, "/limits/memory_mib"), ({"cpus": -1}, "/limits/cpus"),
                            ({"pids": 1.5}, "/limits/pids"), ({"disk_mib": "1"}, "/limits/disk_mib"),
                            ({"files": 1}, "/limits/files"), ([], "/limits"),
                            ({"memory_mib": 15}, "/limits/memory_mib"), ({"pids": 7}, "/limits/pids"),
                            ({"open_files": 1023}, "/limits/open_files"), ({"open_files": 1 << 30}, "/limits/open_files"),
                            ({"cpus": 0.009}, "/limits/cpus"), ({"disk_mib": 0.5}, "/limits/disk_mib")):
        error = client.error("POST", "/v1/sandboxes", 400, "invalid_request", json={"template": "base", "limits": limits})
        assert error["pointer"] == pointer, error


def test_bad_networks_are_refused(client: Client) -> None:
    for network, pointer in (("all", "/network"), ({"allow": [{}]}, "/network/allow/0"),
                             ({"deny": [{"cidr": "10.0.0.0/33"}]}, "/network/deny/0/cidr"),
                             ({"allow": [{"domain": "a..b"}]}, "/network/allow/0/domain"),
                             ({"default": "open"}, "/network/default")):
        error = client.error("POST", "/v1/sandboxes", 400, "invalid_request",
                             json={"template": "base", "network": network})
        assert error["pointer"] == pointer, error


def test_a_record_of_a_network_is_taken_back(client: Client) -> None:
    with make(client) as box:
        again = client.post("/v1/sandboxes", {"template": "base", "network": box.record["network"]}, expect=201)
        assert again["network"]["mode"] == box.record["network"]["mode"]
        client.delete(f"/v1/sandboxes/{again['id']}")
        if box.record["network"]["mode"] == "egress":
            rules = {"deny": [{"cidr": "203.0.113.0/24"}], "default": "public"}
            told = client.call("PATCH", box.path, json={"network": rules}, expect=200).json()["network"]
            assert client.call("PATCH", box.path, json={"network": told}, expect=200).json()["network"] == told == {"mode": "egress", **rules}


@held
def test_the_least_limits_let_a_command_start(client: Client) -> None:
    with make(client, **LEAST, cpus=0.1) as box:
        assert sh(box, "echo $(echo fine)")["stdout"] == "fine\n"


FILL = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(600)
    except BlockingIOError:
        time.sleep(0.01)
"""


@held
@pytest.mark.skipif(GVISOR, reason="in the least that gVisor takes a kernel starts")
def test_a_kernel_without_memory_to_start_says_so(client: Client) -> None:
    with make(client) as box:
        if not counts_memory(box):
            pytest.skip("no memory controller on this host")
    error = client.error("POST", "/v1/sandboxes", 502, "kernel_start_failed", json={"template": TEMPLATE, "limits": {"memory_mib": 16}})
    assert "memory" in error["message"] and "limits.memory_mib" in error["hint"], error


@held
@one_process
def test_no_room_for_a_process_is_told(client: Client) -> None:
    with make(client, pids=8) as box:
        box.post("/exec", {"cmd": ["python3", "-c", FILL], "background": True}, expect=201)

        def refused() -> dict[str, Any] | None:
            answer = client.call("POST", f"{box.path}/exec", json={"cmd": "true"})
            return answer.json()["error"] if answer.status_code == 429 and answer.headers["retry-after"] else None

        error = wait_for(refused)
        assert error["code"] == "quota_exceeded" and "limits.pids" in error["hint"] and "step" not in error["message"], error


@pytest.mark.skipif(ISOLATION != "none", reason="of isolation none")
def test_none_promises_nothing(client: Client) -> None:
    for body, pointer in (({"limits": {"memory_mib": 64}}, "/limits/memory_mib"), ({"network": "none"}, "/network"),
                          ({"network": {"allow": []}}, "/network")):
        error = client.error("POST", "/v1/sandboxes", 501, "not_supported", json={"template": "base", **body})
        assert error["pointer"] == pointer
    with client.sandbox(template="base") as box:
        assert box.record["network"]["mode"] == "host" and "no network of its own" in box.record["network"]["reason"]
        assert set(box.record["limits"].values()) == {None}
        assert box.record["isolation"]["kind"] == "none"
        client.error("PATCH", box.path, 501, "not_supported", json={"network": "none"})
        assert client.get(f"{box.path}/network/log")["items"] == []


@held
@pytest.mark.smoke
def test_limits_are_told(client: Client) -> None:
    disk = {} if NO_DISK else {"disk_mib": 64}
    with make(client, memory_mib=256, cpus=0.5, pids=128, **disk) as box:
        got = box.record["limits"]
        told = {name: value for name, value in got.items() if name != "reason"}
        assert told == {"memory_mib": 256, "cpus": 0.5, "pids": 128, "disk_mib": disk.get("disk_mib"), "open_files": FILES}
        isolation = box.record["isolation"]
        assert isolation["kind"] == ISOLATION and all(isinstance(v, str) for v in isolation.values()), isolation
        usage = box.get("/metrics")
        assert usage["limits"] == got and usage["pids"] >= 1
        assert usage["memory_bytes"] is None or 0 < usage["memory_bytes"] < 256 << 20


OPEN = """import os, resource
files = []
try:
    while len(files) < 5000: files.append(os.open('/dev/null', os.O_RDONLY))
except OSError as e: print(e.strerror)
n = len(files)
for fd in files: os.close(fd)
print(n, resource.getrlimit(resource.RLIMIT_NOFILE)[1])"""


@held
@pytest.mark.smoke
def test_open_files_are_bounded(client: Client) -> None:
    with client.sandbox(limits={"open_files": 1500}, template=TEMPLATE) as box:
        assert box.record["limits"]["open_files"] == 1500
        for out in (sh(box, f"python3 -c \"{OPEN}\"")["stdout"], box.run(OPEN)["stdout"]):  # a command, a kernel
            said, numbers = out.splitlines()
            opened, hard = map(int, numbers.split())
            assert said == "Too many open files" and 1300 < opened < 1500 == hard, out
        assert sh(box, "ulimit -H -n 4000 && echo raised")["stdout"] == ""


@held
@pytest.mark.smoke
def test_limits_are_shown_inside(client: Client) -> None:
    """Where there is no place of its own for /proc and /sys, it is the affinity alone that shows any."""
    with make(client, memory_mib=300, cpus=0.5, pids=128) as box:
        assert sh(box, "nproc")["stdout"] == "1\n"
        if ISOLATION != "process":
            assert "MemTotal: 307200 kB" in sh(box, "tr -s ' ' < /proc/meminfo")["stdout"]
            assert sh(box, "python3 -c 'import os; print(os.cpu_count())'")["stdout"] == "1\n"
            assert sh(box, "echo x > /proc/meminfo")["exit_code"] != 0


@pytest.mark.skipif(not NO_DISK, reason="of launchers without a disk limit")
def test_a_limit_that_cannot_be_held_is_refused(client: Client) -> None:
    error = client.error("POST", "/v1/sandboxes", 501, "not_supported",
                         json={"template": "base", "limits": {"disk_mib": 64}})
    assert error["pointer"] == "/limits/disk_mib" and "disk" in error["message"], error
    with client.sandbox(template="base") as box:  # what nobody asked for gives way
        assert box.record["limits"]["disk_mib"] is None


@held
@one_process
def test_processes_are_bounded(client: Client) -> None:
    with make(client, pids=32) as box:
        got = sh(box, "for i in $(seq 100); do sleep 20 & done; wait", timeout=30)
        assert "ork" in got["stderr"], got  # fork: Resource temporarily unavailable
        with client.sandbox(template="base") as other:
            assert sh(other, "echo fine")["stdout"] == "fine\n"


@held
@pytest.mark.skipif(NO_DISK, reason="this launcher holds no disk limit")
def test_a_full_disk_is_its_own(client: Client) -> None:
    with make(client, disk_mib=32) as box:
        if box.record["isolation"]["disk"] in (None, "none"):
            pytest.skip("no store with limits on this host")
        got = sh(box, "head -c 100000000 /dev/zero > big; stat -c %s big; echo x > other")
        assert "No space" in got["stderr"] or "quota" in got["stderr"], got
        assert int(got["stdout"].split()[0]) <= 32 << 20
        assert sh(box, "rm big; echo fine > other; cat other")["stdout"] == "fine\n"


EAT = "python3 -c \"b = bytearray(); [b.extend(b'x' * (8 << 20)) for _ in range(64)]\""


def counts_memory(box: Sandbox) -> bool:
    return box.record["isolation"]["cgroup"] not in (None, "none")


@held
def test_a_command_out_of_memory_ends_as_oom(client: Client) -> None:
    with make(client, memory_mib=128) as box:
        if not counts_memory(box):
            pytest.skip("no memory controller on this host")
        got = sh(box, "exec " + EAT)
        assert (got["status"], got["signal"]) == ("oom", "SIGKILL"), got
        assert got["usage"]["peak_memory"] > 32 << 20
        assert GVISOR or box.get("/metrics")["oom_kills"] >= 1  # its next place counts anew
        assert sh(box, "echo fine")["stdout"] == "fine\n"


# It fills the /dev/shm that the host's kernel gives; under gvisor that is the own kernel's, and was not tried.
@held
@pytest.mark.skipif(GVISOR, reason="/dev/shm is its kernel's own")
@one_process
def test_an_idle_kernel_out_of_memory_loses_its_state_as_oom(client: Client) -> None:
    with client.sandbox(template=TEMPLATE, limits={"memory_mib": 400}) as box:
        if not counts_memory(box):  # then nothing kills an idle kernel for its sandbox's memory
            pytest.skip("no memory controller on this host")
        assert box.run("x = 1")["status"] == "ok"
        context = box.get("/contexts")["items"][0]["id"]
        # What lies there stays when a process ends: no new kernel has room beside it.
        for place in ("/dev/shm", "/tmp"):
            box.post("/exec", {"cmd": f"cat /dev/zero > {place}/full", "timeout": 60})
        ended = wait_for(lambda: box.get(f"/contexts/{context}")["last_exit"])
        assert ended["oom"] is True and ended["signal"] == signal.SIGKILL, ended
        got = box.run("x")
        assert got["status"] == "oom", got
        assert got["error"]["state"] == "lost", got  # a new kernel may come so far that it begins
        sh(box, "rm /dev/shm/full /tmp/full")
        wait_for(lambda: box.run("x")["error"]["name"] == "NameError")  # one that was starting meanwhile had no room yet
        assert box.get(f"/contexts/{context}")["last_exit"]["oom"] is True


# Addresses are limited only where an ordinary user has no control groups: e2e-user runs it.
@pytest.mark.smoke
@pytest.mark.skipif(ISOLATION != "bubblewrap" or os.geteuid() == 0, reason="control groups hold memory here")
def test_too_few_addresses_for_a_kernel_are_told_as_that(client: Client) -> None:
    with client.sandbox(template="base", limits={"memory_mib": 1000}) as box:
        if box.record["isolation"]["cgroup"] != "rlimits":
            pytest.skip("control groups hold memory here")
    error = client.error("POST", "/v1/sandboxes", 502, "kernel_start_failed",
                         json={"template": TEMPLATE, "limits": {"memory_mib": 100}})
    assert "with the 100 MiB of addresses that limits.memory_mib leaves" in error["message"], error
    assert "the template's own" in error["hint"], error


@held
@one_process
def test_a_want_of_memory_is_charged_once_and_to_its_own(client: Client) -> None:
    kill_me = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with client.sandbox(template=TEMPLATE, limits={"memory_mib": 256}) as box:
        if not counts_memory(box):
            pytest.skip("no memory controller on this host")
        got = box.run("import subprocess, sys\n"
                      "eat = 'b = bytearray()\\nwhile True: b.extend(b\"x\" * (8 << 20))'\n"
                      "print(subprocess.run([sys.executable, '-c', eat]).returncode)")
        assert (got["status"], got["stdout"]) == ("ok", "-9\n"), got
        assert box.get("/metrics")["oom_kills"] == 1
        assert box.run(kill_me)["status"] == "killed"
        assert sh(box, "kill -9 $$")["status"] == "killed"
        pid = box.post("/exec", {"cmd": "read line; kill -9 $$", "background": True}, expect=201)["pid"]
        assert sh(box, "exec " + EAT)["status"] == "oom"
        box.client.call("POST", f"{box.path}/processes/{pid}/input", json={"data": "go\n"}, expect=204)
        ended = wait_for(lambda: (p := box.get(f"/processes/{pid}"))["state"] == "exited" and p)
        run = box.get(f"/runs/{ended['run']}")
        assert (ended["signal"], run["status"]) == ("SIGKILL", "killed"), run


@held
def test_a_run_out_of_memory_ends_as_oom(client: Client) -> None:
    with client.sandbox(template=TEMPLATE, limits={"memory_mib": 512}) as box:
        if not counts_memory(box):
            pytest.skip("no memory controller on this host")
        got = box.run("print('before')\nb = bytearray()\nfor _ in range(256): b.extend(b'x' * (8 << 20))")
        assert got["status"] == "oom" and got["error"]["name"] == "OutOfMemory", got["error"]
        assert got["error"]["state"] == "lost" and (GVISOR or got["stdout"] == "before\n")  # what it had not yet sent is lost there
        assert got["usage"]["peak_memory"] > 128 << 20
        assert box.run("1 + 1")["text"] == "2"
        # A kernel that was killed by somebody is no such case.
        assert box.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")["status"] == "killed"


@held
def test_network_can_be_changed_live(client: Client) -> None:
    with client.sandbox(template="base", network="none") as box:
        assert box.record["network"] == {"mode": "none"}
        again = client.call("PATCH", box.path, expect=200, json={"network": "none"}).json()
        assert again["network"] == {"mode": "none"}
        got = sh(box, "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 5)\"")
        assert got["exit_code"] == 1 and "timed out" not in got["stderr"], got


def test_operator_caps(client: Client) -> None:
    with Daemon("--limits-sandbox-memory-mib", "512", "--limits-sandbox-pids", "150", "--limits-sandbox-open-files", "2000",
                "--network", "none") as d:
        own = Client(d.url, d.key)
        for name, value in (("memory_mib", 513), ("pids", 151), ("open_files", 2001)):
            error = own.error("POST", "/v1/sandboxes", 400, "invalid_request",
                              json={"template": "base", "limits": {name: value}})
            assert error["pointer"] == f"/limits/{name}" and "at most" in error["message"]
        if ISOLATION != "none" and os.geteuid() == 0:  # without control groups a limit that nobody asked for is left out
            with own.sandbox(template="base") as box:  # the template's are cut to the caps
                assert box.record["limits"]["memory_mib"] == 512 and box.record["limits"]["pids"] == 150
                assert box.record["limits"]["open_files"] == 2000
                assert box.record["network"]["mode"] == "none"
        own.close()


@pytest.mark.smoke
def test_metrics_of_a_sandbox(client: Client) -> None:
    with client.sandbox(template="base") as box:
        if ISOLATION == "none":
            box.client.error("GET", box.path + "/metrics", 501, "not_supported")
            return
        got = box.get("/metrics")
        assert got["sandbox"] == box.id and set(got) >= {"cpu_seconds", "memory_bytes", "disk_bytes", "pids"}
        wait_for(lambda: box.get("/usage")["active_seconds"] > 0)


# --- What an operator gives the daemon over others ----------------------------------------------------------


class Favoured(Daemon):
    """Started by a program that gives it a policy or a limit, which its children would have too."""

    def __init__(self, *before: str):
        super().__init__()
        self.before = before

    def command(self) -> list[str]:
        return [*self.before, *super().command()]

    def of_sandboxes(self, *ids: str) -> set[int]:
        """All processes of theirs, a launcher's own outside of them too."""
        found = {pid for ident in ids for pid in [*inits(ident), *of_sandbox(ident)]}
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.uid_base and self.uid_base <= proc.stat().st_uid < self.uid_base + UID_COUNT:
                    found.add(int(proc.name))
        return found


FAVOURS = {"SCHED_FIFO": ("chrt", "-f", "1"), "SCHED_RR": ("chrt", "-r", "1"), "SCHED_BATCH": ("chrt", "-b", "0"), "SCHED_IDLE": ("chrt", "-i", "0"),
           "input and output": ("ionice", "-c", "1"), "leave to be real-time": ("prlimit", "--rtprio=1"),
           "spared by the host": ("choom", "-n", "-100", "--")}


def favour_of(pid: int, task: int) -> tuple[int, str, str, int]:
    """Policy, class of input and output, limits of the real-time priority, standing when the host is out of memory."""
    io = subprocess.run(["ionice", "-p", str(task)], capture_output=True, text=True, check=True).stdout.strip()
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    rt = next(row for row in rows if row.startswith("Max realtime priority")).split()[3:5]
    return os.sched_getscheduler(task), io.partition(":")[0], "/".join(rt), int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.mark.smoke
@pytest.mark.parametrize("what", FAVOURS)
def test_what_the_daemon_has_over_others_is_not_its_sandboxes(what: str) -> None:
    """Code under a real-time policy would take the machine, whatever its limit of processors."""
    before = FAVOURS[what]
    if not shutil.which(before[0]) or subprocess.run([*before, "true"], capture_output=True).returncode != 0:
        pytest.skip(f"{' '.join(before)} is refused to this user here")
    if what == "SCHED_IDLE" and os.geteuid() != 0:
        pytest.skip("a user cannot take SCHED_IDLE off again (sched(7)): it gives its sandboxes less, not more")
    with Favoured(*before) as d:
        own = Client(d.url, d.key)
        assert favour_of(d.gateway_pid(), d.gateway_pid()) != (os.SCHED_OTHER, "none", "0/0", 0), "the operator's choice holds for the daemon"
        with own.sandbox(template=TEMPLATE) as box, own.sandbox(template=TEMPLATE, checkpointable=False) as other:
            for one in (box, other):
                one.post("/exec", {"cmd": ["sleep", "600"], "background": True}, expect=201)
            pids = d.of_sandboxes(box.id, other.id)
            assert len(pids) >= (2 if GVISOR else 4), pids
            for pid in pids:
                for task in Path(f"/proc/{pid}/task").iterdir():
                    assert favour_of(pid, int(task.name)) == (os.SCHED_OTHER, "none", "0/0", 0), Path(f"/proc/{pid}/cmdline").read_bytes()
        own.close()
