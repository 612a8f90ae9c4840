"""The list of tries and how one is made: in a fork of its own, under a clock, its outcome told as data."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import traceback
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Callable

SECONDS = 20  # for one try, on a busy machine

libc = ctypes.CDLL(None, use_errno=True)

# x86_64 and the numbers that all newer machines share.
NUMBERS = {
    "acct": (163, 89), "add_key": (248, 217), "bpf": (321, 280), "clock_settime": (227, 112), "clone": (56, 220),
    "clone3": (435, 435), "delete_module": (176, 106), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433), "init_module": (175, 105), "io_uring_setup": (425, 425),
    "kcmp": (312, 272), "kexec_load": (246, 104), "keyctl": (250, 219), "mount": (165, 40), "mount_setattr": (442, 442),
    "move_mount": (429, 429), "open_by_handle_at": (304, 265), "open_tree": (428, 428), "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pivot_root": (155, 41),
    "process_vm_readv": (310, 270), "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142),
    "request_key": (249, 218), "setdomainname": (171, 162), "sethostname": (170, 161), "setns": (308, 268),
    "settimeofday": (164, 170), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "name_to_handle_at": (303, 264),
}


def syscall(name: str, *args: Any) -> int:
    """What it answers; OSError where that is a refusal."""
    number = NUMBERS[name][0 if platform.machine() == "x86_64" else 1]
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    got = libc.syscall(ctypes.c_long(number), *words)
    if got < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), name)
    return int(got)


@dataclass
class Try:
    """run(config): what it got hold of, as text; None or OSError when nothing."""

    name: str
    run: Callable[[Any], str | None]
    users: tuple[str, ...]  # who must fail at it
    control: bool  # root of the host succeeds, without harm: the tests prove so that the try works


TRIES: dict[str, Try] = {}


def attempt(name: str, *, users: tuple[str, ...] = ("user", "root"), control: bool = False) -> Callable[[Any], Any]:
    def register(run: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        assert name not in TRIES, name
        TRIES[name] = Try(name, run, users, control)
        return run

    return register


def first(*ways: Callable[[], str | None]) -> str | None:
    """What the first way that works got."""
    for way in ways:
        try:
            found = way()
        except OSError:
            continue
        if found:
            return found
    return None


def _in_child(a_try: Try, config: Any, out: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    answer: dict[str, str | None]
    try:
        answer = {"got": a_try.run(config), "how": "came to its end"}
    except OSError as error:
        answer = {"got": None, "how": str(error)}
    except BaseException:
        answer = {"broken": traceback.format_exc()}
    os.write(out, json.dumps(answer).encode()[:60_000])


def _one(a_try: Try, config: Any) -> dict[str, Any]:
    mine, its = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(mine)
        try:
            _in_child(a_try, config, its)
        finally:
            os._exit(0)
    os.close(its)
    text = b""
    while piece := os.read(mine, 65536):
        text += piece
    os.close(mine)
    status = os.waitpid(pid, 0)[1]
    if text:
        return dict(json.loads(text))
    return {"got": None, "how": f"ended by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "left"}


def run(config: dict[str, Any], user: str, *, control_only: bool = False) -> dict[str, dict[str, Any]]:
    """By name: {"got": text or None, "how": the refusal} or {"broken": traceback}."""
    told = SimpleNamespace(**config, user=user)
    return {t.name: _one(t, told) for t in TRIES.values() if user in t.users and (t.control or not control_only)}
