#!/usr/bin/python3
"""The figures of docs/benchmarks.md: each beside a direct ZeroMQ client in C, in one run, rounds taken in turns.

usage: tests/bench/run.py [--build build] [--quick] [--rest SECONDS] [NAME…]     names: rtt rtt-fake flood displays stall print rest idle-sockets fs boxes
       lines starts
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Callable
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import harness.daemon  # noqa: E402
import harness.fakes  # noqa: E402
from harness import processes  # noqa: E402
from harness.daemon import Daemon, rss_bytes, wait_for  # noqa: E402

MIB = 1024 * 1024


def descendants(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += descendants(int(child))
    return found


class Gateway:
    """The daemon with one call: JSON in, JSON out."""

    def __init__(self, daemon: Daemon, nice: int | None = None):
        self.daemon, self.nice = daemon, nice
        parts = urlsplit(daemon.url)
        self.host, self.port = str(parts.hostname), str(parts.port)

    def call(self, method: str, path: str, body: object = None) -> dict:
        request = urllib.request.Request(self.daemon.url + path, method=method, headers={
            "Authorization": f"Bearer {self.daemon.key}", "Content-Type": "application/json"},
            data=json.dumps(body).encode() if body is not None else None)
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read()
        return json.loads(text) if text else {}

    def sandbox(self, template: str = "code-interpreter-python") -> dict:
        sandbox = self.call("POST", "/v1/sandboxes", {"template": template})
        self.favour()
        return sandbox

    def favour(self) -> None:
        """The daemon gives its gateway and kernels the usual priority, and kernels the usual policy: put all on one level with the
        direct client's kernel."""
        policy = os.sched_getscheduler(0)
        for pid in descendants(self.daemon.pid) if self.nice is not None or policy != os.SCHED_OTHER else []:
            for task in Path(f"/proc/{pid}/task").iterdir():
                if policy != os.SCHED_OTHER:
                    os.sched_setscheduler(int(task.name), policy, os.sched_getparam(0))
                if self.nice is not None:
                    os.setpriority(os.PRIO_PROCESS, int(task.name), self.nice)

    def ws(self, build: Path, sandbox: dict, rounds: int, code: str, stall: int = 0, fields: str = "",
           check: str = "none") -> dict:
        return client([build / "tests/bench/bench_ws", self.host, self.port, self.daemon.key, sandbox["id"],
                       sandbox["default_context"], rounds, stall, fields, check, code])


def client(argv: list) -> dict:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]}: {done.stderr}")
    return json.loads(done.stdout)


class Kernel:
    """A kernel of the template that no gateway speaks to: in a sandbox of the same kind and limits, with the argv and
    environment of that sandbox's own kernel, on ipc sockets of its own. The client reaches them by the host's /proc."""

    def __init__(self, gateway: Gateway, template: str):
        self.gateway, self.sandbox = gateway, gateway.sandbox(template)
        path = f"/v1/sandboxes/{self.sandbox['id']}"
        gateway.call("POST", f"{path}/run_code", {"code": "1"})
        pid, argv, file = self.own_kernel()
        root, proc = Path(f"/proc/{pid}/root"), Path(f"/proc/{pid}")
        connection = json.loads((root / file[1:]).read_text())
        connection |= {"key": uuid.uuid4().hex, "ip": str(Path(file).with_name("bench"))}
        inside = Path(file).with_name("bench.json")
        gateway.call("POST", f"{path}/exec", {"cmd": f"umask 077; cat > {inside}", "stdin": json.dumps(connection)})
        env = dict(word.split("=", 1) for word in (proc / "environ").read_text().split("\0") if "=" in word)
        gateway.call("POST", f"{path}/exec", {
            "cmd": [str(inside) if word == file else word for word in argv], "env": env,
            "cwd": os.readlink(proc / "cwd"), "background": True})
        self.file = Path(tempfile.mkdtemp(prefix="sandal-bench-", dir="/tmp")) / "connection.json"
        self.file.touch(0o600)
        self.file.write_text(json.dumps(connection | {"ip": f"{root}{connection['ip']}"}))
        wait_for(lambda: Path(f"{root}{connection['ip']}-2").exists() and Path(f"{root}{connection['ip']}-1").exists(), 30)
        time.sleep(0.5)  # sockets exist before the kernel listens on them all
        gateway.favour()

    def own_kernel(self) -> tuple[int, list[str], str]:
        """Its pid on the host, its argv, its connection file as it sees it."""
        for pid in processes.of_sandbox(self.sandbox["id"]):
            argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
            for word in argv[1:]:
                if word.endswith(".json"):
                    return pid, argv, word
        raise RuntimeError("no kernel with a connection file")

    def direct(self, build: Path, rounds: int, code: str) -> dict:
        return client([build / "tests/bench/bench_direct", self.file, rounds, code])

    def close(self) -> None:
        self.gateway.call("DELETE", f"/v1/sandboxes/{self.sandbox['id']}")
        shutil.rmtree(self.file.parent, ignore_errors=True)


