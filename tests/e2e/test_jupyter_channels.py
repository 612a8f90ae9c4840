"""A kernel's channels over WebSocket: both protocols, many clients, runs of notebooks and of agents in one kernel."""

from __future__ import annotations

import json
import socket
import threading
import uuid

import pytest
from harness.client import Client, Sandbox
from harness.daemon import BUILD, TEMPLATE, Daemon, rss_bytes, wait_for
from harness.jupyter import V1, Channels, Message, kernel_of, texts, types
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

SANITIZED = b"__asan_" in (BUILD / "sandald").read_bytes()  # keeps freed memory on purpose
PYTHON = "python" in TEMPLATE
HELD_RUNS = 16  # a kernel's ended runs that take late output
KNOWN_PARENTS = 256  # requests whose headers are known
# Its cells are in Python.
pytestmark = pytest.mark.skipif(not PYTHON, reason="asks python questions")


def channels(sandbox: Sandbox, **kwargs: object) -> Channels:
    return Channels(sandbox.client, kernel_of(sandbox), **kwargs)  # type: ignore[arg-type]




# ---- protocols ----

@pytest.mark.smoke
@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_execute_is_a_run_like_any_other(sandbox: Sandbox, v1: bool) -> None:
    with channels(sandbox, v1=v1) as ws:
        reply, published = ws.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)\n40 + 2")
        assert reply["channel"] == "shell" and reply["content"]["status"] == "ok"
        kinds = types(published)
        assert kinds[:2] == ["busy", "execute_input"] and kinds[-1] == "idle", kinds
        result = [m for m in published if m["header"]["msg_type"] == "execute_result"][0]["content"]
        assert result["data"]["text/plain"] == "42" and result["execution_count"] == reply["content"]["execution_count"]
        assert "out" in texts(published) and "err" in texts(published)
    newest = sandbox.get("/runs/" + sandbox.get("/runs")["items"][0]["run"])
    assert newest["text"] == "42" and newest["status"] == "ok" and newest["context"] == kernel_of(sandbox)
    assert newest["execution_count"] == reply["content"]["execution_count"]


def test_sv_21_subprotocol_is_chosen_when_offered_and_never_else(sandbox: Sandbox, client: Client) -> None:  # SV-21
    url = f"{client.url.replace('http', 'ws', 1)}/api/kernels/{kernel_of(sandbox)}/channels"
    for offered, want in (([V1], V1), (["other", V1], V1), (None, None)):
        with connect(url, additional_headers=client.headers(), subprotocols=offered) as ws:
            assert ws.subprotocol == want
    with pytest.raises(InvalidStatus) as refused:
        connect(url, additional_headers=client.headers(), subprotocols=["other.protocol"])
    assert refused.value.response.status_code == 400 and b'"message"' in refused.value.response.body


def test_ws_06_07_both_protocols_see_one_sequence(sandbox: Sandbox) -> None:  # WS-06
    with channels(sandbox) as a, channels(sandbox, v1=False) as b, channels(sandbox, v1=False) as c:
        a.execute("for i in range(50): print(i, flush=True)\n'the end'")
        for other in (b, c):
            other.until(lambda m: m["content"].get("execution_state") == "idle" and bool(m["parent_header"]))

        def seen(ws: Channels) -> list:
            published = [m for m in ws.seen if m["channel"] == "iopub" and m["parent_header"]]
            return [(m["header"], m["parent_header"]["msg_id"], m["content"]) for m in published]
        assert seen(a) == seen(b) == seen(c) and len(seen(a)) > 5
        assert all(m["channel"] == "iopub" for m in b.seen + c.seen), "a reply went to another client"


def test_long_messages_are_one_for_all_clients(sandbox: Sandbox) -> None:
    """They stay where the kernel's lie until each client has them: with buffers, with what must be repaired, and one that leaves."""
    code = ("from comm import create_comm\nfrom IPython.display import display\n"
            "print('a' * 3_000_000)\ndisplay({'text/plain': 'b' * 3_000_000, 'application/json': [float('nan')]}, raw=True)\n"
            "create_comm(target_name='t', data={'long': 'c' * 20_000}, buffers=[b'd' * 3_000_000, b'e', b'f' * 20_000])\n'the end'")
    with channels(sandbox) as a, channels(sandbox) as b, channels(sandbox, v1=False) as c, channels(sandbox) as leaves:
        msg_id = a.send("execute_request", {"code": code, "silent": False})
        leaves.ws.close()
        for other in (a, b, c):
            other.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == msg_id)

        def seen(ws: Channels) -> list:
            published = [m for m in ws.seen if m["channel"] == "iopub" and m["parent_header"].get("msg_id") == msg_id]
            return [(m["header"], m["content"], m.get("buffers") or []) for m in published]
        assert seen(a) == seen(b) and seen(c) == [m for m in seen(a) if not m[2]], "c is a server: messages with buffers are not for it"
        assert "".join(m[1]["text"] for m in seen(a) if m[0]["msg_type"] == "stream") == "a" * 3_000_000 + "\n"
        assert [m[2] for m in seen(a) if m[0]["msg_type"] == "comm_open"] == [[b"d" * 3_000_000, b"e", b"f" * 20_000]]
        assert [len(m[1]["data"]["text/plain"]) for m in seen(a) if m[0]["msg_type"] == "display_data"] == [3_000_000]


# ---- who may ----

