"""Every call and every shape of the product's overview page, by the Python SDK. The environment has SANDAL_API_KEY and SANDAL_URL;
MODEL_URL is an endpoint of the Messages API. Run by sdk/python/tests/test_programs.py."""

from __future__ import annotations

import os
from typing import Any

import httpx

from sandal import Sandal

api_key = os.environ["SANDAL_API_KEY"]
csv_buffer = b"region,revenue\nnorth,3\nsouth,5\nnorth,4\n"

# --- State between calls ---

sandal = Sandal(api_key=api_key)
sb = sandal.sandboxes.create(template="code-interpreter-python")
sb.fs.write("/workspace/sales.csv", csv_buffer)

sb.run_code("import pandas as pd\ndf = pd.read_csv('sales.csv')")
result = sb.run_code("df.groupby('region').sum()")
assert "north" in result.text and "7" in result.text, result.text
assert result.results[0].type == "text/html" and result.results[0].text == result.text

# --- Contexts ---

ctx_a = sb.contexts.create(language="python")
ctx_b = sb.contexts.create(language="python")
sb.run_code("x = 1", context=ctx_a.id)
sb.run_code("x = 2", context=ctx_b.id)
assert sb.run_code("print(x)", context=ctx_a.id).text == "1"
assert sb.run_code("print(x)", context=ctx_b.id).text == "2"

ctx = sb.contexts.create(language="python")
sb.run_code("x = 1", context=ctx.id)
result = sb.run_code("x + 1", context=ctx.id)
assert result.text == "2"

sb.contexts.reset(ctx_a.id)
gone = sb.run_code("x", context=ctx_a.id)
assert gone.error is not None and gone.error.name == "NameError"

# --- Streaming ---

printed, final = "", None
code = "import sys, time\nfor i in range(3):\n    print(i)\n    time.sleep(0.05)\nprint('warn', file=sys.stderr)"
for chunk in sb.run_code(code, context=ctx.id, stream=True):
    if chunk.type == "stdout":
        printed += chunk.text
    if chunk.type == "stderr":
        assert chunk.text.startswith("warn")
    if chunk.type == "result":
        final = chunk.results
assert printed == "0\n1\n2\n" and final == []

# --- Rich outputs ---

result = sb.run_code(
    """
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 1, 2])
plt.title("demo")
plt.show()
""",
    context=ctx.id,
)
assert [r.type for r in result.results] == ["image/png"] and result.results[0].data.startswith("iVBOR")
shown = "from IPython.display import JSON, display\nimport plotly.express as px\ndisplay(JSON({'a': 1}))\npx.line(x=[1, 2], y=[1, 2])"
assert [r.type for r in sb.run_code(shown, context=ctx.id).results] == ["application/json", "application/vnd.plotly.v1+json"]

result = sb.run_code("1 / 0", context=ctx.id)
assert result.error is not None
assert (result.error.name, result.error.message) == ("ZeroDivisionError", "division by zero")
assert isinstance(result.error.traceback, list) and result.error.traceback

# --- The loop of an agent ---

tools = [{
    "name": "run_code",
    "description": "Execute Python code in a persistent, stateful interpreter and return its output.",
    "input_schema": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
}]
messages: list[dict[str, Any]] = [{"role": "user", "content": "Load sales.csv and tell me the top region by revenue."}]
while True:
    response = httpx.post(os.environ["MODEL_URL"] + "/v1/messages", json={
        "model": "m", "max_tokens": 1024, "tools": tools, "messages": messages}).raise_for_status().json()
    tool_use = next((block for block in response["content"] if block["type"] == "tool_use"), None)
    if tool_use is None:
        break  # the final answer
    result = sb.run_code(tool_use["input"]["code"], context=ctx.id)
    messages.append({"role": "assistant", "content": response["content"]})
    messages.append({"role": "user", "content": [{
        "type": "tool_result", "tool_use_id": tool_use["id"],
        "content": f"Error: {result.error.name}: {result.error.message}" if result.error else result.text,
    }]})
assert "north" in response["content"][0]["text"], response

# --- Everything else is a sandbox ---

assert sb.exec("pip --version").exit_code == 0
url = sb.expose(8000)
assert url.startswith("http")
if sb.info.isolation["kind"] != "none":
    sb.pause()
    assert sb.run_code("x + 1", context=ctx.id).text == "2"

# --- Templates ---

for template in ("code-interpreter-python", "code-interpreter-node", "code-interpreter-r", "base"):
    if sandal.templates.get(template).available:
        with sandal.sandboxes.create(template=template) as other:
            assert other.run_code("1 + 1").text.endswith("2"), template

sb.kill()
sandal.close()
print("all as on the page")
