"""Budgets: a daemon that has run for long is as small as one that has just started; what was printed last can be read, what
was printed long ago is told to be gone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest

from harness.client import Client, Sandbox
from harness.daemon import BUILD, TEMPLATE, Daemon, rss_bytes, wait_for

MIB = 1 << 20
OUTPUT = 16 * MIB
SANDBOX_BUDGET = 64 * MIB

SANITIZED = b"__asan_" in (BUILD / "sandald").read_bytes()  # keeps freed memory on purpose

ONE_PRINT = f"print('x' * ({OUTPUT} - 1))"
MANY_PRINTS = f"for i in range({OUTPUT // 65536}): print('x' * 65535)"


@pytest.fixture
def own() -> Iterator[tuple[Daemon, Client, Sandbox]]:
    """A daemon of the test's own: its memory is looked at."""
    with Daemon() as d:
        c = Client(d.url, d.key)
        with c.sandbox(template=TEMPLATE) as sb:
            yield d, c, sb
        c.close()


def big_run(sb: Sandbox, code: str) -> str:
    """Runs it, reads the whole Execution unparsed; the run's id."""
    answer = sb.client.call("POST", f"{sb.path}/run_code", expect=200, json={"code": code})
    assert len(answer.content) >= OUTPUT
    return answer.content[: answer.content.index(b",")].split(b'"')[3].decode()


def logs_bytes(d: Daemon) -> int:
    total = 0
    for file in Path(d.state, "runs").iterdir():
        try:
            total += file.stat().st_blocks * 512  # packs are sparse
        except FileNotFoundError:
            pass
    return total


def soak(d: Daemon, sb: Sandbox, rounds: int) -> list[str]:
    """Memory after each tenth run is no more than after the first ten, give or take half an output."""
    runs, base = [], 0
    for i in range(rounds):
        runs.append(big_run(sb, MANY_PRINTS if i % 2 else ONE_PRINT))
        if i == 9 and not SANITIZED:
            wait_for(lambda: rss_bytes(d.gateway_pid()) < 40 * MIB, 30, 0.5)
            base = rss_bytes(d.gateway_pid())
        elif i % 10 == 9:
            wait_for(lambda: SANITIZED or rss_bytes(d.gateway_pid()) < base + OUTPUT // 2, 30, 0.5)
            assert logs_bytes(d) <= SANDBOX_BUDGET + OUTPUT + 2 * MIB  # the last one may still be closing; 1 MiB to be emptied
    print(f"{rounds} runs: {rss_bytes(d.gateway_pid()) / MIB:.1f} MiB, after ten {base / MIB:.1f} MiB", file=sys.stderr)
    return runs


def check_ends(sb: Sandbox, runs: list[str]) -> None:
    assert sb.events(runs[-1])[-1]["type"] == "result"
    sb.client.error("GET", f"{sb.path}/runs/{runs[0]}/events", 410, "run_expired")
    slim = sb.get(f"/runs/{runs[0]}")
    assert slim["run"] == runs[0] and slim["status"] == "ok" and slim["expired"] is True
    assert "stdout" not in slim and slim["usage"]["wall_ms"] >= 0


def test_forty_big_runs_memory_is_flat_and_the_oldest_expire(own: tuple[Daemon, Client, Sandbox]) -> None:
    d, _, sb = own
    runs = soak(d, sb, 40)
    check_ends(sb, runs)


@pytest.mark.long
def test_thousand_big_runs_memory_is_flat(own: tuple[Daemon, Client, Sandbox]) -> None:
    d, _, sb = own
    runs = soak(d, sb, 1000)
    check_ends(sb, runs)


def test_log_larger_than_the_budget_is_read_to_its_end(own: tuple[Daemon, Client, Sandbox]) -> None:
    d, c, sb = own
    code = f"print('x' * {100 * MIB}, end='')"
    limits = {"output_bytes": 128 * MIB}
    got = 0
    last: dict = {}
    for event in sb.stream(code, limits=limits):
        got += len(event["text"]) if event["type"] == "stdout" else 0
        last = event
    assert got == 100 * MIB and last["type"] == "result" and len(last["stdout"]) == 100 * MIB
    assert len(sb.run(code, limits=limits)["stdout"]) == 100 * MIB  # without a stream, too
    assert sb.run("1+1")["text"] == "2"  # makes room
    wait_for(lambda: logs_bytes(d) <= SANDBOX_BUDGET, 5)
    c.error("GET", f"{sb.path}/runs/{last['run']}/events", 410, "run_expired")


def test_thousand_small_runs_files_and_descriptors_do_not_pile_up(own: tuple[Daemon, Client, Sandbox]) -> None:
    d, c, sb = own
    fds = Path(f"/proc/{d.gateway_pid()}/fd")
    with c.socket() as ws:
        ws.run(sandbox=sb.id, code="1")
        before = len(list(fds.iterdir()))
        for _ in range(1000):
            ws.run(sandbox=sb.id, code="1+1")
        assert len(list(fds.iterdir())) <= before + 8
    packs = list(Path(d.state, "runs").glob("*.pack"))
    assert len(packs) == 1 and packs[0].stat().st_mode & 0o777 == 0o600, packs
    assert len(list(Path(d.state, "runs").glob("*.log"))) <= 32  # made ahead, for longer ones
    sb.delete()
    wait_for(lambda: not any(packs[0].read_bytes()), 10)  # nothing of them is left
    assert logs_bytes(d) < 5 * MIB  # a block for each slot, kept for the next ones
