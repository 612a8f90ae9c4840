"""Each id of harness/contract.py is in the name of a test that is collected, and names have no other ids."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.contract import REQUIREMENTS, ids_in
from harness.daemon import ROOT

HERE = Path(__file__).resolve().parent
CASE = re.compile(r"(?:cmocka_unit_test\w*|CASE)\(\s*(\w+)")


def collected() -> list[str]:
    """By pytest, but for this file's own; and what the programs in C hand to cmocka."""
    ended = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", f"--ignore={__file__}", HERE],
                           cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    names = [line.split("::", 1)[1] for line in ended.stdout.splitlines() if "::" in line]
    for source in sorted((*ROOT.glob("tests/unit/*/test_*.c"), *ROOT.glob("tests/integ/test_*.c"))):
        names += CASE.findall(source.read_text())
    return names


def test_each_requirement_has_its_test() -> None:
    tested: dict[str, list[str]] = {}
    for name in collected():
        for one in ids_in(name):
            tested.setdefault(one, []).append(name)
    assert not set(REQUIREMENTS) - set(tested), "without a test"
    assert not set(tested) - set(REQUIREMENTS), "not in the list"


@pytest.mark.parametrize("name, ids", [
    ("test_ga_01_03_x", {"GA-01", "GA-03"}), ("test_ga_01_to_03_x", {"GA-01", "GA-02", "GA-03"}), ("test_sv_05_ga_04", {"SV-05", "GA-04"}),
    ("ws_01_malformed", {"WS-01"}), ("test_notebook_3705", set()), ("test_news_01", set()), ("test_ga_100", set()), ("test_ga_x_01", set())])
def test_ids_of_a_name(name: str, ids: set[str]) -> None:
    assert ids_in(name) == ids
