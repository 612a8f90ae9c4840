"""Hostile code in a sandbox, in the launcher that SANDAL_TEST_ISOLATION names: every try of the package `escape` must fail,
in a kernel, in exec as `user` and as `root`; races against the files' API must not reach anything outside. What a
launcher cannot hold is in OPEN with the reason; the same tries made by the host's root show that they would succeed."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import escape
import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, LONG, ROOT, TEMPLATE, Daemon, slack, wait_for

IS_ROOT = os.geteuid() == 0
OWN_SPACES = ISOLATION not in ("none", "process")  # namespaces and a root of its own
HAS_ROOT = ISOLATION in ("namespace", "runc", "gvisor")
CAPS_OF_ROOT = 0x800405FB  # the container engines' default set
PYTHON = TEMPLATE if TEMPLATE.startswith("code-interpreter-python") else "code-interpreter-python"

# Of the protocol of sandal-init: a try in another version is refused for that alone.
INIT_VERSION = int(re.findall(r"#define KG_IP_VERSION (\d+)", (ROOT / "gateway/sandbox/init_proto.h").read_text())[0])

MARK = f"sandal-planted-{secrets.token_hex(6)}"
HIDDEN = ["/root", "/home", "/srv", "/mnt", "/media", "/opt", "/boot", "/etc", "/etc/ssh", "/etc/ssl/private", "/usr/local/etc", "/var",
          "/var/lib", "/var/log", "/var/tmp", "/var/spool", "/var/cache", "/run", "/tmp", "/dev/shm", "/"]

# What a launcher cannot hold, and why.
_HOST_VIEW = "it shows the host's file system; the rights of its user id are what holds"
_HOST_PIDS = "it has no pid namespace: the host's processes are listed, though not touched"
_HOST_NET = "it uses the host's network"
_NO_FILTER = "it has no seccomp filter"
_HOST = {
    "a file of the host by its name": _HOST_VIEW,
    "a file of the host by ways around the root": _HOST_VIEW,
    "a file of the host by a link in the workspace": _HOST_VIEW,
    "names of the host in hidden directories": _HOST_VIEW,
    "names of the host anywhere": _HOST_VIEW,
    "a template that this sandbox is not made from": _HOST_VIEW,
    "a device that is there": _HOST_VIEW,
    "settings of the kernel": "files of /proc/sys open for all, whose writers the kernel looks at (ns_last_pid)",
    "files of the kernel that tell of the host": "/proc is the host's (/proc/keys)",
    "processes of the host in the list": _HOST_PIDS,
    "the daemon's key and state in environments": _HOST_PIDS + "; command lines name the state directory, never the key",
    "ports of the daemon and the host": _HOST_NET,
    "sockets of the host in the file system": _HOST_VIEW,
    "abstract sockets of the host": _HOST_NET,
    "names of the host's abstract sockets": _HOST_NET,
    "shared memory of the host": "it has no ipc namespace: what the host gives to all is there",
}
_CALLS = ("a new namespace by unshare", "a new namespace by clone", "a new namespace by clone3", "the call io_uring_setup",
          "the call userfaultfd", "the call keyctl", "the call add_key", "the call perf_event_open", "the call kcmp",
          "the call bpf", "raw and odd sockets", "the seccomp filter taken off")
OPEN: dict[str, dict[str, str]] = {
    "none": {**_HOST, **dict.fromkeys(_CALLS, _NO_FILTER)},
    "process": {
        **{name: _HOST[name] for name in ("processes of the host in the list", "the daemon's key and state in environments",
                                          "shared memory of the host", "names of the host's abstract sockets")},
        "sockets of the host in the file system": "Landlock does not look at sockets with names; their modes are what holds",
    },
    "bubblewrap": {"a signal to sandal-init": "there is one user id in it; the first process of a pid namespace gets no signal that it does "
                                              "not wait for: test_no_signal_ends_sandal_init"},
    "gvisor": {
        **dict.fromkeys(("the memory of sandal-init", "descriptors of sandal-init"),
                        "its /proc tells every user the names and maps of all; the memory itself stays closed"),
        **dict.fromkeys(("a device that is there", "a device of one's own making", "sysrq", "settings of the kernel", "settings of devices",
                         "ids beyond the sandbox's", "priority over others"), "it is its own kernel's, the host has nothing to do with it"),
        "capabilities": "its kernel answers 0 to the wish for raw sockets and gives nothing",
    },
}
# Of the hidden places those that a launcher shows after all.
SHOWN = {"process": {"/usr/local/etc": "Landlock allows /usr as a whole: its rules know no exceptions"}}
if not IS_ROOT:
    _SAME = "under an ordinary user's daemon it shares the user id with the daemon and all sandboxes"
    OPEN["none"] = dict.fromkeys(escape.TRIES, _SAME)
    OPEN["process"] |= dict.fromkeys(("sockets of the daemon", "limits of a process of the host", "a signal to sandal-init"), _SAME)


# --- What is planted -------------------------------------------------------------------------------


def plant() -> Iterator[list[Path]]:
    made: list[Path] = []
    for place in map(Path, HIDDEN):
        with contextlib.suppress(OSError):
            (place / MARK).write_text("a secret of the host")
            (place / MARK).chmod(0o644)
            made.append(place / MARK)
    try:
        yield made
    finally:
        for file in made:
            file.unlink()


class Listeners:
    """The host's own: TCP on all addresses, an abstract socket, one in /tmp, System V memory, a process."""

    def __init__(self) -> None:
        self.tcp = socket.create_server(("0.0.0.0", 0))
        self.port = self.tcp.getsockname()[1]
        self.abstract = f"{MARK}-abstract"
        self.unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.unix.bind("\0" + self.abstract)
        self.unix.listen(64)
        self.path = f"/tmp/{MARK}-socket"
        self.named = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.named.bind(self.path)
        self.named.listen(64)
        os.chmod(self.path, 0o777)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.shm_key = secrets.randbits(30) | 1
        self.shm = self.libc.shmget(self.shm_key, 4096, 0o1666)
        assert self.shm >= 0
        self.word = f"98{secrets.randbelow(10**6):06d}.25"
        self.sleeper = subprocess.Popen(["sleep", self.word])

    def close(self) -> None:
        for s in (self.tcp, self.unix, self.named):
            s.close()
        os.unlink(self.path)
        self.libc.shmctl(self.shm, 0, None)
        self.sleeper.kill()
        self.sleeper.wait()


