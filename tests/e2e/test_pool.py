"""Warm pools: a create that takes a member is fast and says so, what it gets is its own, and nothing of a pool is seen,
stays behind or is handed out twice."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, ROOT, TEMPLATE, Daemon, wait_for


FEW = 128 if ISOLATION == "gvisor" else 24  # processes: enough for a kernel, not for what a member has in use and some more


def pools(client: Client, template: str = TEMPLATE, start: str = "spawn") -> dict[str, int]:
    """Figures of a template's pool of one kind, by name."""
    found = {}
    for line in client.call("GET", "/metrics", expect=200).text.splitlines():
        name, _, value = line.partition(" ")
        if name.startswith("sandal_pool_") and name.endswith(f'{{template="{template}",start="{start}"}}'):
            found[name[len("sandal_pool_"):name.index("{")]] = int(value)
    return found


def wait_ready(client: Client, count: int = 1, template: str = TEMPLATE, start: str = "spawn") -> dict[str, int]:
    def full() -> bool:
        found = pools(client, template, start)
        return found["ready"] >= count and not found["warming"]

    wait_for(full, 120, 0.05)
    return pools(client, template, start)


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
    others = (f"{name}:0" for name in ("code-interpreter-python", "code-interpreter-node", "code-interpreter-r") if name != TEMPLATE)
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:1", *others)) as d:
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


def words_of(proc: Path) -> list[bytes]:
    try:
        return proc.joinpath("cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def kernels(daemon: Daemon) -> list[int]:
    """Kernels of the daemon's sandboxes: by the connection file that they were started with."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = proc.joinpath("cmdline").read_bytes().split(b"\0")
            uid = proc.stat().st_uid
            ours = uid - daemon.uid_base in range(64 * 65536) if os.geteuid() == 0 else uid == os.geteuid()
            ours = ours or str(daemon.state).encode() in b" ".join(words)
        except OSError:
            continue
        if ours and b"ipykernel_launcher" in words and not words[0].endswith(b"sandal-init"):
            found.append(int(proc.name))
    return found


def forks(daemon: Daemon) -> list[int]:
    """Zygotes of the daemon's, and what these have forked."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"sandal_zygote" in words_of(proc) and proc.stat().st_uid - daemon.uid_base in range(64 * 65536):
                found.append(int(proc.name))
    return found


def bodies(daemon: Daemon) -> list[int]:
    """What can be stopped and ended of members from outside: kernels, or the guest kernels that these live in."""
    if ISOLATION != "gvisor":
        return kernels(daemon)
    return [int(proc.name) for proc in Path("/proc").glob("[0-9]*")
            if (words := words_of(proc)) and words[0] == b"runsc-sandbox" and str(daemon.state).encode() in b" ".join(words)]


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
    wait_for(lambda: pools(client)["ready"] and len(bodies(pooled)) == 1, 120, 0.05)
    (pid,) = bodies(pooled)
    share = group_value(pid, "cpu", "cpu.shares", "cpu.weight")
    assert share in (None, "307", "30"), "what waits has less than what is in use"
    with client.sandbox(template=TEMPLATE, limits={"pids": 400, "cpus": 1.5}) as sandbox:
        assert sandbox.record["start"] == "pool"
        limits = sandbox.record["limits"]
        assert (limits["pids"], limits["cpus"]) == (400, 1.5)
        assert group_value(pid, "pids", "pids.max", "pids.max") == "400"
        assert group_value(pid, "cpu", "cpu.shares", "cpu.weight") in (None, "1024", "100")
        assert sandbox.run("1 + 1")["text"] == "2"
    wait_ready(client)
    for limits in ({"disk_mib": 1024}, {"memory_mib": 512}, {"memory_mib": 4096}, {"cpus": 1}, {"pids": FEW}):
        with client.sandbox(template=TEMPLATE, limits=limits) as sandbox:
            assert sandbox.record["start"] == "spawn", limits
            if limits == {"memory_mib": 512} and ISOLATION != "gvisor":  # what it sees of it is its own limit, too
                shown = sandbox.run("int(open('/proc/meminfo').readline().split()[1])")["text"]
                assert int(shown) <= 512 << 10, shown


def test_a_member_that_dies_is_replaced(client: Client, pooled: Daemon) -> None:
    before = wait_ready(client)
    for pid in bodies(pooled):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pools(client)["failed_total"] > before["failed_total"], 30)
    wait_for(lambda: pools(client)["made_total"] > before["made_total"] and pools(client)["ready"], 120)
    with client.sandbox(template=TEMPLATE) as sandbox:
        assert sandbox.record["start"] == "pool" and sandbox.run("1 + 1")["text"] == "2"


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def taken_and_lost(client: Client, end: Callable[[], None], **wish: Any) -> Sandbox:
    """A create, during which what it took of the pool ends."""
    before = pools(client)
    with ThreadPoolExecutor(1) as threads:
        made = threads.submit(client.sandbox, template=TEMPLATE, name="mine", metadata={"k": "v"}, timeout=77, **wish)
        wait_for(lambda: sum(pools(client)[name] - before[name] for name in ("hits_total", "joined_total")), 60)
        end()
        return made.result(120)


