"""Sandboxes whose records the database no longer has: nobody asked for their end, so their files stay, and whoever runs the daemon is
told where. What is nobody's goes as before (test_leaks.py, test_adoption.py, test_pool.py)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from harness.client import Client
from harness.daemon import BUILD, ISOLATION, TEMPLATE, Daemon, clean_environment, wait_for
from harness.processes import files_kept, inits

OWNER = "recovered"


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as d:
        yield d


def work_in(client: Client, text: str, **fields: object) -> str:
    sandbox = client.post("/v1/sandboxes", {"template": "base", **fields}, expect=201)["id"]
    client.call("PUT", f"/v1/sandboxes/{sandbox}/fs/file", params={"path": "work.txt"}, content=text.encode(), expect=201)
    return sandbox


def drop_database(state: Path) -> None:
    for file in state.glob("sandal.db*"):
        file.unlink()


def keep_database(state: Path, aside: Path) -> None:
    for file in state.glob("sandal.db*"):
        shutil.copy2(file, aside / file.name)


def bring_back(state: Path, aside: Path) -> None:
    owner = (state / "sandal.db").stat()
    drop_database(state)
    for file in aside.glob("sandal.db*"):
        shutil.copy2(file, state / file.name)
        shutil.chown(state / file.name, owner.st_uid, owner.st_gid)


def key_of(daemon: Daemon, owner: str) -> str:
    argv = [str(BUILD / "sandald"), "keys", "add", "--owner", owner, "--state-dir", str(daemon.state)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=clean_environment()).stdout.strip()


def recovered(daemon: Daemon) -> Client:
    return Client(daemon.url, key_of(daemon, OWNER))


def told(daemon: Daemon, sandbox: str) -> str:
    return next((line for line in daemon.lines if "sandbox.recovered" in line and sandbox in line), "")


@pytest.mark.smoke
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_without_a_database_files_are_kept_and_found(daemon: Daemon, end: str) -> None:
    sandbox = work_in(Client(daemon.url, daemon.key), "a week's work")
    getattr(daemon, end)()
    drop_database(daemon.state)
    daemon.start()
    line = wait_for(lambda: told(daemon, sandbox))
    assert " warn " in line and f"keys add --owner {OWNER}" in line, line
    assert Client(daemon.url, daemon.key).get("/v1/sandboxes")["items"] == [], "it is no client's before the operator makes a key"
    owner = recovered(daemon)
    (found,) = owner.get("/v1/sandboxes")["items"]
    assert (found["id"], found["metadata"], found["expires_at"], found["template"]) == (sandbox, {"recovered": "true"}, None, "base"), found
    assert ISOLATION == "none" or found["network"]["mode"] == "none", found
    wait_for(lambda: owner.call("GET", f"/v1/sandboxes/{sandbox}/fs/file", params={"path": "work.txt"}).text == "a week's work")
    assert owner.post(f"/v1/sandboxes/{sandbox}/exec", {"cmd": "cat /workspace/work.txt || cat work.txt"})["stdout"].endswith("a week's work")
    owner.delete(f"/v1/sandboxes/{sandbox}")
    wait_for(lambda: not files_kept(daemon, sandbox) and not inits(sandbox))
    before = len(daemon.lines)
    daemon.stop()
    daemon.start()
    with Client(daemon.url, daemon.key).sandbox(template="base"):  # made by the keeper, which was asked before what there is
        pass
    assert not any("sandbox.recovered" in line or "sandbox.lost" in line for line in daemon.lines[before:])


def test_of_a_database_of_an_earlier_time_only_what_it_lacks_is_recovered(daemon: Daemon, tmp_path: Path) -> None:
    client = Client(daemon.url, daemon.key)
    before = work_in(client, "before")
    daemon.stop()
    keep_database(daemon.state, tmp_path)
    daemon.start()
    client = Client(daemon.url, daemon.key)
    after = work_in(client, "after", metadata={"a": "b"})
    gone = work_in(client, "gone")
    client.delete(f"/v1/sandboxes/{gone}")
    daemon.kill()
    bring_back(daemon.state, tmp_path)
    daemon.start()
    wait_for(lambda: told(daemon, after))
    client = Client(daemon.url, daemon.key)
    assert [item["id"] for item in client.get("/v1/sandboxes")["items"]] == [before]
    assert [item["id"] for item in recovered(daemon).get("/v1/sandboxes")["items"]] == [after]
    assert client.call("GET", f"/v1/sandboxes/{before}/fs/file", params={"path": "work.txt"}).text == "before"


@pytest.mark.skipif(TEMPLATE != "code-interpreter-python", reason="one pool is enough to see it")
def test_what_was_deleted_or_waited_in_a_pool_is_not_recovered() -> None:
    """Also where the daemon was killed before the keeper had heard of it."""
    sizes = (f"code-interpreter-{name}" for name in ("python", "node", "r"))
    with Daemon("--pools-fill", "start", *(word for name in sizes for word in ("--pools-sizes", f"{name}:{int(name == TEMPLATE)}"))) as daemon:
        client = Client(daemon.url, daemon.key)
        wait_for(lambda: re.search(r"^sandal_pool_ready\{[^}]*\} 1$", client.call("GET", "/metrics").text, re.M), 60)
        sandbox = work_in(client, "no more")
        client.http.request("DELETE", f"/v1/sandboxes/{sandbox}")
        daemon.kill()
        daemon.start()
        wait_for(lambda: "sandbox.unknown" in daemon.log() and not files_kept(daemon, sandbox), 20)
        assert "sandbox.recovered" not in daemon.log() and "sandbox.lost" not in daemon.log()


def test_no_more_are_recovered_than_the_daemon_may_hold() -> None:
    """The others' files stay where they are, and the next start that has room takes them."""
    with Daemon("--limits-sandboxes", "2") as daemon:
        client = Client(daemon.url, daemon.key)
        made = {work_in(client, "one"), work_in(client, "two")}
        daemon.stop()
        drop_database(daemon.state)
        daemon.options[1] = "1"
        daemon.start()
        wait_for(lambda: "sandbox.lost" in daemon.log() and "sandbox.recovered" in daemon.log())
        assert "limits.sandboxes is reached" in daemon.log()
        owner = recovered(daemon)
        (first,) = [item["id"] for item in owner.get("/v1/sandboxes")["items"]]
        (other,) = made - {first}
        assert files_kept(daemon, other)
        owner.delete(f"/v1/sandboxes/{first}")
        daemon.stop()
        daemon.start()
        wait_for(lambda: told(daemon, other))
        assert [item["id"] for item in recovered(daemon).get("/v1/sandboxes")["items"]] == [other]
