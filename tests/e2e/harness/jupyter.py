"""A client of Jupyter's REST API, and one of a kernel's channels in either protocol: enough for tests, no Jupyter code."""

from __future__ import annotations

import json
import re
import struct
import time
import uuid
from datetime import datetime
from typing import Any, Callable, Protocol

import httpx
from websockets.sync.client import ClientConnection, connect

from .client import Sandbox

V1 = "v1.kernel.websocket.jupyter.org"
Message = dict[str, Any]
MODEL = {"id": str, "name": str, "last_activity": str, "execution_state": str, "connections": int}


class Jupyter:
    """One client of the API, with its key as jupyter_server's gateway client sends it."""

    def __init__(self, url: str, key: str | None, scheme: str = "token"):
        headers = {"Authorization": f"{scheme} {key or ''}".strip()} if key is not None else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=60)

    def call(self, method: str, path: str, expect: int, **kwargs: Any) -> httpx.Response:
        answer = self.http.request(method, path, **kwargs)
        assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        if expect >= 400:
            check_error(answer)
        return answer

    def get(self, path: str, expect: int = 200, **kwargs: Any) -> Any:
        return self.call("GET", path, expect, **kwargs).json()

    def post(self, path: str, body: Any = None, expect: int = 201, **kwargs: Any) -> Any:
        return self.call("POST", path, expect, json={} if body is None else body, **kwargs).json()

    def kernel_ids(self) -> list[str]:
        return [k["id"] for k in self.get("/api/kernels")]


def check_error(answer: httpx.Response) -> None:
    """GA-12"""
    assert answer.headers["content-type"].startswith("application/json"), answer.headers
    body = answer.json()
    assert isinstance(body, dict) and isinstance(body["message"], str) and body["message"], body
    assert body["reason"] is None or isinstance(body["reason"], str), body
    assert "www-authenticate" not in answer.headers


def check_model(model: dict[str, Any]) -> None:
    for name, kind in MODEL.items():
        assert isinstance(model[name], kind), model
    assert model["execution_state"] in ("starting", "idle", "busy", "restarting", "dead"), model
    assert re.fullmatch(r"\w+-\w+-\w+-\w+-\w+", model["id"]), model
    datetime.strptime(model["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ")  # GA-11: as clients parse it


def v1_encode(channel: str, parts: list[bytes], buffers: list[bytes] = []) -> bytes:
    segments = [channel.encode(), *parts, *buffers]
    offsets = [8 * (len(segments) + 2)]
    for segment in segments:
        offsets.append(offsets[-1] + len(segment))
    return struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets) + b"".join(segments)


def v1_decode(frame: bytes) -> Message:
    count = struct.unpack_from("<Q", frame)[0]
    offsets = struct.unpack_from(f"<{count}Q", frame, 8)
    assert offsets[0] == 8 * (count + 1) and offsets[-1] == len(frame)
    segments = [frame[a:b] for a, b in zip(offsets, offsets[1:])]
    names = ("header", "parent_header", "metadata", "content")
    message: Message = dict(zip(names, (strict(part) for part in segments[1:5])))
    return {**message, "channel": segments[0].decode(), "buffers": segments[5:]}


def legacy_encode(message: Message, buffers: list[bytes]) -> bytes:
    text = json.dumps(message).encode()
    offsets = [4 * (len(buffers) + 2)]
    for segment in [text, *buffers[:-1]]:
        offsets.append(offsets[-1] + len(segment))
    return struct.pack(f">{len(offsets) + 1}I", len(offsets), *offsets) + text + b"".join(buffers)


def legacy_decode(frame: str | bytes) -> Message:
    if isinstance(frame, str):
        return strict(frame)
    count = struct.unpack_from(">I", frame)[0]
    offsets = [*struct.unpack_from(f">{count}I", frame, 4), len(frame)]
    segments = [frame[a:b] for a, b in zip(offsets, offsets[1:])]
    return {**strict(segments[0]), "buffers": segments[1:]}


def strict(text: str | bytes) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")
    return json.loads(text, parse_constant=refuse)


class Server(Protocol):
    """Whose channels they are."""

    url: str

    def headers(self) -> dict[str, str]: ...


