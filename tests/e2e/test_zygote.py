"""Kernels that are forked by a zygote (docs/zygotes.md): what they share with others of it, which is nothing that can be
seen; how they end; and what is left when a zygote does."""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import resource
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, ROOT, TEMPLATE, UID_COUNT, Daemon, wait_for
from harness.processes import first_init, host_pid, inits, of_sandbox

FORKS = ISOLATION == "namespace" and TEMPLATE.startswith("code-interpreter-python")
ROOM = UID_COUNT // 65_536 // 8 - 1  # sandboxes below one zygote: KEEPER_ZYGOTE_SHARE
needs_fork = pytest.mark.skipif(not FORKS, reason=f"isolation {ISOLATION}, template {TEMPLATE}: there are no zygotes")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with Daemon("--pools-fill", "off") as d:
        yield d


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[Client]:
    c = Client(daemon.url, daemon.key)
    yield c
    c.close()


def forked(client: Client, **fields: Any) -> Sandbox:
    return client.sandbox(template=TEMPLATE, checkpointable=False, **fields)


def zygotes(daemon: Daemon) -> list[tuple[str, int]]:
    """Sandbox and process of all that have got ready so far."""
    return [(ident, int(pid)) for ident, pid in re.findall(r"zygote\.ready zygote=(\S+) .*?pid=(\d+)", daemon.log())]


def base_of(ident: str) -> int:
    """First of the range of ids that a sandbox or a zygote has."""
    return int(Path(f"/proc/{first_init(ident)}/uid_map").read_text().split()[1])


def zygote_of(daemon: Daemon, sandbox: Sandbox) -> tuple[str, int]:
    """The one below which it lies: whose range its own is in. A spare one may be there beside it."""
    base = base_of(sandbox.id)
    (found,) = ((ident, pid) for ident, pid in zygotes(daemon)
                if inits(ident) and base_of(ident) < base <= base_of(ident) + ROOM * 65_536)
    return found


