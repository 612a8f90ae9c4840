"""Snippets of documents. The first word behind a fence is the language, the second says who runs it: `sh cli`, `sh host`."""

from __future__ import annotations

import re
from pathlib import Path

FENCED = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path) -> list[tuple[str, str, int]]:
    """Kind, text and line of every fenced block."""
    text = page.read_text()
    return [(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in FENCED.finditer(text)]


def snippets(page: Path, kind: str) -> list[str]:
    return [text for has, text, _ in blocks(page) if has == kind]


def agrees(shown: str, said: str) -> bool:
    """What a page shows, with `…` for what differs from run to run."""
    return re.fullmatch(".*?".join(re.escape(part) for part in shown.strip().split("…")), said.strip(), re.S) is not None
