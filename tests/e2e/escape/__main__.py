"""`python3 -m escape USER [control]` where config.json lies beside these files: outcomes of all tries as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from . import outcomes


def inherited() -> list[str]:
    """Descriptors that nobody asked for."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # that of the list itself
        if int(name) > 2:
            found.append(f"{name} -> {target}")
    return found


if __name__ == "__main__":
    left_open = inherited()
    config = json.loads((Path(__file__).parent / "config.json").read_text())
    found = outcomes(config, sys.argv[1], control_only="control" in sys.argv)
    found["a descriptor left open"] = {"got": ", ".join(left_open) or None, "how": "none above 2"}
    print(json.dumps(found))
