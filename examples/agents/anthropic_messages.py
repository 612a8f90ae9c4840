"""An agent on Anthropic's Messages API that can run code: anthropic_messages.py QUESTION

Needs `anthropic`, ANTHROPIC_API_KEY and SANDAL_API_KEY."""

import os
import sys
import uuid

import anthropic
import httpx

sandal = httpx.Client(base_url=os.environ.get("SANDAL_URL", "http://127.0.0.1:8717"), timeout=None,
                      headers={"Authorization": f"Bearer {os.environ['SANDAL_API_KEY']}"})
here = {"format": "anthropic", "session": str(uuid.uuid4())}
tools = sandal.get("/v1/tools", params={"format": "anthropic"}).raise_for_status().json()


def run(call: anthropic.types.ToolUseBlock) -> dict:
    return sandal.post("/v1/tools/run_code", params=here, json=call.model_dump(mode="json")).raise_for_status().json()


model = anthropic.Anthropic()
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    answer = model.messages.create(model=os.environ.get("MODEL", "claude-opus-4-5"), max_tokens=8192, messages=messages, tools=tools)
    messages.append({"role": "assistant", "content": answer.content})
    calls = [block for block in answer.content if block.type == "tool_use"]
    if not calls:
        break
    messages.append({"role": "user", "content": [run(call) for call in calls]})
print("".join(block.text for block in answer.content if block.type == "text"))
