"""The examples, and the programs of tests/e2e/overview, run as they stand. Models are endpoints of our own in the vendors' shapes."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from conftest import ROOT, SDK, with_tools
from harness.daemon import Daemon

from sandal import NotSupportedError, Sandal

PRIME = """
def primes():
    n = 2
    while True:
        if all(n % d for d in range(2, int(n ** 0.5) + 1)):
            yield n
        n += 1
found = primes()
for _ in range(99):
    next(found)
print(next(found))
"""


class Model:
    """Asks for `code` to be run, and when it has an answer says what that was. `think` knows the vendor's shapes."""

    def __init__(self, think: Callable[[dict[str, Any]], dict[str, Any]]):
        self.requests: list[dict[str, Any]] = []
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                model.requests.append(body)
                answer = json.dumps(think(body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def model() -> Iterator[Callable[[Callable[[dict[str, Any]], dict[str, Any]]], Model]]:
    made: list[Model] = []

    def make(think: Callable[[dict[str, Any]], dict[str, Any]]) -> Model:
        made.append(Model(think))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def program(path: Path, daemon: Daemon, cwd: Path, **env: str) -> str:
    done = subprocess.run([sys.executable, str(path)], cwd=cwd, capture_output=True, text=True, timeout=120, env={
        **os.environ, "PYTHONPATH": str(SDK / "src"), "SANDAL_API_KEY": str(daemon.key), "SANDAL_URL": daemon.url, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_overview(daemon: Daemon, model: Any, tmp_path: Path) -> None:
    def think(body: dict[str, Any]) -> dict[str, Any]:
        last = body["messages"][-1]["content"]
        if isinstance(last, str):
            code = "import pandas as pd\npd.read_csv('sales.csv').groupby('region').revenue.sum().idxmax()"
            return {"content": [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "toolu_1", "name": "run_code",
                                                                          "input": {"code": code}}]}
        assert last[0]["type"] == "tool_result" and last[0]["tool_use_id"] == "toolu_1"
        return {"content": [{"type": "text", "text": f"It is {last[0]['content']}."}]}

    made = model(think)
    assert program(ROOT / "tests/e2e/overview/overview.py", daemon, tmp_path, MODEL_URL=made.url) == "all as on the page\n"


@pytest.mark.parametrize("name, words", [
    ("quickstart", ["north", "7", "saved plot.png", "KeyError 'nothing'"]),
    ("streaming", ["hello Ada 2", "ended: ok", "the endless one: interrupted"]),
    ("many_at_once", ["['0', '1', '4', '9']"]),
])
def test_an_example(name: str, words: list[str], daemon: Daemon, tmp_path: Path) -> None:
    out = program(SDK / "examples" / f"{name}.py", daemon, tmp_path)
    assert all(word in out for word in words), out


# Each cell, and what it shows: streams and formats, in their order.
CELLS = [
    ("from sandal import AsyncSandal, Sandal\nsb = Sandal().sandboxes.create('code-interpreter-python')", []),
    ("sb.run_code('import matplotlib.pyplot as plt\\nplt.plot([1, 2])')", ["text/plain", "image/png"]),
    ("sb.run_code('print(1); 6 * 7')", ["stdout", "text/plain"]),
    ("sb.run_code('import sys; print(1, file=sys.stderr); 1 / 0')", ["stderr"]),
    ("sb.run_code('x = 1')", []),
    ("told = []\nsb.run_code('print(1); 2', on_stdout=told.append, on_result=told.append)", []),
    ("one = await (await AsyncSandal().sandboxes.get(sb.id)).run_code('[1]')\none", ["text/plain"]),
    ("sb.run_code('import pandas as pd; pd.DataFrame([1])').results[0]", ["text/html"]),
    ("sb.kill()", []),
]
NOTEBOOK = """
import json, sys, nbformat
from nbclient import NotebookClient
made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)])
NotebookClient(made, timeout=60, kernel_name="python3").execute()
print(json.dumps([cell.outputs for cell in made.cells]))
"""


@with_tools
def test_a_notebook(daemon: Daemon, tmp_path: Path) -> None:
    """What a call comes to is shown as if the code had run in the notebook itself."""
    jupyter = ROOT / "build/venv-jupyter/bin/python"
    if not jupyter.exists():
        pytest.skip("no Jupyter is installed: scripts/setup --test")
    env = {**os.environ, "PYTHONPATH": str(SDK / "src"), "SANDAL_API_KEY": str(daemon.key), "SANDAL_URL": daemon.url, "HOME": str(tmp_path)}
    done = subprocess.run([jupyter, "-c", NOTEBOOK], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env,
                          input=json.dumps([source for source, _ in CELLS]))
    assert done.returncode == 0, done.stdout + done.stderr
    for (source, shown), outputs in zip(CELLS, json.loads(done.stdout)):
        kinds = [output.get("name") or next(kind for kind in ("text/html", "image/png", "text/plain") if kind in output["data"])
                 for output in outputs]
        assert kinds == shown, (source, outputs)


def anthropic(body: dict[str, Any]) -> dict[str, Any]:
    assert body["tools"][0]["name"] == "run_code" and "code" in body["tools"][0]["input_schema"]["properties"]
    last = body["messages"][-1]["content"]
    if isinstance(last, str):
        return {"content": [{"type": "tool_use", "id": "toolu_1", "name": "run_code", "input": {"code": PRIME}}]}
    assert last[0]["type"] == "tool_result" and last[0]["tool_use_id"] == "toolu_1"
    return {"content": [{"type": "text", "text": "It is " + text_of(last[0]["content"])}]}


def openai(body: dict[str, Any]) -> dict[str, Any]:
    assert body["tools"][0]["type"] == "function" and body["tools"][0]["name"] == "run_code"
    last = body["input"][-1]
    if last.get("role") == "user":
        return {"output": [{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "run_code",
                            "arguments": json.dumps({"code": PRIME}), "status": "completed"}]}
    assert last["type"] == "function_call_output" and last["call_id"] == "call_1"
    return {"output": [{"type": "message", "content": [{"type": "output_text", "text": "It is " + text_of(last["output"])}]}]}


def openai_chat(body: dict[str, Any]) -> dict[str, Any]:
    assert body["tools"][0]["function"]["name"] == "run_code"
    last = body["messages"][-1]
    if last["role"] == "user":
        call = {"id": "call_1", "type": "function", "function": {"name": "run_code", "arguments": json.dumps({"code": PRIME})}}
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [call]}}]}
    assert last["role"] == "tool" and last["tool_call_id"] == "call_1"
    return {"choices": [{"message": {"role": "assistant", "content": "It is " + text_of(last["content"])}}]}


