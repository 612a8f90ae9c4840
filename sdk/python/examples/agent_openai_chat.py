"""An agent's loop on Chat Completions, which many servers speak. OPENAI_API_KEY, and OPENAI_BASE_URL for another endpoint."""

import os

import httpx

from sandal import Sandal

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1") + "/chat/completions"
HEADERS = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}

with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
    tools = sb.tools.definitions("openai-chat")
    messages = [{"role": "user", "content": "What is the 100th prime?"}]
    while True:
        answer = httpx.post(URL, headers=HEADERS, timeout=120, json={
            "model": "gpt-5", "tools": tools, "messages": messages}).raise_for_status().json()
        message = answer["choices"][0]["message"]
        messages.append(message)
        if not message.get("tool_calls"):
            break
        messages += [sb.tools.run_tool_call(call) for call in message["tool_calls"]]
    print(message["content"])