class Channels:
    """One WebSocket. What comes is checked as JupyterLab does, and kept in order."""

    def __init__(self, client: Server, kernel: str, *, v1: bool = True, session: str | None = None, query: str = "",
                 headers: dict[str, str] | None = None, offer: bool | None = None, **kwargs: Any):
        """offer: whether v1 is named; by default where it is spoken."""
        self.v1, self.session = v1, session or uuid.uuid4().hex
        self.kernel, self.client = kernel, client
        url = f"{client.url.replace('http', 'ws', 1)}/api/kernels/{kernel}/channels"
        self.ws: ClientConnection = connect(
            url + (f"?{query}" if query else ""), additional_headers=client.headers() if headers is None else headers,
            subprotocols=[V1] if (v1 if offer is None else offer) else None, max_size=None, compression=None, legacy=True, **kwargs)
        assert self.ws.subprotocol == (V1 if v1 else None)
        self.seen: list[Message] = []

    def __enter__(self) -> "Channels":
        return self

    def __exit__(self, *exc: object) -> None:
        self.ws.close()

    def send(self, msg_type: str, content: Any = None, channel: str = "shell", *, msg_id: str | None = None,
             buffers: list[bytes] = [], parent: Any = None, metadata: Any = None,
             subshell: str | None = None) -> str:
        msg_id = msg_id or uuid.uuid4().hex
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": self.session, "username": "tester",
                  "version": "5.3", "date": "2026-01-02T03:04:05.678901Z"}
        if subshell is not None:
            header["subshell_id"] = subshell
        parts = {"header": header, "parent_header": parent or {}, "metadata": metadata or {},
                 "content": {} if content is None else content}
        if self.v1:
            self.ws.send(v1_encode(channel, [json.dumps(p).encode() for p in parts.values()], buffers))
        elif buffers:
            self.ws.send(legacy_encode({**parts, "channel": channel}, buffers))
        else:
            self.ws.send(json.dumps({**parts, "channel": channel, "buffers": []}))
        return msg_id

    def raw(self, channel: str, *parts: str) -> None:
        """The four parts as they are, be they what they may."""
        if self.v1:
            self.ws.send(v1_encode(channel, [p.encode() for p in parts]))
        else:
            names = ("header", "parent_header", "metadata", "content")
            self.ws.send("{" + ",".join(f'"{n}":{p}' for n, p in zip(names, parts)) + f',"channel":"{channel}"}}')

    def receive(self, timeout: float = 60) -> Message:
        frame = self.ws.recv(timeout)
        assert isinstance(frame, bytes) == self.v1 or not self.v1
        message = v1_decode(frame) if self.v1 else legacy_decode(frame)  # type: ignore[arg-type]
        check(message, self.v1)
        self.seen.append(message)
        return message

    def until(self, found: Callable[[Message], bool], timeout: float = 60) -> Message:
        end = time.monotonic() + timeout
        while True:
            message = self.receive(max(0.01, end - time.monotonic()))
            if found(message):
                return message

    def ask(self, msg_type: str, content: Any = None, channel: str = "shell", **kwargs: Any) -> tuple[Message, list[Message]]:
        """The reply, and what came on iopub for the request, from busy to idle."""
        return self.answer(self.send(msg_type, content, channel, **kwargs))

    def answer(self, msg_id: str, timeout: float = 60) -> tuple[Message, list[Message]]:
        reply, idle, published = None, False, []
        mine = [m for m in self.seen if m["parent_header"].get("msg_id") == msg_id]
        end = time.monotonic() + timeout
        while True:
            for message in mine:
                if message["channel"] == "iopub":
                    published.append(message)
                    idle = idle or message["content"].get("execution_state") == "idle"
                elif message["header"]["msg_type"].endswith("_reply"):
                    assert reply is None, "two replies"
                    reply = message
            if reply and idle:
                return reply, published
            message = self.receive(max(0.01, end - time.monotonic()))
            mine = [message] if message["parent_header"].get("msg_id") == msg_id else []

    def execute(self, code: str, *, metadata: Any = None, **content: Any) -> tuple[Message, list[Message]]:
        return self.ask("execute_request", {"code": code, **content}, metadata=metadata)

    def closed(self, timeout: float = 30) -> int:
        """Reads on to the end; its close code."""
        from websockets.exceptions import ConnectionClosed
        try:
            while True:
                self.receive(timeout)
        except ConnectionClosed as end:
            assert end.rcvd is not None
            return end.rcvd.code


def check(message: Message, v1: bool) -> None:
    """SV-24: what JupyterLab throws a message away for."""
    header = message["header"]
    for name in ("username", "version", "session", "msg_id", "msg_type"):
        assert isinstance(header[name], str), message
    for name in ("parent_header", "metadata", "content"):
        assert isinstance(message[name], dict), message
    assert message["channel"] in ("shell", "control", "stdin", "iopub")
    if header["msg_type"] == "status":
        assert message["content"]["execution_state"] in ("starting", "idle", "busy", "restarting", "dead"), message
    if not v1:  # GA-19
        assert message["msg_id"] == header["msg_id"] and message["msg_type"] == header["msg_type"], message


def kernel_of(sandbox: Sandbox) -> str:
    return sandbox.record["default_context"]


def texts(messages: list[Message]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["header"]["msg_type"] == "stream")


def types(messages: list[Message]) -> list[str]:
    return [m["content"].get("execution_state") or m["header"]["msg_type"] for m in messages]