def gemini(body: dict[str, Any]) -> dict[str, Any]:
    assert body["tools"][0]["functionDeclarations"][0]["name"] == "run_code"
    part = body["contents"][-1]["parts"][0]
    if "text" in part:
        parts = [{"functionCall": {"id": "f1", "name": "run_code", "args": {"code": PRIME}}, "thoughtSignature": "c2ln"}]
    else:
        parts = [{"text": "It is " + json.dumps(part["functionResponse"]["response"])}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}}]}


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def with_tools(client: Sandal) -> None:
    try:
        client.tools.definitions("anthropic")
    except NotSupportedError:
        pytest.skip("this daemon has no /v1/tools")


@pytest.mark.parametrize("name, think, variable", [
    ("agent_anthropic", anthropic, "ANTHROPIC_BASE_URL"), ("agent_openai", openai, "OPENAI_BASE_URL"),
    ("agent_openai_chat", openai_chat, "OPENAI_BASE_URL"), ("agent_gemini", gemini, "GEMINI_BASE_URL")])
def test_an_agent(name: str, think: Any, variable: str, daemon: Daemon, client: Sandal, model: Any, tmp_path: Path) -> None:
    with_tools(client)
    made = model(think)
    keys = {word + "_API_KEY": "none-needed" for word in ("ANTHROPIC", "OPENAI", "GEMINI")}
    out = program(SDK / "examples" / f"{name}.py", daemon, tmp_path, **keys, **{variable: made.url})
    assert out.startswith("It is ") and "541" in out and len(made.requests) == 2, out


def test_any_other_framework(client: Sandal, python_box: Any) -> None:
    with_tools(client)
    box = client.sandboxes.get(python_box.id)
    got = box.tools.call("run_code", {"code": "print(6 * 7)"})
    assert "42" in got.text and not got.is_error
    got = box.tools.call("run_code", {"code": "1/0"})
    assert got.is_error and "ZeroDivisionError" in got.text
    name = f"t-{python_box.id}"
    assert "1" in client.tools.call("run_code", {"code": "x = 1; x"}, session=name).text
    assert "2" in client.tools.call("run_code", {"code": "x + 1"}, session=name).text
    for one in client.sandboxes.list(metadata={"tools.session": name}):
        one.kill()
