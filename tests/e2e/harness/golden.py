"""What the templates' suites share: their cases (golden/*.yaml), run and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
import yaml
from harness.client import Client, Sandbox
from harness.daemon import slack
from harness.match import mismatch

MIB = 1 << 20


def cases(name: str, *marks: pytest.MarkDecorator) -> list[Any]:
    """Those of golden/NAME.yaml, as values of a parameter `case`."""
    found = yaml.safe_load((Path(__file__).resolve().parents[1] / "golden" / f"{name}.yaml").read_text())
    return [pytest.param(case, id=case["name"], marks=marks) for case in found]


def check_case(sandbox: Sandbox, case: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs it; its Execution is as wanted (or as one of `any`), its events are in order. Both."""
    extra = {k: case[k] for k in ("language", "stdin") if k in case}
    got = sandbox.run(case["code"], timeout=min(240, round(60 * slack())), **extra)
    wrong = [mismatch(want, got) for want in case.get("any", [case.get("want")])]
    assert None in wrong, wrong
    events = sandbox.events(got["run"])
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events].count("result") == 1
    return got, events


def shared_sandbox(template: str) -> Any:
    """A fixture: one sandbox of that template a module."""
    @pytest.fixture(scope="module")
    def shared(client: Client) -> Iterator[Sandbox]:
        with client.sandbox(template=template) as sb:
            yield sb

    return shared


def own_sandbox(template: str) -> Any:
    """A fixture: a sandbox of that template for one test."""
    @pytest.fixture
    def own(client: Client) -> Iterator[Sandbox]:
        with client.sandbox(template=template) as sb:
            yield sb

    return own
