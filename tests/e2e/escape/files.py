"""Files of the host, of the daemon and of other sandboxes. config.canaries: files that the test planted, as the host names
them; config.hidden: directories that hold nothing for a sandbox; config.mark: a name that only canaries have."""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
from typing import Any

from .tries import attempt, first, libc, syscall

AT_FDCWD = -100
UP = "/".join([".."] * 24)


def _read(path: str) -> str | None:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return f"{path}: {os.read(fd, 64)!r}"
    finally:
        os.close(fd)


def _any(paths: list[str]) -> str | None:
    return first(*[lambda p=p: _read(p) for p in paths])


@attempt("a file of the host by its name", control=True)
def by_name(c: Any) -> str | None:
    return _any(c.canaries)


@attempt("a file of the host by ways around the root", control=True)
def around(c: Any) -> str | None:
    prefixes = ["/proc/self/root/../..", f"/proc/self/cwd/{UP}", "/proc/1/root", f"/proc/1/cwd/{UP}", f"/workspace/{UP}",
                f"/proc/self/task/{os.getpid()}/root", f"/dev/fd/../{UP}", f"/proc/{c.init_pid}/root", f"/run/sandal/{UP}"]
    prefixes += [f"/proc/self/fd/{name}/{UP}" for name in os.listdir("/proc/self/fd")]
    return _any([prefix + path for prefix in prefixes for path in c.canaries])


@attempt("a file of the host by a link in the workspace", control=True)
def by_link(c: Any) -> str | None:
    link = f"link-{os.getpid()}"
    for path in c.canaries:
        os.symlink(path, link)
        try:
            if found := first(lambda: _read(link)):
                return found
        finally:
            os.unlink(link)
    return None


@attempt("names of the host in hidden directories", control=True)
def listed(c: Any) -> str | None:
    for place in c.hidden:
        found = first(lambda place=place: ", ".join(n for n in os.listdir(place) if c.mark in n))
        if found:
            return f"{place}: {found}"
    return None


@attempt("names of the host anywhere")
def walked(c: Any) -> str | None:
    for where, dirs, names in os.walk("/"):
        if where == "/":
            dirs[:] = [d for d in dirs if d not in ("proc", "sys")]
        for name in dirs + names:
            if c.mark in name:
                return f"{where}/{name}"
    return None


@attempt("a file of another sandbox", control=True)
def siblings(c: Any) -> str | None:
    return _any(c.sibling_files)


@attempt("the state of the daemon", control=True)
def state(c: Any) -> str | None:
    return first(*[lambda p=p: f"{p}: {os.listdir(p)}" for p in c.state_dirs]) or _any(c.state_files)


@attempt("a template that this sandbox is not made from", control=True)
def templates(c: Any) -> str | None:
    return _any(c.template_files)


@attempt("passwords of the host's accounts", control=True)
def shadow(c: Any) -> str | None:
    def known(path: str) -> str | None:
        with open(path, "rb") as file:
            return path if hashlib.sha256(file.read()).hexdigest() == c.shadow else None

    return first(*[lambda p=p: known(p) for p in ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/proc/1/root/etc/shadow")])


@attempt("passwords, whosever they are", users=("user",), control=False)
def any_shadow(_c: Any) -> str | None:
    return _read("/etc/shadow")


@attempt("a write to the system", users=("user",))
def system(c: Any) -> str | None:
    def put(place: str) -> str:
        path = f"{place}/{c.mark}-written"
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        return path

    places = ("/usr/bin", "/usr/lib", "/usr/local/bin", "/etc", "/etc/profile.d", "/", "/bin", "/lib", "/var/lib/dpkg")
    return first(*[lambda p=p: put(p) for p in places])


@attempt("a write into another sandbox", control=True)
def into_sibling(c: Any) -> str | None:
    def put(path: str) -> str:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        return path

    return first(*[lambda p=p: put(p) for p in c.sibling_files])


@attempt("a file handle instead of a name")
def handles(_c: Any) -> str | None:
    """The inode numbers that roots of file systems have (ext4 2, xfs 128, btrfs 256) with a mount that is at hand."""

    class Handle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("ino", ctypes.c_uint), ("gen", ctypes.c_uint)]

    mount = os.open("/", os.O_RDONLY)
    for inode in (2, 128, 256):
        handle = Handle(8, 1, inode, 0)
        found = first(lambda: f"descriptor {syscall('open_by_handle_at', mount, ctypes.byref(handle), 0)}")
        if found:
            return found
    return None


@attempt("a chroot", users=("user",))
def chroot(_c: Any) -> str | None:
    os.chroot("/tmp")
    return "another root"


@attempt("out of a chroot of one's own", users=("root",))
def out_of_chroot(c: Any) -> str | None:
    """The classic: root moves below the working directory, so `..` never meets it."""
    os.makedirs("/tmp/jail", exist_ok=True)
    here = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/jail")
    os.fchdir(here)
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
    return _any(c.canaries)


@attempt("a descriptor of a directory outside", control=True)
def descriptors(c: Any) -> str | None:
    """Of this process, and of every other one that may be looked at."""
    for proc in [p for p in os.listdir("/proc") if p.isdigit()]:
        names = []
        try:
            names = os.listdir(f"/proc/{proc}/fd")
        except OSError:
            continue
        for name in names:
            base = f"/proc/{proc}/fd/{name}"
            found = first(lambda: _any([f"{base}/{UP}{p}" for p in c.canaries]) if stat.S_ISDIR(os.stat(base).st_mode) else None)
            if found:
                return found
    return None


@attempt("shared memory of the host", control=True)
def shared_memory(c: Any) -> str | None:
    return "attached by its key" if libc.shmget(c.shm_key, 0, 0) >= 0 else None
