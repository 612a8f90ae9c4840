"""/v1/tools: definitions, calls and answers in the shapes of each vendor, against the daemon."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from typing import Any, Iterator

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import ROOT, TEMPLATE, Daemon
from harness.pages import snippets

FORMATS = ["anthropic", "openai", "openai-chat", "gemini", "mcp"]
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


def block(fmt: str, arguments: Any, name: str = "run_code") -> dict[str, Any]:
    """A call as the vendor's API has it."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "anthropic": {"type": "tool_use", "id": "toolu_1", "name": name, "input": arguments},
        "openai": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": name, "arguments": text, "status": "completed"},
        "openai-chat": {"id": "call_1", "type": "function", "function": {"name": name, "arguments": text}},
        "gemini": {"functionCall": {"id": "fn_1", "name": name, "args": arguments}},
        "mcp": {"name": name, "arguments": arguments},
    }[fmt]


def read(fmt: str, answer: dict[str, Any]) -> tuple[str, int, bool | None]:
    """Text, number of pictures, and the mark of an error where the vendor has one."""
    if fmt == "anthropic":
        assert answer["type"] == "tool_result" and answer["tool_use_id"] == "toolu_1"
        content = answer["content"]
        return content[0]["text"], sum(b["type"] == "image" for b in content), answer["is_error"]
    if fmt == "openai":
        assert answer["type"] == "function_call_output" and answer["call_id"] == "call_1"
        output = answer["output"]
        return (output, 0, None) if isinstance(output, str) else (output[0]["text"], len(output) - 1, None)
    if fmt == "openai-chat":
        assert answer["role"] == "tool" and answer["tool_call_id"] == "call_1"
        return answer["content"], 0, None
    if fmt == "gemini":
        response = answer["functionResponse"]
        assert response["name"] == "run_code" and response["id"] == "fn_1"
        text = response["response"].get("output", response["response"].get("error"))
        return text, len(response.get("parts", [])), "error" in response["response"]
    content = answer["content"]
    return content[0]["text"], sum(b["type"] == "image" for b in content), answer["isError"]


class Tools:
    def __init__(self, client: Client, place: str):
        self.client, self.place = client, place

    def post(self, fmt: str, call: Any, **query: Any) -> httpx.Response:
        path = f"/v1/tools/run_code?format={fmt}{self.place and '&' + self.place}"
        for name, value in query.items():
            path += f"&{name}={value}"
        content = call if isinstance(call, bytes) else json.dumps(call).encode()
        return self.client.call("POST", path, content=content, headers={"Content-Type": "application/json"})

    def run(self, code: str, fmt: str = "anthropic", arguments: dict[str, Any] | None = None,
            **query: Any) -> tuple[str, int, bool | None]:
        answer = self.post(fmt, block(fmt, {"code": code, **(arguments or {})}), **query)
        assert answer.status_code == 200, answer.text
        return read(fmt, answer.json())


@pytest.fixture(scope="module")
def tools(sandbox: Sandbox) -> Tools:
    return Tools(sandbox.client, f"sandbox={sandbox.id}")


@pytest.mark.smoke
@pytest.mark.parametrize("fmt", FORMATS)
def test_call_and_answer_of_each_vendor(tools: Tools, fmt: str) -> None:
    assert tools.run("print('printed')\n6 * 7", fmt) == ("printed\n42", 0, False if fmt not in ("openai", "openai-chat") else None)
    text, pictures, failed = tools.run("1 / 0", fmt)
    assert text.rstrip().endswith("ZeroDivisionError: division by zero") and "line 1" in text and pictures == 0
    assert failed is (True if fmt not in ("openai", "openai-chat") else None)


@pytest.mark.parametrize("fmt", FORMATS)
def test_pictures(tools: Tools, fmt: str) -> None:
    text, pictures, _ = tools.run(PLOT, fmt)
    if fmt == "openai-chat":
        assert pictures == 0 and text.startswith("[1 image not shown")
    else:
        assert (text, pictures) == ("[image]", 1)
    assert tools.run(PLOT, fmt, images="false")[1] == 0