def test_refused_before_it_opens(sandbox: Sandbox, client: Client) -> None:
    base = f"{client.url.replace('http', 'ws', 1)}/api/kernels/"
    rows = [(kernel_of(sandbox), {}, "", 403), (str(uuid.uuid4()), client.headers(), "", 404),
            (kernel_of(sandbox), {}, "?token=nope", 403),
            (kernel_of(sandbox), {**client.headers(), "Origin": "http://evil.example"}, "", 403)]
    for kernel, headers, query, status in rows:
        with pytest.raises(InvalidStatus) as refused:
            connect(f"{base}{kernel}/channels{query}", additional_headers=headers, subprotocols=[V1])
        assert refused.value.response.status_code == status
        assert "message" in json.loads(refused.value.response.body)


def test_sv_17_token_in_query(sandbox: Sandbox, client: Client) -> None:  # SV-17
    with channels(sandbox, headers={}, query=f"session_id=x&token={client.key}") as ws:
        assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"


def test_one_session_has_one_connection(sandbox: Sandbox) -> None:
    with channels(sandbox, query="session_id=one") as first, channels(sandbox, query="session_id=two") as other:
        with channels(sandbox, query="session_id=one") as second:
            assert first.closed() == 1000
            assert second.execute("1")[0]["content"]["status"] == "ok"
            assert other.execute("1")[0]["content"]["status"] == "ok"
    with channels(sandbox) as a, channels(sandbox) as b:  # jupyter_server#1440: without one, twice
        assert a.execute("1")[0]["content"]["status"] == b.execute("2")[0]["content"]["status"] == "ok"


def test_clients_at_one_kernel_are_bounded(fresh: Sandbox) -> None:
    open_ones = [channels(fresh) for _ in range(64)]
    with pytest.raises(InvalidStatus) as refused:
        channels(fresh)
    assert refused.value.response.status_code in (403, 429)
    open_ones.pop().ws.close()

    def again() -> bool:
        try:
            channels(fresh).ws.close()
        except InvalidStatus:
            return False
        return True
    wait_for(again)
    assert open_ones[0].execute("1")[0]["content"]["status"] == "ok"
    for ws in open_ones:
        ws.ws.close()


# ---- requests ----

def test_requests_are_answered_under_the_clients_own_id(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        ws.execute("answer_to_all = 42")
        rows = [("kernel_info_request", {}, "protocol_version"), ("complete_request", {"code": "answer_to_"}, "matches"),
                ("inspect_request", {"code": "answer_to_all"}, "found"), ("is_complete_request", {"code": "1"}, "status"),
                ("history_request", {}, "history"), ("comm_info_request", {}, "comms")]
        for msg_type, content, has in rows:
            msg_id = ws.send(msg_type, content)
            reply, published = ws.answer(msg_id)
            assert has in reply["content"], reply
            assert reply["parent_header"]["msg_id"] == msg_id and reply["parent_header"]["session"] == ws.session
            assert reply["header"]["msg_type"] == msg_type.replace("_request", "_reply")
            assert types(published) == ["busy", "idle"]
        assert ws.ask("complete_request", {"code": "answer_to_"})[0]["content"]["matches"] == ["answer_to_all"]
        of_the_session = {"hist_access_type": "range", "session": 0, "start": 0, "stop": 1000, "raw": True, "output": False}
        assert "answer_to_all = 42" in [line[2] for line in ws.ask("history_request", of_the_session)[0]["content"]["history"]]


REFUSED = [("execute_request", {}), ("execute_request", {"code": None}), ("execute_request", {"code": 5}),
            ("execute_request", {"code": "1\0"}), ("execute_request", {"code": "1", "silent": "no"}),
            ("execute_request", []), ("complete_request", {"code": []}), ("no_such_request", {}),
            ("connect_request", {}), ("debug_request", {"command": "x"})]
SURVIVED = [("complete_request", {}), ("inspect_request", {}), ("history_request", {}), ("is_complete_request", {}),
            ("comm_info_request", {}), ("execute_request", {"code": "'\ud800'"}), ("execute_request", {"code": "x = 1"})]


def test_kq_02_04_crash_matrix_leaves_the_kernel_with_its_state(sandbox: Sandbox) -> None:  # KQ-02, KQ-04
    with channels(sandbox) as ws:
        ws.execute("state = 'kept'")
        for msg_type, content in REFUSED:
            reply, published = ws.ask(msg_type, content)
            assert reply["content"]["status"] == "error" and reply["content"]["evalue"], (msg_type, reply)
            assert types(published) == ["busy", *(["error"] if msg_type == "execute_request" else []), "idle"]
        for msg_type, content in SURVIVED:
            reply, _ = ws.ask(msg_type, content)
            assert reply["content"]["status"] != "error" or "execute" in msg_type, (msg_type, reply)
        ws.send("input_reply", {"value": "stray"}, "stdin")
        ws.send("comm_open", {"comm_id": "c", "target_name": "nobody", "data": {}})
        closed = ws.until(lambda m: m["header"]["msg_type"] == "comm_close")
        assert closed["content"]["comm_id"] == "c"
        same = ws.send("execute_request", {"code": "n = globals().get('n', 0) + 1"}, msg_id="same")
        ws.answer(same)
        reply, published = ws.execute("(state, x)")
        assert "('kept', 1)" in json.dumps([m["content"] for m in published])


@pytest.mark.parametrize("template,put,get", [("code-interpreter-node", "kept = 41", "kept + 1"), ("code-interpreter-r", "kept <- 41", "kept + 1")])
def test_kq_02_04_sv_22_23_crash_matrix_in_other_languages(client: Client, template: str, put: str, get: str) -> None:
    """Most rows end such a kernel, or are never answered, when they reach it."""
    with client.sandbox(template=template) as sandbox, channels(sandbox) as ws, channels(sandbox, v1=False) as other:
        assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"  # SV-22
        ws.execute(put)
        for msg_type, content in REFUSED:
            assert ws.ask(msg_type, content)[0]["content"]["status"] == "error", msg_type
        for msg_type, _ in SURVIVED[:5]:
            assert ws.ask(msg_type, {})[0]["content"]["status"] in ("ok", "complete"), msg_type
        _, published = ws.execute(get)
        assert "42" in json.dumps([m["content"] for m in published])
        other.execute(get)  # SV-23: such kernels speak under the session of who asked
        assert len({m["header"]["session"] for m in ws.seen + other.seen}) == 1


def test_zq_03_an_idle_that_the_kernel_owes_is_given(client: Client) -> None:
    """IJavascript's inspection fails behind its reply, and says no more."""
    if "code-interpreter-node" not in [t["name"] for t in client.get("/v1/templates")["items"]]:
        pytest.skip("the node template is not built here")
    with client.sandbox(template="code-interpreter-node") as sandbox, channels(sandbox) as ws, channels(sandbox) as other:
        asked = ws.send("inspect_request", {"code": "print", "cursor_pos": 3, "detail_level": 0})
        ws.answer(asked, 20)
        other.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == asked, 20)
        ws.ask("is_complete_request", {"code": "1"})
        assert len([m for m in ws.seen if m["content"].get("execution_state") == "idle"
                    and m["parent_header"].get("msg_id") == asked]) == 1


