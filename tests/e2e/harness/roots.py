"""Root filesystems of templates, small enough to be made for a test."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path


def make_root(root: Path, programs: list[str]) -> None:
    """A root filesystem of a few programs of the host and what they are linked to."""
    for program in programs:
        found = shutil.which(program)
        assert found
        wanted = [found] + re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", found], capture_output=True, text=True).stdout)
        for file in map(Path, wanted):
            (root / str(file.parent)[1:]).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, root / str(file)[1:])
    (root / "bin").symlink_to("usr/bin")
    for name in ("etc", "srv", "root", "var"):
        (root / name).mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/of-the-template").write_text("there")


def make_template(templates: Path, name: str, rootfs: str) -> None:
    """A template without kernels whose root filesystem is that directory."""
    folder = templates / name
    folder.mkdir()
    (folder / "template.json").write_text(json.dumps({
        "name": name, "description": "a few programs", "main_language": "python", "languages": {}, "rootfs": rootfs,
        "env": {}, "limits": {"memory_mib": 256, "cpus": 1, "pids": 64, "disk_mib": 64}, "start": "spawn"}))
