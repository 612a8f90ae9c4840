"""An agent's loop on generateContent. GEMINI_API_KEY, and GEMINI_BASE_URL for another endpoint."""

import os

import httpx

from sandal import Sandal

URL = os.environ.get("GEMINI_BASE_URL", "https://generativelanguage.googleapis.com") + "/v1beta/models/gemini-3-pro:generateContent"
HEADERS = {"x-goog-api-key": os.environ["GEMINI_API_KEY"]}

with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
    tools = sb.tools.definitions("gemini")
    contents = [{"role": "user", "parts": [{"text": "What is the 100th prime?"}]}]
    while True:
        answer = httpx.post(URL, headers=HEADERS, timeout=120, json={"tools": tools, "contents": contents}).raise_for_status().json()
        content = answer["candidates"][0]["content"]
        contents.append(content)
        calls = [part for part in content["parts"] if "functionCall" in part]
        if not calls:
            break
        contents.append({"role": "user", "parts": [sb.tools.run_tool_call(call) for call in calls]})
    print(content["parts"][0]["text"])
