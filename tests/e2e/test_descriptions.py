"""What a template's description names can be imported by that name."""

from __future__ import annotations

import json
import re

import pytest
from harness.client import Client
from harness.daemon import ROOT

LOADS = {
    "python": "import importlib; importlib.import_module('NAME')",
    "typescript": "void (await import('NAME'));",
    "r": "stopifnot(requireNamespace('NAME', quietly = TRUE))",
}
MODULES = {"scikit-learn": "sklearn"}
NO_PACKAGES = {"TypeScript"}


@pytest.mark.parametrize("name", ["code-interpreter-python", "code-interpreter-node", "code-interpreter-r"])
def test_named_packages_can_be_imported(client: Client, name: str) -> None:
    template = json.loads((ROOT / "kernelspecs" / name / "template.json").read_text())
    packages = re.split(", | and ", template["description"].split(" with ")[1])
    assert len(packages) > 2
    if name not in [t["name"] for t in client.get("/v1/templates")["items"]]:
        pytest.skip(f"{name} is not built here")
    with client.sandbox(template=name) as sb:
        for package in packages:
            if package not in NO_PACKAGES:
                got = sb.run(LOADS[template["main_language"]].replace("NAME", MODULES.get(package, package)))
                assert got["status"] == "ok", (package, got)