def show(name: str, **figures: object) -> None:
    print(json.dumps({"bench": name, **figures}), flush=True)


def median(rows: list[dict], key: str) -> float:
    return statistics.median(r[key] for r in rows)


def rtt(gateway: Gateway, build: Path, quick: bool, name: str = "rtt") -> None:
    """1+1, batches in turns. With the fake kernel, which costs next to nothing, the gateway's own share is seen without noise."""
    fake = name == "rtt-fake"
    template = "fake" if fake else "code-interpreter-python"
    kernel, sandbox = Kernel(gateway, template), gateway.sandbox(template)
    batches, rounds = (3, 100) if quick else (9, 2000 if fake else 300)
    direct, ws = [], []
    for _ in range(batches):
        direct.append(kernel.direct(build, rounds, "1+1"))
        ws.append(gateway.ws(build, sandbox, rounds, "1+1"))
    pairs = list(zip(direct, ws))
    show(name, direct_p50_us=median(direct, "p50_us"), ws_p50_us=median(ws, "p50_us"),
         added_p50_us=round(statistics.median(w["p50_us"] - d["p50_us"] for d, w in pairs), 1),
         direct_p99_us=median(direct, "p99_us"), ws_p99_us=median(ws, "p99_us"),
         added_p99_us=round(statistics.median(w["p99_us"] - d["p99_us"] for d, w in pairs), 1),
         target="added 300 us p50, 1000 us p99", rounds=batches * rounds)
    kernel.close()
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")


COUNT = 100_000
BIG = json.dumps({"output_bytes": 256 * MIB, "result_bytes": 256 * MIB, "events": 10_000_000})