def test_silent_and_user_expressions(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        count = ws.execute("1")[0]["content"]["execution_count"]
        reply, published = ws.execute("y = 6", silent=True, store_history=False, user_expressions={"v": "y * 7"})
        assert reply["content"]["user_expressions"]["v"]["data"]["text/plain"] == "42"
        assert "execute_input" not in types(published)
        assert ws.execute("1")[0]["content"]["execution_count"] == count + 1
    assert sandbox.run("1")["execution_count"] == count + 2


def test_ga_16_ws_02_comm_with_buffers_both_ways(sandbox: Sandbox) -> None:
    code = """
def opened(comm, message):
    @comm.on_msg
    def answer(message):
        comm.send({'got': message['content']['data']}, buffers=[bytes(b)[::-1] for b in message['buffers']])
get_ipython().kernel.comm_manager.register_target('mirror', opened)"""
    browser = {**sandbox.client.headers(), "Origin": sandbox.client.url}
    with channels(sandbox) as v1, channels(sandbox, v1=False, headers=browser) as legacy, \
            channels(sandbox, v1=False) as server:
        v1.execute(code)
        for ws, name in ((v1, "a"), (legacy, "b")):
            ws.send("comm_open", {"comm_id": name, "target_name": "mirror"})
            ws.send("comm_msg", {"comm_id": name, "data": {"n": 1}}, buffers=[b"\0\xff", b"", b"xyz"])
            for reader in (v1, legacy):
                said = reader.until(lambda m: m["header"]["msg_type"] == "comm_msg" and m["content"]["comm_id"] == name)
                assert said["content"]["data"] == {"got": {"n": 1}} and said["buffers"] == [b"\xff\0", b"", b"zyx"]
        # GA-16: a server that named no protocol gets no binary frame, and all the rest
        assert server.execute("'still here'")[0]["content"]["status"] == "ok"
        assert "comm_msg" not in types(server.seen)


# ---- one kernel, two worlds ----

def test_agents_run_shows_up_at_the_notebook(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        sandbox.run("print('from the agent')\n7 * 6")
        ws.until(lambda m: m["content"].get("execution_state") == "idle" and bool(m["parent_header"]))
        kinds = types([m for m in ws.seen if m["parent_header"]])
        assert kinds[0:2] == ["busy", "execute_input"] and "execute_result" in kinds and kinds[-1] == "idle"
        assert texts(ws.seen) == "from the agent\n"


def test_notebook_queues_behind_the_agent(fresh: Sandbox) -> None:
    # The cell sleeps, not the test: it has to run while the notebook sends its own.
    agent = threading.Thread(target=lambda: fresh.run("import time; time.sleep(2); order = ['agent']"))
    with channels(fresh) as ws:
        agent.start()
        ws.until(lambda m: m["content"].get("execution_state") == "busy")
        msg_id = ws.send("execute_request", {"code": "order + ['notebook']"})
        wait_for(lambda: [r["status"] for r in fresh.get("/runs")["items"]] == ["queued", "running"])
        # A client that comes now is told the truth, and need not wait for the kernel.
        with channels(fresh, v1=False) as late:
            assert late.receive()["content"] == {"execution_state": "busy"}
            reply, _ = late.ask("kernel_info_request")
            assert reply["content"]["status"] == "ok" and agent.is_alive()
            late.until(lambda m: m["content"].get("execution_state") == "busy")
        _, published = ws.answer(msg_id)
        assert "['agent', 'notebook']" in json.dumps([m["content"] for m in published])
        agent.join()


def test_sv_23_session_is_one_for_each_incarnation(fresh: Sandbox) -> None:  # SV-23
    def sessions(messages: list[Message]) -> set[str]:
        return {m["header"]["session"] for m in messages}
    with channels(fresh) as a, channels(fresh, v1=False) as b:
        a.execute("1")
        b.execute("2")
        fresh.run("3")
        a.until(lambda m: m["content"].get("execution_state") == "idle")
        before = sessions(a.seen) | sessions(b.seen)
        assert len(before) == 1, before
        a.seen.clear()
        fresh.post(f"/contexts/{kernel_of(fresh)}/reset")
        a.until(lambda m: m["content"].get("execution_state") == "restarting")
        a.seen.clear()
        a.until(lambda m: m["content"].get("execution_state") == "idle")
        a.execute("4")
        assert len(sessions(a.seen)) == 1 and not sessions(a.seen) & before


def test_stop_on_error_aborts_what_the_client_queued(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws, channels(sandbox) as other:
        # The cell sleeps, so that the next ones wait behind it when it fails.
        first = ws.send("execute_request", {"code": "import time; time.sleep(0.5); 1/0"})
        queued = [ws.send("execute_request", {"code": f"never = {i}"}) for i in range(2)]
        another = other.send("execute_request", {"code": "'another client'"})
        assert ws.answer(first)[0]["content"]["ename"] == "ZeroDivisionError"
        assert [ws.answer(msg_id)[0]["content"]["status"] for msg_id in queued] == ["aborted", "aborted"]
        assert other.answer(another)[0]["content"]["status"] == "ok"
        later = ws.send("execute_request", {"code": "1/0", "stop_on_error": False})
        after = ws.send("execute_request", {"code": "'goes on'"})
        assert ws.answer(later)[0]["content"]["status"] == "error" and ws.answer(after)[0]["content"]["status"] == "ok"


def test_input_goes_to_the_client_that_asked(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws, channels(sandbox) as other:
        msg_id = ws.send("execute_request", {"code": "input('name? ')", "allow_stdin": True})
        question = ws.until(lambda m: m["header"]["msg_type"] == "input_request")
        assert question["channel"] == "stdin" and question["content"]["prompt"] == "name? "
        assert question["parent_header"]["msg_id"] == msg_id
        other.send("input_reply", {"value": "not yours"}, "stdin")
        other.ask("kernel_info_request")  # it was read by then
        ws.send("input_reply", {"value": "Ada"}, "stdin", parent=question["header"])
        _, published = ws.answer(msg_id)
        assert "'Ada'" in json.dumps([m["content"] for m in published])
        assert "input_request" not in types(other.seen)
        reply, _ = ws.execute("input()", allow_stdin=False)
        assert reply["content"]["status"] == "error"


def test_interrupt_on_control(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        # Ends by the interrupt alone. It says when it runs: one in ipykernel's own code before that ends the run without a reply.
        msg_id = ws.send("execute_request", {"code": "import time\nprint('runs')\nwhile True: time.sleep(0.05)"})
        ws.until(lambda m: m["header"]["msg_type"] == "stream")
        reply, _ = ws.ask("interrupt_request", {}, "control")
        assert reply["channel"] == "control" and reply["content"] == {"status": "ok"}
        assert ws.answer(msg_id)[0]["content"]["ename"] == "KeyboardInterrupt"


def test_zq_04_late_output_keeps_its_parent(sandbox: Sandbox) -> None:  # ZQ-04
    with channels(sandbox) as ws:
        msg_id = ws.send("execute_request", {"code": "import threading\nt = threading.Timer(0.5, lambda: print('late'))\nt.start()"})
        ws.answer(msg_id)
        late = ws.until(lambda m: m["header"]["msg_type"] == "stream")
        assert late["content"]["text"].startswith("late") and late["parent_header"]["msg_id"] == msg_id


LATE = """import threading, time
go = threading.Event()
def late(): go.wait(); print('late', flush=True)
"""


def late_comes_while_a_run_goes(fresh: Sandbox, ws: Channels, daemon: Daemon) -> None:
    """It is shown to who is attached, is in no run's log, and is told of."""
    was = daemon.log().count("kernel.late_dropped")
    with channels(fresh) as other:
        running = other.send("execute_request", {"code": "print('mine', flush=True)\ngo.set()\nwhile not done.is_set(): time.sleep(0.01)"})
        late = ws.until(lambda m: m["header"]["msg_type"] == "stream" and "late" in m["content"]["text"])
        assert late["parent_header"]["msg_id"] != running
        other.ask("interrupt_request", {}, "control")
        other.answer(running)
    runs = [fresh.get(f"/runs/{r['run']}") for r in fresh.get("/runs")["items"]]
    assert runs[0]["stdout"] == "mine\n" and not runs[0]["late"], runs[0]
    assert not [r for r in runs if "late" in r["stdout"] or r["late"]]
    wait_for(lambda: daemon.log().count("kernel.late_dropped") > was)


def test_zq_04_late_output_of_a_run_long_ago_lands_in_no_other(fresh: Sandbox, daemon: Daemon) -> None:  # ZQ-04
    with channels(fresh) as ws:
        asked = ws.send("execute_request", {"code": LATE + "done = threading.Event()\nthreading.Thread(target=late, daemon=True).start()"})
        ws.answer(asked)
        for _ in range(HELD_RUNS + 1):
            ws.execute("1")
        late_comes_while_a_run_goes(fresh, ws, daemon)


def test_zq_04_late_output_of_a_message_long_ago_lands_in_no_run(fresh: Sandbox, daemon: Daemon) -> None:  # ZQ-04
    """More messages came since than the gateway knows the headers of."""
    with channels(fresh) as ws:
        ws.execute(LATE + "done = threading.Event()\ndef target(comm, _): threading.Thread(target=late, daemon=True).start()\n"
                          "get_ipython().kernel.comm_manager.register_target('late', target)")
        ws.send("comm_open", {"comm_id": "c", "target_name": "late", "data": {}})
        for _ in range(KNOWN_PARENTS + 1):
            ws.ask("is_complete_request", {"code": "1"})
        late_comes_while_a_run_goes(fresh, ws, daemon)


# ---- ends ----

def test_shutdown_of_an_attached_client_detaches(sandbox: Sandbox) -> None:
    with channels(sandbox) as agent, channels(sandbox) as ws:
        agent.execute("kept = 'yes'")
        ws.send("shutdown_request", {"restart": False}, "control")
        assert ws.closed() == 1000
        assert [m for m in ws.seen if m["header"]["msg_type"] == "shutdown_reply"][-1]["content"]["status"] == "ok"
        assert agent.execute("kept")[0]["content"]["status"] == "ok"


def test_restart_is_for_keys_that_may_restart_over_rest(fresh: Sandbox, client: Client) -> None:
    key = client.post("/v1/keys", {"scopes": [f"attach:{fresh.id}"]}, expect=201)
    visitor = Client(client.url, key["key"])
    with channels(fresh) as ws, channels(fresh, headers=visitor.headers()) as attached:
        ws.execute("kept = 'yes'")
        reply, _ = attached.ask("shutdown_request", {"restart": True}, "control")
        assert reply["content"]["status"] == "error" and reply["content"]["ename"] == "forbidden"
        assert ws.execute("kept")[0]["content"]["status"] == "ok"
        msg_id = ws.send("shutdown_request", {"restart": True}, "control")
        reply = ws.until(lambda m: m["header"]["msg_type"] == "shutdown_reply" and m["parent_header"]["msg_id"] == msg_id)
        assert reply["content"]["status"] == "ok"
        for one in (ws, attached):
            one.until(lambda m: m["content"].get("execution_state") == "restarting")
        assert ws.execute("kept")[0]["content"]["ename"] == "NameError"
    client.delete(f"/v1/keys/{key['id']}")


def told(ws: Channels) -> list[str]:
    return [m["content"]["execution_state"] for m in ws.seen if m["header"]["msg_type"] == "status"]


def leave_unanswered(ws: Channels) -> None:
    """A cell that does not end, and a question that waits for it."""
    ws.send("execute_request", {"code": "import time; print('up', flush=True); time.sleep(600)"})
    ws.until(lambda m: m["header"]["msg_type"] == "stream")
    ws.send("complete_request", {"code": "x", "cursor_pos": 1})


def test_the_end_of_a_kernel_is_no_restart(client: Client) -> None:
    kernel = client.post("/api/kernels", {"name": TEMPLATE}, expect=201)["id"]
    with Channels(client, kernel) as ws:
        leave_unanswered(ws)
        client.delete(f"/api/kernels/{kernel}")
        assert ws.closed() == 1000
        assert "restarting" not in (seen := told(ws)) and seen[-1] == "dead", seen


def test_a_restart_over_rest_is_no_death_to_who_asked_for_it(fresh: Sandbox, client: Client) -> None:
    """JupyterLab tells its user of a kernel that died where it sees `restarting`."""
    def states(ws: Channels) -> list[str]:
        ws.execute("1")
        return told(ws)
    key = client.post("/v1/keys", {"scopes": [f"attach:{fresh.id}"]}, expect=201)
    with channels(fresh) as mine, channels(fresh, headers=Client(client.url, key["key"]).headers()) as others:
        leave_unanswered(mine)
        client.post(f"/api/kernels/{kernel_of(fresh)}/restart")
        assert "restarting" not in (seen := states(mine)) and "starting" in seen
        assert "restarting" in states(others)
        fresh.run("import os; os._exit(3)")
        assert "restarting" in states(mine)  # that one was none of its own
    client.delete(f"/v1/keys/{key['id']}")


@pytest.mark.parametrize("how", ["death", "restart"])
def test_the_last_word_on_a_new_kernel_is_idle(fresh: Sandbox, client: Client, how: str) -> None:
    """The kernel's own `starting` is heard when it is ready."""
    with channels(fresh) as ws:
        for _ in range(3):
            if how == "death":
                fresh.run("import os; os._exit(3)")
            else:
                client.post(f"/api/kernels/{kernel_of(fresh)}/restart")
            ws.ask("is_complete_request", {"code": "1"})  # of the new kernel; what it said before has come then
            of_nobody = [m["content"]["execution_state"] for m in ws.seen
                         if m["header"]["msg_type"] == "status" and not m["parent_header"]]
            assert of_nobody[-1] == "idle", of_nobody


def test_a_client_that_leaves_disturbs_nobody(fresh: Sandbox) -> None:
    with channels(fresh) as ws:
        # The cell sleeps: its client leaves while it runs.
        ws.send("execute_request", {"code": "import time; time.sleep(1); left = 'done'"})
        ws.until(lambda m: m["header"]["msg_type"] == "execute_input")
    wait_for(lambda: fresh.get("/runs")["items"][0]["status"] == "ok")
    assert fresh.run("left")["text"] == "'done'"


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_output_that_is_read_is_not_cut(fresh: Sandbox, v1: bool) -> None:
    with channels(fresh, v1=v1) as ws:
        for code, want in (("print('x' * 9_000_000)", 9_000_001), ("for _ in range(2): print('x' * 9_000_000, flush=True)", 18_000_002),
                           ("for i in range(20_000): print(f'{i:05}')", 120_000)):
            reply, published = ws.execute(code)
            assert reply["content"]["status"] == "ok" and types(published)[-1] == "idle"
            assert len(texts(published)) == want


def test_ga_15_large_output_fits_a_server(sandbox: Sandbox) -> None:  # GA-15
    with channels(sandbox, v1=False) as server, channels(sandbox) as other:
        code = "print('\u20ac' * 4_000_000)\nfrom IPython.display import HTML\nHTML('x' * 9_000_000)"
        for ws, most in ((server, 8 << 20), (other, 13 << 20)):
            ws.execute(code)
            assert max(len(json.dumps(m, ensure_ascii=False).encode()) for m in ws.seen if not m["buffers"]) < most
            assert texts(ws.seen).count("\u20ac") == 4_000_000 * (2 if ws is other else 1)
        results = [m["content"]["data"] for m in other.seen if m["header"]["msg_type"] == "execute_result"]
        assert all(len(r["text/html"]) == 9_000_000 for r in results) and len(results) == 2
        note = [m["content"] for m in server.seen if m["header"]["msg_type"] == "execute_result"][0]
        assert "is not shown" in note["data"]["text/plain"] and note["execution_count"] > 0


def test_a_client_that_does_not_read_is_cut() -> None:
    with Daemon("--jupyter-unread-bytes", "1MiB") as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        with channels(sandbox, max_queue=1) as ws:
            ws.send("execute_request", {"code": "for _ in range(300): print('x' * 100_000, flush=True)"})
            wait_for(lambda: [r["status"] for r in sandbox.get("/runs")["items"]] == ["ok"])
            assert ws.closed() == 1013


def test_zq_03_death_of_the_kernel_is_told(fresh: Sandbox) -> None:
    with channels(fresh) as ws:
        reply, published = ws.execute("import os; os._exit(3)")
        assert reply["content"]["status"] == "error" and reply["content"]["ename"] == "exited"
        assert [m["content"]["ename"] for m in published if m["header"]["msg_type"] == "error"] == ["exited"]
        ws.until(lambda m: m["content"].get("execution_state") == "restarting")
        ws.until(lambda m: m["content"].get("execution_state") == "idle")
        assert ws.execute("1")[0]["content"]["status"] == "ok"


def test_sv_25_close_code_of_a_deleted_kernel(client: Client) -> None:  # SV-25
    with client.sandbox(template=TEMPLATE) as sandbox:
        context = sandbox.context()["id"]
        with Channels(client, context) as ws:
            ws.execute("1")
            client.delete(f"{sandbox.path}/contexts/{context}")
            assert ws.closed() == 1000
            assert types(ws.seen)[-1] == "dead"


@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_sv_25_close_code_of_a_gateway_that_stops(v1: bool) -> None:  # SV-25: JupyterLab comes back after 1012, not after 1001
    with Daemon() as d:
        with channels(Client(d.url, d.key).sandbox(template=TEMPLATE), v1=v1) as ws:
            ws.execute("1")
            stopped = threading.Thread(target=d.stop)
            stopped.start()
            assert ws.closed() == 1012
            stopped.join(60)


# ---- coming back ----

def cut(ws: Channels) -> None:
    """As a network that is gone: no close frame."""
    ws.ws.socket.shutdown(socket.SHUT_RDWR)
    ws.ws.socket.close()


@pytest.mark.smoke
@pytest.mark.parametrize("v1", [True, False], ids=["v1", "legacy"])
def test_a_client_that_comes_back_gets_what_it_missed(sandbox: Sandbox, v1: bool) -> None:  # notebook#3681/#4110
    """Three times, and each message once: as if it had never been away."""
    me = uuid.uuid4().hex
    # The cell sleeps: it has to go on while its client is away.
    code = "import time\nfor i in range(40): print(i, flush=True); time.sleep(0.05)\n'the end'"
    with channels(sandbox) as other:
        ws = channels(sandbox, v1=v1, session=me, query=f"session_id={me}")
        msg_id = ws.send("execute_request", {"code": code})
        queued = ws.send("execute_request", {"code": "'queued'"})
        for n in (5, 15, 25):
            ws.until(lambda m, n=n: m["header"]["msg_type"] == "stream" and str(n) in m["content"]["text"].split())
            cut(ws)
            other.until(lambda m, n=n: m["header"]["msg_type"] == "stream" and str(n + 5) in m["content"]["text"].split())
            back = channels(sandbox, v1=v1, session=me, query=f"session_id={me}")
            back.seen = ws.seen
            ws = back
        reply, published = ws.answer(msg_id)
        assert reply["content"]["status"] == "ok"
        assert texts(published) == "".join(f"{i}\n" for i in range(40))
        assert types(published)[0] == "busy" and types(published)[-1] == "idle" and "execute_result" in types(published)
        assert ws.answer(queued)[0]["content"]["status"] == "ok"
        ids = [m["header"]["msg_id"] for m in ws.seen]
        assert len(ids) == len(set(ids))
        other.until(lambda m: "'queued'" in json.dumps(m["content"]))
        assert all(m["channel"] == "iopub" for m in other.seen)
        ws.ws.close()


def test_zq_05_a_client_that_stops_reading_costs_nobody_and_reads_on_later() -> None:  # ZQ-05
    lines, me = 100_000, uuid.uuid4().hex
    with Daemon("--jupyter-unread-bytes", "16MiB") as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        before = rss_bytes(d.gateway_pid())
        with channels(sandbox, v1=False) as other, channels(sandbox, max_queue=1, session=me, query=f"session_id={me}") as ws:
            # 50 MB: more than that and what sockets hold.
            msg_id = ws.send("execute_request", {"code": f"for i in range({lines}): print(f'{{i:0500}}')"})
            idle = other.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == msg_id)
            want = "".join(f"{i:0500}\n" for i in range(lines))
            assert idle and texts(other.seen) == want
            assert SANITIZED or rss_bytes(d.gateway_pid()) < before + 160 * 1024 * 1024
            assert ws.closed() == 1013
            with channels(sandbox, session=me, query=f"session_id={me}") as back:
                back.seen = ws.seen
                reply, published = back.answer(msg_id)
                assert reply["content"]["status"] == "ok" and types(published)[-1] == "idle"
                assert texts(published) == want


def test_long_messages_that_were_not_read_come_later() -> None:
    """The one that has gone in part too, and in order. Who reads gets them one by one, for it must not fall behind itself."""
    cells, me = 16, uuid.uuid4().hex
    with Daemon("--jupyter-unread-bytes", "16MiB") as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        with channels(sandbox, v1=False) as other, channels(sandbox, max_queue=1, session=me, query=f"session_id={me}") as ws:
            for i in range(cells):
                assert other.execute(f"print('{i:03}' * 1_000_000)")[0]["content"]["status"] == "ok"
            last = other.seen[-1]["parent_header"]["msg_id"]
            assert ws.closed() == 1013
            with channels(sandbox, session=me, query=f"session_id={me}") as back:
                back.seen = ws.seen
                back.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == last)
                assert texts(back.seen) == "".join(f"{i:03}" * 1_000_000 + "\n" for i in range(cells))


def test_what_is_kept_for_a_client_that_is_away_is_bounded() -> None:  # enterprise_gateway#783
    me = uuid.uuid4().hex
    with Daemon("--jupyter-missed-bytes", "1MiB") as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        with channels(sandbox) as other, channels(sandbox, session=me, query=f"session_id={me}") as ws:
            # The cell waits to be told that its client has gone: nothing of it goes out before.
            msg_id = ws.send("execute_request", {"code": "import os, time\nwhile not os.path.exists('gone'): time.sleep(0.05)\n"
                                                         "for i in range(100): print(str(i % 10) * 100_000, flush=True)"})
            ws.until(lambda m: m["header"]["msg_type"] == "execute_input")
            cut(ws)
            wait_for(lambda: sandbox.client.get(f"/api/kernels/{kernel_of(sandbox)}")["connections"] == 1)
            sandbox.post("/exec", {"cmd": "touch gone"})
            other.until(lambda m: m["content"].get("execution_state") == "idle" and m["parent_header"].get("msg_id") == msg_id)
            with channels(sandbox, session=me, query=f"session_id={me}") as back:
                reply, published = back.answer(msg_id)
                assert reply["content"]["status"] == "ok"
                text = texts(published)
                assert "came while this client was away are not shown" in text
                assert 500_000 < len(text) < 1_200_000 and text.endswith("9" * 100_000 + "\n")


def test_a_request_that_is_sent_again_runs_once(fresh: Sandbox) -> None:
    me, code = uuid.uuid4().hex, {"code": "import time; time.sleep(0.3); n = globals().get('n', 0) + 1; n"}
    with channels(fresh, session=me) as ws:  # without session_id: a new connection is another client but for its messages
        msg_id = ws.send("execute_request", code)
        ws.until(lambda m: m["header"]["msg_type"] == "execute_input")
    with channels(fresh, session=me) as ws:
        ws.send("execute_request", code, msg_id=msg_id)
        assert ws.answer(msg_id)[0]["content"]["status"] == "ok"
        assert "2" not in [m["content"]["data"]["text/plain"] for m in ws.seen if m["header"]["msg_type"] == "execute_result"]
    with channels(fresh, session=me) as ws:
        ws.send("execute_request", code, msg_id=msg_id)
        assert ws.answer(msg_id)[0]["content"]["status"] == "ok"
        assert fresh.run("n")["text"] == "1"


def test_run_all_of_a_long_notebook(fresh: Sandbox) -> None:
    with channels(fresh) as ws:
        first = ws.send("execute_request", {"code": "import time; time.sleep(1); cells = [0]"})
        cells = [ws.send("execute_request", {"code": f"cells.append({i})"}) for i in range(1, 1001)]
        over = ws.send("execute_request", {"code": "cells.append('over')"})
        reply, published = ws.answer(over)
        assert reply["content"]["ename"] == "queue_full" and "error" in types(published)
        assert fresh.run("'an agent has its place behind them'")["status"] == "ok"
        assert {ws.answer(msg_id)[0]["content"]["status"] for msg_id in (first, *cells)} == {"ok"}
        assert fresh.run("cells == list(range(1001))")["text"] == "True"


def test_metadata_of_a_cell_reaches_the_kernel(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        ws.execute("said = get_ipython().kernel.get_parent()['metadata'].get('cellId')", metadata={"cellId": "c-1"})
        assert sandbox.run("said")["text"] == "'c-1'"


def test_a_client_that_leaves_while_its_kernel_starts_leaves_nothing(client: Client) -> None:
    before = {s["id"] for s in client.get("/v1/sandboxes")["items"]}
    with socket.create_connection((client.url.split("/")[2].split(":")[0], int(client.url.rsplit(":", 1)[1]))) as raw:
        body = json.dumps({"name": TEMPLATE}).encode()
        raw.sendall(f"POST /api/kernels HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: token {client.key}\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(lambda: {s["id"] for s in client.get("/v1/sandboxes")["items"]} - before, 10)
    wait_for(lambda: {s["id"] for s in client.get("/v1/sandboxes")["items"]} == before, 60)


# What is sent raw, and what comes of it: "reply", "error" (a reply that says so) or "nothing". Most end one kernel or the other, or are never answered, when they reach it.
DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
MATRIX = [
    ("code alone", "execute_request", '{"code":"1"}', "reply"), ("code is null", "execute_request", '{"code":null}', "error"),
    ("code is a number", "execute_request", '{"code":5}', "error"), ("code holds U+0000", "execute_request", '{"code":"1\\u0000"}', "error"),
    ("a lone surrogate", "execute_request", '{"code":"\\ud800"}', "reply"), ("no code", "execute_request", "{}", "error"),
    ("complete {}", "complete_request", "{}", "reply"),
    ("inspect {}", "inspect_request", "{}", "reply"), ("history {}", "history_request", "{}", "reply"),
    ("is_complete {}", "is_complete_request", "{}", "reply"), ("comm_info", "comm_info_request", "{}", "reply"),
    ("unknown type", "no_such_request", "{}", "error"), ("comm_open, unknown target", "comm_open", '{"comm_id":"x","target_name":"nobody"}', "nothing"),
    ("stray input_reply", "input_reply", '{"value":"x"}', "nothing"),
]
NO_OBJECTS = [("content is an array", "{}", "{}", "[]"), ("content is broken", "{}", "{}", '{"code":'), ("metadata is deep", "{}", DEEP, '{"code":"1"}')]
MALFORMED = [("header is an array", "[]", "{}", "{}", "{}"), ("no msg_type", '{"msg_id":"a"}', "{}", "{}", "{}"),
             ("broken header", '{"msg_id":', "{}", "{}", "{}"), ("parent is an array", '{"msg_id":"a","msg_type":"x"}', "[]", "{}", "{}")]
KEEPS = {"code-interpreter-node": ("kept = 41", "kept + 1"), "code-interpreter-r": ("kept <- 41", "kept + 1")}


@pytest.mark.parametrize("template", [TEMPLATE, *KEEPS])
def test_crash_matrix(client: Client, template: str) -> None:  # 3.6, KQ-01 to KQ-04
    """Over both protocols to each kernel: after each row it still answers, with its state."""
    put, get = KEEPS.get(template, ("kept = 41", "kept + 1"))
    with client.sandbox(template=template) as sandbox, channels(sandbox) as watch:
        watch.execute(put)

        def lives(row: str) -> None:
            reply, published = watch.execute(get)
            assert reply["content"]["status"] == "ok" and "42" in json.dumps([m["content"] for m in published]), row
            watch.seen.clear()
        for v1 in (True, False):
            with channels(sandbox, v1=v1) as ws:
                for row, msg_type, content, want in MATRIX:
                    msg_id = uuid.uuid4().hex
                    header = json.dumps({"msg_id": msg_id, "msg_type": msg_type, "session": ws.session, "username": "", "version": "5.3"})
                    ws.raw("stdin" if msg_type == "input_reply" else "shell", header, "{}", "{}", content)
                    if want != "nothing":
                        status = ws.answer(msg_id)[0]["content"]["status"]
                        # What a language makes of code is its own.
                        assert (status == "error") == (want == "error") or (msg_type, want) == ("execute_request", "reply"), (row, status)
                    lives(row)
            for row, *parts in NO_OBJECTS:
                with channels(sandbox, v1=v1) as ws:
                    ws.raw("shell", json.dumps({"msg_id": row, "msg_type": "execute_request", "session": ws.session}), *parts)
                    if v1:
                        assert ws.answer(row)[0]["content"]["status"] == "error", row
                    else:  # the frame itself is none then
                        assert ws.closed() == 1007, row
                    lives(row)
            for row, *parts in MALFORMED:
                with channels(sandbox, v1=v1) as ws:
                    ws.raw("shell", *parts)
                    assert ws.closed() == 1007, row
                    lives(row)


def test_a_client_that_never_answers_is_waited_for_and_can_be_interrupted(fresh: Sandbox) -> None:
    """As in Jupyter: the cell waits, and who wants to go on interrupts it."""
    with channels(fresh) as ws:
        msg_id = ws.send("execute_request", {"code": "input()", "allow_stdin": True})
        ws.until(lambda m: m["header"]["msg_type"] == "input_request")
        agent = threading.Thread(target=lambda: answers.append(fresh.run("6 * 7")))
        answers: list = []
        agent.start()
        wait_for(lambda: [r["status"] for r in fresh.get("/runs")["items"]] == ["queued", "waiting"])
        fresh.post(f"/contexts/{kernel_of(fresh)}/interrupt")
        assert ws.answer(msg_id)[0]["content"]["ename"] == "KeyboardInterrupt"
        agent.join(30)
        assert answers[0]["text"] == "42"


def test_debugger_passes_through(fresh: Sandbox) -> None:
    with channels(fresh) as ws:
        if "debugger" not in ws.ask("kernel_info_request")[0]["content"].get("supported_features", []):
            pytest.skip("this template's kernel has no debugger")

        def debug(seq: int, command: str, **arguments: object) -> Message:
            content = {"type": "request", "seq": seq, "command": command, "arguments": arguments}
            return ws.ask("debug_request", content, "control")[0]["content"]
        assert debug(1, "debugInfo")["body"]["isStarted"] is False
        assert debug(2, "initialize", clientID="test", adapterID="", linesStartAt1=True, columnsStartAt1=True, pathFormat="path")["success"]
        ws.send("debug_request", {"type": "request", "seq": 3, "command": "attach", "arguments": {"justMyCode": False}}, "control")
        event = ws.until(lambda m: m["header"]["msg_type"] == "debug_event" and m["content"]["event"] == "initialized")
        assert event["channel"] == "iopub"


def test_subshells_are_made_listed_and_ended(sandbox: Sandbox) -> None:
    with channels(sandbox) as ws:
        if "kernel subshells" not in ws.ask("kernel_info_request")[0]["content"].get("supported_features", []):
            assert ws.ask("create_subshell_request", {}, "control")[0]["content"]["ename"] == "not_supported"
            return
        made = ws.ask("create_subshell_request", {}, "control")[0]["content"]["subshell_id"]
        assert made in ws.ask("list_subshell_request", {}, "control")[0]["content"]["subshell_id"]
        assert ws.ask("delete_subshell_request", {"subshell_id": made}, "control")[0]["content"]["status"] == "ok"
        assert made not in ws.ask("list_subshell_request", {}, "control")[0]["content"]["subshell_id"]
        assert ws.ask("delete_subshell_request", {"subshell_id": made}, "control")[0]["content"]["status"] == "error"
