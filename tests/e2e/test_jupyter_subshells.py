"""Subshells (JEP 91): what names one goes there, and is answered while a cell runs; a name that the kernel has not given is refused."""

from __future__ import annotations

import time

import pytest
from harness.client import Sandbox
from harness.daemon import TEMPLATE
from harness.jupyter import Channels, kernel_of

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="its cells are in Python")
BOUND = 64  # at one kernel


def channels(sandbox: Sandbox) -> Channels:
    return Channels(sandbox.client, kernel_of(sandbox))


def able(ws: Channels) -> bool:
    return "kernel subshells" in ws.ask("kernel_info_request")[0]["content"].get("supported_features", [])


def made(ws: Channels) -> str:
    return str(ws.ask("create_subshell_request", {}, "control")[0]["content"]["subshell_id"])


def running(ws: Channels) -> str:
    """A cell that is at work on the main shell until it is interrupted."""
    msg_id = ws.send("execute_request", {"code": "import time\nprint('runs')\nwhile True: time.sleep(0.05)"})
    ws.until(lambda m: m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == msg_id)
    return msg_id


def interrupt(ws: Channels, msg_id: str) -> None:
    ws.ask("interrupt_request", {}, "control")
    assert ws.answer(msg_id)[0]["content"]["ename"] == "KeyboardInterrupt"


def refused(ws: Channels, subshell: str, **kwargs: float) -> None:
    msg_id = ws.send("is_complete_request", {"code": "1"}, subshell=subshell)
    assert ws.answer(msg_id, **kwargs)[0]["content"]["ename"] == "not_found"


