"""Our shapes against the vendors' own SDKs: their types, and whole loops of agents (examples/agents) on endpoints of ours."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ROOT
from harness.models import FINAL, Models

PYTHON = ROOT / "build/venv-vendors/bin/python"
AGENTS = ROOT / "examples/agents"
PNG = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no build/venv-vendors: scripts/setup --test makes it")


class Types:
    """harness/vendor_types.py in its own environment, one value after the other."""

    def __init__(self) -> None:
        script = Path(__file__).parent / "harness/vendor_types.py"
        self.proc = subprocess.Popen([PYTHON, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def check(self, fmt: str, what: str, value: Any) -> None:
        assert self.proc.stdin and self.proc.stdout
        self.proc.stdin.write(json.dumps({"format": fmt, "what": what, "value": value}) + "\n")
        self.proc.stdin.flush()
        said = self.proc.stdout.readline()
        assert said and json.loads(said) == "ok", f"{fmt} {what} {json.dumps(value)[:1000]}: {said}"

    def close(self) -> None:
        assert self.proc.stdin
        self.proc.stdin.close()
        self.proc.wait(20)


@pytest.fixture(scope="module")
def types() -> Iterator[Types]:
    made = Types()
    yield made
    made.close()


def call_of(fmt: str, code: Any) -> dict[str, Any]:
    return {
        "anthropic": {"type": "tool_use", "id": "toolu_1", "name": "run_code", "input": {"code": code}},
        "openai": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "run_code", "status": "completed",
                   "arguments": json.dumps({"code": code})},
        "openai-chat": {"id": "call_1", "type": "function", "function": {"name": "run_code", "arguments": json.dumps({"code": code})}},
        "gemini": {"functionCall": {"id": "fn_1", "name": "run_code", "args": {"code": code}}},
        "mcp": {"name": "run_code", "arguments": {"code": code}},
    }[fmt]


@pytest.mark.parametrize("fmt", ["anthropic", "openai", "openai-chat", "gemini", "mcp"])
def test_shapes_are_those_of_the_sdks(client: Client, sandbox: Sandbox, types: Types, fmt: str) -> None:
    for definition in client.get(f"/v1/tools?format={fmt}"):
        types.check(fmt, "definition", definition)
    for code in ("print('text')", "1 / 0", PNG, PNG + "\nraise ValueError('after a picture')", 5, "print('x' * 100000)"):
        call = call_of(fmt, code)
        types.check(fmt, "call", call)
        types.check(fmt, "answer", client.post(f"/v1/tools/run_code?format={fmt}&sandbox={sandbox.id}", call))


def test_types_see_what_is_wrong(types: Types) -> None:
    with pytest.raises(AssertionError):
        types.check("anthropic", "answer", {"type": "tool_result", "tool_use_id": "t", "content": [], "sandbox": "sbx-1"})
    with pytest.raises(AssertionError):
        types.check("gemini", "answer", {"functionResponse": {"name": "n", "call_id": "x", "response": {}}})
    with pytest.raises(AssertionError):
        types.check("openai", "definition", [{"type": "function", "name": "n"}])


# --- Agents -------------------------------------------------------------------------------------


def results(fmt: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """What the SDK sent of the tool's results, in the last request's last turn."""
    if fmt == "anthropic":
        return [b for b in request["messages"][-1]["content"] if b["type"] == "tool_result"]
    if fmt == "openai":
        return [i for i in request["input"] if i.get("type") == "function_call_output"]
    if fmt == "openai-chat":
        return [m for m in request["messages"] if m["role"] == "tool"]
    return [p["functionResponse"] for p in request["contents"][-1]["parts"]]


def text_of(fmt: str, result: dict[str, Any]) -> str:
    if fmt == "anthropic":
        return result["content"][0]["text"]
    if fmt == "openai":
        return result["output"] if isinstance(result["output"], str) else result["output"][0]["text"]
    if fmt == "openai-chat":
        return result["content"]
    return result["response"].get("output") or result["response"]["error"]


def picture_of(fmt: str, result: dict[str, Any]) -> bytes:
    if fmt == "anthropic":
        return base64.b64decode(result["content"][1]["source"]["data"])
    if fmt == "openai":
        return base64.b64decode(result["output"][1]["image_url"].removeprefix("data:image/png;base64,"))
    blob = result["parts"][0].get("inlineData") or result["parts"][0]["inline_data"]  # the SDK writes the latter in here
    return base64.urlsafe_b64decode(blob["data"].replace("+", "-").replace("/", "_"))


def identity(result: dict[str, Any]) -> str:
    return next(result[name] for name in ("tool_use_id", "call_id", "tool_call_id", "id") if result.get(name))


@pytest.mark.parametrize(("agent", "fmt"), [("anthropic_messages", "anthropic"), ("openai_responses", "openai"),
                                            ("openai_chat", "openai-chat"), ("gemini", "gemini")])
def test_loop_of_an_agent(client: Client, agent: str, fmt: str) -> None:
    turns = [["x = 20", "y = 1"], ["print(undefined)"], ["print(2 * (x + y))"], [PNG]]
    with Models(turns) as models:
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {"SANDAL_URL": client.url, "SANDAL_API_KEY": client.key or "", "MODEL": "fake",
                "ANTHROPIC_BASE_URL": models.url, "ANTHROPIC_API_KEY": "none", "OPENAI_BASE_URL": models.url + "/v1",
                "OPENAI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": models.url, "GEMINI_API_KEY": "none"}
        done = subprocess.run([PYTHON, AGENTS / f"{agent}.py", "What is 42?"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == FINAL + "\n"
    assert len(models.requests) == len(turns) + 1
    assert "run_code" in json.dumps(models.requests[0]["tools"])

    last = [results(fmt, request) for request in models.requests[1:]]
    if fmt in ("openai", "openai-chat"):  # whose input has those of the turns before, too
        last = [all_[-len(turn):] for all_, turn in zip(last, turns)]
    assert [len(turn) for turn in last] == [2, 1, 1, 1]
    assert len({identity(result) for turn in last for result in turn}) == 5
    assert [text_of(fmt, result) for result in last[0]] == ["[no output]"] * 2
    assert "NameError: name 'undefined' is not defined" in text_of(fmt, last[1][0])
    assert text_of(fmt, last[2][0]) == "42"
    if fmt == "openai-chat":
        assert "1 image not shown" in text_of(fmt, last[3][0])
    else:
        assert picture_of(fmt, last[3][0]).startswith(b"\x89PNG\r\n\x1a\n")
    if fmt == "anthropic":
        assert [turn[0]["is_error"] for turn in last] == [False, True, False, False]


@pytest.fixture(scope="module", autouse=True)
def no_sessions_left(client: Client) -> Iterator[None]:
    yield
    for item in client.get("/v1/sandboxes?limit=1000")["items"]:
        if "tools.session" in item["metadata"]:
            client.delete(f"/v1/sandboxes/{item['id']}")


