#!/usr/bin/python3
"""The figures of docs/benchmarks.md that are about zygotes: creates, ten at once, memory, and with --many N so many contexts
that live at once and all answer.

usage: tests/bench/zygote.py [--build build] [--template NAME] [--rounds 20] [--many N]     as root, with that template,
which is code-interpreter-python or code-interpreter-r
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import harness.daemon  # noqa: E402
from harness import processes  # noqa: E402
from harness.daemon import Daemon, rss_bytes  # noqa: E402

MIB = 1024 * 1024
TWO = {"code-interpreter-python": "2", "code-interpreter-r": "[1] 2"}  # what 1 + 1 gives


class Host(Daemon):
    template = "code-interpreter-python"


def call(daemon: Host, method: str, path: str, body: object = None) -> Any:
    request = urllib.request.Request(daemon.url + path, method=method, data=json.dumps(body).encode() if body is not None else None,
                                     headers={"Authorization": f"Bearer {daemon.key}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        text = answer.read()
    return json.loads(text) if text else {}


def create(daemon: Host, start: str) -> tuple[str, float]:
    begin = time.monotonic()
    made = call(daemon, "POST", "/v1/sandboxes", {"template": daemon.template, "checkpointable": None if start == "spawn" else False})
    took = (time.monotonic() - begin) * 1000
    if made["start"] != start:
        raise RuntimeError(f"started by {made['start']}, not {start}")
    return made["id"], took


def end(daemon: Host, ident: str) -> None:
    call(daemon, "DELETE", f"/v1/sandboxes/{ident}")


def answers(daemon: Host, ident: str) -> bool:
    return call(daemon, "POST", f"/v1/sandboxes/{ident}/run_code", {"code": "1 + 1"})["text"] == TWO[daemon.template]


def private(pid: int) -> int:
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(row[1]) * 1024 for row in rows if row[0] in ("Private_Clean:", "Private_Dirty:"))


def memory(ident: str) -> dict[str, float]:
    """Of all processes of a sandbox, and of the biggest, its kernel."""
    pids = [*processes.of_sandbox(ident), *processes.inits(ident)]
    each = [private(pid) / MIB for pid in set(pids)]
    return {"kernel": max(each), "all": sum(each)}


def figure(name: str, **values: object) -> None:
    print(json.dumps({"bench": name, "load": round(os.getloadavg()[0], 2), **values}), flush=True)


def creates(daemon: Host, start: str, rounds: int) -> None:
    took = []
    for _ in range(rounds):
        ident, ms = create(daemon, start)
        took.append(ms)
        end(daemon, ident)
        time.sleep(0.3)  # what it leaves is cleared away
    took.sort()
    figure(f"create, {start}", p50_ms=round(statistics.median(took), 1), least_ms=round(took[0], 1), most_ms=round(took[-1], 1), rounds=rounds)


def weigh(daemon: Host, start: str) -> None:
    boxes = [create(daemon, start)[0] for _ in range(5)]
    time.sleep(2)  # the kernel comes to rest before its memory is read
    fresh = [memory(ident) for ident in boxes]
    for ident in boxes:
        answers(daemon, ident)
    time.sleep(1)  # and again after its cell
    used = [memory(ident) for ident in boxes]
    for ident in boxes:
        end(daemon, ident)
    figure(f"private memory, {start}", **{f"{when}_{what}_mib": round(statistics.median(row[what] for row in rows), 1)
                                          for when, rows in (("idle", fresh), ("after_1+1", used)) for what in ("kernel", "all")})


def at_once(daemon: Host, start: str, count: int) -> None:
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        boxes = list(pool.map(lambda _: create(daemon, start)[0], range(count)))
        took = time.monotonic() - begin
        list(pool.map(lambda ident: end(daemon, ident), boxes))
    time.sleep(1)  # what the round before leaves is cleared away
    figure(f"{count} at once, {start}", s=round(took, 2))


def many(daemon: Host, count: int) -> None:
    free = available()
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        boxes = list(pool.map(lambda _: create(daemon, "zygote")[0], range(count)))
        made = time.monotonic() - begin
        time.sleep(5)
        rest = rss_bytes(daemon.gateway_pid()) + rss_bytes(daemon.pid)
        good = sum(pool.map(lambda ident: answers(daemon, ident), boxes))
        again = time.monotonic()
        good += sum(pool.map(lambda ident: answers(daemon, ident), boxes))
        figure(f"{count} live contexts", answered=f"{good} of {2 * count}", made_s=round(made, 1), a_round_s=round(time.monotonic() - again, 1),
               daemon_rss_mib=round(rest / MIB, 1), memory_each_mib=round((free - available()) / count / MIB, 1))
        list(pool.map(lambda ident: end(daemon, ident), boxes))


def available() -> int:
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(rows["MemAvailable"].split()[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--template", choices=TWO, default=Host.template)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--many", type=int, default=0)
    args = parser.parse_args()
    harness.daemon.BUILD = args.build.resolve()
    harness.daemon.UID_COUNT = 1024 * 65_536  # room below one zygote for ten at once, and for many
    Host.template = args.template
    with Host("--pools-fill", "off", "--limits-sandboxes", "2000") as daemon:
        end(daemon, create(daemon, "zygote")[0])  # the zygote itself
        if args.many:
            many(daemon, args.many)
            return
        for start in ("zygote", "spawn"):
            creates(daemon, start, args.rounds)
            weigh(daemon, start)
            at_once(daemon, start, 10)


if __name__ == "__main__":
    main()
