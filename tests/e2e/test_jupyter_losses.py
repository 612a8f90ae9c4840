"""What a Jupyter client does not get: it is told so."""

from __future__ import annotations

import uuid

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, wait_for
from harness.fakes import Fakes
from harness.jupyter import Channels, Message, kernel_of, texts
from test_jupyter_channels import channels, cut

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions")
AWAY = "came while this client was away are not shown"


# ---- comm messages, which have no reply ----

def error_for(ws: Channels, msg_id: str) -> Message:
    return ws.until(lambda m: m["header"]["msg_type"] == "error" and m["parent_header"]["msg_id"] == msg_id)


def test_a_comm_message_whose_kernel_ends_at_it(fresh: Sandbox) -> None:
    with channels(fresh) as ws, channels(fresh) as other:
        ws.execute("import os\nget_ipython().kernel.comm_manager.register_target('end', lambda comm, _: os._exit(3))")
        msg_id = ws.send("comm_open", {"comm_id": "c", "target_name": "end", "data": {}})
        assert error_for(ws, msg_id)["content"]["ename"] == "kernel_protocol"
        ws.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == msg_id)
        assert ws.execute("1")[0]["content"]["status"] == "ok"
        assert other.execute("2")[0]["content"]["status"] == "ok"
        assert not [m for m in other.seen if m["header"]["msg_type"] == "error"]


def test_a_comm_message_that_waits_for_a_kernel_that_cannot_start(fakes: Fakes) -> None:
    with Daemon(template_dirs=[fakes.templates]) as d:
        client = Client(d.url, d.key)
        fakes.set_scenario("none")
        with client.sandbox(template="fake-switch") as sandbox, channels(sandbox) as ws:
            fakes.set_scenario("exit_before_bind")
            client.call("POST", f"{sandbox.path}/contexts/{kernel_of(sandbox)}/reset", json={})
            waiting = ws.send("comm_msg", {"comm_id": "c", "data": {}})
            error_for(ws, waiting)
            wait_for(lambda: sandbox.get(f"/contexts/{kernel_of(sandbox)}")["state"] == "dead")
            later = ws.send("comm_msg", {"comm_id": "c", "data": {}})  # it is tried once more
            assert error_for(ws, later)["content"]["evalue"]
            fakes.set_scenario("none")
            assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"


# ---- a message larger than what is kept ----

@pytest.mark.parametrize("size,whole", [(900_000, True), (5_000_000, False)])
def test_one_message_larger_than_what_is_kept_for_who_is_away(size: int, whole: bool) -> None:
    me = uuid.uuid4().hex
    with Daemon("--jupyter-missed-bytes", "1MiB") as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        with channels(sandbox) as other, channels(sandbox, session=me, query=f"session_id={me}") as ws:
            msg_id = ws.send("execute_request", {"code": f"import os, time\nwhile not os.path.exists('gone'): time.sleep(0.05)\n"
                                                         f"print('x' * {size}, flush=True)\n'the end'"})
            ws.until(lambda m: m["header"]["msg_type"] == "execute_input")
            cut(ws)
            wait_for(lambda: sandbox.client.get(f"/api/kernels/{kernel_of(sandbox)}")["connections"] == 1)
            sandbox.post("/exec", {"cmd": "touch gone"})
            other.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == msg_id)
            assert texts(other.seen) == "x" * size + "\n"
            with channels(sandbox, session=me, query=f"session_id={me}") as back:
                reply, published = back.answer(msg_id)
                assert reply["content"]["status"] == "ok"
                text = texts(published)
                assert (text == "x" * size + "\n") if whole else (AWAY in text and "x" * 100 not in text)
                told = [m for m in published if AWAY in m["content"].get("text", "")]
                assert len(told) == (0 if whole else 1) and all(m["content"]["name"] == "stderr" for m in told)
                assert "'the end'" in str([m["content"] for m in published]), "what came after it is there"
                assert back.execute("1")[0]["content"]["status"] == "ok"
