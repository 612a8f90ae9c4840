"""What people see: output as it comes, results, pictures where the terminal shows them, tables of records."""

from __future__ import annotations

import base64
import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Iterable, Optional, Sequence, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._models import JSON
from .._results import Execution, Result, RunError

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

KITTY_CHUNK = 4096  # of the protocol


def picture_protocol(env: Optional[dict[str, str]] = None, tty: Optional[bool] = None) -> Optional[str]:
    """kitty or iterm, as the terminal on stdout says of itself; None for one that shows no pictures."""
    env = dict(os.environ) if env is None else env
    if not (sys.stdout.isatty() if tty is None else tty) or env.get("TMUX"):
        return None
    program = env.get("TERM_PROGRAM", "")
    if env.get("KITTY_WINDOW_ID") or env.get("TERM") in ("xterm-kitty", "xterm-ghostty") or program == "ghostty":
        return "kitty"
    return "iterm" if program in ("iTerm.app", "WezTerm") else None


def picture(data: bytes, protocol: str) -> str:
    """The control sequence that shows a PNG."""
    text = base64.b64encode(data).decode()
    if protocol == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(data)}:{text}\a\n"
    parts = [text[i:i + KITTY_CHUNK] for i in range(0, len(text), KITTY_CHUNK)]
    heads = ["a=T,f=100,", *[""] * (len(parts) - 1)]
    return "".join(f"\x1b_G{head}m={int(i < len(parts) - 1)};{part}\x1b\\" for i, (head, part) in enumerate(zip(heads, parts))) + "\n"


class Shower:
    """Takes what a run gives: callbacks of run_code. Text goes where it went in the sandbox."""

    def __init__(self, images: Path, stdout: Optional[TextIO] = None, stderr: Optional[TextIO] = None):
        self.images = images
        self._stdout, self._stderr = stdout or sys.stdout, stderr or sys.stderr
        self.shown: dict[str, str] = {}

    def text(self, text: str) -> None:
        self._stdout.write(text)
        self._stdout.flush()

    def error_text(self, text: str) -> None:
        self._stderr.write(text)
        self._stderr.flush()

    def result(self, result: Result) -> None:
        if result.type.startswith("image/") or result.type == "application/pdf" or "image/png" in result.formats:
            self._picture(result)
        elif result.text:
            self.text(result.text + "\n")

    def _picture(self, result: Result) -> None:
        protocol = picture_protocol()
        if protocol and "image/png" in result.formats:
            self.text(picture(result.to_bytes("image/png"), protocol))
            return
        kind = "image/png" if "image/png" in result.formats else result.type
        self.images.mkdir(parents=True, exist_ok=True)
        self.error_text(f"saved {result.save(self.images, kind)}\n")

    def error(self, error: RunError) -> None:
        self.error_text("\n".join(error.traceback or [f"{error.name}: {error.message}"]) + "\n")


def end_of(execution: Execution, tell: bool = True) -> int:
    """The exit status for an Execution; what was not told as an error of the code is told here."""
    if tell:
        tell_cut(execution.truncated)
    if execution.error is None:
        return 0
    if execution.status != "error" and tell:
        err.print(f"sandal: {execution.status}: {execution.error.message}", markup=False)
    return {"timeout": 124, "interrupted": 130}.get(execution.status, 1)


def tell_cut(truncated: Optional[JSON]) -> None:
    """What limits kept back, on stderr."""
    if not truncated:
        return
    parts = [f"about {count} bytes of {kind}" for kind, count in truncated.items() if isinstance(count, int) and count]
    reason = f" ({truncated['reason']})" if truncated.get("reason") else ""
    err.print(f"sandal: the output is cut: {', '.join(parts) or 'some'} did not come{reason}", markup=False)


def as_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=False, indent=None if not sys.stdout.isatty() else 2)
    sys.stdout.write("\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Fitted to the terminal; for what reads lines, one record a line, however long."""
    lines = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        lines = [[cell.replace("\n", "\\n") for cell in line] for line in [list(columns), *lines]]
        widths = [max(map(len, column)) for column in zip(*lines)]
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
        return
    made = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for line in lines:
        made.add_row(*map(Text, line))
    out.print(made)


def ago(when: Optional[datetime]) -> str:
    if when is None:
        return "never"
    seconds = int((datetime.now(timezone.utc) - when).total_seconds())
    word = "ago" if seconds >= 0 else "from now"
    seconds = abs(seconds)
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {name} {word}"
    return f"{seconds} s {word}"


def raws(models: Iterable[Any]) -> list[JSON]:
    return [getattr(model, "info", model).raw for model in models]
