"""What the documents show runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SDK


@pytest.mark.parametrize("page", [ROOT / "docs" / "sdk-python.md", SDK / "README.md"], ids=lambda page: page.name)
def test_snippets(page: Path, environment: Any, tmp_path: Path) -> None:
    environment.chdir(tmp_path)
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", page.read_text(), re.M | re.S))
    assert blocks
    names: dict[str, Any] = {"__name__": "snippets"}
    for block in blocks:
        line = page.read_text().count("\n", 0, block.start()) + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)
