"""Warm pools: a create that takes a member is fast and says so, what it gets is its own, and nothing of a pool is seen,
stays behind or is handed out twice."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ROOT, TEMPLATE, Daemon, wait_for


def pools(client: Client, template: str = TEMPLATE) -> dict[str, int]:
    """Figures of a template's pool, by name."""
    found = {}
    for line in client.call("GET", "/metrics", expect=200).text.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("sandal_pool_") and name.endswith(f'{{template="{template}"}}'):
            found[name[len("sandal_pool_"):name.index("{")]] = int(value)
    return found


def wait_ready(client: Client, count: int = 1, template: str = TEMPLATE) -> dict[str, int]:
    wait_for(lambda: pools(client, template)["ready"] >= count and not pools(client, template)["warming"], 120, 0.05)
    return pools(client, template)


def sized(*sizes: str) -> list[str]:
    return [word for size in sizes for word in ("--pools-sizes", size)]


def small(name: str, folder: Path, **pool: int) -> str:
    """A template as the suite's, but with a pool of its own kind. Its name."""
    shutil.copytree(ROOT / "kernelspecs" / TEMPLATE, folder / name)
    path = folder / name / "template.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "name": name, "pool": pool}))
    return name


@pytest.fixture(scope="module")
def pooled() -> Iterator[Daemon]:
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:1", "code-interpreter-node:0", "code-interpreter-r:0")) as d:
        yield d


@pytest.fixture
def client(pooled: Daemon) -> Iterator[Client]:
    c = Client(pooled.url, pooled.key)
    wait_ready(c)
    yield c
    c.close()


ABOUT = """
import os, random, socket
(os.environ.get("COLOUR"), [n for n in globals() if not n.startswith("_")], random.getrandbits(64), os.uname().nodename, (len(In), Out, _))
"""


def about(sandbox: Sandbox) -> Any:
    got = sandbox.run(ABOUT)
    assert got["status"] == "ok" and got["execution_count"] == 1, got
    return ast.literal_eval(got["text"])


@pytest.mark.smoke
def test_a_member_is_its_takers_own(client: Client) -> None:
    before = pools(client)
    assert client.get("/v1/sandboxes")["items"] == [], "a member is in nobody's list"
    with client.sandbox(template=TEMPLATE, name="mine", env={"COLOUR": "red"}, metadata={"k": "v"}, timeout=77) as one:
        assert one.record["start"] == "pool"
        assert (one.record["name"], one.record["metadata"], one.record["timeout"]) == ("mine", {"k": "v"}, 77)
        assert [item["id"] for item in client.get("/v1/sandboxes")["items"]] == [one.id]
        colour, names, random, node, seen = about(one)
        assert colour == "red" and seen == (2, {}, "")
        assert set(names) <= {"In", "Out", "get_ipython", "exit", "quit", "open", "os", "random", "socket"}, names
        assert one.post("/exec", {"cmd": "echo $COLOUR"})["stdout"] == "red\n"
        assert one.run("_ is None or _[0] == 'red'")["text"] == "True"
        assert one.get(f"/contexts/{one.record['default_context']}/variables")["items"] == []
        wait_ready(client)
        with client.sandbox(template=TEMPLATE) as two:
            assert two.record["start"] == "pool" and two.id != one.id and two.record["name"] is None
            other = about(two)
            assert other[0] is None and other[2] != random
            assert two.record["isolation"]["kind"] != "namespace" or other[3] != node
    after = pools(client)
    assert after["hits_total"] - before["hits_total"] == 2 and after["misses_total"] == before["misses_total"]


def test_a_reset_keeps_the_environment(client: Client) -> None:
    with client.sandbox(template=TEMPLATE, env={"COLOUR": "red"}) as sandbox:
        assert sandbox.record["start"] == "pool"
        sandbox.post(f"/contexts/{sandbox.record['default_context']}/reset")
        assert sandbox.run("import os; os.environ['COLOUR']")["text"] == "'red'"


def test_what_a_member_cannot_be_starts_cold(client: Client) -> None:
    for wish in ({"env": {"PYTHONHASHSEED": "0"}}, {"env": {"A": "b", "LD_LIBRARY_PATH": "/x"}}):
        with client.sandbox(template=TEMPLATE, **wish) as sandbox:
            assert sandbox.record["start"] == "spawn", wish
    with client.sandbox(template="base") as sandbox:
        assert sandbox.record["start"] == "spawn"


