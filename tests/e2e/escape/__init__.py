"""What hostile code tries in a sandbox. Standard library only: this package is copied into sandboxes and runs there."""

from __future__ import annotations

from typing import Any

from . import daemon, files, kernel, privileges, processes  # noqa: F401: each adds its tries
from .tries import TRIES, run

__all__ = ["TRIES", "outcomes"]


def outcomes(config: dict[str, Any], user: str, *, control_only: bool = False) -> dict[str, dict[str, Any]]:
    return run(config, user, control_only=control_only)
