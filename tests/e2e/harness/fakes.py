"""Templates of tests/integ/fake_kernel.c for the whole daemon."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from harness.daemon import BUILD, ROOT


def place() -> str:
    """Where a template's tree is seen in sandboxes: not in /tmp, which is their own."""
    home = str(Path.home())
    return "/opt" if os.geteuid() == 0 else home if not home.startswith("/tmp/") else "/tmp"


class Fakes:
    """Templates of the fake kernel where the gateway's user can read them: `fake`, and `fake-switch`, which reads its
    scenario from a file at each start."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sandal-fakes-", dir=place()))
        self.folder.chmod(0o755)
        self.kernel = self.folder / "fake_kernel"
        self.scenario = self.folder / "scenario"
        self.templates = self.folder / "templates"
        shutil.copy(BUILD / "tests/integ/fake_kernel", self.kernel)
        self.set_scenario("none")
        self.add("fake", [str(self.kernel), "{connection_file}"])
        script = f'exec "{self.kernel}" "$1" "$(cat "{self.scenario}")"'
        self.add("fake-switch", ["/bin/sh", "-c", script, "sh", "{connection_file}"])

    def add(self, name: str, argv: list[str]) -> None:
        source = ROOT / "tests/integ/templates/fake"
        target = self.templates / name
        target.mkdir(parents=True)
        template = json.loads((source / "template.json").read_text())
        kernel = json.loads((source / "kernel.json").read_text())
        (target / "template.json").write_text(json.dumps({**template, "name": name, "prefix": str(self.folder)}))
        (target / "kernel.json").write_text(json.dumps({**kernel, "argv": argv}))

    def set_scenario(self, text: str) -> None:
        self.scenario.write_text(text)
        self.scenario.chmod(0o644)

    def pids(self) -> list[int]:
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                if proc.joinpath("cmdline").read_bytes().split(b"\0")[0] == bytes(self.kernel):
                    found.append(int(proc.name))
            except OSError:
                pass
        return found

    def remove(self) -> None:
        shutil.rmtree(self.folder)
