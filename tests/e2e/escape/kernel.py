"""The kernel: its interfaces, namespaces, mounts, devices. Payloads do no harm where a try works: no byte that means
anything is written."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from typing import Any, Callable

from .tries import attempt, first, libc, syscall

MS_REMOUNT, MS_BIND, MS_REC, MS_SHARED = 32, 4096, 16384, 1 << 20
SPACES = {"mnt": 0x20000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
          "cgroup": 0x2000000, "time": 0x80}
CLONE_THREADLIKE = 17  # SIGCHLD alone


def _text(value: str | None) -> Any:
    return ctypes.c_char_p(value.encode()) if value is not None else ctypes.c_void_p(None)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> str:
    syscall("mount", _text(source), _text(target), _text(kind), flags, _text(data))
    return f"mount of {source} {kind} at {target}"


@attempt("a mount")
def mount(_c: Any) -> str | None:
    os.makedirs("/tmp/mnt", exist_ok=True)
    rows: list[tuple[str | None, str, str | None, int]] = [
        ("none", "/tmp/mnt", "tmpfs", 0), ("none", "/tmp/mnt", "proc", 0), ("none", "/tmp/mnt", "sysfs", 0),
        ("none", "/tmp/mnt", "cgroup2", 0), ("none", "/tmp/mnt", "cgroup", 0), ("none", "/tmp/mnt", "devpts", 0),
        ("none", "/tmp/mnt", "debugfs", 0), ("none", "/tmp/mnt", "bpf", 0), ("none", "/tmp/mnt", "mqueue", 0),
        ("/", "/tmp/mnt", None, MS_BIND | MS_REC), ("/proc/1/root", "/tmp/mnt", None, MS_BIND),
        (None, "/", None, MS_REMOUNT), (None, "/proc/sys", None, MS_REMOUNT | MS_BIND), (None, "/", None, MS_REC | MS_SHARED)]
    rows += [(f"/dev/{d}", "/tmp/mnt", kind, 0) for d in ("vda", "sda", "nvme0n1p1") for kind in ("ext4", "xfs")]
    return first(*[lambda row=row: _mount(*row) for row in rows])


@attempt("a mount by the newer calls")
def newer_mount(_c: Any) -> str | None:
    attributes = ctypes.create_string_buffer(32)
    return first(lambda: f"fsopen {syscall('fsopen', _text('tmpfs'), 0)}",
                 lambda: f"open_tree {syscall('open_tree', -100, _text('/'), 1)}",
                 lambda: f"fspick {syscall('fspick', -100, _text('/'), 0)}",
                 lambda: f"move_mount {syscall('move_mount', -100, _text('/tmp'), -100, _text('/mnt'), 0)}",
                 lambda: f"mount_setattr {syscall('mount_setattr', -100, _text('/'), 0, ctypes.byref(attributes), 32)}")


@attempt("taking covers off")
def unmount(_c: Any) -> str | None:
    with open("/proc/self/mountinfo") as file:
        points = [line.split()[4] for line in file]
    hidden = [p for p in points if p.startswith(("/proc/", "/sys", "/dev", "/run", "/tmp"))] + ["/proc", "/"]

    def off(point: str) -> str:
        syscall("umount2", _text(point), 2)  # MNT_DETACH
        return f"{point} is off"

    return first(*[lambda p=p: off(p) for p in hidden])


@attempt("another root")
def pivot(_c: Any) -> str | None:
    syscall("pivot_root", _text("."), _text("."))
    return "pivoted"


@attempt("a new namespace by unshare")
def unshare(_c: Any) -> str | None:
    def make(name: str, flag: int) -> str:
        syscall("unshare", flag)
        return f"a new {name} namespace"

    rows = [*SPACES.items(), *[(f"user and {n}", f | SPACES["user"]) for n, f in SPACES.items() if n != "user"]]
    return first(*[lambda n=n, f=f: make(n, f) for n, f in rows])


@attempt("a new namespace by clone")
def clone(_c: Any) -> str | None:
    def make(name: str, flag: int) -> str:
        pid = syscall("clone", flag | CLONE_THREADLIKE, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return f"a child in a new {name} namespace"

    rows = [*[r for r in SPACES.items() if r[0] != "time"], ("user and mnt", SPACES["user"] | SPACES["mnt"])]
    return first(*[lambda n=n, f=f: make(n, f) for n, f in rows])


@attempt("a new namespace by clone3")
def clone3(_c: Any) -> str | None:
    def make(name: str, flag: int) -> str:
        args = (ctypes.c_uint64 * 11)(flag, 0, 0, 0, 17)
        pid = syscall("clone3", ctypes.byref(args), 88)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return f"a child in a new {name} namespace"

    return first(*[lambda n=n, f=f: make(n, f) for n, f in SPACES.items()])


@attempt("a namespace of another process")
def setns(c: Any) -> str | None:
    def enter(pid: int | str, name: str) -> str:
        fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        syscall("setns", fd, 0)
        return f"{name} of {pid}"

    def by_pidfd(pid: int) -> str:
        syscall("setns", syscall("pidfd_open", pid, 0), SPACES["mnt"])
        return f"mnt of {pid} by pidfd"

    pids: list[Any] = [1, c.init_pid, *c.pids.values(), "self"]
    return first(*[lambda p=p, n=n: enter(p, n) for p in pids for n in SPACES], *[lambda p=p: by_pidfd(p) for p in pids if p != "self"])


@attempt("other ids in the user namespace")
def id_maps(_c: Any) -> str | None:
    def put(name: str, text: str) -> str:
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
        return f"{name} written"

    return first(lambda: put("uid_map", "0 0 1\n"), lambda: put("gid_map", "0 0 1\n"), lambda: put("setgroups", "deny"))


# --- System calls that nobody needs -----------------------------------------------------------------


def _call(name: str, *args: Any) -> Callable[[], str]:
    return lambda: f"{name} answered {syscall(name, *args)}"


_ROOM = ctypes.create_string_buffer(256)
CALLS: dict[str, tuple[Any, ...]] = {
    "bpf": (0, ctypes.byref(ctypes.create_string_buffer(b"\x02\0\0\0\x04\0\0\0\x04\0\0\0\x01\0\0\0", 128)), 72),
    "io_uring_setup": (1, ctypes.byref(_ROOM)),
    "userfaultfd": (1,),
    "keyctl": (0, -3, 1),
    "add_key": (_text("user"), _text("k"), _text("v"), 1, -3),
    "request_key": (_text("user"), _text("k"), ctypes.c_void_p(None), -3),
    "perf_event_open": (ctypes.byref(ctypes.create_string_buffer(b"\x01\0\0\0\x70\0\0\0", 112)), 0, -1, -1, 0),
    "syslog": (3, _ROOM, 256),
    "acct": (_text("/tmp/acct"),),
    "fanotify_init": (0, 0),
    "sethostname": (_text("other"), 5),
    "setdomainname": (_text("other"), 5),
    "kcmp": (1, 1, 0, 0, 0),
}


def _add_call(name: str, args: tuple[Any, ...]) -> None:
    attempt(f"the call {name}")(lambda _c: _call(name, *args)())


for _name, _args in CALLS.items():
    _add_call(_name, _args)


@attempt("a kernel module")
def module(_c: Any) -> str | None:
    """No module: who may load one is told that it is none (ENOEXEC), everybody else EPERM."""
    def load(name: str, *args: Any) -> str | None:
        try:
            syscall(name, *args)
        except OSError as error:
            return f"{name}: {error}" if error.errno == 8 else None
        return f"{name} worked"

    room = ctypes.create_string_buffer(64)
    fd = os.open("/proc/self/exe", os.O_RDONLY)
    return first(lambda: load("init_module", ctypes.byref(room), 64, _text("")), lambda: load("finit_module", fd, _text(""), 0))


@attempt("the clock")
def clock(_c: Any) -> str | None:
    import time

    def put() -> str:
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME))
        return "set"

    return put()


@attempt("the machine's end")
def reboot(_c: Any) -> str | None:
    """By a command that there isn't: EINVAL for who may ask, EPERM for everybody else."""
    try:
        syscall("reboot", 0xFEE1DEAD, 672274793, 0x7A, 0)
    except OSError as error:
        return "asked" if error.errno == 22 else None
    return "asked"