def test_an_empty_pool_waits_or_starts_cold(client: Client) -> None:
    before = pools(client)

    def make(number: int) -> tuple[str, str, str]:
        sandbox = client.sandbox(template=TEMPLATE, env={"NUMBER": str(number)})
        got = sandbox.run("import os; os.environ['NUMBER']")["text"]
        sandbox.delete()
        return sandbox.id, sandbox.record["start"], got

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(make, range(4)))
    after = pools(client)
    assert len({ident for ident, _, _ in made}) == 4
    assert [got for _, _, got in made] == [f"'{n}'" for n in range(4)]
    warm = sum(after[name] - before[name] for name in ("hits_total", "joined_total"))
    assert [start for _, start, _ in made].count("pool") == warm >= 1
    assert after["misses_total"] - before["misses_total"] == 4 - warm


def test_one_in_the_making_is_waited_for(client: Client, pooled: Daemon) -> None:
    with client.sandbox(template=TEMPLATE) as first:
        assert first.record["start"] == "pool"
        wait_for(lambda: pools(client)["warming"] or pools(client)["ready"], 60, 0.002)  # the latter on a slow client
        with client.sandbox(template=TEMPLATE, env={"COLOUR": "blue"}) as second:
            assert second.record["start"] == "pool" and second.record["state"] == "running"
            assert about(second)[0] == "blue"


def kernels(daemon: Daemon) -> list[int]:
    """Kernels of the daemon's sandboxes: by the connection file that they were started with."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = proc.joinpath("cmdline").read_bytes().split(b"\0")
            ours = proc.stat().st_uid - daemon.uid_base in range(64 * 65536) or str(daemon.state).encode() in b" ".join(words)
        except OSError:
            continue
        if ours and b"ipykernel_launcher" in words and not words[0].endswith(b"sandal-init"):
            found.append(int(proc.name))
    return found


def group_value(pid: int, controller: str, v1: str, v2: str) -> str | None:
    """What a process's control group says in a file of a controller, of either version; None: no such group."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        old = Path(f"/sys/fs/cgroup/{controller}{path}/{v1}")
        new = Path(f"/sys/fs/cgroup{path}/{v2}")
        if controller in controllers.split(",") and old.exists():
            return old.read_text().strip()
        if not controllers and new.exists():
            return new.read_text().strip()
    return None


def test_a_member_takes_the_limits_and_gets_its_share(client: Client, pooled: Daemon) -> None:
    with client.sandbox(template=TEMPLATE) as sandbox:
        if sandbox.record["isolation"]["cgroup"] in (None, "none") or sandbox.record["isolation"]["kind"] == "process":
            pytest.skip("no control groups that hold limits: a wish for others starts cold")
    wait_for(lambda: pools(client)["ready"] and len(kernels(pooled)) == 1, 120, 0.05)
    (pid,) = kernels(pooled)
    share = group_value(pid, "cpu", "cpu.shares", "cpu.weight")
    assert share in (None, "307", "30"), "what waits has less than what is in use"
    with client.sandbox(template=TEMPLATE, limits={"pids": 177, "cpus": 1.5}) as sandbox:
        assert sandbox.record["start"] == "pool"
        limits = sandbox.record["limits"]
        assert (limits["pids"], limits["cpus"]) == (177, 1.5)
        assert group_value(pid, "pids", "pids.max", "pids.max") == "177"
        assert group_value(pid, "cpu", "cpu.shares", "cpu.weight") in (None, "1024", "100")
        assert sandbox.run("1 + 1")["text"] == "2"
    wait_ready(client)
    for limits in ({"disk_mib": 1024}, {"memory_mib": 512}, {"memory_mib": 4096}, {"cpus": 1}, {"pids": 24}):
        with client.sandbox(template=TEMPLATE, limits=limits) as sandbox:
            assert sandbox.record["start"] == "spawn", limits
            if limits == {"memory_mib": 512}:  # what it sees of it is its own limit, too
                shown = sandbox.run("int(open('/proc/meminfo').readline().split()[1])")["text"]
                assert int(shown) <= 512 << 10, shown


def test_a_member_that_dies_is_replaced(client: Client, pooled: Daemon) -> None:
    before = wait_ready(client)
    for pid in kernels(pooled):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pools(client)["failed_total"] > before["failed_total"], 30)
    wait_for(lambda: pools(client)["made_total"] > before["made_total"] and pools(client)["ready"], 120)
    with client.sandbox(template=TEMPLATE) as sandbox:
        assert sandbox.record["start"] == "pool" and sandbox.run("1 + 1")["text"] == "2"