def pid_of(word: str) -> int:
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = proc.joinpath("cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"sleep", word.encode()]:
                return int(proc.name)
    return 0


def init_of(ident: str) -> int:
    """The sandbox's sandal-init as the host counts: the oldest process of that name and id."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = proc.joinpath("cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"sandal-init") and ident.encode() in words:
                found[int(proc.joinpath("stat").read_text().rsplit(")", 1)[1].split()[19])] = int(proc.name)
    return found[min(found)]


# --- The stage ---------------------------------------------------------------------------------------


class Stage:
    """A daemon of its own, a sandbox for the tries, a sibling with secrets, and what the host has."""

    def __init__(self, daemon: Daemon, client: Client, listeners: Listeners, planted: list[Path], box: Sandbox, sibling: Sandbox):
        self.daemon, self.client, self.listeners, self.planted, self.box, self.sibling = daemon, client, listeners, planted, box, sibling
        self.sibling_word = f"97{secrets.randbelow(10**6):06d}.25"
        sh(sibling, f"echo secret > {MARK}-sibling; echo secret > $HOME/{MARK}-sibling; echo secret > /tmp/{MARK}-sibling;"
                    f"echo secret > /dev/shm/{MARK}-sibling; chmod 666 {MARK}-sibling")
        sibling.post("/exec", {"cmd": ["sleep", self.sibling_word], "background": True}, expect=201)
        self.pids = {"host": listeners.sleeper.pid, "sibling": self.pid_of_sibling(),
                     "keeper": daemon.pid, "gateway": daemon.gateway_pid()}
        self.results: dict[str, dict[str, Any]] = {}

    def pid_of_sibling(self) -> int:
        if ISOLATION == "gvisor":  # what runs in its kernel are no processes of the host's
            return init_of(self.sibling.id)
        return wait_for(lambda: pid_of(self.sibling_word))

    def config(self, ident: str, *, own_pids: bool, init_pid: int) -> dict[str, Any]:
        state = self.daemon.state
        files = [p for p in state.rglob("*") if self.sibling.id not in str(p) and ident not in str(p)]
        of_sibling = [f"/tmp/{MARK}-sibling", f"/dev/shm/{MARK}-sibling"] if OWN_SPACES else []
        sibling_files = [str(p) for p in state.rglob(f"{MARK}-sibling")] + of_sibling
        shown = SHOWN.get(ISOLATION, {})
        port = int(self.daemon.urls[0].rsplit(":", 1)[1])
        sockets = [str(p) for p in [*state.rglob("*"), Path("/run/docker.sock"), Path("/run/dbus/system_bus_socket")] if p.is_socket()]
        return {
            "mark": MARK, "canaries": [str(p) for p in self.planted if str(p.parent) not in shown],
            "hidden": [place for place in HIDDEN if place not in shown], "sibling_files": sibling_files,
            "state_dirs": [str(state), *[str(p) for p in files if p.is_dir()]],
            "state_files": [str(p) for p in files if p.is_file()][:100],
            "template_files": [str(p) for p in (ROOT / "kernelspecs").glob("code-interpreter-r/*.json")],
            "shadow": hashlib.sha256(Path("/etc/shadow").read_bytes()).hexdigest() if IS_ROOT else "",
            "shm_key": self.listeners.shm_key, "pids": self.pids, "words": [self.listeners.word, self.sibling_word, str(state)],
            "own_pids": own_pids, "init_pid": init_pid, "init_name": "sandal-init", "init_abstract": ISOLATION == "namespace",
            "init_sockets": [s for s in [*sockets, *abstract_names()] if s.endswith((f"{ident}.init", f"{self.sibling.id}.init",
                                                                                    f"/{ident}", f"/{self.sibling.id}"))],
            "init_version": INIT_VERSION, "addresses": ["127.0.0.1", "::1", "0.0.0.0", *own_addresses()],
            "ports": [port, self.listeners.port],
            "unix_sockets": [self.listeners.path, *[s for s in sockets if not s.startswith(str(state))]],
            "daemon_sockets": [s for s in sockets if s.startswith(str(state)) and ident not in s],
            "abstract": self.listeners.abstract}

    def prepare(self) -> None:
        """Brings the tries into the sandbox, and what its root leaves for its user."""
        config = self.config(self.box.id, own_pids=OWN_SPACES, init_pid=1 if OWN_SPACES else init_of(self.box.id))
        for file in Path(escape.__file__).parent.glob("*.py"):
            put(self.box, f"escape/{file.name}", file.read_bytes())
        put(self.box, "escape/config.json", json.dumps(config).encode())
        if HAS_ROOT:
            grant = struct.pack("<IIIII", 0x02000001, 1 << 7, 0, 0, 0).hex()  # cap_setuid, permitted and effective
            setcap = f"python3 -c \"import os; os.setxattr('left-with-caps', 'security.capability', bytes.fromhex('{grant}'))\""
            if ISOLATION == "gvisor":  # its kernel has no capabilities of files
                setcap = "true"
            assert sh(self.box, "cp /bin/sh left-by-root && chmod 4755 left-by-root && cp $(readlink -f /usr/bin/python3) left-with-caps &&"
                                + setcap, user="root")["exit_code"] == 0

    def tried(self, where: str) -> dict[str, Any]:
        """Outcomes of all tries made there; made once."""
        if where not in self.results:
            self.results[where] = getattr(self, f"try_in_{where}")()
        return self.results[where]

    def try_in_kernel(self) -> dict[str, Any]:
        got = self.box.run("import json, os, sys\nsys.path.insert(0, os.getcwd())\nimport escape\n"
                           "config = json.load(open('escape/config.json'))\nprint(json.dumps(escape.outcomes(config, 'user')))")
        assert got["status"] == "ok", got
        return dict(json.loads(got["stdout"]))

    def try_in_fork(self) -> dict[str, Any]:
        """In a kernel that a zygote has forked."""
        with self.client.sandbox(template=PYTHON, checkpointable=False) as fork:
            assert fork.record["start"] == "zygote", fork.record
            box, self.box = self.box, fork
            try:
                self.prepare()
                return self.try_in_kernel()
            finally:
                self.box = box

    def try_in_exec(self, user: str = "user") -> dict[str, Any]:
        got = self.box.post("/exec", {"cmd": ["python3", "-m", "escape", user], "user": user, "timeout": 300})
        assert got["exit_code"] == 0, got
        return dict(json.loads(got["stdout"]))

    def try_in_root(self) -> dict[str, Any]:
        return self.try_in_exec("root")


def abstract_names() -> list[str]:
    """Of all sockets here, as /proc/net/unix writes them: "@name"."""
    return [row.split()[-1] for row in Path("/proc/net/unix").read_text().splitlines() if " @" in row]


def own_addresses() -> list[str]:
    found = subprocess.run(["ip", "-o", "addr", "show", "scope", "global"], capture_output=True, text=True).stdout
    return [line.split()[3].split("/")[0] for line in found.splitlines()]


def sh(box: Sandbox, cmd: str | list[str], **fields: Any) -> dict[str, Any]:
    return dict(box.post("/exec", {"cmd": cmd, **fields}))


def put(box: Sandbox, path: str, data: bytes) -> None:
    answer = box.client.call("PUT", f"{box.path}/fs/file", params={"path": path}, content=data)
    assert answer.status_code in (201, 204), answer.text


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        planted = stack.enter_context(contextlib.contextmanager(plant)())
        listeners = Listeners()
        stack.callback(listeners.close)
        daemon = Daemon()
        daemon.options += ["--listen", f"unix:{daemon.state}/api.sock"]
        stack.enter_context(daemon)
        wait_for(lambda: len(daemon.urls) == 2)
        daemon.urls.sort()  # http before unix
        client = Client(daemon.url, daemon.key)
        stack.callback(client.close)
        box = stack.enter_context(client.sandbox(template=PYTHON))
        sibling = stack.enter_context(client.sandbox(template="base"))
        made = Stage(daemon, client, listeners, planted, box, sibling)
        made.prepare()
        yield made


# --- The tries ------------------------------------------------------------------------------------------


def judge(outcome: dict[str, Any], what: str) -> None:
    assert "broken" not in outcome, outcome["broken"]
    if outcome["got"] and what in OPEN.get(ISOLATION, {}):
        pytest.skip(f"isolation {ISOLATION}: {OPEN[ISOLATION][what]}")
    assert not outcome["got"], outcome


def names_for(user: str) -> list[str]:
    return [t.name for t in escape.TRIES.values() if user in t.users]


@pytest.mark.smoke
@pytest.mark.parametrize("what", names_for("user"))
def test_try_in_a_kernel(stage: Stage, what: str) -> None:
    judge(stage.tried("kernel")[what], what)


@pytest.mark.skipif(ISOLATION != "namespace", reason=f"isolation {ISOLATION} has no zygotes")
@pytest.mark.parametrize("what", names_for("user"))
def test_try_in_a_forked_kernel(stage: Stage, what: str) -> None:
    judge(stage.tried("fork")[what], what)


@pytest.mark.smoke
@pytest.mark.parametrize("what", [*names_for("user"), "a descriptor left open"])
def test_try_in_exec(stage: Stage, what: str) -> None:
    judge(stage.tried("exec")[what], what)


@pytest.mark.smoke
@pytest.mark.skipif(not HAS_ROOT, reason=f"isolation {ISOLATION} has no root of the sandbox")
@pytest.mark.parametrize("what", [*names_for("root"), "a descriptor left open"])
def test_try_as_root(stage: Stage, what: str) -> None:
    judge(stage.tried("root")[what], what)


@pytest.mark.smoke
def test_nothing_has_suffered(stage: Stage) -> None:
    """After all tries: both sandboxes answer, nobody has died, nothing of the host was written."""
    assert sh(stage.box, "echo alive")["stdout"] == "alive\n" and stage.box.run("1 + 1")["text"] == "2"
    assert sh(stage.sibling, f"cat {MARK}-sibling $HOME/{MARK}-sibling")["stdout"] == "secret\nsecret\n"
    assert stage.listeners.sleeper.poll() is None and stage.pid_of_sibling() == stage.pids["sibling"]
    assert stage.daemon.gateway_pid() == stage.pids["gateway"]
    assert {p.read_text() for p in stage.planted} == {"a secret of the host"}
    assert not [str(p) for place in ("/usr/bin", "/usr/lib", "/etc", "/", "/usr/local/bin") for p in Path(place).glob(f"{MARK}-written")]


@pytest.mark.skipif(not IS_ROOT, reason="root of the host makes the tries")
def test_the_tries_work_where_nothing_holds(stage: Stage) -> None:
    """The same program, as root of the host: what finds nothing here would find nothing in a sandbox either."""
    with tempfile.TemporaryDirectory(prefix="sandal-tries-") as folder:
        shutil.copytree(Path(escape.__file__).parent, Path(folder) / "escape", ignore=shutil.ignore_patterns("__pycache__"))
        config = stage.config("none", own_pids=False, init_pid=init_of(stage.box.id))
        config["sibling_files"].append(f"{folder}/of-a-sibling")
        (Path(folder) / "of-a-sibling").write_text("secret")
        (Path(folder) / "escape/config.json").write_text(json.dumps(config))
        done = subprocess.run([sys.executable, "-m", "escape", "root", "control"], cwd=folder, capture_output=True, text=True, timeout=300)
        as_user = subprocess.run([sys.executable, "-m", "escape", "user", "control"], cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and as_user.returncode == 0, done.stderr + as_user.stderr
        found = {**json.loads(as_user.stdout), **json.loads(done.stdout)}
    failed = {name: found[name] for name, t in escape.TRIES.items() if t.control and not found[name].get("got")}
    assert not failed, failed


# --- Rights, read back ----------------------------------------------------------------------------------

STATUS = "dict(line.split(':\\t') for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)"


def standing(box: Sandbox, user: str | None) -> dict[str, str]:
    if user:
        got = sh(box, ["python3", "-c", f"import json; print(json.dumps({STATUS}))"], user=user)
        return dict(json.loads(got["stdout"]))
    return dict(json.loads(box.run(f"import json; print(json.dumps({STATUS}))")["stdout"]))


@pytest.mark.smoke
@pytest.mark.parametrize("user", [None, "user", *(["root"] if HAS_ROOT else [])])
def test_rights_are_read_back(stage: Stage, user: str | None) -> None:
    got = standing(stage.box, user)
    if ISOLATION == "gvisor":  # its /proc has no such lines
        got |= {"CapAmb": "0", "NoNewPrivs": "1"}
    caps = {name: int(got[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    want = CAPS_OF_ROOT if user == "root" else 0
    # Nothing is taken from the bounding set by `none`, and by a user without rights of its own where there is no user namespace.
    left = ISOLATION == "none" or (ISOLATION == "process" and not IS_ROOT)
    bound = {"CapBnd": caps["CapBnd"] if left else want}
    assert caps == {"CapInh": 0, "CapPrm": want, "CapEff": want, "CapAmb": 0, **bound}
    if stage.box.record["isolation"]["seccomp"] == "filter":
        assert got["Seccomp"] == "2" and got["NoNewPrivs"] == "1"
    else:
        assert ISOLATION == "none", stage.box.record["isolation"]


# --- Signals to all ---------------------------------------------------------------------------------------


@pytest.mark.skipif(not IS_ROOT and not OWN_SPACES, reason="without a pid namespace an ordinary user's daemon shares its user id with sandboxes")
@pytest.mark.parametrize("user", ["user", *(["root"] if HAS_ROOT else [])])
def test_kill_all_ends_its_own_alone(stage: Stage, user: str) -> None:
    with stage.client.sandbox(template="base") as box:
        got = sh(box, ["python3", "-c", "import contextlib, os\nfor number in (15, 9):\n    with contextlib.suppress(ProcessLookupError):\n"
                                   "        os.kill(-1, number)"], user=user)
        assert got["exit_code"] == 0 or got["signal"] in ("SIGTERM", "SIGKILL"), got
        assert sh(box, "echo alive")["stdout"] == "alive\n"
    assert sh(stage.sibling, "echo alive")["stdout"] == "alive\n"
    assert stage.listeners.sleeper.poll() is None and stage.pid_of_sibling() == stage.pids["sibling"]
    assert stage.daemon.gateway_pid() == stage.pids["gateway"]


@pytest.mark.parametrize("user", ["user", *(["root"] if HAS_ROOT else [])])
def test_no_signal_ends_sandal_init(stage: Stage, user: str) -> None:
    """Each that there is, from outside of its own keeper."""
    code = "import os\nfor number in range(1, 65):\n    try:\n        os.kill(PID, number)\n    except OSError:\n        pass\nprint('sent')"
    if not IS_ROOT and not OWN_SPACES:
        pytest.skip(OPEN[ISOLATION]["a signal to sandal-init"])
    with stage.client.sandbox(template="base") as box:
        got = sh(box, ["python3", "-c", code.replace("PID", "1" if OWN_SPACES else str(init_of(box.id)))], user=user)
        assert got["stdout"] == "sent\n", got
        assert sh(box, "echo alive")["stdout"] == "alive\n"


def test_the_daemons_key_is_nowhere(stage: Stage) -> None:
    assert stage.daemon.key
    for user in ["user", *(["root"] if HAS_ROOT else [])]:
        got = sh(stage.box, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'", user=user)
        assert stage.daemon.key not in got["stdout"]


# --- Races against the files' API ---------------------------------------------------------------------------

SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
target = sys.argv[1]
os.makedirs("real/sub", exist_ok=True)
for path in ("real/secret", "real/sub/secret", "real/sub/also"):
    open(path, "w").write("mine")
os.path.lexists("link") or os.symlink(target, "link")
print("up", flush=True)
while True:  # RENAME_EXCHANGE: there is never a moment without either
    libc.renameat2(-100, b"real", -100, b"link", 2)
"""


class Outside:
    """A directory of the host that all may write into, with what must neither be read nor changed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="sandal-outside-", dir="/tmp"))
        self.secret = secrets.token_hex(16)
        (self.path / "sub").mkdir()
        for name in ("secret", "sub/secret", "sub/also"):
            (self.path / name).write_text(self.secret)
        for p in (self.path, *self.path.rglob("*")):
            p.chmod(0o777 if p.is_dir() else 0o666)
        self.before = self.look()

    def look(self) -> dict[str, str]:
        return {str(p): p.read_text() if p.is_file() else "" for p in sorted(self.path.rglob("*"))}


@pytest.fixture
def outside() -> Iterator[Outside]:
    made = Outside()
    yield made
    shutil.rmtree(made.path)


def fs_requests(box: Sandbox) -> list[tuple[str, str, dict[str, Any]]]:
    """Every operation on files, through the name that is swapped."""
    def row(method: str, place: str, path: str, **more: Any) -> tuple[str, str, dict[str, Any]]:
        return method, f"{box.path}/fs/{place}", {"params": {"path": path}, **more}

    rows = []
    for name in ("real", "link"):
        rows += [row("GET", "file", f"{name}/secret"), row("GET", "file", f"{name}/sub/secret"), row("GET", "dir", name),
                 row("GET", "stat", f"{name}/secret"), row("PUT", "file", f"{name}/planted", content=b"planted"),
                 row("PUT", "file", f"{name}/sub/secret", content=b"planted"), row("DELETE", "file", f"{name}/sub/also"),
                 ("POST", f"{box.path}/fs/dir", {"json": {"path": f"{name}/made"}}),
                 ("POST", f"{box.path}/fs/move", {"json": {"from": f"{name}/secret", "to": f"{name}/moved"}}),
                 ("POST", f"{box.path}/fs/move", {"json": {"from": f"{name}/moved", "to": f"{name}/secret"}}),
                 ("GET", f"{box.path}/fs/dir", {"params": {"path": name, "depth": "3"}}),
                 ("DELETE", f"{box.path}/fs/file", {"params": {"path": f"{name}/sub", "recursive": "true"}})]
    return rows


@pytest.mark.parametrize("target", ["absolute", "relative"])
def test_a_directory_swapped_for_a_link(stage: Stage, outside: Outside, target: str) -> None:
    """Some seconds of all file operations while the sandbox exchanges a directory for a link that leads out."""
    deadline = time.monotonic() + (60 if LONG else 4)
    with stage.client.sandbox(template="base") as box:
        where = str(outside.path) if target == "absolute" else "../" * 24 + str(outside.path)[1:]
        process = box.post("/exec", {"cmd": ["python3", "-c", SWAP, where], "background": True}, expect=201)
        wait_for(lambda: (sh(box, "cat real/secret link/secret")["stdout"]).count("mine"), 20 * slack())
        statuses: dict[int, int] = {}
        while time.monotonic() < deadline:
            for method, path, fields in fs_requests(box):
                answer = box.client.call(method, path, **fields)
                statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
                assert answer.status_code < 500, (method, path, fields, answer.text)
                assert outside.secret not in answer.text, (method, path, fields)
            assert outside.look() == outside.before
            box.client.call("DELETE", f"{box.path}/fs/file", params={"path": "real/made"})
            for name in ("real/secret", "real/sub/secret", "real/sub/also"):  # there again; the shell would follow the link itself
                box.client.call("PUT", f"{box.path}/fs/file", params={"path": name}, content=b"mine")
        assert sum(n for s, n in statuses.items() if s < 300) > 20, statuses  # not only refusals
        assert box.get(f"/processes/{process['pid']}")["state"] == "running"
    assert outside.look() == outside.before


def test_links_out_of_the_workspace(stage: Stage, outside: Outside) -> None:
    """Without a race: whole paths, links at each place of a path, links of links, /proc's magic ones."""
    with stage.client.sandbox(template="base") as box:
        sh(box, f"ln -s {outside.path} out; ln -s out again; ln -s {outside.path}/secret file; mkdir d; ln -s / d/root;"
                f"ln -s ../../../../../../../../../../..{outside.path} up; ln -s /proc/self/root magic; ln -s /proc/1/root one")
        paths = ["out/secret", "again/secret", "file", f"d/root{outside.path}/secret", "up/secret", f"magic{outside.path}/secret",
                 f"one{outside.path}/secret", f"{outside.path}/secret", f"../../../../../../..{outside.path}/secret",
                 f"/workspace/../../../../..{outside.path}/secret", f"/proc/self/root{outside.path}/secret", f"/proc/self/cwd/{'../' * 9}{outside.path}/secret",
                 f"/proc/1/root{outside.path}/secret", f"/home/user/../..{outside.path}/secret"]
        for path in paths:
            answer = box.client.call("GET", f"{box.path}/fs/file", params={"path": path})
            assert answer.status_code >= 400 and outside.secret not in answer.text, (path, answer.text)
            box.client.call("PUT", f"{box.path}/fs/file", params={"path": path}, content=b"planted")
            box.client.call("DELETE", f"{box.path}/fs/file", params={"path": path})
            box.client.call("POST", f"{box.path}/fs/move", json={"from": path, "to": "stolen"})
            assert box.client.call("GET", f"{box.path}/fs/file", params={"path": "stolen"}).text != outside.secret
        assert outside.look() == outside.before


# --- Odd files against the API -----------------------------------------------------------------------------

ODD = {
    "a FIFO": "mkfifo odd",
    "a link to a FIFO": "mkfifo real; ln -s real odd",
    "a socket": "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('odd')\"",
    "an endless device": "ln -s /dev/zero odd",
    "a silent device": "ln -s /dev/tty odd",
    "a terminal": "ln -s /dev/ptmx odd",
    "messages of the kernel": "ln -s /proc/kmsg odd",
    "memory": "ln -s /proc/self/mem odd",
    "a link to itself": "ln -s odd odd",
    "a pipe by /proc": "ln -s /proc/self/fd/0 odd",
}


@pytest.mark.parametrize("what", ODD)
def test_odd_files_do_not_hang_the_api(stage: Stage, what: str) -> None:
    with stage.client.sandbox(template="base") as box:
        sh(box, ODD[what])
        calls = [("GET", "file", {}), ("HEAD", "file", {}), ("PUT", "file", {"content": b"x"}), ("GET", "stat", {}), ("GET", "dir", {})]
        for method, place, more in calls:
            answer = box.client.http.request(method, f"{box.path}/fs/{place}", params={"path": "odd"}, timeout=20 * slack(), **more)
            assert answer.status_code < 500 and len(answer.content) < 1 << 16, (method, place, answer.status_code)
            if (method, place) == ("GET", "file"):
                assert answer.status_code >= 400, answer.status_code
        assert sh(box, "echo alive")["stdout"] == "alive\n"
        listed = box.get("/fs/dir", params={"path": "/workspace"})["items"]
        assert any(e["path"].endswith("/odd") for e in listed), listed


def test_a_file_that_turns_into_a_fifo(stage: Stage) -> None:
    """Between a look and an open: reads and writes meet a file or a FIFO, and never wait."""
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None)\nopen('f', 'w').write('x' * 1000)\nos.mkfifo('p')\n"
            "while True: libc.renameat2(-100, b'f', -100, b'p', 2)")
    with stage.client.sandbox(template="base") as box:
        box.post("/exec", {"cmd": ["python3", "-c", code], "background": True}, expect=201)
        wait_for(lambda: sh(box, "ls")["stdout"].split() == ["f", "p"])
        deadline = time.monotonic() + (30 if LONG else 2)
        seen = set()
        while time.monotonic() < deadline:
            for method, more in (("GET", {}), ("PUT", {"content": b"y" * 1000}), ("HEAD", {})):
                answer = box.client.http.request(method, f"{box.path}/fs/file", params={"path": "f"}, timeout=20 * slack(), **more)
                assert answer.status_code < 500, answer.text
                seen.add((method, answer.status_code))
            if len(seen) > 5 and not LONG:
                break
        assert sh(box, "echo alive")["stdout"] == "alive\n"