def tasks_max(pid: int) -> str:
    (line,) = (line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max processes"))
    return line.split()[2]


def status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def kernel_of(sandbox: Sandbox) -> int:
    return host_pid(sandbox.id, int(sandbox.run("import os; print(os.getpid())")["stdout"]))


@pytest.mark.smoke
def test_start_says_how_it_began(client: Client) -> None:
    with forked(client) as sb:
        assert sb.record["checkpointable"] is False
        assert sb.record["start"] == ("zygote" if FORKS else "spawn"), sb.record
        assert sb.run("1 + 1")["text"] == "2"
        assert client.get(f"/v1/sandboxes/{sb.id}")["start"] == sb.record["start"]


@needs_fork
def test_children_share_nothing_that_shows(client: Client) -> None:
    code = ("import os, random, secrets, uuid, numpy, tempfile\n"
            "print([random.random(), numpy.random.rand(), numpy.random.default_rng().random(), secrets.token_hex(4), uuid.uuid4().hex,\n"
            "       next(tempfile._get_candidate_names()), os.uname().nodename, os.environ.get('MINE')])")
    with forked(client, env={"MINE": "one"}) as one, forked(client, env={"MINE": "two"}) as two:
        rows = [eval(sb.run(code)["stdout"]) for sb in (one, two)]
        assert all(a != b for a, b in zip(*rows)), rows
        assert [row[-2:] for row in rows] == [[one.id, "one"], [two.id, "two"]]
        one.run("import json; json.marker = 1; marker = 1; open('/tmp/mine', 'w').write('x'); os.environ['LATER'] = '1'")
        got = two.run("import json; print(hasattr(json, 'marker'), 'marker' in globals(), os.listdir('/tmp'), os.environ.get('LATER'))")
        assert got["stdout"] == "False False [] None\n", got
        files = [sb.run("print(sorted(os.listdir('/run/sandal')))")["stdout"] for sb in (one, two)]
        assert "zygote" not in "".join(files) and files[0] != files[1]


@needs_fork
def test_it_is_a_kernel_like_any_other(client: Client) -> None:
    """A figure, a table, a subprocess, threads of a library, a second context, env of a run, the interrupt."""
    with forked(client) as sb:
        got = sb.run("import matplotlib.pyplot as plt, pandas as pd\nplt.plot([1, 2])\nplt.show()\npd.DataFrame({'a': [1]})")
        kinds = {kind for result in got["results"] for kind in result["formats"]}
        assert {"image/png", "text/html", "application/vnd.dataframe+json"} <= kinds, kinds
        assert sb.run("import subprocess; print(subprocess.run(['id', '-u'], capture_output=True, text=True).stdout)")["stdout"] == "1000\n\n"
        assert sb.run("!echo of a shell")["stdout"].strip() == "of a shell"
        assert sb.run("import numpy; print(numpy.ones((300, 300)).dot(numpy.ones((300, 300)))[0][0])")["stdout"] == "300.0\n"
        assert sb.run("print(os.environ['ONCE'])" if sb.run("import os")["status"] == "ok" else "", env={"ONCE": "here"})["stdout"] == "here\n"
        assert sb.run("import time; time.sleep(60)", timeout=1)["status"] == "timeout"
        other = sb.context(name="other")
        assert sb.run("'os' in globals()", context=other["id"])["text"] == "False"
        assert sb.run("1 + 1")["text"] == "2"


@needs_fork
def test_rights_are_those_of_any_sandbox(daemon: Daemon, client: Client) -> None:
    with forked(client) as sb:
        kernel, init = kernel_of(sb), first_init(sb.id)
        own = status(kernel)
        assert {own[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert own["NoNewPrivs"] == "1" and own["Seccomp"] == "2"
        base, (_, forker) = base_of(sb.id), zygote_of(daemon, sb)
        for kind in ("uid_map", "gid_map"):
            assert Path(f"/proc/{kernel}/{kind}").read_text().split() == ["0", str(base), "65536"]
        assert daemon.uid_base <= base < daemon.uid_base + UID_COUNT and own["Uid"].split() == [str(base + 1000)] * 4
        spaces = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")
        ids = {who: [os.readlink(f"/proc/{pid}/ns/{space}") for space in spaces]
               for who, pid in (("kernel", kernel), ("init", init), ("zygote", forker))}
        assert ids["kernel"] == ids["init"] and not set(ids["kernel"]) & set(ids["zygote"])
        groups = {who: Path(f"/proc/{pid}/cgroup").read_text() for who, pid in (("kernel", kernel), ("init", init))}
        assert groups["kernel"] == groups["init"] and sb.id in groups["kernel"]
        zygote = status(forker)
        assert zygote["CapEff"] == zygote["CapBnd"] == "0" * 16 and "0" not in zygote["Uid"].split()
        # The zygote's uid owns the user namespaces, so that it is charged for all tasks in them.
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]  # where root can't go beyond it
        assert tasks_max(kernel) == "4096" and tasks_max(forker) in ("unlimited", str(most))
        for call in ("ctypes.CDLL(None).setns(os.open('/proc/self/ns/net', 0), 0)", "ctypes.CDLL(None, use_errno=True).unshare(0x10000000)"):
            assert sb.run(f"import ctypes, os; {call}")["text"] == "-1"


@needs_fork
@pytest.mark.parametrize("code, state, said", [
    ("import os; os._exit(7)", "exited", "7"), ("import os; os.kill(os.getpid(), 11)", "killed", "SIGSEGV"), ("exit()", "exited", "")])
def test_its_end_is_told_truly(client: Client, code: str, state: str, said: str) -> None:
    with forked(client) as sb:
        got = sb.run("import os; print('before', flush=True)\n" + code)
        assert got["status"] == state and got["stdout"] == "before\n" and said in got["error"]["message"] + got["error"].get("value", ""), got
        assert sb.run("2 + 2")["text"] == "4"  # by a fresh one


@needs_fork
def test_want_of_memory_is_told_truly(client: Client) -> None:
    with forked(client, limits={"memory_mib": 200}) as sb:
        assert sb.run("b = bytearray(600 << 20)")["status"] == "oom"
        assert sb.run("2 + 2")["text"] == "4"


@needs_fork
def test_a_minder_that_is_killed_takes_nothing_along(client: Client) -> None:
    with forked(client) as sb:
        kernel = kernel_of(sb)
        minder = int(status(kernel)["PPid"])
        assert b"minder" in Path(f"/proc/{minder}/cmdline").read_bytes()
        os.kill(minder, signal.SIGKILL)
        wait_for(lambda: int(status(kernel)["PPid"]) != minder)
        assert sb.run("import os; os.getpid()")["status"] == "ok"
        got = sb.run("os._exit(3)")
        assert got["status"] == "exited" and "3" in got["error"]["message"], got


@needs_fork
def test_a_zygote_dies_alone_and_is_replaced(daemon: Daemon, client: Client) -> None:
    with forked(client) as sb:
        sb.run("x = 41")
        ident, pid = zygote_of(daemon, sb)
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: f"zygote.over zygote={ident}" in daemon.log())
        assert sb.run("x + 1")["text"] == "42"
        with forked(client) as other:
            assert other.record["start"] == "zygote" and zygote_of(daemon, other)[0] != ident
        got = sb.run("import os; os._exit(1)")  # and its next kernel comes without one
        assert got["status"] == "exited" and sb.run("1 + 1")["text"] == "2"
        assert inits(ident)
    wait_for(lambda: not inits(ident), 30)  # with the last sandbox in it


@needs_fork
def test_a_zygote_that_ends_whole_is_told_truly(daemon: Daemon, client: Client) -> None:
    """Its pid 1 takes all processes of all sandboxes below along; their files stay."""
    with forked(client) as sb:
        sb.run("open('kept', 'w').write('here')")
        ident, _ = zygote_of(daemon, sb)
        os.kill(first_init(ident), signal.SIGKILL)
        wait_for(lambda: not inits(ident))
        got = wait_for(lambda: [e for e in [sb.run("print(open('kept').read())")] if e["status"] == "ok"], 30)
        assert got[0]["stdout"] == "here\n"
        with forked(client) as other:
            assert other.record["start"] == "zygote"


@needs_fork
def test_full_ones_are_not_waited_for_and_nothing_is_left(daemon: Daemon, client: Client) -> None:
    """More at once than there is room below one; afterwards ids, groups and processes are given back."""
    with concurrent.futures.ThreadPoolExecutor(ROOM + 2) as pool:
        boxes = list(pool.map(lambda _: forked(client), range(ROOM + 2)))
        try:
            assert {sb.record["start"] for sb in boxes} == {"zygote"}
            assert len({zygote_of(daemon, sb) for sb in boxes}) >= 2
            assert len({base_of(sb.id) for sb in boxes}) == len(boxes)
        finally:
            list(pool.map(lambda sb: sb.delete(), boxes))
    wait_for(lambda: not [sb.id for sb in boxes if inits(sb.id) or of_sandbox(sb.id)], 30)
    groups = wait_for(lambda: [True] if not [g for g in Path("/sys/fs/cgroup").glob("**/*sbx-*") if any(sb.id in g.name for sb in boxes)]
                      else [], 30)
    assert groups
    with forked(client) as sb:  # their ids are free again
        assert sb.record["start"] == "zygote"


@needs_fork
def test_variables_that_act_at_the_start_make_it_a_spawn(client: Client) -> None:
    with forked(client, env={"PYTHONHASHSEED": "7"}) as sb:
        assert sb.record["start"] == "spawn"
        assert sb.run("import os; print(os.environ['PYTHONHASHSEED'], hash('a'))")["stdout"].startswith("7 ")


@needs_fork
def test_owners_are_kept_apart_if_that_is_wished() -> None:
    """And there is a limit to how many that makes: past it kernels are spawned."""
    with Daemon("--pools-fill", "off", "--zygotes-per-owner", "--zygotes-max", "2") as d:
        admin = Client(d.url, d.key)
        keys = [admin.post("/v1/keys", {"owner": owner, "scopes": ["use"]}, expect=201)["key"] for owner in ("anna", "berta", "carla")]
        clients = [Client(d.url, key) for key in keys]
        boxes = [forked(c) for c in clients]
        assert [sb.record["start"] for sb in boxes] == ["zygote", "zygote", "spawn"] and len(zygotes(d)) == 2
        assert len({zygote_of(d, sb) for sb in boxes[:2]}) == 2
        for c in (admin, *clients):
            c.close()


@needs_fork
def test_one_that_fails_stops_no_other() -> None:
    folder = Path(tempfile.mkdtemp(prefix="sandal-e2e-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.copytree(ROOT / "kernelspecs" / TEMPLATE, folder / "broken")
    path = folder / "broken" / "template.json"
    about = {**json.loads(path.read_text()), "name": "broken"}
    about["languages"]["python"]["zygote"] = ["false"]
    path.write_text(json.dumps(about))
    with Daemon("--pools-fill", "off", template_dirs=[folder]) as d:
        client = Client(d.url, d.key)
        with client.sandbox(template="broken", checkpointable=False) as sb:
            assert sb.record["start"] == "spawn" and "zygote.failed" in d.log()
        with forked(client) as other:
            assert other.record["start"] == "zygote"
        client.close()
    shutil.rmtree(folder)


@needs_fork
def test_a_killed_daemon_finds_them_again() -> None:
    d = Daemon("--pools-fill", "off")
    with d:
        client = Client(d.url, d.key)
        sb = forked(client)
        sb.run("open('kept', 'w').write('here')")
        init, zygote = first_init(sb.id), zygote_of(d, sb)[0]
        client.close()
        d.kill()
        d.start()
        client = Client(d.url, d.key)
        again = Sandbox(client, client.get(f"/v1/sandboxes/{sb.id}"))
        assert again.run("print(open('kept').read())")["stdout"] == "here\n"
        assert first_init(sb.id) == init and inits(zygote)
        again.delete()
        wait_for(lambda: not inits(zygote) and not inits(sb.id), 30)
        with forked(client) as other:
            assert other.record["start"] == "zygote"
        client.close()
