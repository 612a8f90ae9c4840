"""What a control group of v2 holds of a sandbox, through the whole daemon: limits, their ends, pauses. Runs
inside the emulated machine as root, with nothing but Python's library. usage: limits.py PROGRAMS TEMPLATES"""

from __future__ import annotations

import http.client
import json
import pathlib
import re
import subprocess
import sys
import time
from typing import Any, Callable

GROUPS = pathlib.Path("/sys/fs/cgroup")
WAIT_S = 60
MIB = 1 << 20
EAT = "exec python3 -S -c \"b = bytearray(); [b.extend(b'x' * (8 << 20)) for _ in range(32)]\""
TICK = "while :; do echo x >>ticks; sleep 0.02; done"
SPIN = "while :; do :; done"


class Api:
    def __init__(self, address: str):
        self.connection = http.client.HTTPConnection(address, timeout=WAIT_S)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        self.connection.request(method, f"/v1{path}", None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read().decode()
        assert answer.status < 300, f"{method} {path}: {answer.status} {text}"
        return json.loads(text) if text else None

    def make(self, **fields: Any) -> str:
        return str(self.call("POST", "/sandboxes", {"template": "base", "network": "none", **fields})["id"])

    def sh(self, box: str, cmd: str, **fields: Any) -> Any:
        return self.call("POST", f"/sandboxes/{box}/exec", {"cmd": cmd, **fields})

    def end(self, box: str) -> None:
        self.call("DELETE", f"/sandboxes/{box}")
        wait_for(lambda: not groups_of(box))


def wait_for(probe: Callable[[], Any]) -> Any:
    until = time.monotonic() + WAIT_S
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < until, "it has not come"
        time.sleep(0.02)


def groups_of(box: str) -> list[pathlib.Path]:
    return [path for path in GROUPS.rglob(f"*{box}*") if path.is_dir()]


def value(box: str, name: str, row: str = "") -> str:
    """Of a file of its group, or of a row in it."""
    text = (groups_of(box)[0] / name).read_text()
    return text.strip() if not row else dict(line.split(" ", 1) for line in text.splitlines())[row]


def memory(api: Api) -> None:
    box = api.make(limits={"memory_mib": 64})
    assert int(value(box, "memory.max")) == 64 * MIB
    got = api.sh(box, EAT)
    assert (got["status"], got["signal"]) == ("oom", "SIGKILL"), got
    assert got["usage"]["peak_memory"] > 32 * MIB, got
    assert api.call("GET", f"/sandboxes/{box}/metrics")["oom_kills"] == 1 == int(value(box, "memory.events", "oom_kill"))
    assert api.sh(box, "echo fine")["stdout"] == "fine\n"
    api.end(box)


def pids(api: Api) -> None:
    box = api.make(limits={"pids": 16})
    assert value(box, "pids.max") == "16"
    got = api.sh(box, "for i in $(seq 40); do sleep 20 & done; wait", timeout=20)
    assert "ork" in got["stderr"] and int(value(box, "pids.events", "max")) > 0, got
    api.end(box)


def cpu(api: Api) -> None:
    box = api.make(limits={"cpus": 0.25})
    quota, period = map(int, value(box, "cpu.max").split())
    assert quota * 4 == period, (quota, period)
    api.sh(box, SPIN, background=True)
    wait_for(lambda: int(value(box, "cpu.stat", "nr_throttled")) >= 3)
    api.end(box)


def pause(api: Api) -> None:
    box = api.make()
    api.sh(box, TICK, background=True)
    ticks = lambda: int(api.sh(box, "wc -l <ticks || echo 0")["stdout"])  # noqa: E731
    wait_for(lambda: ticks() > 2)
    assert api.call("POST", f"/sandboxes/{box}/pause")["state"] == "paused"
    assert value(box, "cgroup.events", "frozen") == "1"
    used = value(box, "cpu.stat", "usage_usec")
    time.sleep(0.3)
    assert value(box, "cpu.stat", "usage_usec") == used
    assert api.call("POST", f"/sandboxes/{box}/resume")["state"] == "running"
    assert value(box, "cgroup.events", "frozen") == "0"
    before = ticks()
    wait_for(lambda: ticks() > before)
    api.call("POST", f"/sandboxes/{box}/pause")
    api.end(box)  # frozen as it is


LOG = pathlib.Path("/var/log/sandald")


def start(programs: str, templates: str) -> tuple[subprocess.Popen[bytes], Api]:
    options = {"state-dir": "/var/lib/sandal", "template-dirs": templates, "listen": "127.0.0.1:0", "proxy-listen": "127.0.0.1:0"}
    argv = [f"{programs}/sandald", "serve", "--no-auth", *(word for name, text in options.items() for word in (f"--{name}", text))]
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("w") as log:
        daemon = subprocess.Popen(argv, stderr=log)
    try:
        return daemon, Api(wait_for(lambda: re.search(r"listens on http://([\w.:]+)", LOG.read_text()))[1])
    except AssertionError:
        print(f"sandald does not listen; its status is {daemon.poll()}:\n{LOG.read_text()[-8000:]}")
        raise


def main() -> int:
    failed = 0
    daemon, api = start(*sys.argv[1:])
    for test in (memory, pids, cpu, pause):
        started, said = time.monotonic(), "ok"
        try:
            test(api)
        except Exception as error:  # noqa: BLE001: told, and the others are tried too
            failed, said = failed + 1, f"FAILED: {type(error).__name__}: {error}"
        print(f"  {test.__name__} {said} ({time.monotonic() - started:.1f} s)", flush=True)
    daemon.terminate()
    status = daemon.wait(WAIT_S)
    left = [str(path) for path in GROUPS.rglob("*sbx-*") if path.is_dir()]
    print(f"  the daemon's end: {status}, left: {left}")
    if failed or status or left:
        print(LOG.read_text()[-8000:])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
