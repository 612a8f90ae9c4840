#!/usr/bin/python3
"""What Jupyter clients get: each figure beside a direct ZeroMQ client, a Jupyter server, or the number that was set for it.

usage: tests/bench/jupyter.py [--build build] [--quick] [NAME…]     names: channels output node-lines many

Debian's server is the PATH's jupyter-server (package jupyter-server) with its own ipykernel, the current one that of
build/venv-jupyter; one that is not there is left out, and the row says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parent))
import run  # noqa: E402
from run import MIB, ROOT, Daemon, Gateway, Kernel, client, harness, median, rss_bytes, show, wait_for  # noqa: E402

TOKEN = "bench"
PYTHON = "code-interpreter-python"


class Server:
    """A Jupyter server as it is shipped, with one kernel of its own."""

    def __init__(self, program: str, home: str):
        self.host, self.port, self.key = "127.0.0.1", str(run.free_port()), TOKEN
        argv = [program, "--no-browser", "--allow-root", f"--port={self.port}", f"--ServerApp.root_dir={home}", f"--ServerApp.token={TOKEN}"]
        self.proc = subprocess.Popen(argv, env={"HOME": home, "PATH": f"{Path(program).parent}:/usr/bin:/bin", "LANG": "C.UTF-8"},
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.answers, 60)
        self.version = self.call("GET", "/api")["version"]
        self.kernel = self.call("POST", "/api/kernels", {"name": "python3"})["id"]

    def call(self, method: str, path: str, body: object = None) -> dict:
        request = urllib.request.Request(f"http://{self.host}:{self.port}{path}", method=method, headers={
            "Authorization": f"token {TOKEN}", "Content-Type": "application/json"}, data=json.dumps(body).encode() if body else None)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"{}")

    def answers(self) -> bool:
        try:
            return bool(self.call("GET", "/api"))
        except OSError:
            if self.proc.poll() is not None:
                raise RuntimeError("the Jupyter server did not start") from None
            return False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.call("DELETE", f"/api/kernels/{self.kernel}")
        self.proc.terminate()
        self.proc.wait(20)


@contextlib.contextmanager
def servers() -> Iterator[dict[str, Server]]:
    """By name: "debian" and "current", as far as they are there."""
    programs = {"debian": "/usr/bin/jupyter-server", "current": str(ROOT / "build/venv-jupyter/bin/jupyter-server")}
    with tempfile.TemporaryDirectory(prefix="sandal-bench-") as home, contextlib.ExitStack() as stack:
        found = {}
        for name, program in programs.items():
            if shutil.which(program):
                found[name] = Server(program, home)
                stack.callback(found[name].close)
        yield found


def channels(build: Path, server: Server | Gateway, kernel: str, protocol: str, rounds: int, code: str, check: str = "none") -> dict:
    key = server.key if isinstance(server, Server) else server.daemon.key
    return client([build / "tests/bench/bench_channels", server.host, server.port, key, kernel, protocol, rounds, check, code])


def round_trip(gateway: Gateway, build: Path, quick: bool) -> None:
    """An execute_request of 1+1 until its reply and its idle: the same client at each server's channels, batches in turns.
    Jupyter's servers once more with a client that acknowledges at once, which no browser does: they wait for that."""
    batches, rounds = (3, 100) if quick else (9, 300)
    kernel, sandbox = Kernel(gateway, PYTHON), gateway.sandbox(PYTHON)
    rows: dict[str, list[dict]] = {}
    with servers() as found:
        for _ in range(batches):
            rows.setdefault("direct", []).append(kernel.direct(build, rounds, "1+1"))
            for protocol in ("v1", "legacy"):
                rows.setdefault(f"sandal_{protocol}", []).append(
                    channels(build, gateway, sandbox["default_context"], protocol, rounds, "1+1"))
                for name, server in found.items():
                    rows.setdefault(f"{name}_{protocol}", []).append(channels(build, server, server.kernel, protocol, rounds, "1+1"))
                    os.environ["BENCH_QUICK_ACK"] = "1"
                    rows.setdefault(f"{name}_{protocol}_quick_ack", []).append(channels(build, server, server.kernel, protocol, rounds, "1+1"))
                    del os.environ["BENCH_QUICK_ACK"]
        versions = {f"{name}_server": server.version for name, server in found.items()}
    kernel.close()
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")

    def ratio(a: str, b: str) -> float | str:
        if b not in rows:
            return "not installed"
        return round(statistics.median(x["p50_us"] / y["p50_us"] for x, y in zip(rows[a], rows[b])), 3)
    figures = {f"{name}_p50_us": median(r, "p50_us") for name, r in rows.items()}
    figures |= {f"{name}_p99_us": median(r, "p99_us") for name, r in rows.items()}
    of = {f"{p}_of_{other}": ratio(f"sandal_{p}", "direct" if other == "direct" else f"{other}_{p}")
          for p in ("v1", "legacy") for other in ("direct", "debian", "current")}
    of |= {f"{p}_of_{other}_quick_ack": ratio(f"sandal_{p}", f"{other}_{p}_quick_ack") for p in ("v1", "legacy") for other in ("debian", "current")}
    show("channels", **of, **figures, **versions, target="1.1 of direct, 0.5 of debian", rounds=batches * rounds, load=os.getloadavg()[0])


