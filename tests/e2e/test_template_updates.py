"""A template that is built anew below sandboxes that live: they go on, new ones have what is new."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

import pytest
from harness.client import Client
from harness.daemon import ISOLATION, ROOT, Daemon

pytestmark = pytest.mark.skipif(ISOLATION != "namespace" or os.geteuid() != 0, reason="needs a tree that sandboxes have below an overlay")
SYSTEM = "code-interpreter-python-debian"
NEWCOMER = "import importlib.util as u; print(u.find_spec('sandal_newcomer') is not None)"


class Live:
    """A copy of Debian's template with a tree of its own, outside of what tests and kernels may use."""

    def __init__(self, folder: Path):
        self.sources = folder / "kernelspecs"
        self.prefix = folder / "tree"
        self.place = self.sources / "place"
        self.templates = folder / "templates"
        for name in ("place", "code-interpreter-python", SYSTEM):
            copy = shutil.copytree if (ROOT / "kernelspecs" / name).is_dir() else shutil.copy
            copy(ROOT / "kernelspecs" / name, self.sources / name)
        shutil.copytree(self.sources / SYSTEM, self.templates / "live")
        description = json.loads((self.templates / "live/template.json").read_text())
        (self.templates / "live/template.json").write_text(json.dumps(description | {"name": "live", "prefix": str(self.prefix)}))
        self.startup = self.sources / "code-interpreter-python/startup"
        (self.startup / "sandal_gone.py").write_text("")
        self.build()

    def build(self) -> None:
        done = subprocess.run([self.sources / SYSTEM / "build", self.prefix], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "built:" in done.stdout, done


@pytest.fixture
def live() -> Iterator[Live]:
    folder = Path(tempfile.mkdtemp(prefix="sandal-e2e-", dir="/opt"))
    folder.chmod(0o755)
    try:
        folder.joinpath("kernelspecs").mkdir()
        yield Live(folder)
    finally:
        shutil.rmtree(folder)


def test_start_up_files_are_exchanged_below_a_live_sandbox(live: Live) -> None:
    with Daemon(template_dirs=[live.templates]) as daemon:
        client = Client(daemon.url, daemon.key)
        with client.sandbox(template="live") as old:
            assert old.run("x = 1; x")["text"] == "1"
            seen = old.post("/exec", {"cmd": f"ls {live.prefix}/share/startup"})["stdout"]
            assert "sandal_session.py" in seen and "sandal_gone.py" in seen
            with (live.startup / "sandal_session.py").open("a") as file:
                file.write("\n# of another version\n")
            (live.startup / "sandal_newcomer.py").write_text("")
            (live.startup / "sandal_gone.py").unlink()
            live.build()
            assert sorted(p.name for p in (live.prefix / "share").iterdir()) == ["home-skel", "stamp", "startup"]
            assert not (live.prefix / "share/startup/sandal_gone.py").exists()
            assert old.run("x + 1")["text"] == "2"
            assert old.context(name="another")["state"] in ("starting", "idle")
            assert old.run("1 + 1", context="another")["text"] == "2"
            old.post(f"/contexts/{old.get('/contexts')['items'][0]['id']}/reset")
            assert old.run("2 + 2")["text"] == "4"
            assert "sandal_session.py" in old.post("/exec", {"cmd": f"ls {live.prefix}/share/startup"})["stdout"]
            with client.sandbox(template="live") as new:
                assert new.run(NEWCOMER)["stdout"] == "True\n"
        client.close()


def test_a_new_tree_leaves_the_old_one_to_those_that_have_it(live: Live) -> None:
    with Daemon(template_dirs=[live.templates]) as daemon:
        client = Client(daemon.url, daemon.key)
        with client.sandbox(template="live") as old:
            assert old.run("1 + 1")["text"] == "2"
            shutil.copytree(live.prefix, f"{live.prefix}.new", symlinks=True)
            Path(f"{live.prefix}.new/share/startup/sandal_newcomer.py").write_text("")
            subprocess.run([live.place, "tree", f"{live.prefix}.new", live.prefix], check=True, timeout=60)
            kept = subprocess.run([live.place, "tidy", live.prefix], check=True, capture_output=True, text=True, timeout=60).stdout
            assert "kept for sandboxes that live" in kept and len(list(live.prefix.parent.glob("tree.old*"))) == 1
            old.context(name="another")
            assert old.run(NEWCOMER, context="another")["stdout"] == "False\n"
            with client.sandbox(template="live") as new:
                assert new.run(NEWCOMER)["stdout"] == "True\n"
        client.close()
    subprocess.run([live.place, "tidy", live.prefix], check=True, timeout=60)
    assert not list(live.prefix.parent.glob("tree.old*"))
