"""An agent's loop on the Messages API. ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for another endpoint."""

import os

import httpx

from sandal import Sandal

URL = os.environ.get("ANTHROPIC_BASE_URL", "https://api.anthropic.com") + "/v1/messages"
HEADERS = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}

with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
    tools = sb.tools.definitions("anthropic")
    messages = [{"role": "user", "content": "What is the 100th prime?"}]
    while True:
        answer = httpx.post(URL, headers=HEADERS, timeout=120, json={
            "model": "claude-sonnet-4-5", "max_tokens": 1024, "tools": tools, "messages": messages}).raise_for_status().json()
        messages.append({"role": "assistant", "content": answer["content"]})
        calls = [block for block in answer["content"] if block["type"] == "tool_use"]
        if not calls:
            break
        messages.append({"role": "user", "content": [sb.tools.run_tool_call(call) for call in calls]})
    print(answer["content"][0]["text"])
