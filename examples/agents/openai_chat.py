"""An agent on OpenAI's Chat Completions API, or a server that speaks it, that can run code: openai_chat.py QUESTION

Needs `openai`, OPENAI_API_KEY and SANDAL_API_KEY; OPENAI_BASE_URL for other servers."""

import os
import sys
import uuid

import httpx
import openai

sandal = httpx.Client(base_url=os.environ.get("SANDAL_URL", "http://127.0.0.1:8717"), timeout=None,
                      headers={"Authorization": f"Bearer {os.environ['SANDAL_API_KEY']}"})
here = {"format": "openai-chat", "session": str(uuid.uuid4())}
tools = sandal.get("/v1/tools", params={"format": "openai-chat"}).raise_for_status().json()


def run(call: openai.types.chat.ChatCompletionMessageFunctionToolCall) -> dict:
    return sandal.post("/v1/tools/run_code", params=here, json=call.model_dump(mode="json")).raise_for_status().json()


model = openai.OpenAI()
messages = [{"role": "user", "content": sys.argv[1]}]
while True:
    answer = model.chat.completions.create(model=os.environ.get("MODEL", "gpt-5"), messages=messages, tools=tools).choices[0].message
    messages.append(answer)
    if not answer.tool_calls:
        break
    messages += [run(call) for call in answer.tool_calls]
print(answer.content)