class Peak(threading.Thread):
    """The most memory that a process was seen with, in MiB over where it was."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.before, self.most, self.over = pid, rss_bytes(pid), 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.01):
            self.most = max(self.most, rss_bytes(self.pid))

    def __enter__(self) -> "Peak":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        self.join()

    def growth(self) -> float:
        return round((max(self.most, self.before) - self.before) / MIB, 1)

    def left(self) -> float:
        time.sleep(4)  # the heap is trimmed each second, when it is calm
        return round((rss_bytes(self.pid) - self.before) / MIB, 1)


def flood(gateway: Gateway, build: Path, quick: bool, stall: int = 0, verb: str = "flood", name: str = "flood") -> None:
    """Small messages, each with its number; the client checks every one. Lines may be joined to events, displays never are."""
    kernel, sandbox = Kernel(gateway, "fake"), gateway.sandbox("fake")
    rows, direct = [], []
    with Peak(gateway.daemon.gateway_pid()) as peak:
        for _ in range(1 if stall or quick else 5):
            direct.append(kernel.direct(build, 1, f"{verb} {COUNT}"))
            rows.append(gateway.ws(build, sandbox, 1, f"{verb} {COUNT}", stall, f'"limits":{BIG},', f"lines:{COUNT}"))
    seconds = median(rows, "total_s")
    rate = {"stall_s": stall, "caught_up_after_s": round(seconds - stall, 3)} if stall else {"ws_per_s": round(COUNT / seconds)}
    show(name, direct_per_s=round(COUNT / median(direct, "total_s")), **rate, frames=rows[-1]["messages"], lost=0, rss_peak_mib=peak.growth(), rss_left_mib=peak.left(),
         target="50000/s, none lost")
    kernel.close()
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")


def big_print(gateway: Gateway, build: Path, quick: bool) -> None:
    """One 100 MB print: the kernel's rate kept with limits raised; memory and a neighbour's latency with default ones."""
    code = "print('x' * 100_000_000, end='')"
    kernel = Kernel(gateway, "code-interpreter-python")
    sandbox, other = gateway.sandbox(), gateway.sandbox()
    direct, ws = [], []
    with Peak(gateway.daemon.gateway_pid()) as raised:
        for _ in range(3 if quick else 9):
            direct.append(kernel.direct(build, 1, code))
            ws.append(gateway.ws(build, sandbox, 1, code, 0, f'"limits":{BIG},', "bytes:100000000"))
    raised_left = raised.left()
    stop, prints = threading.Event(), []

    def load() -> None:
        while not stop.is_set():
            prints.append(gateway.ws(build, sandbox, 1, code))

    alone = gateway.ws(build, other, 200, "1+1")
    thread = threading.Thread(target=load)
    with Peak(gateway.daemon.gateway_pid()) as peak:
        thread.start()
        beside = gateway.ws(build, other, 500 if quick else 2000, "1+1")
        stop.set()
        thread.join()
    show("print", direct_s=median(direct, "total_s"), ws_output_s=median(ws, "output_s"), ws_s=median(ws, "total_s"),
         of_the_kernels_rate=round(median(direct, "total_s") / median(ws, "output_s"), 3), target="0.9",
         raised_limits_peak_mib=raised.growth(), raised_limits_left_mib=raised_left, default_limits_peak_mib=peak.growth(),
         default_limits_left_mib=peak.left(), prints=len(prints), neighbour_alone_p99_us=alone["p99_us"],
         neighbour_p50_us=beside["p50_us"], neighbour_p99_us=beside["p99_us"], neighbour_target="50000 us p99")
    kernel.close()
    for s in (sandbox, other):
        gateway.call("DELETE", f"/v1/sandboxes/{s['id']}")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def rest(gateway: Gateway, build: Path, quick: bool) -> None:
    with Daemon() as d:
        time.sleep(1)  # the daemon comes to rest before it is measured
        keeper, pid = d.pid, d.gateway_pid()
        both = rss_bytes(keeper) + rss_bytes(pid)
        fresh = Gateway(d)
        n = 10 if quick else 30
        first = fresh.sandbox()
        fresh.call("POST", f"/v1/sandboxes/{first['id']}/run_code", {"code": "1"})
        rss, fds = rss_bytes(pid), descriptors(pid)
        for _ in range(n):
            s = fresh.sandbox()
            fresh.call("POST", f"/v1/sandboxes/{s['id']}/run_code", {"code": "1"})
        time.sleep(1)  # the daemon comes to rest before it is measured
        show("rest", both_mib=round(both / MIB, 2), target="16 MiB", per_context_kib=round((rss_bytes(pid) - rss) / n / 1024, 1),
             context_target="256 KiB", descriptors_per_context=round((descriptors(pid) - fds) / n, 1), fd_target=14)


def idle_sockets(gateway: Gateway, build: Path, quick: bool) -> None:
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    sandbox = gateway.sandbox()
    rounds = 100 if quick else 400
    alone = [gateway.ws(build, sandbox, rounds, "1+1") for _ in range(3)]
    held = []
    for _ in range(2000):
        s = socket.create_connection((gateway.host, int(gateway.port)))
        s.sendall(f"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {gateway.daemon.key}\r\nUpgrade: websocket\r\n"
                  "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
        s.recv(4096)
        held.append(s)
    beside = [gateway.ws(build, sandbox, rounds, "1+1") for _ in range(3)]
    rss = rss_bytes(gateway.daemon.gateway_pid())
    for s in held:
        s.close()
    show("idle-sockets", alone_p50_us=median(alone, "p50_us"), with_2000_p50_us=median(beside, "p50_us"), rss_mib=round(rss / MIB, 1))
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")


SENDER = """
import os, sys
file, at = os.open(sys.argv[1], os.O_RDONLY), 0
os.write(0, b"r")
os.read(0, 1)
while sent := os.sendfile(0, file, at, 1 << 20):
    at += sent
