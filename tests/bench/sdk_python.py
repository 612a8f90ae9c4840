#!/usr/bin/env python3
"""The Python SDK's figures in docs/benchmarks.md: its import, and what run_code adds to raw clients over a WebSocket, one that blocks
and one of asyncio, rounds taken in turns on one sandbox. cpu_ms is this process's own time for a round, which other work on the machine
hardly changes. To be run by build/venv-sdk/bin/python.

usage: tests/bench/sdk_python.py [--build build] [--rounds 1000] [--imports 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "sdk" / "python" / "src"
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(SOURCE)]


def show(name: str, times: list[float], **more: float) -> float:
    middle = statistics.median(times)
    print(json.dumps({"bench": name, "rounds": len(times), "p50_ms": round(middle, 3),
                      "p95_ms": round(statistics.quantiles(times, n=20)[-1], 3), **more}), flush=True)
    return middle


def imports(count: int) -> None:
    """As after `pip install`: with the compiled files there. Less what Python itself takes to start."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for name, code in (("import sandal", "from sandal import Sandal, AsyncSandal"),
                           ("import and first client", "from sandal import Sandal; Sandal(base_url='http://127.0.0.1:1', max_retries=0)"),
                           ("import and httpx", "from sandal import Sandal; import httpx")):
            program = f"import time; a = time.perf_counter(); {code}; print((time.perf_counter() - a) * 1e3)"
            times = [float(subprocess.check_output([sys.executable, "-c", program], env=env)) for _ in range(count + 1)]
            show(name, times[1:])  # the first one compiles


def overhead(rounds: int) -> None:
    from harness.daemon import Daemon
    from websockets.asyncio.client import connect as open_socket
    from websockets.sync.client import connect

    from sandal import AsyncSandal, Sandal

    with Daemon() as daemon, Sandal(daemon.key, daemon.url) as client, client.sandboxes.create("code-interpreter-python") as box:
        url = daemon.url.replace("http", "ws", 1) + "/v1/ws"
        options: dict[str, Any] = {"additional_headers": {"Authorization": f"Bearer {daemon.key}"}, "subprotocols": ["sandal.v1"],
                                   "compression": None}
        socket = connect(url, legacy=True, **options)
        loop = asyncio.new_event_loop()

        async def opened() -> Any:
            return await open_socket(url, **options)

        polled = loop.run_until_complete(opened())
        waiting = AsyncSandal(daemon.key, daemon.url)
        other = loop.run_until_complete(waiting.sandboxes.get(box.id))

        def asked() -> str:
            return json.dumps({"id": "a", "op": "run_code", "sandbox": box.id, "code": "1"})

        def raw() -> Any:
            socket.send(asked())
            while True:
                event = json.loads(socket.recv())
                if event["type"] == "result":
                    return event

        async def raw_waiting() -> Any:
            await polled.send(asked())
            while True:
                event = json.loads(await polled.recv())
                if event["type"] == "result":
                    return event

        ways: dict[str, Callable[[], Any]] = {
            "raw WebSocket": raw, "raw asyncio WebSocket": lambda: loop.run_until_complete(raw_waiting()),
            "Sandal": lambda: box.run_code("1"), "AsyncSandal": lambda: loop.run_until_complete(other.run_code("1"))}
        times: dict[str, list[float]] = {name: [] for name in ways}
        own = dict.fromkeys(ways, 0.0)
        for i in range(rounds + 50):
            for name, way in ways.items():
                begun, used = time.perf_counter(), time.process_time()
                way()
                used, ended = time.process_time() - used, time.perf_counter()
                if i >= 50:
                    times[name].append((ended - begun) * 1e3)
                    own[name] += used * 1e3 / rounds
        middles = {name: show(name, one, cpu_ms=round(own[name], 3)) for name, one in times.items()}
        for name, base in (("Sandal", "raw WebSocket"), ("AsyncSandal", "raw WebSocket"), ("AsyncSandal", "raw asyncio WebSocket")):
            print(json.dumps({"bench": f"{name} over {base}", "p50_ms": round(middles[name] - middles[base], 3),
                              "cpu_ms": round(own[name] - own[base], 3)}))
        loop.run_until_complete(polled.close())
        loop.run_until_complete(waiting.aclose())
        socket.close()
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--imports", type=int, default=20)
    options = parser.parse_args()
    os.environ.setdefault("SANDAL_BUILD", str(ROOT / options.build))
    imports(options.imports)
    overhead(options.rounds)


main()