def test_definition_offers_the_languages_there_are(client: Client) -> None:
    for fmt in FORMATS:
        text = client.call("GET", f"/v1/tools?format={fmt}", expect=200).text
        assert '"run_code"' in text and text.startswith("[")
    schema = client.get("/v1/tools?format=anthropic")[0]["input_schema"]
    languages = {t["main_language"] for t in client.get("/v1/templates")["items"] if t["available"] and t["main_language"]}
    assert languages <= set(schema["properties"].get("language", {"enum": languages})["enum"])
    client.error("GET", "/v1/tools", 400, "invalid_request")
    assert "anthropic" in client.error("GET", "/v1/tools?format=claude", 400, "invalid_request")["message"]


def test_text_is_cut_to_the_budget(tools: Tools) -> None:
    text, _, _ = tools.run("for i in range(50000): print('line', i)", max_tokens=200)
    assert text.startswith("line 0\n") and "\nline 49999\n[The output was cut to 200 tokens." in text
    assert len(text) < 200 * 4 + 400
    text, _, _ = tools.run("import pandas as pd\npd.set_option('display.max_rows', None)\npd.DataFrame({'a': range(2000)})",
                           max_tokens=200)
    assert text.split("\n")[1].split() == ["0", "0"] and "1999" not in text.split("left out")[1]
    text, _, failed = tools.run("def f(n):\n    if n == 0:\n        raise ValueError('deep')\n    f(n - 1)\nf(200)", max_tokens=300)
    assert failed and "ValueError: deep" in text and text.startswith("[…")
    assert "f(200)" not in text  # the outermost frame


def test_model_is_told_of_its_mistakes(tools: Tools, sandbox: Sandbox) -> None:
    before = len(sandbox.get("/runs?limit=1000")["items"])
    for fmt in FORMATS:
        for arguments, part in (({}, "code is missing"), ({"code": 5}, "must be a string"), ("{\"code\": \"pri", "not JSON"),
                                ({"code": "1", "timeout": "soon"}, "timeout"), ({"code": "1", "language": "klingon"}, '"klingon". There is: '),
                                ({"code": "1", "context": "nowhere"}, "nowhere")):
            answer = tools.post(fmt, block(fmt, arguments))
            assert answer.status_code == 200, answer.text
            text, _, failed = read(fmt, answer.json())
            assert part in text and failed in (True, None), text
    text = tools.post("mcp", block("mcp", {"code": "1"}, name="bash")).json()["content"][0]["text"]
    assert text == 'There is no tool "bash" here. The only one is run_code.'
    assert len(sandbox.get("/runs?limit=1000")["items"]) == before


