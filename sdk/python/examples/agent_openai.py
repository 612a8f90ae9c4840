"""An agent's loop on the Responses API. OPENAI_API_KEY, and OPENAI_BASE_URL for another endpoint."""

import os

import httpx

from sandal import Sandal

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/responses"
HEADERS = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}

with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
    tools = sb.tools.definitions("openai")
    items = [{"role": "user", "content": "What is the 100th prime?"}]
    while True:
        answer = httpx.post(URL, headers=HEADERS, timeout=120, json={
            "model": "gpt-5", "tools": tools, "input": items, "store": False}).raise_for_status().json()
        items += answer["output"]
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        if not calls:
            break
        items += [sb.tools.run_tool_call(call) for call in calls]
    print(answer["output"][-1]["content"][0]["text"])
