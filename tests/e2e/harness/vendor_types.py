"""Checks values against the types of the vendors' SDKs: lines of {"format", "what", "value"} on stdin, one answer a line, "ok" or what
is wrong. Runs in build/venv-vendors. A member that the type does not have is wrong too."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import anthropic.types
import mcp_types
import openai.types.chat
import openai.types.responses
from google.genai import types as gemini
from openai.types.responses.response_input_item_param import FunctionCallOutput
from pydantic import BaseModel, TypeAdapter

TYPES: dict[str, tuple[Any, Any, Any]] = {  # definition, call, answer
    "anthropic": (anthropic.types.ToolParam, anthropic.types.ToolUseBlock, anthropic.types.ToolResultBlockParam),
    "openai": (openai.types.responses.FunctionToolParam, openai.types.responses.ResponseFunctionToolCall, FunctionCallOutput),
    "openai-chat": (openai.types.chat.ChatCompletionFunctionToolParam, openai.types.chat.ChatCompletionMessageFunctionToolCall,
                    openai.types.chat.ChatCompletionToolMessageParam),
    "gemini": (gemini.Tool, gemini.Part, gemini.Part),
    "mcp": (mcp_types.Tool, mcp_types.CallToolRequestParams, mcp_types.CallToolResult),
}


def plain(value: Any) -> Any:
    """Base64 in one alphabet, so that what was read and written again compares."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.replace("-", "+").replace("_", "/") if isinstance(value, str) and len(value) > 200 else value


def check(fmt: str, what: str, value: Any) -> str:
    wanted = TYPES[fmt][["definition", "call", "answer"].index(what)]
    adapter = TypeAdapter(wanted)
    is_model = isinstance(wanted, type) and issubclass(wanted, BaseModel)
    # Of text a union of a string and an iterable makes the iterable, where it comes as JSON.
    read = adapter.validate_json(json.dumps(value)) if is_model else adapter.validate_python(value)
    again = adapter.dump_python(read, mode="json", by_alias=True, **({"exclude_unset": True} if is_model else {}))
    if plain(again) != plain(value):
        return f"not the same when read and written again: {json.dumps(again)[:2000]}"
    if fmt == "gemini" and what == "answer":
        for part in read.function_response.parts or []:
            assert base64.b64encode(part.inline_data.data)[:11] == b"iVBORw0KGgo"
    return "ok"


for line in sys.stdin:
    row = json.loads(line)
    try:
        print(json.dumps(check(row["format"], row["what"], row["value"])), flush=True)
    except Exception as e:  # what the types say is the answer
        print(json.dumps(f"{type(e).__name__}: {e}"), flush=True)
