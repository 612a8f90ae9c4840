"""A full disk of a sandbox, on each back end of volumes that works here: what the files' API answers and what it leaves."""

from __future__ import annotations

import base64
import contextlib
import os
from typing import Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, Daemon, images_bytes, slack, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or ISOLATION not in ("namespace", "bubblewrap", "runc"),
                                reason="volumes need root, and a launcher whose files are on them")
MIB = 1 << 20
LIMIT = 32


@pytest.fixture(scope="module", params=["btrfs", "loop", "tmpfs"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    with Daemon("--volumes-backend", request.param) as made:
        yield made


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[Client]:
    """Of a daemon with that back end; skipped with the daemon's own words where it does not work."""
    backend = daemon.options[-1]
    with contextlib.closing(Client(daemon.url, daemon.key)) as made:
        first = made.call("POST", "/v1/sandboxes", json={"template": "base", "network": "none", "limits": {"disk_mib": LIMIT}})
        if first.status_code == 501:
            pytest.skip(first.json()["error"]["message"])
        assert first.status_code == 201 and first.json()["isolation"]["disk"] == backend, first.text
        made.delete(f"/v1/sandboxes/{first.json()['id']}")
        yield made


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template="base", network="none", limits={"disk_mib": LIMIT}) as sb:
        yield sb


def put(box: Sandbox, path: str, size: int) -> tuple[int, str]:
    """Of bytes that no file system makes smaller."""
    answer = box.client.call("PUT", f"{box.path}/fs/file", params={"path": path}, content=os.urandom(size))
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code >= 400 else ""


def names(box: Sandbox, folder: str = "/workspace") -> set[str]:
    return {entry["name"] for entry in box.get("/fs/dir", params={"path": folder, "depth": 3})["items"]}


def read(box: Sandbox, path: str) -> bytes:
    return box.client.call("GET", f"{box.path}/fs/file", params={"path": path}, expect=200).content


def used(box: Sandbox) -> int:
    """KiB of all files that user code can have, by themselves."""
    return int(box.post("/exec", {"cmd": "sync; du -sk /workspace | cut -f1"})["stdout"])


def test_a_put_that_does_not_fit(box: Sandbox) -> None:
    assert put(box, "kept", MIB) == (201, "")
    kept = read(box, "kept")
    assert put(box, "folder/big", (LIMIT + 8) * MIB) == (507, "storage_full")
    assert put(box, "kept", (LIMIT + 8) * MIB) == (507, "storage_full")  # the old one stays
    assert names(box) <= {"kept", "folder"} and read(box, "kept") == kept
    assert used(box) < 2 * 1024
    assert put(box, "big", (LIMIT // 2) * MIB) == (201, "")  # nothing of what failed takes room


def test_an_upload_in_pieces_that_does_not_fit(box: Sandbox) -> None:
    size = (LIMIT + 8) * MIB
    tus = {"Tus-Resumable": "1.0.0"}
    made = box.client.call("POST", f"{box.path}/fs/uploads", expect=201, headers={
        **tus, "Upload-Length": str(size), "Upload-Metadata": "path " + base64.b64encode(b"piece").decode()})
    answer = box.client.call("PATCH", made.headers["location"], content=os.urandom(size),
                             headers={**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
    assert answer.status_code == 507 and answer.json()["error"]["code"] == "storage_full", answer.text
    assert "piece" not in names(box)
    box.client.call("DELETE", made.headers["location"], headers=tus, expect=204)
    assert names(box) == set() and used(box) < 1024
    assert put(box, "big", (LIMIT // 2) * MIB) == (201, "")


def test_what_is_full_takes_nothing_and_can_be_emptied(box: Sandbox) -> None:
    box.post("/exec", {"cmd": "head -c 100M /dev/urandom > big; for i in $(seq 400); do head -c 4096 /dev/urandom > small-$i || break; done"})
    before = names(box)
    assert put(box, "new", 4 * MIB) == (507, "storage_full")
    assert names(box) == before
    assert len(read(box, "big")) > LIMIT * MIB // 2
    box.client.call("DELETE", f"{box.path}/fs/file", params={"path": "big"}, expect=204)
    assert put(box, "new", 4 * MIB) == (201, "")


def test_df_tells_the_limit_where_the_back_end_can(box: Sandbox) -> None:
    size = int(box.post("/exec", {"cmd": "df -m --output=size /workspace | tail -1"})["stdout"])
    if box.record["isolation"]["disk"] == "btrfs":  # docs/namespace.md says so: limits are on the subvolume, df asks the file system
        assert size > LIMIT
    else:
        assert LIMIT * 0.7 <= size <= LIMIT
    assert box.record["limits"]["disk_mib"] == LIMIT


def test_the_host_gets_back_what_deleted_sandboxes_held(client: Client, daemon: Daemon) -> None:
    """Images shrink: what is freed in them becomes holes, a sandbox's own goes."""
    size = LIMIT // 2 * MIB
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            sb = stack.enter_context(client.sandbox(template="base", network="none", limits={"disk_mib": LIMIT}))
            assert put(sb, "big", size) == (201, "")
        sb.post("/exec", {"cmd": "sync"})
        assert images_bytes(daemon) >= 3 * size or daemon.options[-1] == "tmpfs"
    wait_for(lambda: images_bytes(daemon) < size, 60 * slack(), 0.2)  # an empty store has some 7 MiB