class HighWater:
    """The most memory that a process had since, in bytes, as the system keeps it."""

    def __init__(self, pid: int):
        self.pid, self.before = pid, rss_bytes(pid)
        Path(f"/proc/{pid}/clear_refs").write_text("5")

    def growth(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        most = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
        return max(0, most - self.before)


def output(gateway: Gateway, build: Path, quick: bool) -> None:
    """A message of 20 MB that the fake kernel stamps before it sends it: how old it is when the client has it whole."""
    size, rounds = 20_000_000, 3 if quick else 9
    kernel, sandbox = Kernel(gateway, "fake"), gateway.sandbox("fake")
    pid = gateway.daemon.gateway_pid()
    direct, ages, grown = [], [], []
    for _ in range(rounds):
        direct.append(kernel.direct(build, 1, f"stamped {size}"))
        mark = HighWater(pid)
        ages.append(channels(build, gateway, sandbox["default_context"], "v1", 1, f"stamped {size}"))
        grown.append(mark.growth())
        time.sleep(1.5)  # the heap is trimmed each second, when it is calm
    show("output", direct_ms=round(median(direct, "p50_us") / 1000, 1), v1_ms=round(median(ages, "p50_us") / 1000, 1),
         v1_most_ms=round(max(r["p50_us"] for r in ages) / 1000, 1), growth_of_message=round(statistics.median(grown) / size, 2),
         growth_most=round(max(grown) / size, 2), target="250 ms, 2 messages", load=os.getloadavg()[0])
    kernel.close()
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")


def node_lines(gateway: Gateway, build: Path, quick: bool) -> None:
    """20,000 calls of console.log in IJavaScript, each line looked for at the client."""
    count = 20_000
    sandbox = gateway.sandbox("code-interpreter-node")
    code = f"for (let i = 0; i < {count}; i++) console.log(i)"
    rows = [channels(build, gateway, sandbox["default_context"], protocol, 1, code, f"lines:{count}")
            for protocol in ("v1", "legacy") for _ in range(1 if quick else 3)]
    show("node-lines", lines=count, lost=0, s=median(rows, "total_s"), messages=median(rows, "messages"), target="none lost", load=os.getloadavg()[0])
    gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")


def many(gateway: Gateway, build: Path, quick: bool) -> None:
    """64 IJavaScript kernels, ten executions a second in each: every message of each execution, counted."""
    kernels, rate, seconds = (8, 10, 10) if quick else (64, 10, 60)
    made = [gateway.sandbox("code-interpreter-node") for _ in range(kernels)]
    for sandbox in made:
        gateway.call("POST", f"/v1/sandboxes/{sandbox['id']}/run_code", {"code": "1"})
    daemon = gateway.daemon
    pid = daemon.gateway_pid()
    before, keeper = rss_bytes(pid), rss_bytes(daemon.pid)
    mark = HighWater(pid)
    done = subprocess.run([str(build / "tests/bench/bench_many"), gateway.host, gateway.port, daemon.key, "v1", str(rate), str(seconds),
                           "console.log(@)", *(s["default_context"] for s in made)], capture_output=True, text=True, timeout=seconds + 300)
    if done.returncode != 0:
        raise RuntimeError(f"bench_many: {done.stderr}")
    row, late = json.loads(done.stdout), json.loads(done.stderr)["late"]
    wanted = kernels * rate * seconds
    show("many", kernels=kernels, executions=row["n"], wanted=wanted, late=late, messages=row["messages"], lost=row["n"] * 5 - row["messages"],
         s=row["total_s"], p50_us=row["p50_us"], p99_us=row["p99_us"], rss_before_mib=round(before / MIB, 1),
         rss_peak_over_mib=round(mark.growth() / MIB, 1), rss_after_over_mib=round((rss_bytes(pid) - before) / MIB, 1),
         keeper_over_mib=round((rss_bytes(daemon.pid) - keeper) / MIB, 1), target="all delivered, 40 MiB over the start", load=os.getloadavg()[0])
    for sandbox in made:
        gateway.call("DELETE", f"/v1/sandboxes/{sandbox['id']}")


BENCHES = {"channels": round_trip, "output": output, "node-lines": node_lines, "many": many}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(BENCHES))
    parser.add_argument("--build", type=lambda path: Path(path).resolve(), default=ROOT / "build")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and kernels")
    args = parser.parse_args()
    harness.daemon.BUILD = harness.fakes.BUILD = args.build
    fakes = harness.fakes.Fakes()
    try:
        for name in args.names or BENCHES:
            with Daemon(template_dirs=[fakes.templates]) as daemon:
                BENCHES[name](Gateway(daemon), args.build, args.quick)
    finally:
        fakes.remove()


if __name__ == "__main__":
    main()