def is_whole(client: Client, sandbox: Sandbox) -> None:
    """Made for its create, with all that was asked for, and nothing is left of the one that was lost."""
    with sandbox:
        assert sandbox.record["start"] == "spawn" and sandbox.record["state"] == "running", sandbox.record
        assert (sandbox.record["name"], sandbox.record["metadata"], sandbox.record["timeout"]) == ("mine", {"k": "v"}, 77)
        assert [item["id"] for item in client.get("/v1/sandboxes")["items"]] == [sandbox.id]
        assert sandbox.run("import os; os.environ.get('COLOUR')")["text"] in ("'red'", "")
    assert client.get("/v1/sandboxes")["items"] == []


@pytest.mark.smoke
def test_one_that_dies_as_it_is_handed_over_is_made_up_for(client: Client, pooled: Daemon) -> None:
    (pid,) = bodies(pooled)
    with stopped(pid):  # so that it cannot take the environment
        sandbox = taken_and_lost(client, lambda: os.kill(pid, signal.SIGKILL), env={"COLOUR": "red"})
        assert sandbox.run("import os; os.environ['COLOUR']")["text"] == "'red'"
        is_whole(client, sandbox)


def test_one_that_dies_while_its_limits_are_set_is_made_up_for(client: Client, pooled: Daemon) -> None:
    def told() -> int:
        return pooled.log().count("kernel.exit context") + pooled.log().count("sandbox.lost")

    with client.sandbox(template=TEMPLATE, limits={"pids": 400}) as sandbox:
        if sandbox.record["start"] != "pool":
            pytest.skip("members take no limits here")
    wait_ready(client)
    (body,) = bodies(pooled)
    before = told()
    with stopped(pooled.pid):  # the keeper, which is to set them
        def end() -> None:
            os.kill(body, signal.SIGKILL)
            wait_for(lambda: told() > before)
            os.kill(pooled.pid, signal.SIGCONT)

        sandbox = taken_and_lost(client, end, limits={"pids": 400})
        assert sandbox.record["limits"]["pids"] == 400
        is_whole(client, sandbox)


def test_one_in_the_making_that_dies_is_made_up_for(client: Client, pooled: Daemon) -> None:
    known = set(bodies(pooled))
    for pid in known:
        os.kill(pid, signal.SIGKILL)
    (pid,) = wait_for(lambda: set(bodies(pooled)) - known, 60, 0.002)
    with stopped(pid):
        sandbox = taken_and_lost(client, lambda: os.kill(pid, signal.SIGKILL))
        is_whole(client, sandbox)