def test_program_is_told_of_its_mistakes(client: Client, tools: Tools) -> None:
    good = block("anthropic", {"code": "1"})

    def refused(call: Any, status: int, code: str, fmt: str = "anthropic", by: Tools = tools, **query: Any) -> None:
        answer = by.post(fmt, call, **query)
        assert answer.status_code == status and answer.json()["error"]["code"] == code, answer.text

    refused(b"", 400, "invalid_request")
    refused(b"{", 400, "invalid_json")
    refused([], 400, "invalid_request")
    refused(block("openai", {"code": "1"}), 400, "invalid_request")
    refused({**good, "id": 5}, 400, "invalid_request")
    refused(good, 400, "invalid_request", session="a")  # beside the sandbox
    refused(good, 400, "invalid_request", by=Tools(client, ""))
    refused(good, 404, "sandbox_not_found", by=Tools(client, "sandbox=nowhere"))
    refused(good, 400, "invalid_request", max_tokens=63)
    refused(good, 400, "invalid_request", max_tokens=200001)
    answer = client.call("POST", f"/v1/tools/run_code?format=anthropic&{tools.place}", content=json.dumps(good),
                         headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415


def test_what_no_tree_parser_takes(tools: Tools) -> None:
    code = rb'{"type":"tool_use","id":"toolu_1","name":"x","name":"run_code","input":{"code":"1","code":"print(ascii(\"\ud83d\"))"}}'
    text, _, failed = read("anthropic", tools.post("anthropic", code).json())
    assert (text, failed) == (r"'\ufffd'", False)
    code = rb'{"type":"tool_use","id":"toolu_1","name":"run_code","input":{"code":"print(1)\u0000"}}'
    text, _, failed = read("anthropic", tools.post("anthropic", code).json())
    assert "U+0000" in text and failed
    assert tools.run("print('a\\0b\\ud83d')")[0] == "a\ufffdb\ufffd"


def test_ends_that_are_not_the_codes_own(fresh: Sandbox) -> None:
    tools = Tools(fresh.client, f"sandbox={fresh.id}")
    text, _, failed = tools.run("import time\ntime.sleep(60)", arguments={"timeout": 0.5})
    assert "TimeoutError" in text and failed
    text, _, failed = tools.run("import time\ntime.sleep(60)", timeout=0.5, arguments={"timeout": 50})
    assert "TimeoutError" in text and failed
    text, _, failed = tools.run("import os\nos._exit(3)")
    assert "KernelExited" in text and "variables and imports are lost" in text and failed
    text, _, failed = tools.run("input('name? ')")
    assert failed and "input" in text.lower()


@pytest.mark.smoke
def test_session_makes_one_sandbox_and_keeps_it(client: Client) -> None:
    tools = Tools(client, "session=conversation%201")
    answers: list[str] = []
    threads = [threading.Thread(target=lambda i=i: answers.append(tools.run(f"x{i} = {i}\nx{i}")[0])) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(answers) == ["0", "1", "2", "3"]
    own = client.get("/v1/sandboxes?metadata.tools.session=conversation%201")["items"]
    assert len(own) == 1 and own[0]["on_timeout"] == "kill" and own[0]["timeout"] == 3600
    answer = client.call("POST", "/v1/tools/run_code?format=mcp", json=block("mcp", {"code": "x0 + x1 + x2 + x3"}),
                         headers={"Sandal-Session": "conversation 1"})
    assert read("mcp", answer.json())[0] == "6"
    assert answer.headers["sandal-sandbox"] == own[0]["id"]
    run = client.get(f"/v1/sandboxes/{own[0]['id']}/runs/{answer.headers['sandal-run']}")
    assert run["text"] == "6" and run["context"] == answer.headers["sandal-context"]
    client.delete(f"/v1/sandboxes/{own[0]['id']}")


def test_idempotency_key(tools: Tools, sandbox: Sandbox) -> None:
    calls = [sandbox.client.call("POST", f"/v1/tools/run_code?format=mcp&{tools.place}", headers={"Idempotency-Key": "once"},
                                 json=block("mcp", {"code": "n = globals().get('n', 0) + 1\nn"})) for _ in range(2)]
    assert [c.json() for c in calls] == [{"content": [{"type": "text", "text": "1"}], "isError": False}] * 2
    assert calls[0].headers["sandal-run"] == calls[1].headers["sandal-run"]


def test_over_the_websocket(client: Client, sandbox: Sandbox) -> None:
    socket = client.socket()
    try:
        for call in (block("mcp", {"code": "1 + 1"}), json.dumps(block("mcp", {"code": "1 + 1"}))):
            answer = socket.call("tools.run_code", format="mcp", sandbox=sandbox.id, call=call)
            assert answer["content"][0]["text"] == "2"
        assert socket.call("tools.list", format="mcp")[0]["name"] == "run_code"
    finally:
        socket.close()


def test_snippets_of_the_page_run(client: Client) -> None:
    page = ROOT / "docs/tools.md"
    python, shell = snippets(page, "python"), snippets(page, "sh")
    assert len(python) == len(shell) == 1
    names: dict[str, Any] = {"URL": client.url, "KEY": client.key}
    exec(python[0], names)
    assert names["tools"][0]["name"] == "run_code"
    done = subprocess.run(["sh", "-ec", shell[0]], env={**os.environ, "URL": client.url, "KEY": client.key or ""}, capture_output=True,
                          text=True, timeout=60)
    assert json.loads(done.stdout) == {"role": "tool", "tool_call_id": "call_1", "content": "42"}, done.stderr
    for name in re.findall(r"`(\w+\.py)`", page.read_text()):
        assert (ROOT / "examples/agents" / name).is_file()
    for item in client.get("/v1/sandboxes?metadata.tools.session=talk-1")["items"]:
        client.delete(f"/v1/sandboxes/{item['id']}")


@pytest.fixture(scope="module")
def tight() -> Iterator[Client]:
    with Daemon("--tools-sessions", "1", "--tools-call-bytes", "1KiB", "--tools-images", "1", "--tools-image-bytes", "10KiB",
                "--tools-output-bytes", "10KiB", "--tools-result-bytes", "40KiB", "--tools-max-tokens", "3000",
                "--tools-template", TEMPLATE) as d:
        c = Client(d.url, d.key)
        yield c
        c.close()


def test_limits_of_the_operator(tight: Client) -> None:
    tools = Tools(tight, "session=one")
    small = block("anthropic", {"code": ""})
    small["input"]["code"] = "#" * (1024 - len(json.dumps(small)))
    assert tools.post("anthropic", small).status_code == 200
    small["input"]["code"] += "#"
    assert tools.post("anthropic", small).status_code == 413
    answer = Tools(tight, "session=two").post("anthropic", block("anthropic", {"code": "1"}))
    assert answer.status_code == 429 and answer.json()["error"]["code"] == "quota_exceeded" and "retry-after" in answer.headers

    text, pictures, _ = tools.run("from IPython.display import Image, display\nimport zlib, struct\n"
                                  "png = b'\\x89PNG\\r\\n\\x1a\\n' + b'\\0' * 100\n"
                                  "display(Image(png)); display(Image(png))")
    assert (text, pictures) == ("[1 image not shown: there are too many]", 1)
    at = 10240 // 4 * 3
    assert tools.run(f"display(Image(png[:8] + b'\\0' * ({at} - 8)))")[1] == 1
    text, pictures, _ = tools.run(f"display(Image(png[:8] + b'\\0' * ({at} - 7)))")
    assert pictures == 0 and text.startswith("[1 image not shown: too large")
    assert "lost" not in tools.run("print('x' * 10239)")[0]
    assert "bytes went over a limit and are lost]" in tools.run("print('x' * 10300)")[0]
    assert "result: " in tools.run("display(Image(png[:8] + b'\\0' * 60000))")[0]
    text, _, _ = tools.run("print('y' * 10000); import sys; print('z' * 1996, file=sys.stderr)")
    assert "cut to" not in text  # 3,000 tokens: a letter is a quarter of one, the end of a line a whole one
    assert "cut to 3000 tokens" in tools.run("print('y' * 10000); print('z' * 1997, file=sys.stderr)")[0]


def test_keys_and_owners(client: Client, sandbox: Sandbox) -> None:
    made = client.post("/v1/keys", {"name": "attached", "owner": client.get("/v1/keys")["items"][0]["owner"],
                                    "scopes": [f"attach:{sandbox.id}"]}, expect=201)
    other = client.post("/v1/keys", {"name": "other", "owner": "someone", "scopes": ["use"]}, expect=201)
    attached, foreign = Client(client.url, made["key"]), Client(client.url, other["key"])
    try:
        assert Tools(attached, f"sandbox={sandbox.id}").run("1 + 1")[0] == "2"
        assert Tools(attached, "session=mine").post("mcp", block("mcp", {"code": "1"})).status_code == 403
        assert Tools(foreign, f"sandbox={sandbox.id}").post("mcp", block("mcp", {"code": "1"})).status_code == 404
        assert Client(client.url, None).call("POST", "/v1/tools/run_code?format=mcp", json={}).status_code == 401
    finally:
        attached.close()
        foreign.close()
        client.delete(f"/v1/keys/{made['id']}")
        client.delete(f"/v1/keys/{other['id']}")