# --- Files of the kernel -----------------------------------------------------------------------------


def _write(path: str, data: bytes = b"") -> str:
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    try:
        if data:
            os.write(fd, data)
    finally:
        os.close(fd)
    return f"{path} can be written"


def _read(path: str) -> str | None:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        data = os.read(fd, 64)
    finally:
        os.close(fd)
    return f"{path}: {data!r}" if data else None


@attempt("sysrq")
def sysrq(_c: Any) -> str | None:
    return _write("/proc/sysrq-trigger")


@attempt("a program for core dumps", control=True)
def core_pattern(_c: Any) -> str | None:
    return first(lambda: _write("/proc/sys/kernel/core_pattern"), lambda: _write("/proc/sys/kernel/modprobe"),
                 lambda: _write("/proc/sys/fs/binfmt_misc/register"), lambda: _write("/proc/sys/kernel/hotplug"),
                 lambda: _write("/proc/sys/kernel/poweroff_cmd"))


@attempt("settings of the kernel", control=True)
def settings(_c: Any) -> str | None:
    for where, _dirs, names in os.walk("/proc/sys"):
        for name in names:
            path = f"{where}/{name}"
            try:
                found = _write(path)
            except OSError:
                continue
            return found
    return None


@attempt("files of the kernel that tell of the host", control=True)
def told(_c: Any) -> str | None:
    paths = ["/proc/kcore", "/proc/kmsg", "/proc/timer_list", "/proc/sched_debug", "/proc/latency_stats",
             "/proc/kpageflags", "/proc/kpagecount", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/acpi/wakeup",
             "/proc/scsi/scsi", "/sys/firmware/dmi/tables/DMI", "/sys/kernel/notes"]
    return first(_keys, *[lambda p=p: _read(p) for p in paths])


