"""Endpoints in the shapes of the vendors' model APIs, as their servers answer: first with calls of a tool, then with a text."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FINAL = "That is all."


def anthropic(number: int, codes: list[str]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": FINAL}] if not codes else [
        {"type": "text", "text": "Let me see."},
        *({"type": "tool_use", "id": f"toolu_{number}{i}", "name": "run_code", "input": {"code": code},
           "caller": {"type": "direct"}} for i, code in enumerate(codes))]
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "fake", "content": content,
            "stop_reason": "tool_use" if codes else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 10}}


def openai(number: int, codes: list[str]) -> dict[str, Any]:
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": FINAL, "annotations": []}]}
    calls = [{"type": "function_call", "id": f"fc_{number}{i}", "call_id": f"call_{number}{i}", "name": "run_code", "status": "completed",
              "arguments": json.dumps({"code": code})} for i, code in enumerate(codes)]
    reasoning = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
    return {"id": f"resp_{number}", "object": "response", "created_at": 1760000000, "status": "completed", "model": "fake",
            "output": [reasoning, *calls] if codes else [message], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0,
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
                      "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 20}}


def openai_chat(number: int, codes: list[str]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None if codes else FINAL, "refusal": None}
    if codes:
        message["tool_calls"] = [{"id": f"call_{number}{i}", "type": "function",
                                  "function": {"name": "run_code", "arguments": json.dumps({"code": code})}} for i, code in enumerate(codes)]
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1760000000, "model": "fake",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if codes else "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}}


def gemini(number: int, codes: list[str]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"functionCall": {"id": f"fn_{number}{i}", "name": "run_code", "args": {"code": code}},
                                    "thoughtSignature": "c2lnbmF0dXJl"} for i, code in enumerate(codes)]
    return {"candidates": [{"content": {"role": "model", "parts": parts or [{"text": FINAL}]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
            "modelVersion": "fake", "responseId": f"r{number}"}


ANSWERS = {"/v1/messages": anthropic, "/v1/responses": openai, "/v1/chat/completions": openai_chat,
           "/v1/models/fake:generateContent": gemini}


class Models:
    """`with Models([["1+1"], ["2"]]) as m`: the codes that each answer calls the tool with; after them it says FINAL. m.requests: the
    bodies that came."""

    def __init__(self, turns: list[list[str]]):
        self.turns = turns
        self.requests: list[dict[str, Any]] = []
        models = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                number = len(models.requests)
                models.requests.append(body)
                make = ANSWERS.get(self.path.split("?")[0])
                turns = models.turns[number] if number < len(models.turns) else []
                text = json.dumps(make(number, turns) if make else {"error": f"nothing at {self.path}"}).encode()
                self.send_response(200 if make else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> "Models":
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.shutdown()
        self.server.server_close()
