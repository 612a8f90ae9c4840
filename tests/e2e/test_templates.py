"""`sandald template build`: the root filesystem of a template out of an OCI image. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

import pytest
from harness.client import Client
from harness.daemon import BUILD, Daemon, clean_environment
from harness.roots import make_root, make_template

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a root filesystem is built by root"),
    pytest.mark.skipif(not (shutil.which("skopeo") and shutil.which("umoci")), reason="skopeo and umoci are not installed"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that other users may read."""
    made = Path(tempfile.mkdtemp(prefix="sandal-e2e-templates-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def make_image(place: Path) -> str:
    """An image in a directory, as `oci:` names it: a layer of a few programs and one that takes a file away."""
    layout = place / "images"
    root = place / "of-image"
    root.mkdir()
    make_root(root, ["sh", "cat", "ls"])
    (root / "etc/taken-away").write_text("a secret of an older layer")
    umoci = ["umoci", "--log=warn"]
    image = f"{layout}:v1"
    for words in (["init", "--layout", layout], ["new", "--image", image], ["insert", "--image", image, root, "/"],
                  ["insert", "--image", image, "--whiteout", "/etc/taken-away"]):
        subprocess.run([*umoci, *map(str, words)], check=True, stdin=subprocess.DEVNULL)
    return f"oci:{image}"


def build(state: Path, templates: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUILD / "sandald", "template", "build", "tiny", *options, "--state-dir", state, "--template-dirs", templates],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, env=clean_environment())


def test_root_out_of_an_image(place: Path) -> None:
    image = make_image(place)
    templates = place / "templates"
    templates.mkdir()
    make_template(templates, "tiny", "tiny")
    daemon = Daemon(template_dirs=[templates])
    root = daemon.state / "templates/tiny"
    try:
        for left in (root.with_name("tiny.new.bundle"), root.with_name("tiny.new.oci"), root.with_name("tiny.old")):
            (left / "of a build that was broken off").mkdir(parents=True)
        made = build(daemon.state, templates, "--image", image)
        assert made.returncode == 0, made.stderr
        assert made.stdout == f"{root}\n"
        assert [path.name for path in root.parent.iterdir()] == ["tiny"]  # without dpkg no tiny.lock
        assert not (root / "etc/taken-away").exists()

        again = build(daemon.state, templates, "--image", image)
        assert again.returncode != 0 and "is there already" in again.stderr
        assert build(daemon.state, templates, "--image", image, "--force").returncode == 0
        missing = build(daemon.state, templates, "--image", f"oci:{place}/none:v1", "--force")
        assert missing.returncode != 0 and "skopeo has failed" in missing.stderr
        assert (root / "etc/of-the-template").exists()  # as it was

        with daemon:
            client = Client(daemon.url, daemon.key)
            with client.sandbox(template="tiny", network="none") as sandbox:
                said = sandbox.post("/exec", {"cmd": "cat /etc/of-the-template; pwd; ls /usr/bin"})
                assert (said["exit_code"], said["stdout"]) == (0, "there/workspace\ncat\nls\nsh\n"), said
            client.close()
    finally:
        daemon.remove()
