"""`exec -it`: this terminal's keys to a command in a sandbox, and its output back."""

from __future__ import annotations

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


def size() -> tuple[int, int]:
    found = shutil.get_terminal_size()
    return found.columns, found.lines


def interactive(box: Sandbox, command: list[str], tty: bool, options: dict[str, Any]) -> CommandResult:
    """Runs it with this process's stdin. With tty both ends are terminals: keys go through as they are, sizes follow."""
    if tty:
        options = {**options, "pty": size()}
    else:
        options = {**options, "stdin_open": True}
    stream = box.exec(command, stream=True, **options)
    restore = raw() if tty and sys.stdin.isatty() else None
    try:
        return follow(stream, tty)
    finally:
        if restore is not None:
            restore()


def follow(stream: CommandStream, tty: bool) -> CommandResult:
    before: Any = None
    with stream:
        for chunk in stream:
            if chunk.type == "started":
                threading.Thread(target=feed, args=(stream,), daemon=True).start()
                if tty and hasattr(signal, "SIGWINCH"):
                    before = signal.signal(signal.SIGWINCH, lambda number, frame: resized(stream))
            elif chunk.type == "stdout":
                put(1, chunk.text)
            elif chunk.type == "stderr":
                put(2, chunk.text)
    if before is not None:
        signal.signal(signal.SIGWINCH, before)
    assert stream.result is not None
    return stream.result


def put(fd: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(fd, data):]


def feed(stream: CommandStream) -> None:
    try:
        while data := os.read(0, 65536):
            stream.input(data)
        stream.input("", eof=True)
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