def test_a_burst_is_answered(client: Client) -> None:
    """More creates at once than there are members, some with limits, while others are deleted: each has one that works."""
    def make(number: int) -> tuple[str, str]:
        limits = {"limits": {"pids": 300}} if number % 2 and holds else {}
        with client.sandbox(template=TEMPLATE, env={"NUMBER": str(number)}, **limits) as sandbox:
            return sandbox.record["start"], sandbox.run("import os; os.environ['NUMBER']")["text"]

    with client.sandbox(template="base") as sandbox:
        holds = sandbox.record["limits"]["pids"] is not None
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(make, range(6)))
    assert [text for _, text in made] == [f"'{number}'" for number in range(6)]
    assert {start for start, _ in made} <= {"pool", "spawn"}


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
        old = bodies(d)
        assert old
        os.kill(d.gateway_pid(), signal.SIGKILL)
        d.kill()
        client.close()
        d.start()
        client = Client(d.url, d.key)
        assert client.get("/v1/sandboxes")["items"] == []
        wait_for(lambda: not set(old) & set(bodies(d)), 30)
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


NO_ZYGOTES = ISOLATION != "namespace" or not TEMPLATE.startswith("code-interpreter-python")


@pytest.mark.skipif(NO_ZYGOTES, reason=f"isolation {ISOLATION}, template {TEMPLATE}: there are no zygotes")
def test_a_pool_holds_both_kinds() -> None:
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:1", f"{TEMPLATE}/zygote:1", "code-interpreter-node:0", "code-interpreter-r:0")) as d:
        client = Client(d.url, d.key)
        for start in ("spawn", "zygote"):
            wait_ready(client, start=start)
        before = {start: pools(client, start=start) for start in ("spawn", "zygote")}
        with client.sandbox(template=TEMPLATE, env={"COLOUR": "red"}) as spawned, \
                client.sandbox(template=TEMPLATE, checkpointable=False, env={"COLOUR": "blue"}) as forked:
            assert (spawned.record["start"], forked.record["start"]) == ("pool", "pool-zygote")
            for sandbox, colour in ((spawned, "red"), (forked, "blue")):
                assert client.get(sandbox.path)["start"] == sandbox.record["start"]
                assert about(sandbox)[0] == colour
        for start in ("spawn", "zygote"):
            after = wait_ready(client, start=start)
            assert (after["hits_total"], after["misses_total"]) == (before[start]["hits_total"] + 1, 0), start
        assert "zygote.ready" in d.log() and "kernel.failed" not in d.log()
        client.close()


@pytest.mark.skipif(NO_ZYGOTES, reason=f"isolation {ISOLATION}, template {TEMPLATE}: there are no zygotes")
def test_a_forked_member_that_dies_is_made_up_for_by_a_fork() -> None:
    with Daemon("--pools-fill", "start", *sized(f"{TEMPLATE}:0", f"{TEMPLATE}/zygote:1", "code-interpreter-node:0", "code-interpreter-r:0")) as d:
        client = Client(d.url, d.key)
        wait_ready(client, start="zygote")
        before = pools(client, start="zygote")
        zygote = int(re.findall(r"zygote\.ready .*?pid=(\d+)", d.log())[0])
        (pid,) = (pid for pid in forks(d) if pid != zygote)
        with stopped(pid), ThreadPoolExecutor(1) as threads:
            made = threads.submit(client.sandbox, template=TEMPLATE, checkpointable=False, env={"COLOUR": "red"})
            wait_for(lambda: pools(client, start="zygote")["hits_total"] > before["hits_total"])
            os.kill(pid, signal.SIGKILL)
            with made.result(60) as sandbox:
                assert sandbox.record["start"] == "zygote", sandbox.record
                assert sandbox.run("import os; os.environ['COLOUR']")["text"] == "'red'"
        client.close()


def test_bad_sizes_are_refused() -> None:
    for fill, size in (("start", "nothing-of-that-name:1"), ("off", "nothing-of-that-name:1"), ("start", f"{TEMPLATE}:2-1"),
                       ("start", f"{TEMPLATE}/forked:1"), ("start", "nothing-of-that-name/zygote:1"),
                       ("start", "code-interpreter-node/zygote:1")):
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
