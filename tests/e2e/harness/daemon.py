"""Starts and stops build/sandald with a state directory of its own."""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("SANDAL_BUILD", ROOT / "build"))
ISOLATION = os.environ.get("SANDAL_TEST_ISOLATION", "namespace" if os.geteuid() == 0 else "bubblewrap")
TEMPLATE = os.environ.get("SANDAL_TEST_TEMPLATE", "code-interpreter-python")
LONG = os.environ.get("SANDAL_TEST_LONG") == "1"

# ipykernel reads what forked children print from a TCP socket of its own.
FORKS_ARE_MUTE = "isolation process has no sockets but unix ones: what a forked child prints is lost" if ISOLATION == "process" else ""

# User ids of this test run alone: daemons of other runs may be on the machine. 64 sandboxes a daemon.
UID_COUNT = 64 * 65_536
UID_RANGES = range(0x10000000, 0x70000000, UID_COUNT)
UID_SHARES = 16
RANGES_DIR = Path("/run/sandal-uids")  # one locked file a keeper

READY = re.compile(r"listens on (https?://[^\s\"]+|unix:[^\s\"]+)")


def clean_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("SANDAL_")}


@functools.cache
def own_uid_ranges() -> tuple[range, IO[bytes]]:
    """A share of the ranges that no other test run on this machine has while this one lasts, and the lock that says so: what is
    left of a daemon there is this run's."""
    for number in range(UID_SHARES):
        lock = open(f"/run/sandal-test-uids-{number}", "ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return UID_RANGES[number::UID_SHARES], lock
        except BlockingIOError:
            lock.close()
    raise AssertionError(f"{UID_SHARES} test runs are on this machine already")


def free_uid_base() -> int:
    """A range of this test run's that no keeper has now, and none had of late: the system forgets keys of a user id after a while.
    The lock's length says which one is next."""
    ranges, lock = own_uid_ranges()
    lock.write(b".")
    lock.flush()
    first = lock.tell()
    for i in range(len(ranges)):
        base = ranges[(first + i) % len(ranges)]
        if not any(in_use(path, base) for path in RANGES_DIR.glob("*-*")):
            return base
    raise AssertionError("every range of user ids is taken")


def in_use(path: Path, base: int) -> bool:
    other, count = (int(part) for part in path.name.split("-"))
    if other >= base + UID_COUNT or base >= other + count:
        return False
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def let_in(path: Path) -> Path:
    """The gateway's user, whom pytest's directories keep out."""
    for part in (path, *path.parents):
        if part == Path("/tmp"):
            break
        if part.stat().st_uid == os.geteuid():  # who is not root is let into what root made for the tests
            os.chmod(part, 0o755)
    return path


class Daemon:
    """`with Daemon(options) as d:` — d.url, d.key, d.state, d.log()."""

    made = 0
    uid_bases: set[int] = set()
    states: list[Path] = []  # of all that were made, for the look at what is left at the end

    def __init__(self, *options: str, auth: bool = True, config: str | None = None, state: Path | None = None,
                 env: dict[str, str] | None = None, listen: str | None = "127.0.0.1:0",
                 template_dirs: list[Path] | None = None):
        Daemon.made += 1
        self.number = Daemon.made
        self.own_state = state is None
        self.state = state or Path(tempfile.mkdtemp(prefix="sandal-e2e-", dir="/tmp"))
        self.state.chmod(0o711)
        Daemon.states.append(self.state)
        self.uid_base = free_uid_base() if os.geteuid() == 0 else 0
        Daemon.uid_bases.add(self.uid_base)
        self.options = list(options)
        self.auth = auth
        self.config = config
        self.env = env or {}
        self.listen = listen
        self.template_dirs = [ROOT / "kernelspecs", *(template_dirs or [])]
        self.proc: subprocess.Popen[bytes] | None = None
        self.lines: list[str] = []
        self.urls: list[str] = []
        self.ready = threading.Event()

    def command(self) -> list[str]:
        argv = [str(BUILD / "sandald"), "serve", "--state-dir", str(self.state), "--isolation", ISOLATION]
        if self.own_state:  # else the default one, which stays
            argv += ["--runtime-dir", str(self.state / "run")]
        if os.geteuid() == 0:
            argv += ["--uid-base", str(self.uid_base), "--uid-count", str(UID_COUNT)]
        argv += ["--timeouts-orphan", "20"]  # what a killed one leaves ends soon, but not before the next one is up
        for d in self.template_dirs:
            argv += ["--template-dirs", str(d)]
        argv += ["--proxy-listen", "127.0.0.1:0"]
        if not any(option.startswith("--pools-fill") for option in self.options):
            argv += ["--pools-fill", "off"]  # what waits in a pool would be in the way of those who count
        if self.listen:
            argv += ["--listen", self.listen]
        if not self.auth:
            argv.append("--no-auth")
        if self.config:
            argv += ["--config", self.config]
        return argv + self.options

    def start(self, timeout: float = 20.0) -> "Daemon":
        self.urls, self.ready = [], threading.Event()
        self.proc = subprocess.Popen(self.command(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                     env={**clean_environment(), **self.env})
        threading.Thread(target=self._read, args=(self.proc, self.ready), daemon=True).start()
        if not self.ready.wait(timeout) or not self.urls:
            self.kill()
            raise RuntimeError("the daemon did not start:\n" + self.log())
        return self

    def _read(self, proc: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert proc.stderr  # its end may come after the next start
        for raw in proc.stderr:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            self.lines.append(line)
            found = READY.search(line)
            if found:
                self.urls.append(found.group(1))
                ready.set()
        ready.set()

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def key(self) -> str | None:
        return (self.state / "key").read_text().strip() if self.auth else None

    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def pid(self) -> int:
        """The keeper."""
        assert self.proc
        return self.proc.pid

    def gateway_pid(self) -> int:
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:2] == [b"gateway"]:  # not forks of the keeper
                return int(child)
        raise RuntimeError("no gateway process")

    def stop(self, timeout: float = 30.0) -> int:
        assert self.proc
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        try:
            return self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        if self.proc and self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def remove(self) -> None:
        if self.own_state:
            shutil.rmtree(self.state, ignore_errors=True)

    def __enter__(self) -> "Daemon":
        return self.start()

    def __exit__(self, *exc: object) -> None:
        try:
            self.stop()
            # The keeper starts another one: what asked it may have noticed nothing. Tests kill gateways by SIGKILL alone.
            crashes = [line for line in self.lines if "gateway.crashed" in line and "signal=9" not in line]
            assert not crashes, crashes
        finally:
            self.kill()
            self.remove()


def rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS of {pid}")


def images_bytes(daemon: Daemon) -> int:
    """What images of the store of volumes take on the host's disk, holes not counted, after the work that waits in it: by
    itself a btrfs comes to deleted subvolumes within half a minute. It is mounted in the keeper's mount namespace alone."""
    if (daemon.state / "volumes.img").exists():
        subprocess.run(["nsenter", "-t", str(daemon.pid), "-m", "btrfs", "filesystem", "sync", str(daemon.state / "volumes")],
                       check=True, stdout=subprocess.DEVNULL)
    return sum(image.stat().st_blocks * 512 for image in daemon.state.rglob("*.img"))


def slack() -> float:
    """How long after its cause an end may come: a second, and more where the machine has much else to do."""
    load, _, _, running, _ = Path("/proc/loadavg").read_text().split()  # the minute behind, and now
    return max(1.0, max(float(load), int(running.split("/")[0])) / (os.cpu_count() or 1))


def wait_for(condition, timeout: float = 10.0, step: float = 0.02):
    """The first true value of condition(), polled; AssertionError after timeout, which stretches with the load."""
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        took = time.monotonic() - begin
        if took > timeout and took > timeout * slack():
            raise AssertionError(f"did not come true within {took:.1f} s")
        time.sleep(step)


def processes_left() -> list[str]:
    """What daemons of this run left: processes under a user id of theirs, or in a directory of theirs."""
    states = {str(state) for state in Daemon.states}
    left = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            uid = proc.stat().st_uid
            text = proc.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            where = os.readlink(proc / "cwd")
        except OSError:
            continue
        ours = any(base <= uid < base + UID_COUNT for base in Daemon.uid_bases if base) or any(s in text or where.startswith(s) for s in states)
        if ours and int(proc.name) != os.getpid():
            left.append(f"{proc.name} uid {uid}: {text}")
    return left
