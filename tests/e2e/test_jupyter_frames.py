"""Frames that are no messages or too large, and messages of a kernel that clients would throw away: they harm nobody else."""

from __future__ import annotations

import json

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon
from harness.jupyter import types, v1_encode
from test_jupyter_channels import channels

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions")


def test_ws_01_04_junk_closes_its_own_socket_alone(sandbox: Sandbox) -> None:  # WS-01, WS-04
    good = v1_encode("shell", [b'{"msg_id":"1","msg_type":"kernel_info_request"}', b"{}", b"{}", b"{}"])
    v1_junk = [(b"", 1007), (b"\x06" * 64, 1007), (good[:-1], 1007), (good.replace(b"shell", b"chell"), 1007),
               (v1_encode("shell", [b"[]", b"{}", b"{}", b"{}"]), 1007), (v1_encode("shell", [b"", b"", b"", b""]), 1007),
               ("text", 1003)]
    legacy_junk = [("{", 1007), ("[]", 1007), ('{"header":[]}', 1007), ('{"header":{}}', 1007), (b"\0\0\0\x09junk", 1007),
                   ('{"header":{"msg_id":1,"msg_type":"x"}}', 1007), ("[" * 100000, 1007)]
    with channels(sandbox) as other:
        for v1, junk in [(True, v1_junk), (False, legacy_junk)]:
            for frame, code in junk:
                with channels(sandbox, v1=v1) as ws:
                    ws.ws.send(frame)
                    assert ws.closed() == code, frame
        with channels(sandbox, v1=False) as ws:  # for a channel that there is not: passed over
            ws.ws.send('{"header":{"msg_id":"1","msg_type":"x"},"channel":"other"}')
            assert ws.execute("1")[0]["content"]["status"] == "ok"
        assert other.execute("2")[0]["content"]["status"] == "ok"


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_ws_03_frames_at_their_cap_and_over_it(v1: bool) -> None:
    cap = 1 << 20
    header = {"msg_id": "1", "msg_type": "kernel_info_request", "session": "s", "username": "", "version": "5.3"}
    parts = [json.dumps(part).encode() for part in (header, {}, {}, {})]

    def frame(size: int) -> bytes | str:
        if not v1:
            return json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": {}, "channel": "shell"}).ljust(size)
        return v1_encode("shell", parts, [bytes(size - len(v1_encode("shell", parts, [b""])))])
    with Daemon("--limits-frame-bytes", str(cap)) as d:
        with Client(d.url, d.key).sandbox(template=TEMPLATE) as sandbox, channels(sandbox) as other:
            for size in (cap, cap + 1):
                with channels(sandbox, v1=v1) as ws:
                    ws.ws.send(sent := frame(size))
                    assert len(sent) == size
                    if size > cap:
                        assert ws.closed() == 1009
                    else:
                        assert ws.answer("1")[0]["content"]["status"] == "ok"
            assert other.execute("1")[0]["content"]["status"] == "ok"


def test_sv_24_states_that_clients_do_not_know_are_left_out(sandbox: Sandbox) -> None:
    """JupyterLab throws at them. `check` looks at each message that any of these tests receives."""
    send = "kernel = get_ipython().kernel\nkernel.session.send(kernel.iopub_socket, 'status', {}, parent=kernel.get_parent());"
    with channels(sandbox) as ws, channels(sandbox, v1=False) as other:
        for content in ({"execution_state": "autorestarting"}, {"execution_state": 5}, {}):
            reply, published = ws.execute(send.format(content))
            assert reply["content"]["status"] == "ok" and types(published) == ["busy", "execute_input", "idle"]
        last = ws.seen[-1]["parent_header"]["msg_id"]
        other.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == last)
