"""Rows of the crash matrix that are of bytes: sent by a client to each kernel, after which it answers with its state."""

from __future__ import annotations

import json
import uuid

import pytest
from harness.client import Client
from harness.daemon import TEMPLATE
from harness.jupyter import Channels, kernel_of, v1_encode

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="all three templates are asked, once")
# What counts runs of itself, and shows the count; a comment; what asks for input.
KERNELS = {
    TEMPLATE: ("n = globals().get('n', 0) + 1; n", "f'n={n}'", "#", "input()"),
    "code-interpreter-node": ("var n = (globalThis.n ?? 0) + 1; globalThis.n = n; n", "'n=' + globalThis.n", "//", ""),
    "code-interpreter-r": ("n <- (if (exists('n')) n else 0) + 1; n", "paste0('n=', n)", "#", "readline()"),
}


@pytest.mark.parametrize("template", KERNELS)
def test_kq_01_02_crash_matrix_of_bytes(client: Client, template: str) -> None:  # 3.6, KQ-01, KQ-02
    if template not in [t["name"] for t in client.get("/v1/templates")["items"]]:
        pytest.skip(f"{template} is not built here")
    count, show, comment, asks = KERNELS[template]
    with client.sandbox(template=template) as sandbox, Channels(client, kernel_of(sandbox)) as ws:
        def send(code: bytes, msg_id: str = "", buffers: list[bytes] = []) -> str:
            msg_id = msg_id or uuid.uuid4().hex
            header = json.dumps({"msg_id": msg_id, "msg_type": "execute_request", "session": ws.session, "username": "", "version": "5.3"})
            ws.ws.send(v1_encode("shell", [header.encode(), b"{}", b"{}", b'{"code":"' + code + b'"}'], buffers))
            return msg_id

        def lives(row: str) -> None:
            reply, published = ws.execute(show)
            assert reply["content"]["status"] == "ok" and "n=1" in json.dumps([m["content"].get("data") for m in published]), row
        same = uuid.uuid4().hex  # the same bytes twice: R and JavaScript would run it twice
        send(count.encode(), same)
        send(count.encode(), same)
        assert ws.answer(same)[0]["content"]["status"] == "ok"
        lives("the same bytes twice")
        ws.answer(send(b"1 " + comment.encode() + b" " + b"x" * 5_000_000))
        lives("long code")
        ws.answer(send(b"1", buffers=[b"\xff" * 1000, b""]))
        lives("buffers that nobody asked for")
        if asks:  # KQ-01: IRkernel asks although the client takes no questions
            msg_id = ws.send("execute_request", {"code": asks, "allow_stdin": False})
            ws.answer(msg_id)
            assert "input_request" not in [m["header"]["msg_type"] for m in ws.seen]
            lives("input that nobody takes")
        with Channels(client, kernel_of(sandbox)) as other:  # invalid UTF-8 in the content: no message
            header = json.dumps({"msg_id": "u", "msg_type": "execute_request", "session": "s", "username": "", "version": "5.3"})
            other.ws.send(v1_encode("shell", [header.encode(), b"{}", b"{}", b'{"code":"\xff\xfe"}']))
            assert other.answer("u")[0]["content"]["status"] in ("error", "ok")
        lives("no UTF-8")
        with Channels(client, kernel_of(sandbox)) as other:  # over limits.frame_bytes
            header = json.dumps({"msg_id": "l", "msg_type": "execute_request", "session": "s", "username": "", "version": "5.3"})
            other.ws.send(v1_encode("shell", [header.encode(), b"{}", b"{}", b'{"code":"' + comment.encode() + b"x" * 20_000_000 + b'"}']))
            assert other.closed() == 1009
        lives("20 MB of code")