"""


def plain_pair(file: str, ours: socket.socket, theirs: socket.socket) -> float:
    """What this machine carries between two processes that do nothing else: sendfile(2), and recv(2) into 1 MiB."""
    with ours, subprocess.Popen([sys.executable, "-c", SENDER, file], stdin=theirs):
        theirs.close()
        buffer = bytearray(MIB)
        ours.recv(1)
        start = time.monotonic()
        ours.send(b"x")
        while ours.recv_into(buffer):
            pass
        return time.monotonic() - start


def loopback_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def fs(gateway: Gateway, build: Path, quick: bool) -> None:
    """One file of 256 MiB by PUT and GET (curl), beside dd in the sandbox: from file to file of the same volume, and to
    nowhere. The store's file system sets the pace of writes: what takes the place of a file (over) is written out at
    once, by dd's close as by the PUT's rename; the page cache and TCP set that of reads to nowhere: what two plain processes
    get through loopback (a unix socket) stands beside it. A GET to a file stands beside dd to a file of the same folder."""
    size = 256 * MIB
    sandbox = gateway.sandbox("base")
    path = f"/v1/sandboxes/{sandbox['id']}"
    url = f"{gateway.daemon.url}{path}/fs/file?path=bench/file"
    curl = ["curl", "-sf", "-w", "%{time_total}", "-H", f"Authorization: Bearer {gateway.daemon.key}", url]

    def dd_took(said: str) -> float:
        return float(re.search(r"copied, ([\d.]+) s", said)[1])

    def dd(words: str) -> float:
        return dd_took(gateway.call("POST", f"{path}/exec", {"cmd": f"cd bench && LC_ALL=C dd bs=1M {words}"})["stderr"])

    def dd_on_host(target: str) -> float:
        words = ["dd", "bs=1M", f"if={source.name}", f"of={target}"]
        return dd_took(subprocess.run(words, env={"LC_ALL": "C"}, check=True, capture_output=True, text=True).stderr)

    def put() -> float:
        return float(subprocess.run([*curl, "-o", "/dev/null", "-T", source.name], check=True, capture_output=True).stdout)

    def get(target: str) -> float:
        return float(subprocess.run([*curl, "-o", target], check=True, capture_output=True).stdout)

    def get_unix() -> float:
        inside = ["--unix-socket", str(gateway.daemon.state / "bench.sock")]
        return float(subprocess.run([*curl, *inside, "-o", "/dev/null"], check=True, capture_output=True).stdout)

    def new(take: Callable[[str], float]) -> float:
        with tempfile.TemporaryDirectory(prefix="sandal-bench-") as folder:
            return take(f"{folder}/file")

    with tempfile.NamedTemporaryFile(prefix="sandal-bench-") as source:
        source.write(os.urandom(MIB) * (size // MIB))
        source.flush()
        times: dict[str, list[float]] = {}
        with Peak(gateway.daemon.gateway_pid()) as peak:
            for i in range(3 if quick else 8):
                gateway.call("POST", f"{path}/exec", {"cmd": "rm -f bench/file bench/copy"})
                round_times = {
                    "put": put(),
                    "dd_write": dd("if=file of=copy"),
                    "put_over": put(),
                    "dd_over": dd("if=file of=copy"),
                    "dd_read": dd("if=file of=/dev/null"),
                    "get": get("/dev/null"),
                    "get_unix": get_unix(),
                    "get_to_file": new(get),
                    "dd_to_file": new(dd_on_host),
                    "loopback": plain_pair(source.name, *loopback_pair()),
                    "unix": plain_pair(source.name, *socket.socketpair()),
                }
                for name, seconds in round_times.items():
                    times.setdefault(name, []).extend([seconds] if i else [])  # the first one warms up
    mid = {name: statistics.median(t) for name, t in times.items()}
    show("fs", **{f"{name}_mib_s": round(size / MIB / seconds) for name, seconds in mid.items()},
         **{f"{name}_of_{of}": round(mid[of] / mid[name], 2) for name, of in (
             ("put", "dd_write"), ("put_over", "dd_over"), ("get", "dd_read"), ("get_unix", "dd_read"), ("get_to_file", "dd_to_file"), ("get", "loopback"), ("loopback", "dd_read"))},
         rss_peak_mib=peak.growth(), target="0.6 of dd, 8 MiB")
    gateway.call("DELETE", path)


LINES = {  # in each language the plain way, and what takes the stock kernel of R half a minute
    "r_writelines": ("code-interpreter-r", "writeLines(as.character(1:100000))"),
    "r_writelines_loop": ("code-interpreter-r", "for (i in 1:100000) writeLines(as.character(i))"),
    "r_cat_loop": ("code-interpreter-r", "for (i in 1:100000) cat(i, '\\n', sep = '')"),
    "node_loop": ("code-interpreter-node", "for (let i = 1; i <= 100000; i++) console.log(i)"),
    "python_loop": ("code-interpreter-python", "for i in range(1, 100001): print(i)"),
}


def lines(gateway: Gateway, build: Path, quick: bool) -> None:
    """100,000 printed lines in each language, from the call to its whole answer over HTTP, every line checked."""
    wanted = "".join(f"{i}\n" for i in range(1, COUNT + 1))
    figures = {}
    for name, (template, code) in LINES.items():
        sandbox = gateway.sandbox(template)
        times = []
        for _ in range(2 if quick else 6):
            start = time.monotonic()
            got = gateway.call("POST", f"/v1/sandboxes/{sandbox['id']}/run_code", {"code": code})
            times.append(time.monotonic() - start)
            seen = got["stdout"].replace("1e+05", "100000")  # as R writes that number
            if seen != wanted:
                raise RuntimeError(f"{name}: lines are missing or out of order")
        figures[f"{name}_s"] = round(statistics.median(times[1:]), 3)  # the first one warms up
        gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")
    show("lines", **figures, target="r_writelines 1 s")


def until_it_answers(argv: list, url: str) -> float:
    start = time.monotonic()
    proc = subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while True:
            try:
                urllib.request.urlopen(url, timeout=1).close()
                return time.monotonic() - start
            except OSError:
                if proc.poll() is not None or time.monotonic() - start > 60:
                    raise RuntimeError(f"{argv[0]} does not answer") from None
                time.sleep(0.005)  # between two tries whether it answers
    finally:
        proc.kill()
        proc.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def jupyter_server() -> float | None:
    program = shutil.which("jupyter-server")
    if program is None:
        return None
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sandal-bench-") as home:
        return until_it_answers(["env", f"HOME={home}", program, "--no-browser", "--allow-root", "--ServerApp.token=", f"--port={port}",
                                 f"--ServerApp.root_dir={home}"], f"http://127.0.0.1:{port}/api")


def starts(gateway: Gateway, build: Path, quick: bool) -> None:
    """From nothing to the first answer: the daemon, a sandbox and its first run in each language; beside them the interpreters
    themselves, which no gateway can beat, and jupyter-server where the PATH has one."""
    prefixes = {name: json.loads((ROOT / f"kernelspecs/{name}/template.json").read_text())["prefix"]
                for name in ("code-interpreter-python", "code-interpreter-node")}
    alone = {
        "python": [f"{prefixes['code-interpreter-python']}/bin/python", "-c", "1"],
        "node": [f"{prefixes['code-interpreter-node']}/bin/node", "-e", "1"],
        "r": ["R", "--slave", "--no-save", "--no-restore", "-e", "1"],
    }
    rounds = 3 if quick else 9
    figures: dict[str, list[float]] = {}
    for _ in range(rounds):
        for language, argv in alone.items():
            start = time.monotonic()
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env={**ENVIRONMENT, "HOME": "/nonexistent"})
            figures.setdefault(f"{language}_itself_ms", []).append(time.monotonic() - start)
            start = time.monotonic()
            sandbox = gateway.call("POST", "/v1/sandboxes", {"template": f"code-interpreter-{language}"})
            gateway.call("POST", f"/v1/sandboxes/{sandbox['id']}/run_code", {"code": "1"})
            figures.setdefault(f"{language}_first_answer_ms", []).append(time.monotonic() - start)
            gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")
        start = time.monotonic()
        with Daemon() as d:
            Gateway(d).call("GET", "/v1/templates")
            figures.setdefault("daemon_ms", []).append(time.monotonic() - start)
        other = jupyter_server()
        if other is not None:
            figures.setdefault("jupyter_server_ms", []).append(other)
    show("starts", **{name: round(statistics.median(times) * 1000) for name, times in figures.items()},
         jupyter_server="measured" if "jupyter_server_ms" in figures else "not installed", rounds=rounds)


def meminfo(name: str) -> int:
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith(name + ":"))


def sandboxes_memory(daemon: Daemon, idents: list[str]) -> int:
    """What the kernel counts for them, in bytes: its own memory, and what their control groups (version 1 or 2) hold. The
    machine's free memory says more about what else runs on it."""
    total = sum(meminfo(name) for name in ("Slab", "PageTables", "KernelStack", "Percpu"))
    total += rss_bytes(daemon.pid) + rss_bytes(daemon.gateway_pid())
    for folder, _, files in os.walk("/sys/fs/cgroup"):
        if not any(folder.endswith(ident) for ident in idents):
            continue
        place = Path(folder)
        if "memory.usage_in_bytes" in files:  # kmem is in the sum above
            total += int((place / "memory.usage_in_bytes").read_text()) - int((place / "memory.kmem.usage_in_bytes").read_text())
        elif "memory.current" in files:
            counts = dict(line.split() for line in (place / "memory.stat").read_text().splitlines())
            total += int((place / "memory.current").read_text()) - int(counts.get("kernel", "0"))
    return total


