"""Somebody is killed in the middle of twenty clients' creates and deletes: afterwards all is as it was before them."""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import signal
import threading
import time
from typing import Any, Iterator

import httpx
import pytest
from harness.client import Client
from harness.daemon import ISOLATION, Daemon, slack, wait_for
from test_leaks import IDS, SLOTS, Footprint, groups, init_of, worker_of

CLIENTS = 20
STORM_S = 1.5
pytestmark = pytest.mark.skipif(ISOLATION == "gvisor" or os.geteuid() != 0, reason="a round takes seconds in gVisor; ranges of ids are root's")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as d:
        yield d


class Storm:
    """Clients that make sandboxes, use them, and end them, until it is over or their daemon is."""

    def __init__(self, daemon: Daemon, ends_inits: bool):
        self.url, self.key, self.ends_inits = daemon.url, daemon.key, ends_inits
        self.over = threading.Event()
        self.answers: collections.Counter[str] = collections.Counter()
        self.threads = [threading.Thread(target=self.client, args=(random.Random(n),)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def client(self, rng: random.Random) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        with contextlib.suppress(httpx.TransportError), httpx.Client(base_url=self.url, headers=headers, timeout=60) as http:
            while not self.over.is_set():
                made = http.post("/v1/sandboxes", json={"template": "base", "network": "none"} if ISOLATION not in ("none", "process")
                                 else {"template": "base"})
                self.answers[f"create {made.status_code}"] += 1
                if made.status_code == 201:
                    self.use(http, made.json()["id"], rng)

    def use(self, http: httpx.Client, ident: str, rng: random.Random) -> None:
        IDS.add(ident)
        if rng.random() < 0.3:
            http.post(f"/v1/sandboxes/{ident}/exec", json={"cmd": "sleep 1000 & setsid sleep 1000 & echo x > file"})
        if self.ends_inits and (pid := init_of(ident)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.answers[f"delete {http.delete(f'/v1/sandboxes/{ident}').status_code}"] += 1

    def end(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join()


def kill_workers(daemon: Daemon, until: float) -> int:
    """Launchers and removers, wherever they are in their work."""
    killed = 0
    while time.monotonic() < until:
        if pid := worker_of(daemon):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.01)  # or none would ever end its work
    return killed


def footprint(daemon: Daemon) -> Footprint:
    """Where a daemon has been started again its processes have other numbers."""
    found = Footprint(daemon)
    names = collections.Counter(one.split(" ", 1)[1] for one in found.things["processes"])
    found.things["processes"] = {f"{name} ({n + 1})" for name, count in names.items() for n in range(count)}
    return found


def make_and_end(client: Client, count: int) -> None:
    made: list[str] = []
    for _ in range(count):
        fields: dict[str, Any] = {"template": "base"} if ISOLATION in ("none", "process") else {"template": "base", "network": "none"}
        made.append(client.post("/v1/sandboxes", fields, expect=201)["id"])
    IDS.update(made)
    for ident in made:
        client.delete(f"/v1/sandboxes/{ident}")


def kill(daemon: Daemon, who: str) -> None:
    if who == "keeper":
        daemon.kill()
        daemon.start()
    elif who == "gateway":
        daemon.urls.clear()
        daemon.ready.clear()
        os.kill(daemon.gateway_pid(), signal.SIGKILL)
        assert daemon.ready.wait(30 * slack()), daemon.log()


@pytest.mark.parametrize("who", ["gateway", "keeper", "sandal-init", "worker"])
def test_nothing_is_left_of_a_storm(daemon: Daemon, who: str) -> None:
    client = Client(daemon.url, daemon.key)
    make_and_end(client, 2)
    if who in ("gateway", "keeper"):
        kill(daemon, who)
        client = Client(daemon.url, daemon.key)
        make_and_end(client, 2)
    wait_for(lambda: not groups() and not any(init_of(i) for i in IDS), 20 * slack())
    before = footprint(daemon)

    storm = Storm(daemon, who == "sandal-init")
    until = time.monotonic() + STORM_S
    if who == "worker":
        assert kill_workers(daemon, until) > 0
    wait_for(lambda: time.monotonic() > until and storm.answers["create 201"] >= CLIENTS, 30 * slack())
    kill(daemon, who)
    storm.end()
    assert who == "worker" or not any(answer.endswith(" 500") for answer in storm.answers), storm.answers

    client = Client(daemon.url, daemon.key)
    IDS.update(re.findall(r"sbx-\w+", daemon.log()))
    for record in client.get("/v1/sandboxes")["items"]:
        IDS.add(record["id"])
        client.delete(f"/v1/sandboxes/{record['id']}")
    last: list[str] = []

    def same() -> bool:
        last[:] = footprint(daemon).more_than(before) + groups()
        return not last

    try:
        wait_for(same, 20 * slack(), 0.2)
    except AssertionError:
        raise AssertionError("left behind: " + "\n".join(last)[:4000]) from None
    make_and_end(client, SLOTS)  # each range of ids is there again
    client.close()