def test_requests_by_a_subshell_are_answered_while_a_cell_runs(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        if not able(ws):
            pytest.skip("this template's kernel has no subshells")
        subshell = made(ws)
        ws.execute("wanted_name = 1")
        cell = running(ws)
        assert "comms" in ws.ask("comm_info_request", {}, subshell=subshell)[0]["content"]
        reply, published = ws.ask("complete_request", {"code": "wanted_na", "cursor_pos": 9}, subshell=subshell)
        assert "wanted_name" in reply["content"]["matches"] and reply["parent_header"]["subshell_id"] == subshell
        assert [m["content"]["execution_state"] for m in published] == ["busy", "idle"]
        waits = ws.send("is_complete_request", {"code": "1"})  # the main shell's
        assert ws.ask("is_complete_request", {"code": "1"}, subshell=subshell)[0]["content"]["status"] == "complete"
        assert not [m for m in ws.seen if m["parent_header"].get("msg_id") == waits]
        interrupt(ws, cell)
        assert ws.answer(waits)[0]["content"]["status"] == "complete"
        ws.ask("delete_subshell_request", {"subshell_id": subshell}, "control")


def test_a_comm_works_over_a_subshell_while_a_cell_runs(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        if not able(ws):
            pytest.skip("this template's kernel has no subshells")
        ws.execute("def target(comm, _):\n    comm.on_msg(lambda m: comm.send({'echo': m['content']['data']}))\n"
                   "get_ipython().kernel.comm_manager.register_target('echo', target)")
        subshell = made(ws)
        cell = running(ws)
        ws.send("comm_open", {"comm_id": "c1", "target_name": "echo", "data": {}}, subshell=subshell)
        ws.send("comm_msg", {"comm_id": "c1", "data": {"n": 7}}, subshell=subshell, buffers=[b"bytes"])
        echo = ws.until(lambda m: m["header"]["msg_type"] == "comm_msg")
        assert echo["content"]["data"] == {"echo": {"n": 7}}
        interrupt(ws, cell)
        ws.ask("delete_subshell_request", {"subshell_id": subshell}, "control")


def test_idles_beside_a_cell_do_not_hide_it(sandbox: Sandbox) -> None:
    """JupyterLab asks for the debugger and for a subshell as soon as it is attached, and takes each idle that it hears for the kernel's."""
    def after(client: Channels, state: str, msg_id: str) -> list[tuple[str, str]]:
        """The states that it was told behind that one."""
        told = [(m["content"]["execution_state"], m["parent_header"].get("msg_id", "")) for m in client.seen if m["header"]["msg_type"] == "status"]
        return told[told.index((state, msg_id)) + 1:] if (state, msg_id) in told else []

    with channels(sandbox) as ws, channels(sandbox) as late:
        if not able(ws):
            pytest.skip("this template's kernel has no subshells")
        cell, subshell = running(ws), made(late)
        info = {"type": "request", "seq": 1, "command": "debugInfo", "arguments": {}}
        for kind, content, channel, of in (("debug_request", info, "control", None), ("complete_request", {"code": "pri", "cursor_pos": 3}, "shell", subshell)):
            asked = late.send(kind, content, channel, subshell=of)
            for client in (late, ws):
                while ("busy", cell) not in after(client, "idle", asked):
                    client.receive(10)
        interrupt(ws, cell)
        late.ask("is_complete_request", {"code": "1"})
        assert ("busy", cell) not in after(late, "idle", cell)  # that was its end
        late.ask("delete_subshell_request", {"subshell_id": subshell}, "control")


def test_unknown_ones_are_refused_at_once(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        if not able(ws):  # as such kernels themselves do
            assert ws.ask("is_complete_request", {"code": "1"}, subshell="nobody's")[0]["content"]["status"] == "complete"
            return
        subshell = made(ws)
        cell = running(ws)
        begun = time.monotonic()
        refused(ws, "nobody's")
        assert time.monotonic() - begun < 1, "an unknown subshell was waited for"
        lost = ws.send("comm_msg", {"comm_id": "c1", "data": {}}, subshell="nobody's")  # has no reply
        error = ws.until(lambda m: m["header"]["msg_type"] == "error" and m["parent_header"]["msg_id"] == lost)
        assert error["content"]["ename"] == "not_found"
        assert ws.ask("kernel_info_request", {}, subshell="nobody's")[0]["content"]["status"] == "ok"
        interrupt(ws, cell)
        assert ws.ask("delete_subshell_request", {"subshell_id": subshell}, "control")[0]["content"]["status"] == "ok"
        refused(ws, subshell)
        assert ws.execute("1")[0]["content"]["status"] == "ok"


def test_code_runs_in_the_main_shell(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        subshell = made(ws) if able(ws) else "none"
        for name in (subshell, "nobody's"):
            code = "import threading\nassert threading.current_thread() is threading.main_thread()"
            assert ws.answer(ws.send("execute_request", {"code": code}, subshell=name))[0]["content"]["status"] == "ok"
        ws.ask("delete_subshell_request", {"subshell_id": subshell}, "control")


def test_those_of_before_a_restart_are_unknown(fresh: Sandbox) -> None:
    with channels(fresh) as ws:
        if not able(ws):
            pytest.skip("this template's kernel has no subshells")
        subshell = made(ws)
        assert ws.ask("is_complete_request", {"code": "1"}, subshell=subshell)[0]["content"]["status"] == "complete"
        assert ws.ask("shutdown_request", {"restart": True}, "control")[0]["content"]["restart"] is True
        refused(ws, subshell)
        again = made(ws)
        assert ws.ask("is_complete_request", {"code": "1"}, subshell=again)[0]["content"]["status"] == "complete"


def test_they_are_bounded(fresh: Sandbox) -> None:
    with channels(fresh) as ws, channels(fresh) as other:
        if not able(ws):
            pytest.skip("this template's kernel has no subshells")
        ids = [made(ws) for _ in range(BOUND - 1)]
        asked = [ws.send("create_subshell_request", {}, "control") for _ in range(2)]  # at once: one that is being made counts
        last, past = (ws.answer(msg_id)[0]["content"] for msg_id in asked)
        ids.append(last["subshell_id"])
        assert len(set(ids)) == BOUND and past["ename"] == "quota_exceeded", past
        assert other.ask("create_subshell_request", {}, "control")[0]["content"]["ename"] == "quota_exceeded"
        for subshell in (ids[0], ids[-1]):
            assert ws.ask("is_complete_request", {"code": "1"}, subshell=subshell)[0]["content"]["status"] == "complete"
        ws.ask("delete_subshell_request", {"subshell_id": ids[0]}, "control")
        assert made(other) not in ids
