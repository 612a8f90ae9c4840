"""The launcher `gvisor`: whose kernel it is, and that what it does not give is refused in plain words. Needs root and runsc."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import BUILD, Daemon, clean_environment, wait_for


def why_not() -> str:
    if os.geteuid() != 0:
        return "isolation gvisor needs root"
    said = subprocess.run([BUILD / "sandald", "doctor", "--json"], capture_output=True, text=True, env=clean_environment()).stdout
    row = next((row for row in json.loads(said)["checks"] if row["name"] == "gvisor"), {"state": "no", "detail": "unknown"})
    return f"isolation gvisor does not work here: {row['detail']}" if row["state"] == "no" else ""


@pytest.fixture(scope="module")
def api() -> Iterator[Client]:
    if why := why_not():
        pytest.skip(why)
    with Daemon("--isolation", "gvisor") as daemon:
        client = Client(daemon.url, daemon.key)
        yield client
        client.close()


def test_it_has_a_kernel_of_its_own(api: Client) -> None:
    with api.sandbox(template="base") as box:
        assert box.record["isolation"]["kind"] == "gvisor"
        assert box.record["network"]["mode"] == "none"  # unasked
        said = box.post("/exec", {"cmd": "uname -r; echo of the root > /tmp/both; ls -l /tmp/both"})
        assert said["exit_code"] == 0 and said["stdout"].splitlines()[0] != os.uname().release, said
        assert api.call("GET", f"{box.path}/fs/file", params={"path": "/tmp/both"}, expect=200).text == "of the root\n"


def test_the_end_of_one_leaves_the_others_alone(api: Client) -> None:
    with api.sandbox(template="base") as one, api.sandbox(template="base") as two:
        asked = [box.post("/exec", {"cmd": ["sleep", "600"], "background": True}, expect=201)["pid"] for box in (one, two)]
        for _ in range(2):
            api.sandbox(template="base").delete()  # all that it left is ended and cleared away when this has been answered
        for box, pid in zip((one, two), asked):
            assert box.get(f"/processes/{pid}")["state"] == "running"
            assert box.post("/exec", {"cmd": "echo here"})["stdout"] == "here\n"


def test_what_it_does_not_give_is_refused(api: Client) -> None:
    error = api.error("POST", "/v1/sandboxes", 501, "not_supported", json={"template": "base", "network": "egress"})
    assert "loopback" in error["message"] and "none" in error["hint"], error
    error = api.error("POST", "/v1/sandboxes", 409, "isolation_unavailable", json={"template": "base", "limits": {"pids": 127}})
    assert "128 processes" in error["message"], error
    error = api.error("POST", "/v1/sandboxes", 409, "isolation_unavailable", json={"template": "base", "limits": {"memory_mib": 63}})
    assert "64 MiB" in error["message"], error
    with api.sandbox(template="base") as box:
        error = api.error("POST", f"{box.path}/exec", 501, "not_supported", json={"cmd": "tty", "pty": {}})
        assert "terminal" in error["message"], error


def test_want_of_memory_ends_it_at_once(api: Client) -> None:
    with api.sandbox(template="base", limits={"memory_mib": 128}) as box:
        said = box.post("/exec", {"cmd": ["python3", "-c", "x = [b'x' * (1 << 20) for _ in range(4096)]"], "timeout": 120})
        assert (said["status"], said["signal"], said["timed_out"]) == ("oom", "SIGKILL", False), said
        assert said["usage"]["peak_memory"] > 64 << 20
        works_again(box)


def works_again(box: Sandbox) -> None:
    """In a new place with its files, when the old one has ended, which takes half a second."""
    wait_for(lambda: "fine\\n" in box.client.call("POST", f"{box.path}/exec", json={"cmd": "echo fine"}).text, 30)


def test_a_fork_bomb_ends_its_own_sandbox(api: Client) -> None:
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    with api.sandbox(template="base") as other, api.sandbox(template="base", limits={"pids": 128, "memory_mib": 256, "cpus": 0.5}) as box:
        said = box.post("/exec", {"cmd": ["python3", "-c", bomb], "timeout": 60})
        assert said["status"] in ("killed", "oom", "timeout"), said
        assert other.post("/exec", {"cmd": "echo fine"})["stdout"] == "fine\n"
        works_again(box)


def test_limits_of_the_operator_are_never_left_out() -> None:
    if why := why_not():
        pytest.skip(why)
    with Daemon("--isolation", "gvisor", "--limits-sandbox-pids", "100") as daemon:
        client = Client(daemon.url, daemon.key)
        error = client.error("POST", "/v1/sandboxes", 409, "isolation_unavailable", json={"template": "base"})
        assert "128 processes" in error["message"], error
        client.close()


def test_limits_that_a_member_of_a_pool_cannot_take_start_cold() -> None:
    if why := why_not():
        pytest.skip(why)
    others = [word for n in ("python", "node", "r") for word in ("--pools-sizes", f"code-interpreter-{n}:{int(n == 'python')}")]
    with Daemon("--isolation", "gvisor", "--network", "none", "--pools-fill", "start", *others) as daemon:
        client = Client(daemon.url, daemon.key)
        wait_for(lambda: "pool.ready" in daemon.log(), 120)
        asked = {"name": "mine", "metadata": {"k": "v"}, "timeout": 77}
        with client.sandbox(template="code-interpreter-python", limits={"memory_mib": 1024}, env={"COLOUR": "red"}, **asked) as box:
            assert box.record["start"] == "spawn" and box.record["limits"]["memory_mib"] == 1024
            assert {field: box.record[field] for field in asked} == asked
            assert box.run("import os; os.environ['COLOUR']")["text"] == "'red'"
            assert [item["id"] for item in client.get("/v1/sandboxes")["items"]] == [box.id]
        client.close()
