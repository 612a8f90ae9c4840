"""Clients of channels that come and go, and kernels that are restarted under them: afterwards descriptors and memory of both
processes are what they were. A few hundred rounds here, ten thousand with --long. Without runs, which are kept for a while."""

from __future__ import annotations

import os
import socket
from typing import Callable, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import BUILD, Daemon, rss_bytes, wait_for
from harness.fakes import Fakes
from harness.jupyter import Channels, kernel_of

MIB = 1 << 20
SLACK = MIB  # of an allocator that has had other work; a leak of 100 bytes a round shows in ten thousand
SANITIZED = b"__asan_" in (BUILD / "sandald").read_bytes()  # keeps freed memory on purpose

counts = pytest.mark.parametrize("rounds", [300, pytest.param(10_000, marks=pytest.mark.long)])
restarts = pytest.mark.parametrize("rounds", [20, pytest.param(1_000, marks=pytest.mark.long)])


@pytest.fixture
def own(fakes: Fakes) -> Iterator[tuple[Daemon, Sandbox]]:
    """A daemon of the test's own, with a kernel that costs next to nothing."""
    with Daemon(template_dirs=[fakes.templates]) as d:
        c = Client(d.url, d.key)
        with c.sandbox(template="fake") as sb:
            yield d, sb
        c.close()


def descriptors(pid: int) -> int:
    """Without the logs held ready for runs to come, of which there are more at some times than at others."""
    found = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        found += not ("/runs/" in target and ".log" in target)
    return found


def soak(daemon: Daemon, one_round: Callable[[int], None], warm: int, rounds: int) -> None:
    """What is taken once is taken in the rounds that warm up."""
    pids = (daemon.pid, daemon.gateway_pid())
    for i in range(warm):
        one_round(i)
    settled = [descriptors(pid) for pid in pids]

    def calm() -> bool:
        seen = [descriptors(pid) for pid in pids]
        still, settled[:] = seen == settled, seen
        return still
    wait_for(calm, 30, 1)
    memory = [rss_bytes(pid) for pid in pids]
    for i in range(rounds):
        one_round(i)
    wait_for(lambda: [descriptors(pid) for pid in pids] <= settled, 30, 0.2)
    assert all(descriptors(pid) <= before for pid, before in zip(pids, settled))
    if not SANITIZED:  # the heap is trimmed each second, when it is calm
        wait_for(lambda: all(rss_bytes(pid) <= before + SLACK for pid, before in zip(pids, memory)), 30, 0.5)
    print(f"{rounds} rounds: descriptors {settled}, memory {memory} and then {[rss_bytes(pid) for pid in pids]}")


def cut(ws: Channels) -> None:
    """As a client that is killed, or whose network goes."""
    ws.ws.socket.shutdown(socket.SHUT_RDWR)
    ws.ws.close()


@counts
def test_channels_opened_and_closed_leave_nothing(own: tuple[Daemon, Sandbox], rounds: int) -> None:
    daemon, sandbox = own

    def open_and_close(i: int) -> None:
        ws = Channels(sandbox.client, kernel_of(sandbox), v1=i % 2 == 0, query=f"session_id={i}" if i % 3 else "")
        ws.receive()  # how busy the kernel is
        if i % 5 == 0:
            ws.ask("kernel_info_request")
        if i % 7 == 0:
            ws.send("complete_request", {"code": "nobody hears it", "cursor_pos": 1})
        (cut if i % 4 == 3 else lambda it: it.ws.close())(ws)
    soak(daemon, open_and_close, 100, rounds)
    with Channels(sandbox.client, kernel_of(sandbox)) as ws:
        assert ws.execute("alive")[0]["content"]["status"] == "ok"


@restarts
def test_restarts_leave_nothing(own: tuple[Daemon, Sandbox], rounds: int) -> None:
    daemon, sandbox = own
    kernel = kernel_of(sandbox)
    with Channels(sandbox.client, kernel) as ws, Channels(sandbox.client, kernel, v1=False) as other:
        def restart(_: int) -> None:
            sandbox.client.call("POST", f"/api/kernels/{kernel}/restart", expect=200, content=b"{}")
            for client in (ws, other):
                assert client.ask("kernel_info_request")[0]["content"]["status"] == "ok"
                client.seen.clear()
        soak(daemon, restart, 5, rounds)
