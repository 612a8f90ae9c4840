"""Every kind of output and error of a stock ipykernel, from golden/python.yaml, on each template and launcher; and
golden/python-more.yaml, once."""

from __future__ import annotations

import pytest
from harness.client import Sandbox
from harness.daemon import FORKS_ARE_MUTE
from harness.golden import cases, check_case


@pytest.fixture(scope="module")
def modules(sandbox: Sandbox) -> set[str]:
    names = ["pandas", "numpy", "matplotlib", "plotly", "seaborn", "sympy", "ipykernel.subshell"]
    code = f"import importlib.util\nprint(' '.join(m for m in {names} if importlib.util.find_spec(m)))"
    return set(sandbox.run(code)["stdout"].split())


@pytest.mark.parametrize("case", [*cases("python", pytest.mark.smoke), *cases("python-more")])
def test_kq_05_case(sandbox: Sandbox, modules: set[str], case: dict) -> None:
    missing = set(case.get("needs", [])) - modules
    if missing:
        pytest.skip(f"this template has no {', '.join(sorted(missing))}")
    if "a forked child" in case["name"] and FORKS_ARE_MUTE:
        pytest.skip(FORKS_ARE_MUTE)
    got, events = check_case(sandbox, case)
    if got["status"] == "ok":
        assert got["error"] is None
    else:
        assert all("\x1b" not in line for line in got["error"]["traceback"])
    joined = "".join(e["text"] for e in events if e["type"] == "stdout" and not e.get("late"))
    if not any(e["type"] == "clear" for e in events):
        assert joined == got["stdout"]


def test_the_kernel_is_still_whole(sandbox: Sandbox) -> None:
    assert sandbox.run("40 + 2")["text"] == "42"
    assert len(sandbox.get("/contexts")["items"]) == 1
