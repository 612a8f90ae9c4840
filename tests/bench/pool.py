#!/usr/bin/python3
"""Warm pools: a create that takes a member beside one that starts cold, the first `1 + 1` after each beside later ones,
and how long the next member takes. All in one run and in turns, over one WebSocket.

usage: tests/bench/pool.py [--build build] [--rounds 30] [--start spawn|zygote] [TEMPLATE ...]

With `--start zygote`: members whose kernels are forked, and nothing cold beside them.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import harness.daemon  # noqa: E402
from harness.client import Client, Socket  # noqa: E402
from harness.daemon import Daemon, wait_for  # noqa: E402

TEMPLATES = ["code-interpreter-python", "code-interpreter-node", "code-interpreter-r"]
COLD = {"TZ": "UTC"}  # acts at a process's start alone, so that no member is taken


def ready(client: Client, template: str, start: str) -> bool:
    text = client.call("GET", "/metrics", expect=200).text
    pool = f'{{template="{template}",start="{start}"}}'
    return f"sandal_pool_ready{pool} 1" in text and f"sandal_pool_warming{pool} 0" in text


def call(socket: Socket, op: str, **fields: Any) -> tuple[float, dict[str, Any]]:
    """Milliseconds to the answer, and the answer."""
    begun = time.perf_counter()
    ident = socket.send(op, **fields)
    while True:
        frame = socket.receive()
        if frame["id"] == ident and frame["type"] in ("response", "failure", "result"):
            break
    took = (time.perf_counter() - begun) * 1000
    assert frame["type"] != "failure", frame
    return took, frame.get("data", frame)


def once(socket: Socket, template: str, wish: dict[str, Any], start: str) -> tuple[float, float, float]:
    created, record = call(socket, "sandboxes.create", template=template, **wish)
    assert record["start"] == start, record
    cells = [call(socket, "run_code", sandbox=record["id"], code="1 + 1")[0] for _ in range(8)]
    call(socket, "sandboxes.delete", sandbox=record["id"])
    return created, cells[0], statistics.median(cells[3:])


def figures(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{statistics.median(ordered):7.2f} {ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]:7.2f} {ordered[0]:7.2f}"


def measure(template: str, rounds: int, kind: str) -> None:
    pools = {name: 0 for name in TEMPLATES} | {f"{template}/{kind}": 1}
    sizes = [word for name, count in pools.items() for word in ("--pools-sizes", f"{name}:{count}")]
    wishes: dict[str, dict[str, Any]] = {"pool": {}, "spawn": {"env": COLD}}
    if kind == "zygote":
        wishes = {"pool-zygote": {"checkpointable": False}}
    with Daemon("--pools-fill", "start", *sizes) as daemon:
        client = Client(daemon.url, daemon.key)
        rows: dict[str, list[tuple[float, float, float]]] = {start: [] for start in wishes}
        with client.socket() as ws:
            socket = ws
            for _ in range(rounds):
                for start, wish in wishes.items():
                    wait_for(lambda: ready(client, template, kind), 60, 0.05)
                    time.sleep(0.2)  # the pool refills and the machine comes to rest before what is timed
                    rows[start].append(once(socket, template, wish, start))
        refills = [int(ms) for ms in re.findall(r"pool\.ready .*ms=(\d+)", daemon.log())][1:]
        memory = [int(mib) for mib in re.findall(r"pool\.ready .*mib=(\d+)", daemon.log())]
        client.close()
    print(f"{template}, members by {kind}, {rounds} rounds, load {os.getloadavg()[0]:.1f}, ms: p50, p99, lowest")
    for start in wishes:
        name = "cold" if start == "spawn" else "from the pool"
        print(f"  create {name:14}     {figures([row[0] for row in rows[start]])}")
        print(f"  first 1 + 1, {name:14} {figures([row[1] for row in rows[start]])}")
        print(f"  later 1 + 1, {name:14} {figures([row[2] for row in rows[start]])}")
    print(f"  the next member            {figures([float(ms) for ms in refills])}")
    print(f"  memory of a member, MiB    {statistics.median(memory):7.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--start", choices=["spawn", "zygote"], default="spawn")
    parser.add_argument("templates", nargs="*", default=TEMPLATES)
    args = parser.parse_args()
    harness.daemon.BUILD = args.build
    for template in args.templates:
        measure(template, args.rounds, args.start)


if __name__ == "__main__":
    main()
