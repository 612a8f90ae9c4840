"""Patterns of the golden cases: a dict matches the keys it names; `~RE` a string by search; `!` none of them; `$len`, `$has`,
`$lacks`, `$json` look into values; everything else must be equal."""

from __future__ import annotations

import re
from typing import Any


def mismatch(want: Any, got: Any, path: str = "") -> str | None:
    """None when got fits the pattern, else where and how not."""
    if isinstance(want, dict):
        return _dict(want, got, path)
    if isinstance(want, list):
        if not isinstance(got, list) or len(want) != len(got):
            return f"{path}: wanted {len(want)} items, got {got!r:.400}"
        for i, (w, g) in enumerate(zip(want, got)):
            found = mismatch(w, g, f"{path}/{i}")
            if found:
                return found
        return None
    if isinstance(want, str) and want.startswith("~"):
        fine = isinstance(got, str) and re.search(want[1:], got, re.S)
        return None if fine else f"{path}: {got!r:.400} does not match /{want[1:]}/"
    if want != got or isinstance(want, bool) != isinstance(got, bool):
        return f"{path}: wanted {want!r:.400}, got {got!r:.400}"
    return None


def _dict(want: dict[str, Any], got: Any, path: str) -> str | None:
    if "$len" in want:
        n = len(got)
        return None if n == want["$len"] else f"{path}: length {n}, wanted {want['$len']}"
    if "$has" in want or "$lacks" in want:
        for item in want.get("$has", []):
            if item not in got:
                return f"{path}: lacks {item!r}: {got!r:.400}"
        for item in want.get("$lacks", []):
            if item in got:
                return f"{path}: holds {item!r}: {got!r:.400}"
        return None
    if not isinstance(got, dict):
        return f"{path}: not an object: {got!r:.400}"
    for key, value in want.items():
        if key not in got:
            return f"{path}/{key}: missing; there is {sorted(got)}"
        found = mismatch(value, got[key], f"{path}/{key}")
        if found:
            return found
    return None
