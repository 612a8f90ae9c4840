"""`exec`: the output of a command in a sandbox byte by byte, this process's stdin or this terminal's keys to it."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
import threading
from typing import Any

from .._errors import SandalError
from .._results import CommandResult
from .._sync.sandbox import Sandbox
from .._sync.streams import CommandStream
from .show import tell_cut


# Seconds until the end of stdin is said again to a terminal: first, at most, and the factor between.
AGAIN_FIRST, AGAIN_MOST, AGAIN_FACTOR = 0.2, 5.0, 1.5


def size() -> tuple[int, int]:
    found = shutil.get_terminal_size()
    return found.columns, found.lines


def execute(box: Sandbox, command: list[str], stdin: bool, tty: bool, text: bool, options: dict[str, Any]) -> CommandResult:
    """Runs it, with `stdin` with this process's. With tty both ends are terminals: keys go through as they are, sizes follow.
    With `text` output comes as soon as it is there; else its bytes are kept, and up to two may come with the next."""
    if tty:
        options = {**options, "pty": size()}
    else:
        options = {**options, "stdin_open": stdin, "encoding": "text" if text or (stdin and sys.stdin.isatty()) else "base64"}
    stream = box.exec(command, stream=True, **options)
    restore = raw() if tty and sys.stdin.isatty() else None
    try:
        return follow(stream, stdin or tty, tty, options.get("encoding") == "base64")
    finally:
        if restore is not None:
            restore()


def follow(stream: CommandStream, stdin: bool, tty: bool, encoded: bool) -> CommandResult:
    before: Any = None
    ended = threading.Event()
    try:
        with stream:
            for chunk in stream:
                if chunk.type == "started" and stdin:
                    threading.Thread(target=feed, args=(stream, tty, ended), daemon=True).start()
                    if tty and hasattr(signal, "SIGWINCH"):
                        before = signal.signal(signal.SIGWINCH, lambda number, frame: resized(stream))
                elif chunk.type == "stdout" or chunk.type == "stderr":
                    put(1 if chunk.type == "stdout" else 2, base64.b64decode(chunk.text) if encoded else chunk.text.encode("utf-8", "replace"))
    finally:
        ended.set()
    if before is not None:
        signal.signal(signal.SIGWINCH, before)
    assert stream.result is not None
    cut = stream.result.truncated
    if cut and encoded:
        cut = {kind: count * 3 // 4 if isinstance(count, int) else count for kind, count in cut.items()}
    tell_cut(cut)
    return stream.result


def put(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data):]


def feed(stream: CommandStream, tty: bool, ended: threading.Event) -> None:
    """A terminal's ^D is the end for one read alone, and none at all if the program leaves the terminal's line mode before it
    reads it (bash at its start does: it finds a NUL). Our stdin's end lasts: it is said until the command has ended."""
    try:
        while data := os.read(0, 65536):
            stream.input(data)
        stream.input("", eof=True)
        seconds = AGAIN_FIRST
        while tty and not ended.wait(seconds):
            stream.input("", eof=True)
            seconds = min(seconds * AGAIN_FACTOR, AGAIN_MOST)
    except (OSError, SandalError):
        pass  # the command has ended, or closed its stdin


def resized(stream: CommandStream) -> None:
    try:
        stream.resize(*size())
    except SandalError:
        pass  # it has ended


def raw() -> Any:
    """Keys without echo and signals; returns what sets the terminal back."""
    import termios
    import tty

    before = termios.tcgetattr(0)
    tty.setraw(0)
    return lambda: termios.tcsetattr(0, termios.TCSADRAIN, before)
