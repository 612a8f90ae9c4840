"""Fixtures of the SDK's tests: one daemon of this tree for all, started by the harness of the end-to-end tests, or one that
SANDAL_TEST_URL and SANDAL_TEST_KEY name."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

SDK = Path(__file__).resolve().parent.parent
ROOT = SDK.parent.parent
sys.path[:0] = [str(SDK / "src"), str(ROOT / "tests" / "e2e")]
for name in [name for name in os.environ if name.startswith("SANDAL_") and name not in (
        "SANDAL_BUILD", "SANDAL_TEST_ISOLATION", "SANDAL_TEST_KEY", "SANDAL_TEST_LONG", "SANDAL_TEST_TOOLS", "SANDAL_TEST_URL")]:
    del os.environ[name]  # the environment of who runs this is none of the client's

from harness.daemon import Daemon, processes_left, wait_for  # noqa: E402

from sandal import Sandal, Sandbox  # noqa: E402

# A daemon that runs already, for a Python that can start none: test_pythons.py says whose.
ELSEWHERE = os.environ.get("SANDAL_TEST_URL", "")


def not_elsewhere(reason: str) -> Any:
    """A mark for a test that needs more than an interpreter, the client's own dependencies and a daemon."""
    return pytest.mark.skipif(bool(ELSEWHERE), reason=reason)


own_daemon = not_elsewhere("it starts a daemon of its own")
with_tools = not_elsewhere("it needs tools of the tree's environment")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """After the last daemon: no process of this run."""
    yield
    wait_for(lambda: not processes_left(), 30)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Any]:
    if ELSEWHERE:
        yield SimpleNamespace(url=ELSEWHERE, key=os.environ["SANDAL_TEST_KEY"])
        return
    with Daemon("--limits-queue", "2000") as made:
        yield made


@pytest.fixture(scope="session")
def client(daemon: Daemon) -> Iterator[Sandal]:
    with Sandal(daemon.key, daemon.url) as made:
        yield made


@pytest.fixture(scope="session")
def python_box(client: Sandal) -> Iterator[Sandbox]:
    """One for all tests that leave it as it was, or make a context of their own."""
    with client.sandboxes.create("code-interpreter-python") as made:
        yield made


@pytest.fixture(scope="session")
def bare_box(client: Sandal) -> Iterator[Sandbox]:
    """Without a kernel."""
    with client.sandboxes.create("base") as made:
        yield made


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> Any:
    """As a program finds it that names neither key nor address."""
    monkeypatch.setenv("SANDAL_API_KEY", str(daemon.key))
    monkeypatch.setenv("SANDAL_URL", daemon.url)
    return monkeypatch
