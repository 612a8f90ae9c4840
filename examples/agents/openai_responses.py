"""An agent on OpenAI's Responses API that can run code: openai_responses.py QUESTION

Needs `openai`, OPENAI_API_KEY and SANDAL_API_KEY."""

import os
import sys
import uuid

import httpx
import openai

sandal = httpx.Client(base_url=os.environ.get("SANDAL_URL", "http://127.0.0.1:8717"), timeout=None,
                      headers={"Authorization": f"Bearer {os.environ['SANDAL_API_KEY']}"})
here = {"format": "openai", "session": str(uuid.uuid4())}
tools = sandal.get("/v1/tools", params={"format": "openai"}).raise_for_status().json()


def run(call: openai.types.responses.ResponseFunctionToolCall) -> dict:
    return sandal.post("/v1/tools/run_code", params=here, json=call.model_dump(mode="json")).raise_for_status().json()


model = openai.OpenAI()
items = [{"role": "user", "content": sys.argv[1]}]
while True:
    answer = model.responses.create(model=os.environ.get("MODEL", "gpt-5"), input=items, tools=tools)
    items += answer.output
    calls = [item for item in answer.output if item.type == "function_call"]
    if not calls:
        break
    items += [run(call) for call in calls]
print(answer.output_text)