def test_members_age() -> None:
    folder = Path(tempfile.mkdtemp(prefix="sandal-e2e-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        name = small("young", folder, min=1, max=1, max_age_s=1)
        with Daemon("--pools-fill", "start", *sized(*(f"code-interpreter-{n}:0" for n in ("python", "node", "r"))),
                    template_dirs=[folder]) as d:
            client = Client(d.url, d.key)
            wait_for(lambda: pools(client, name)["aged_total"] and pools(client, name)["made_total"] > 1, 120)
            assert pools(client, name)["failed_total"] == 0
            client.close()
    finally:
        shutil.rmtree(folder)


def test_what_a_killed_daemon_leaves_of_a_pool_ends() -> None:
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:1", "code-interpreter-node:0", "code-interpreter-r:0")) as d:
        client = Client(d.url, d.key)
        wait_ready(client)
        old = kernels(d)
        assert old
        os.kill(d.gateway_pid(), signal.SIGKILL)
        d.kill()
        client.close()
        d.start()
        client = Client(d.url, d.key)
        assert client.get("/v1/sandboxes")["items"] == []
        wait_for(lambda: not set(old) & set(kernels(d)), 30)
        wait_ready(client)
        assert pools(client)["made_total"] == 1
        with client.sandbox(template=TEMPLATE) as sandbox:
            assert sandbox.record["start"] == "pool"
        client.close()


def test_on_demand_the_first_create_fills() -> None:
    with Daemon("--pools-fill", "demand", *sized(f"{TEMPLATE}:0-1")) as d:
        client = Client(d.url, d.key)
        assert pools(client)["target"] == 0
        with client.sandbox(template=TEMPLATE) as sandbox:
            assert sandbox.record["start"] == "spawn"
            wait_ready(client)
            with client.sandbox(template=TEMPLATE) as again:
                assert again.record["start"] == "pool"
        client.close()


def test_members_make_room_for_sandboxes() -> None:
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:1", "code-interpreter-node:0", "code-interpreter-r:0"),
                "--limits-sandboxes", "2") as d:
        client = Client(d.url, d.key)
        wait_ready(client)
        with client.sandbox(template="base"), client.sandbox(template="base"):
            assert pools(client)["given_back_total"] == 1 and pools(client)["failed_total"] == 0
            client.error("POST", "/v1/sandboxes", 429, "quota_exceeded", json={"template": "base"})
        client.close()


@pytest.mark.parametrize(("template", "code", "text"), [
    ("code-interpreter-node", "const where = process.env.COLOUR; where", "'red'"),
    ("code-interpreter-r", "Sys.getenv('COLOUR')", '[1] "red"'),
])
def test_other_languages(template: str, code: str, text: str) -> None:
    with Daemon("--pools-fill", "start", *sized("code-interpreter-python:0", "code-interpreter-node:0", "code-interpreter-r:0",
                                                f"{template}:1")) as d:
        client = Client(d.url, d.key)
        wait_ready(client, template=template)
        with client.sandbox(template=template, env={"COLOUR": "red"}) as sandbox:
            assert sandbox.record["start"] == "pool"
            got = sandbox.run(code)
            assert (got["status"], got["text"], got["execution_count"]) == ("ok", text, 1), got
            broken = sandbox.run({"code-interpreter-node": "throw new Error('x')", "code-interpreter-r": "stop('x')"}[template])
            assert broken["status"] == "error" and broken["execution_count"] == 2, broken
            if template == "code-interpreter-node":
                assert "cell 2:" in "".join(broken["error"]["traceback"]), broken
        client.close()


def test_bad_sizes_are_refused() -> None:
    for fill, size in (("start", "nothing-of-that-name:1"), ("off", "nothing-of-that-name:1"), ("start", f"{TEMPLATE}:2-1")):
        daemon = Daemon("--pools-fill", fill, "--pools-sizes", size)
        done = subprocess.run(daemon.command(), capture_output=True, text=True, timeout=60)
        daemon.remove()
        assert done.returncode != 0 and "pools.sizes" in done.stderr, done.stderr


@pytest.mark.long
def test_a_hundred_creates_at_once() -> None:
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:4-8", "code-interpreter-node:0", "code-interpreter-r:0"),
                "--uid-count", str(256 * 65_536)) as d:
        client = Client(d.url, d.key)
        wait_ready(client, 4)

        def make(number: int) -> tuple[str, str]:
            sandbox = client.sandbox(template=TEMPLATE, env={"NUMBER": str(number)})
            assert sandbox.run("import os; os.environ['NUMBER']")["text"] == f"'{number}'"
            sandbox.delete()
            return sandbox.id, sandbox.record["start"]

        with ThreadPoolExecutor(100) as threads:
            made = list(threads.map(make, range(100)))
        assert len({ident for ident, _ in made}) == 100
        found = pools(client)
        assert found["hits_total"] >= 4
        assert [start for _, start in made].count("pool") == found["hits_total"] + found["joined_total"]
        client.close()