def _keys() -> str | None:
    """Its own user id may have a keyring: one that a sandbox before it made, where no filter keeps it from that."""
    with open("/proc/keys") as file:
        lines = file.read().splitlines()
    for line in lines:
        if int(line.split()[5]) != os.getuid():
            return f"/proc/keys: {line}"
    return None


@attempt("addresses of the kernel")
def addresses(_c: Any) -> str | None:
    """Both files are there for all; who may not know is shown zeros."""
    for path in ("/proc/kallsyms", "/proc/iomem"):
        with open(path) as file:
            for line in file:
                if int(line.replace("-", " ").split()[0], 16):
                    return f"{path}: {line}"
    return None


@attempt("settings of devices", control=True)
def sysfs(_c: Any) -> str | None:
    looked = 0
    for where, _dirs, names in os.walk("/sys"):
        for name in names:
            path = f"{where}/{name}"
            looked += 1
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    return _write(path)
            except OSError:
                continue
        if looked > 20_000:
            break
    return None


@attempt("control groups", control=True)
def cgroups(_c: Any) -> str | None:
    for where, _dirs, names in os.walk("/sys/fs/cgroup"):
        for name in names:
            if name in ("cgroup.procs", "tasks", "release_agent", "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.max"):
                try:
                    return _write(f"{where}/{name}")
                except OSError:
                    pass
    return None


@attempt("file systems of debuggers")
def debugfs(_c: Any) -> str | None:
    places = ("/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf", "/sys/kernel/config")
    return first(*[lambda p=p: ", ".join(os.listdir(p)[:3]) or None for p in places])


# --- Devices -------------------------------------------------------------------------------------------

HARMLESS = {"null", "zero", "full", "random", "urandom", "tty", "console", "ptmx"}


@attempt("a device that is there", control=True)
def devices(_c: Any) -> str | None:
    """Opens each that is none of the usual ones."""
    for where, _dirs, names in os.walk("/dev"):
        for name in names:
            path = f"{where}/{name}"
            kind = os.lstat(path).st_mode
            if where.startswith("/dev/pts") or name in HARMLESS or not (stat.S_ISCHR(kind) or stat.S_ISBLK(kind)):
                continue
            try:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
            except OSError:
                continue
            return path
    return None


@attempt("a device of one's own making")
def mknod(_c: Any) -> str | None:
    rows = {"mem": (stat.S_IFCHR, 1, 1), "port": (stat.S_IFCHR, 1, 4), "kmsg": (stat.S_IFCHR, 1, 11), "sda": (stat.S_IFBLK, 8, 0),
            "vda": (stat.S_IFBLK, 254, 0), "vdb": (stat.S_IFBLK, 252, 0), "loop0": (stat.S_IFBLK, 7, 0), "fuse": (stat.S_IFCHR, 10, 229),
            "tun": (stat.S_IFCHR, 10, 200), "kvm": (stat.S_IFCHR, 10, 232), "null": (stat.S_IFCHR, 1, 3)}

    def make(place: str, name: str) -> str:
        kind, major, minor = rows[name]
        path = f"{place}/{name}-{os.getpid()}"
        os.mknod(path, kind | 0o666, os.makedev(major, minor))
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        finally:
            os.unlink(path)
        return path

    return first(*[lambda p=p, n=n: make(p, n) for p in (".", "/tmp", "/dev", "/dev/shm", "/run/sandal") for n in rows])


# --- Sockets beside the network ---------------------------------------------------------------------------


@attempt("raw and odd sockets")
def sockets(_c: Any) -> str | None:
    def make(family: int, kind: int, proto: int) -> str:
        socket.socket(family, kind, proto).close()
        return f"socket {family} {kind} {proto}"

    rows = [(socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_INET, socket.SOCK_RAW, 255), (socket.AF_INET6, socket.SOCK_RAW, 58),
            (17, socket.SOCK_RAW, 3 << 8), (17, socket.SOCK_DGRAM, 3 << 8), (40, socket.SOCK_STREAM, 0), (44, socket.SOCK_RAW, 0),
            (29, socket.SOCK_RAW, 1), (31, socket.SOCK_RAW, 1), (38, socket.SOCK_SEQPACKET, 0), (21, socket.SOCK_SEQPACKET, 0)]
    return first(*[lambda r=r: make(*r) for r in rows])


@attempt("the network's settings")
def network_settings(_c: Any) -> str | None:
    """An address of its own making on lo: only who administers the network may."""
    fd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = ctypes.create_string_buffer(b"lo:9\0", 40)
    request[16:24] = b"\x02\0\0\0\x7f\0\0\x63"
    got = libc.ioctl(fd.fileno(), 0x8916, request)  # SIOCSIFADDR
    if got == 0:
        request[16:18] = b"\0\0"
        libc.ioctl(fd.fileno(), 0x8914, request)  # down again
        return "an address was set"
    return None