def timed(call: object, *words: object) -> tuple[float, dict]:
    start = time.monotonic()
    answer = call(*words)  # type: ignore[operator]
    return (time.monotonic() - start) * 1000, answer


def boxes(gateway: Gateway, build: Path, quick: bool) -> None:
    """Sandboxes without a kernel, one after the other over HTTP with a connection each, ms; then many at once, for their memory."""
    times: dict[str, list[float]] = {}
    for i in range(10 if quick else 40):
        for network in ("none", "egress"):
            ms, box = timed(gateway.call, "POST", "/v1/sandboxes", {"template": "base", "network": network})
            path = f"/v1/sandboxes/{box['id']}"
            row = {f"create_{network}": ms}
            if network == "none":
                row["exec_true"] = timed(gateway.call, "POST", f"{path}/exec", {"cmd": ["true"]})[0]
                row["pause"] = timed(gateway.call, "POST", f"{path}/pause", {})[0]
                row["resume"] = timed(gateway.call, "POST", f"{path}/resume", {})[0]
            row[f"delete_{network}"] = timed(gateway.call, "DELETE", path)[0]
            for name, value in row.items():
                times.setdefault(name, []).extend([value] if i else [])  # the first one makes what all use
    time.sleep(2)  # what the last ones had is given back before memory is read
    before, count = sandboxes_memory(gateway.daemon, []), 20 if quick else 50
    made = [gateway.call("POST", "/v1/sandboxes", {"template": "base", "network": "none"})["id"] for _ in range(count)]
    time.sleep(2)  # all have come to rest before memory is read
    each = (sandboxes_memory(gateway.daemon, made) - before) / count
    for ident in made:
        gateway.call("DELETE", f"/v1/sandboxes/{ident}")
    show("boxes", **{f"{name}_p50_ms": round(statistics.median(t), 2) for name, t in times.items()},
         **{f"{name}_least_ms": round(min(t), 2) for name, t in times.items() if name.startswith("create")},
         memory_each_mib=round(each / MIB, 2), target="create 10 and 20 ms, exec 5, pause and resume 5, 1.5 MiB")


