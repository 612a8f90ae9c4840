"""Fixtures of the end-to-end tests. The launcher and the template are parameters of the whole suite:
SANDAL_TEST_ISOLATION (default `namespace`, `bubblewrap` without root) and SANDAL_TEST_TEMPLATE (default code-interpreter-python)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.client import Client, Sandbox  # noqa: E402
from harness.daemon import LONG, TEMPLATE, Daemon, processes_left, wait_for  # noqa: E402
from harness.fakes import Fakes  # noqa: E402


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: soaks and rounds over 100; only with SANDAL_TEST_LONG=1")
    config.addinivalue_line("markers", "smoke: the minute that runs on every pair of launcher and template")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("long") and not LONG:  # a keyword is a folder of that name too
            item.add_marker(pytest.mark.skip(reason="a soak: scripts/test --long runs it"))


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """After the last daemon: no process of this run."""
    yield
    try:
        wait_for(lambda: not processes_left(), 30)  # longer than those of a killed daemon live on
    except AssertionError:
        raise AssertionError("processes are left:\n" + "\n".join(processes_left())) from None


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    with Daemon() as d:
        yield d


@pytest.fixture(scope="session")
def client(daemon: Daemon) -> Iterator[Client]:
    c = Client(daemon.url, daemon.key)
    yield c
    c.close()


@pytest.fixture(scope="module")
def fakes() -> Iterator[Fakes]:
    made = Fakes()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def sandbox(client: Client) -> Iterator[Sandbox]:
    """One sandbox a module; tests that break state take `fresh`."""
    with client.sandbox(template=TEMPLATE) as sb:
        yield sb


@pytest.fixture
def fresh(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template=TEMPLATE) as sb:
        yield sb
