"""Processes of the host, of the daemon and of other sandboxes. config.pids: as the host counts them; config.words: what only
their command lines have."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any, Callable

from .tries import attempt, first, libc, syscall

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206


def _foreign(c: Any) -> list[int]:
    """Those of config.pids that are not by chance numbers of this sandbox's own processes."""
    return [pid for pid in c.pids.values() if not os.path.exists(f"/proc/{pid}") or not c.own_pids]


def _each(pids: list[int], act: Callable[[int], str | None]) -> str | None:
    return first(*[lambda p=p: act(p) for p in pids])


@attempt("processes of the host in the list", control=True)
def listed(c: Any) -> str | None:
    for pid in [p for p in os.listdir("/proc") if p.isdigit()]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
        except OSError:
            continue
        if any(word.encode() in words for word in c.words):
            return f"{pid}: {words!r}"
    return None


def _signal(pid: int) -> str:
    os.kill(pid, signal.SIGURG)  # ignored by who does not expect it: nothing suffers where the try works
    return f"signal to {pid}"


@attempt("a signal to a process of the host", control=True)
def signalled(c: Any) -> str | None:
    return _each(_foreign(c), _signal)


@attempt("a signal by number, whoever it is")
def swept(c: Any) -> str | None:
    """All numbers near the known ones, but those that the list shows as this sandbox's."""
    seen = {int(p) for p in os.listdir("/proc") if p.isdigit()} if c.own_pids else set()
    near = {pid + d for pid in c.pids.values() for d in range(-200, 200)} - seen

    def alive(pid: int) -> str | None:
        if pid <= 1 or pid == os.getpid() or pid == os.getppid():
            return None
        os.kill(pid, 0)
        return f"{pid} is there"

    if not c.own_pids:
        near = set(c.pids.values())
    return _each(sorted(near), alive)


@attempt("a trace of a process of the host", control=True)
def traced(c: Any) -> str | None:
    def seize(pid: int) -> str:
        syscall("ptrace", PTRACE_SEIZE, pid, 0, 0)
        return f"tracing {pid}"

    return _each(_foreign(c), seize)


@attempt("the files of a process of the host", control=True)
def roots(c: Any) -> str | None:
    def look(pid: int) -> str:
        return f"{pid}: {os.listdir(f'/proc/{pid}/root')}"

    return _each(_foreign(c), look)


@attempt("the memory of a process of the host", control=True)
def memory(c: Any) -> str | None:
    def opened(pid: int) -> str:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
        return f"memory of {pid}"

    def mapped(pid: int) -> str | None:
        with open(f"/proc/{pid}/maps") as file:
            return file.readline() or None

    return first(lambda: _each(_foreign(c), opened), lambda: _each(_foreign(c), mapped), lambda: _each(_foreign(c), _vm_read))


def _vm_read(pid: int) -> str:
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    mine = Vector(ctypes.addressof(buffer), 8)
    its = Vector(0x400000, 8)
    syscall("process_vm_readv", pid, ctypes.byref(mine), 1, ctypes.byref(its), 1, 0)
    return f"bytes of {pid}: {buffer.raw!r}"


@attempt("the environment of a process of the host", control=True)
def environment(c: Any) -> str | None:
    def look(pid: int) -> str:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{pid}: {file.read(64)!r}"

    return _each(_foreign(c), look)


@attempt("a descriptor of a process of the host", control=True)
def descriptor(c: Any) -> str | None:
    def take(pid: int) -> str:
        handle = syscall("pidfd_open", pid, 0)
        return f"descriptor {syscall('pidfd_getfd', handle, 0, 0)} of {pid}"

    def link(pid: int) -> str:
        return f"{pid}: {os.readlink(f'/proc/{pid}/fd/0')}"

    return first(lambda: _each(_foreign(c), take), lambda: _each(_foreign(c), link))


@attempt("limits of a process of the host", control=True)
def limits(c: Any) -> str | None:
    def look(pid: int) -> str | None:
        room = (ctypes.c_ulong * 2)()
        got = libc.prlimit(pid, 7, None, ctypes.byref(room))
        return f"limits of {pid}: {room[0]}" if got == 0 else None

    return _each(_foreign(c), look)


# --- sandal-init itself ------------------------------------------------------------------------------


@attempt("a trace of sandal-init", control=True)
def trace_init(c: Any) -> str | None:
    syscall("ptrace", PTRACE_SEIZE, c.init_pid, 0, 0)
    return "tracing it"


@attempt("the memory of sandal-init", control=True)
def memory_of_init(c: Any) -> str | None:
    pid = c.init_pid

    def opened() -> str:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        return "its memory"

    def maps() -> str | None:
        with open(f"/proc/{pid}/maps") as file:
            return file.readline() or None

    return first(opened, maps, lambda: _vm_read(pid))


@attempt("descriptors of sandal-init", control=True)
def descriptors_of_init(c: Any) -> str | None:
    def take() -> str:
        handle = syscall("pidfd_open", c.init_pid, 0)
        return f"descriptor {syscall('pidfd_getfd', handle, 3, 0)}"

    ways = [lambda name=name: os.readlink(f"/proc/{c.init_pid}/{name}") for name in ("exe", "cwd", "root", *[f"fd/{n}" for n in range(16)])]
    return first(take, *ways)


@attempt("a signal to sandal-init", users=("user",), control=True)
def signal_init(c: Any) -> str | None:
    os.kill(c.init_pid, 0)
    return "it can be signalled"


@attempt("the standing of sandal-init with the kernel", users=("user",), control=True)
def standing(c: Any) -> str | None:
    """The sandbox's root can: it could as well end everything in its sandbox."""
    with open(f"/proc/{c.init_pid}/oom_score_adj", "r+") as file:
        old = file.read()
        file.seek(0)
        file.write(old)
        file.flush()
    return f"oom_score_adj can be written ({old.strip()})"
