"""Jobs of a stage of scripts/test: a program that runs into the stage's log, what it used, and how it is ended."""

import collections
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
ARTEFACTS = BUILD / "artefacts"

Result = collections.namedtuple("Result", "passed failed skipped note unsteady", defaults=(0, 0, 0, "", ()))

# What the thread's stage has used: the children that it waited for, and theirs.
USED = threading.local()
STOPPED = threading.Event()  # by a signal: stages end their children and leave


class Failed(Exception):
    """The stage could not be carried through; counts as one failure."""


def say(text):
    print(text, flush=True)


def polite(argv):
    """What runs in the lane "back" leaves the processor to the others: by nice, which counts within a session only
    where the system groups processes by session (sched(7), autogroup), and for its session."""
    if not getattr(USED, "back", False):
        return [str(a) for a in argv]
    script = '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@"'
    return ["sh", "-c", script, "sh", *(str(a) for a in argv)]


def over(process):
    """Whether it has ended; then what it used is added up."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if not pid:
        return False
    process.returncode = os.waitstatus_to_exitcode(status)
    USED.seconds = getattr(USED, "seconds", 0) + usage.ru_utime + usage.ru_stime
    return True


def run(stage, argv, env=None, timeout=1800, check=True, cwd=ROOT):
    """Runs argv with its output at the end of the stage's log; returns the exit status."""
    log = ARTEFACTS / f"{stage}.log"
    with open(log, "a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(map(str, argv))}\n")
        out.flush()
        process = subprocess.Popen(
            polite(argv),
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        started = told = time.monotonic()
        try:
            while not over(process):
                time.sleep(0.05)
                now = time.monotonic()
                if now - told >= 60:
                    told = now
                    say(f"      … {stage}: {now - started:.0f} s")
                if STOPPED.is_set():
                    raise Failed("stopped")
                if now - started > timeout:
                    raise Failed(f"not done after {timeout} s: {' '.join(map(str, argv))}")
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGTERM)  # meson and pytest end what they have started
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    if check and process.returncode != 0:
        raise Failed(f"exit status {process.returncode}: {' '.join(map(str, argv))[:120]}")
    return process.returncode


def one(stage, *argv, **kwargs):
    """A job that passes or fails as a whole."""
    run(stage, argv, **kwargs)
    return Result(passed=1)


def have(tool):
    return shutil.which(tool) is not None


def sources(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
