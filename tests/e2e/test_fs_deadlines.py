"""What goes through a whole tree for a client comes to an end, also where the sandbox fills the tree as fast."""

from __future__ import annotations

import time
from typing import Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, Daemon, slack, wait_for

FILES = 30_000
LIMIT_S = 0.05  # no machine removes or copies so many in that time
FILL = """
import os, sys
n = 0
while True:
    try:
        os.makedirs(f"full/more{n % 50}", exist_ok=True)
        open(f"full/more{n % 50}/{n}", "w").close()
    except FileNotFoundError:
        pass
    n += 1
"""


@pytest.fixture(scope="module")
def hasty() -> Iterator[Client]:
    with Daemon("--timeouts-files", str(LIMIT_S)) as daemon:
        yield Client(daemon.url, daemon.key)


@pytest.fixture
def full(hasty: Client) -> Iterator[Sandbox]:
    with hasty.sandbox(template="base") as sb:
        made = sb.post("/exec", {"cmd": f"mkdir -p full && cd full && seq {FILES} | xargs touch && ls | wc -l"})
        assert made["stdout"].strip() == str(FILES), made
        yield sb


def count(sb: Sandbox, path: str) -> int:
    return int(sb.post("/exec", {"cmd": f"find {path} -type f | wc -l"})["stdout"])


def refused(sb: Sandbox, method: str, place: str, **fields: object) -> str:
    begun = time.monotonic()
    error = sb.client.error(method, f"{sb.path}/fs/{place}", 409, "busy", **fields)
    assert time.monotonic() - begun < LIMIT_S + 10 * slack()
    assert "timeouts.files" in error["hint"], error
    return str(error["message"])


@pytest.mark.smoke
def test_a_removal_has_an_end_and_goes_on_when_asked_again(full: Sandbox) -> None:
    filler = full.post("/exec", {"cmd": ["python3", "-c", FILL], "background": True}, expect=201)
    assert "full" in refused(full, "DELETE", "file", params={"path": "full", "recursive": "true"})
    assert full.get(f"/processes/{filler['pid']}")["state"] == "running"
    assert 0 < count(full, "full")  # what is left stays, and the sandbox answers
    full.client.call("POST", f"{full.path}/processes/{filler['pid']}/signal", json={"signal": "SIGKILL"}, expect=204)

    def gone() -> bool:
        answer = full.client.call("DELETE", f"{full.path}/fs/file", params={"path": "full", "recursive": "true"})
        assert answer.status_code in (204, 404, 409), answer.text
        return answer.status_code != 409

    wait_for(gone, 60 * slack())  # each goes on where the last one stopped
    assert full.get("/fs/dir", params={"path": "/workspace"})["items"] == []


def test_a_list_has_an_end(full: Sandbox) -> None:
    refused(full, "GET", "dir", params={"path": "full"})
    assert count(full, "full") == FILES
    assert full.get("/fs/dir", params={"path": "/workspace"})["items"][0]["name"] == "full"


@pytest.mark.skipif(ISOLATION in ("none", "process"), reason="all that fs reaches is one file system there")
def test_a_move_to_another_file_system_is_whole_or_not_at_all(full: Sandbox) -> None:
    assert "full" in refused(full, "POST", "move", json={"from": "full", "to": "/tmp/full"})
    assert count(full, "full") == FILES
    assert full.post("/exec", {"cmd": "ls -A /tmp"})["stdout"] == ""  # nor a part under another name
