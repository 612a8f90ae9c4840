"""What the documents show runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SDK
from harness.pages import snippets


@pytest.mark.parametrize("page", [ROOT / "docs" / "quick-start.md", ROOT / "docs" / "sdk-python.md", SDK / "README.md"], ids=lambda page: page.name)
def test_snippets(page: Path, environment: Any, tmp_path: Path) -> None:
    environment.chdir(tmp_path)
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S))
    assert blocks
    names: dict[str, Any] = {"__name__": "snippets"}
    for block in blocks:
        line = page.read_text().count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def test_command_line(environment: Any, tmp_path: Path) -> None:
    """The quick start's block for the command line; `sandal` is that of this tree."""
    command = f"import sys; sys.path.insert(0, {str(SDK / 'src')!r}); from sandal.cli import main; main()"
    sandal = tmp_path / "bin" / "sandal"
    sandal.parent.mkdir()
    sandal.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{command}" "$@"\n')
    sandal.chmod(0o755)
    (block,) = snippets(ROOT / "docs" / "quick-start.md", "sh cli")
    done = subprocess.run(["sh", "-eu", "-c", block], cwd=tmp_path, env={**os.environ, "PATH": f"{sandal.parent}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello\n42\n" in done.stdout and "Linux\n" in done.stdout and " mine " in done.stdout
