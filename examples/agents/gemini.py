"""An agent on the Gemini API that can run code: gemini.py QUESTION

Needs `google-genai`, GEMINI_API_KEY and SANDAL_API_KEY."""

import os
import sys
import uuid

import httpx
from google import genai
from google.genai import types

sandal = httpx.Client(base_url=os.environ.get("SANDAL_URL", "http://127.0.0.1:8717"), timeout=None,
                      headers={"Authorization": f"Bearer {os.environ['SANDAL_API_KEY']}"})
here = {"format": "gemini", "session": str(uuid.uuid4())}
tools = sandal.get("/v1/tools", params={"format": "gemini"}).raise_for_status().json()


def run(part: types.Part) -> types.Part:
    call = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    answer = sandal.post("/v1/tools/run_code", params=here, json=call).raise_for_status()
    return types.Part.model_validate_json(answer.text)  # from its text: pictures are base64 there


model = genai.Client()
contents = [types.Content(role="user", parts=[types.Part(text=sys.argv[1])])]
while True:
    answer = model.models.generate_content(model=os.environ.get("MODEL", "gemini-3-pro-preview"), contents=contents,
                                           config=types.GenerateContentConfig(tools=tools))
    contents.append(answer.candidates[0].content)
    calls = [part for part in answer.candidates[0].content.parts if part.function_call]
    if not calls:
        break
    contents.append(types.Content(role="user", parts=[run(call) for call in calls]))
print(answer.text)
