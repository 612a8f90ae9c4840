"""Rights that a process could give itself. What it has is read back in the tests (standing)."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
from pathlib import Path
from typing import Any

from .tries import attempt, first, libc

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_SET_SECUREBITS = 4, 24, 47, 28


@attempt("another user id", users=("user",))
def ids(_c: Any) -> str | None:
    def become(call: Any, *args: int) -> str:
        call(*args)
        return f"{call.__name__}{args}"

    return first(lambda: become(os.setuid, 0), lambda: become(os.setresuid, 0, 0, 0), lambda: become(os.setgid, 0),
                 lambda: become(os.setreuid, -1, 0), lambda: become(os.setgroups, [0]), lambda: become(os.setuid, 1),
                 lambda: become(os.setuid, 65534))


@attempt("ids beyond the sandbox's", users=("root",))
def outer_ids(c: Any) -> str | None:
    """A host's id is none here."""
    for uid in (65536, 1 << 20, 0x10000000, 4294967294):
        try:
            os.setresuid(uid, uid, uid)
        except OSError:
            continue
        return f"uid {uid}"
    return None


@attempt("capabilities")
def capabilities(_c: Any) -> str | None:
    """All, then each, of those that this process has not."""
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    now = (ctypes.c_uint32 * 6)()
    libc.capget(ctypes.byref(head), ctypes.byref(now))
    for cap in range(41):
        word, bit = (0, cap) if cap < 32 else (3, cap - 32)
        if now[word] >> bit & 1:
            continue
        more = (ctypes.c_uint32 * 6)(*now)
        more[word] |= 1 << bit
        more[word + 1] |= 1 << bit
        if libc.capset(ctypes.byref(head), ctypes.byref(more)) == 0:
            return f"capability {cap}"
        if libc.prctl(PR_CAP_AMBIENT, 2, cap, 0, 0) == 0:
            return f"ambient capability {cap}"
    return None


@attempt("set-user-id programs", users=("user",))
def setuid_programs(_c: Any) -> str | None:
    """Every one that is there is started; root would be seen in /proc."""
    found = []
    for place in ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib/openssh", "/usr/lib/dbus-1.0", "/usr/libexec"):
        for path in Path(place).glob("*") if os.path.isdir(place) else []:
            try:
                if path.stat().st_mode & 0o6000 and path.is_file():
                    found.append(path)
            except OSError:
                continue
    for path in found:
        try:
            child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except OSError:
            continue
        try:
            rows = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        finally:
            child.kill()
            child.wait()
        owners = {word for row in rows if row.startswith(("Uid:", "CapEff:")) for word in row.split()[1:]}
        if "0" in owners and os.getuid() != 0:
            return f"{path} runs as root"
    return None


@attempt("a set-user-id shell that the sandbox's root left", users=("user",))
def left_shell(_c: Any) -> str | None:
    """The test has put it there, owned by the sandbox's root, where there is one."""
    got = subprocess.run(["./left-by-root", "-p", "-c", "id -u; cat /etc/shadow"], capture_output=True, text=True)
    return got.stdout if got.stdout.startswith("0\n") or "root:" in got.stdout else None


@attempt("file capabilities that the sandbox's root left", users=("user",))
def left_capabilities(_c: Any) -> str | None:
    got = subprocess.run(["./left-with-caps", "-c", "import os; os.setuid(0); print(os.getuid())"], capture_output=True, text=True)
    return got.stdout if got.stdout.startswith("0") else None


@attempt("no_new_privs taken off")
def new_privileges(_c: Any) -> str | None:
    if libc.prctl(38, 0, 0, 0, 0) == 0:
        return "it was off"
    return None if libc.prctl(39, 0, 0, 0, 0) == 1 else "it is not set"


@attempt("the seccomp filter taken off")
def no_filter(_c: Any) -> str | None:
    return "mode 0" if libc.prctl(21, 0, 0, 0, 0) == 0 else None


@attempt("limits raised", users=("user",))
def limits(_c: Any) -> str | None:
    def more(kind: int) -> str | None:
        soft, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY:
            return None
        try:
            resource.setrlimit(kind, (soft, hard + 1))
        except ValueError:  # Python's word for EPERM here
            return None
        return f"limit {kind} is {hard + 1}"

    return first(*[lambda k=k: more(k) for k in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK)])


@attempt("priority over others", users=("user",))
def priority(_c: Any) -> str | None:
    def nicer() -> str:
        before = os.nice(0)
        return f"{before} to {os.nice(-1)}"

    def real_time() -> str:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return "real time"

    return first(nicer, real_time)