BENCHES = {
    "rtt": rtt,
    "rtt-fake": lambda g, b, q: rtt(g, b, q, "rtt-fake"),
    "flood": flood,
    "displays": lambda g, b, q: flood(g, b, q, 0, "flood_display", "displays"),
    "stall": lambda g, b, q: flood(g, b, q, 5 if q else 30, "flood_display", "stall"),
    "print": big_print,
    "rest": rest,
    "idle-sockets": idle_sockets,
    "fs": fs,
    "boxes": boxes,
    "lines": lines,
    "starts": starts,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(BENCHES))
    parser.add_argument("--build", type=lambda path: Path(path).resolve(), default=ROOT / "build")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a shorter stall")
    parser.add_argument("--nice", type=int, help="for all that is measured, on a machine that does other things too")
    parser.add_argument("--rest", type=int, default=0, metavar="SECONDS",
                        help="wait before the daemon starts; 140 on an ext4 without journal, which makes files slowly for minutes after others went")
    args = parser.parse_args()
    if args.nice is not None:
        os.setpriority(os.PRIO_PROCESS, 0, args.nice)
    if args.rest:
        os.sync()  # inodes whose deletion is not on the disk yet count as fresh for longer
        time.sleep(args.rest)
    build = args.build.resolve()
    harness.daemon.BUILD = build
    harness.fakes.BUILD = build
    fakes = harness.fakes.Fakes()
    try:
        daemon = Daemon(template_dirs=[fakes.templates])
        daemon.options += ["--listen", f"unix:{daemon.state}/bench.sock"]
        with daemon:
            for name in args.names or BENCHES:
                BENCHES[name](Gateway(daemon, args.nice), build, args.quick)
    finally:
        fakes.remove()


if __name__ == "__main__":
    main()
