"""Connection files: stock ZeroMQ clients at sockets of the gateway, never at the kernel's own (CF-01 to CF-03)."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import stat
import subprocess
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.connection import JUPYTER, MISSING, Peer, b64, connect, connections
from harness.daemon import BUILD, TEMPLATE, Daemon, rss_bytes, slack, wait_for
from harness.fakes import Fakes
from harness.jupyter import Channels, kernel_of
from test_adoption import kill_gateway

PYTHON = "python" in TEMPLATE
SANITIZED = b"__asan_" in (BUILD / "sandald").read_bytes()  # keeps freed memory on purpose
pytestmark = [pytest.mark.skipif(not PYTHON, reason="asks python questions"), pytest.mark.skipif(bool(MISSING), reason=MISSING)]


def outputs(result: dict[str, Any], msg_type: str) -> list[dict[str, Any]]:
    return [content for kind, content in result["outputs"] if kind == msg_type]


@pytest.fixture(autouse=True)
def no_connections(sandbox: Sandbox) -> Iterator[None]:
    """Those of the sandbox that tests share would add up."""
    yield
    for connection in connections(sandbox):
        sandbox.client.delete(f"{sandbox.path}/contexts/{connection['context']}/connections/{connection['id']}")


# ---- the file ----

def test_cf_01_file_is_the_owners_alone_and_goes_when_revoked(sandbox: Sandbox, client: Client) -> None:
    made = client.call("POST", f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connect", json={}, expect=201)
    connection = made.json()
    path = f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connections/{connection['id']}"
    assert made.headers["location"] == path
    file = Path(connection["file"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    info = json.loads(file.read_text())
    assert info == connection["connection"]
    assert info["transport"] == connection["transport"] == "ipc" and info["signature_scheme"] == "hmac-sha256"
    assert info["kernel_name"] == sandbox.get(f"/contexts/{kernel_of(sandbox)}")["kernel"] and len(info["key"]) == 64
    sockets = Path(info["ip"]).parent
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    assert {p.name for p in sockets.glob(Path(info["ip"]).name + "-*")} == {f"{connection['id']}-{n}" for n in range(1, 6)}
    (listed,) = [c for c in connections(sandbox) if c["id"] == connection["id"]]
    assert "connection" not in listed and info["key"] not in json.dumps(listed)
    assert listed["context"] == kernel_of(sandbox) and listed["sandbox"] == sandbox.id
    client.delete(path)
    assert not file.exists()
    wait_for(lambda: not list(sockets.glob(Path(info["ip"]).name + "-*")))
    client.error("DELETE", path, 404, "not_found")
    assert connection["id"] not in [c["id"] for c in connections(sandbox)]


def test_cf_01_a_file_ends_with_its_context_and_its_sandbox(client: Client) -> None:
    with client.sandbox(template=TEMPLATE) as sandbox:
        context = sandbox.context()["id"]
        files = [Path(connect(sandbox, context)["file"]), Path(connect(sandbox)["file"])]
        client.delete(f"{sandbox.path}/contexts/{context}")
        wait_for(lambda: not files[0].exists())
        assert files[1].exists()
    wait_for(lambda: not files[1].exists())


def test_cf_01_files_are_bounded_for_a_context_and_for_the_daemon() -> None:
    with Daemon("--jupyter-context-connections", "2", "--jupyter-connections", "3") as d:
        client = Client(d.url, d.key)
        with client.sandbox(template=TEMPLATE) as sandbox:
            first, other = kernel_of(sandbox), sandbox.context()["id"]
            made = [connect(sandbox, first), connect(sandbox, first)]
            connect_path = f"{sandbox.path}/contexts/{{}}/connect"
            client.error("POST", connect_path.format(first), 429, "quota_exceeded", json={})
            connect(sandbox, other)
            client.error("POST", connect_path.format(other), 429, "quota_exceeded", json={})
            client.delete(f"{sandbox.path}/contexts/{first}/connections/{made[0]['id']}")
            connect(sandbox, other)
            client.error("POST", connect_path.format(other), 429, "quota_exceeded", json={})


def test_cf_01_files_of_one_owner_leave_room_for_others() -> None:
    with Daemon("--jupyter-connections", "4", "--jupyter-owner-connections", "2") as d:
        owners = [Client(d.url, d.key)]
        owners.append(Client(d.url, owners[0].post("/v1/keys", {"owner": "somebody-else", "scopes": ["use"]}, expect=201)["key"]))
        for owner in owners:
            sandbox = owner.sandbox(template=TEMPLATE)
            made = [connect(sandbox) for _ in range(2)]
            refused = owner.error("POST", f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connect", 429, "quota_exceeded", json={})
            assert "owner" in refused["message"]
        owner.delete(f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connections/{made[0]['id']}")
        connect(sandbox)


def test_cf_01_a_file_takes_no_place_of_a_client(fresh: Sandbox) -> None:
    """64 clients and a file; its own clients count as such."""
    with contextlib.ExitStack() as stack:
        open_ones = [stack.enter_context(Channels(fresh.client, kernel_of(fresh))) for _ in range(64)]
        with Peer(connect(fresh)["file"]) as peer:
            refused = peer.ask("kernel_info_request", {})["content"]
            assert refused["ename"] == "quota_exceeded" and "64 clients" in refused["evalue"]
            open_ones[0].ws.close()
            wait_for(lambda: peer.ask("kernel_info_request", {})["content"]["status"] == "ok")


def test_cf_01_what_is_wrong_is_refused(sandbox: Sandbox, client: Client) -> None:
    path = f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connect"
    client.error("POST", path, 400, "invalid_request", json={"transport": "udp"})
    error = client.error("POST", path, 501, "not_supported", json={"transport": "tcp"})
    assert "jupyter.connect_tcp" in error["hint"]
    client.error("POST", f"{sandbox.path}/contexts/{uuid.uuid4()}/connect", 404, "context_not_found", json={})


def test_cf_01_over_a_websocket(sandbox: Sandbox, client: Client) -> None:
    with client.socket() as ws:
        made = ws.call("contexts.connect", sandbox=sandbox.id, context=kernel_of(sandbox))
        listed = ws.call("connections.list", sandbox=sandbox.id, context=kernel_of(sandbox))["items"]
        assert made["id"] in [c["id"] for c in listed]
        ws.call("connections.delete", sandbox=sandbox.id, context=kernel_of(sandbox), connection=made["id"])
    assert not Path(made["file"]).exists()


# ---- jupyter_client ----

@pytest.mark.smoke
def test_cf_01_blocking_client(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer:
        assert peer("ready") < 10
        result = peer("execute", code="import sys\nprint('out')\nprint('err', file=sys.stderr)\n40 + 2")
        assert result["reply"]["status"] == "ok"
        assert [c["data"]["text/plain"] for c in outputs(result, "execute_result")] == ["42"]
        assert {(c["name"], c["text"]) for c in outputs(result, "stream")} == {("stdout", "out\n"), ("stderr", "err\n")}
        failed = peer("execute", code="1 / 0")
        assert failed["reply"]["status"] == "error" and failed["reply"]["ename"] == "ZeroDivisionError"
        asked = peer("execute", code="'<' + input('who? ') + '>'", answer="me")
        assert outputs(asked, "input_request") == [{"prompt": "who? ", "password": False}]
        assert outputs(asked, "execute_result")[0]["data"]["text/plain"] == "'<me>'"
        assert len({r["session"] for r in (result, failed, asked)}) == 1
    runs = sandbox.get("/runs")["items"]  # each is a run like any other
    assert [r["status"] for r in runs[:3]] == ["ok", "error", "ok"]
    assert sandbox.get("/runs/" + runs[2]["run"])["text"] == "42"


def test_cf_01_a_run_of_an_agent_shows_up(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer:
        peer("ready")
        sandbox.run("print('an agent was here')")
        peer.until(lambda m: m["content"].get("text", "").startswith("an agent"))
        assert outputs(peer("execute", code="7 * 6"), "execute_result")[0]["data"]["text/plain"] == "42"


def test_cf_01_subscribers_are_welcomed_and_told_the_state(sandbox: Sandbox) -> None:  # JEP 65
    with Peer(connect(sandbox)["file"]) as peer:
        for name in ("one", "two"):
            peer("open", name=name, channel="iopub", kind="SUB")
            got = [peer("raw_get", name=name)[1] for _ in range(2)]
            assert got[0]["header"]["msg_type"] == "iopub_welcome" and got[0]["content"] == {"subscription": ""}
            assert got[1]["header"]["msg_type"] == "status" and got[1]["content"] == {"execution_state": "idle"}


def test_cf_01_busy_kernel_answers_info_and_completes_afterwards(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer, Peer(connect(sandbox)["file"]) as late:
        peer("ready")
        cell = peer("send", msg_type="execute_request", content={"code": "open('go', 'w').close()\nwhile __import__('os').path.exists('go'): pass"})
        peer.until(lambda m: m["header"]["msg_type"] == "execute_input")
        assert late("ready") < 10, "a busy kernel can be attached to"
        completing = late("send", msg_type="complete_request", content={"code": "impor", "cursor_pos": 5})
        assert late("beat") and peer("beat"), "the heart beats while a cell runs"
        sandbox.post("/exec", {"cmd": "rm go"})
        reply = late.until(lambda m: m["parent_header"].get("msg_id") == completing, "shell")
        assert reply["content"]["matches"] == ["import"]
        assert peer.until(lambda m: m["parent_header"].get("msg_id") == cell, "shell")["content"]["status"] == "ok"


def test_cf_01_interrupt_by_message(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer:
        peer("ready")
        # It says when it runs: an interrupt in ipykernel's own code before that ends the run without its reply.
        cell = peer("send", msg_type="execute_request", content={"code": "print('on its way', flush=True)\nwhile True: pass"})
        peer.until(lambda m: m["content"].get("text", "").startswith("on its way"))
        assert peer.ask("interrupt_request", {}, "control")["content"]["status"] == "ok"
        reply = peer.until(lambda m: m["parent_header"].get("msg_id") == cell, "shell")
        assert reply["content"]["status"] == "error" and reply["content"]["ename"] == "KeyboardInterrupt"


def test_cf_01_replies_and_questions_go_to_who_asked(sandbox: Sandbox) -> None:
    file = connect(sandbox)["file"]
    with Peer(file) as one, Peer(file) as two:
        one("ready")
        two("ready")
        one.begin("execute", code="input('one? ')", answer="yes")
        assert two.until(lambda m: m["content"].get("code") == "input('one? ')"), "both hear what is published"
        assert outputs(one.answer(), "execute_result")[0]["data"]["text/plain"] == "'yes'"
        assert two("get", channel="stdin", timeout=0.2) is None and two("get", channel="shell", timeout=0.2) is None
        assert sandbox.get(f"/contexts/{kernel_of(sandbox)}")["state"] == "idle"


def test_cf_01_input_of_a_client_that_has_gone_ends(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer:
        peer("ready")
        peer("send", msg_type="execute_request", content={"allow_stdin": True, "code":
             "open('go', 'w').close()\nwhile __import__('os').path.exists('go'): pass\ninput('anybody? ')"})
        peer.until(lambda m: m["header"]["msg_type"] == "execute_input")
    sandbox.post("/exec", {"cmd": "rm go"})  # it asks when nobody is there any more
    wait_for(lambda: sandbox.get("/runs")["items"][0]["status"] == "error", 20)
    assert sandbox.get("/runs")["items"][0]["error"]["name"] == "EOFError"


def test_cf_01_input_of_a_client_that_goes_while_it_is_asked_ends(sandbox: Sandbox) -> None:
    """Nothing is sent to it any more, so nothing fails: that its connection is closed is seen."""
    agent: list[dict[str, Any]] = []
    with Peer(connect(sandbox)["file"]) as peer:
        peer("ready")
        peer("send", msg_type="execute_request", content={"allow_stdin": True, "code": "input('anybody? ')"})
        assert peer("get", channel="stdin")["content"]["prompt"] == "anybody? "
        behind = threading.Thread(target=lambda: agent.append(sandbox.run("6 * 7")))
        behind.start()
    behind.join(30)
    assert agent and agent[0]["text"] == "42", "an agent waited behind it"
    (run,) = [r for r in sandbox.get("/runs")["items"] if r["status"] == "error"][:1]
    assert run["error"]["name"] == "EOFError"


def test_cf_01_input_of_a_client_that_is_there_is_waited_for(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer:
        peer("ready")
        peer.begin("execute", code="input('slow? ')", answer="yes", wait=12)  # longer than one that has gone is waited for
        assert outputs(peer.answer(), "execute_result")[0]["data"]["text/plain"] == "'yes'"


# ---- other stock clients ----

class Console:
    """`jupyter console --existing FILE` in a terminal."""

    def __init__(self, file: str):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            env = {**os.environ, "TERM": "dumb", "PROMPT_TOOLKIT_NO_CPR": "1", "HOME": "/tmp"}
            os.execvpe(str(JUPYTER / "jupyter-console"), ["jupyter-console", "--existing", file, "--simple-prompt"], env)
        self.text = ""

    def expect(self, pattern: str, timeout: float = 60) -> None:
        end = time.monotonic() + timeout
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f"no {pattern!r} in {self.text!r}"
            if select.select([self.fd], [], [], 0.5)[0]:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
        self.text = self.text[found.end():]

    def line(self, text: str) -> None:
        os.write(self.fd, text.encode() + b"\n")

    def end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_cf_01_jupyter_console_under_a_terminal(sandbox: Sandbox) -> None:
    sandbox.run("of_the_agent = 41")
    console = Console(connect(sandbox)["file"])
    try:
        console.expect(r"In \[\d+\]:")
        console.line("of_the_agent + 1")
        console.expect(r"Out\[\d+\]: 42")
        console.expect(r"In \[\d+\]:")
        console.line("'<' + input('name? ') + '>'")
        console.expect(r"name\? ")
        console.line("you")
        console.expect(r"'<you>'")
        console.expect(r"In \[\d+\]:")
        os.write(console.fd, b"\x04")
        console.expect("really want to exit")
        console.line("y")
        assert console.end() == 0
    finally:
        os.close(console.fd)
    assert sandbox.run("of_the_agent")["text"] == "41", sandbox.get("/runs")


def test_cf_01_jupyter_run(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.run("of_the_agent = 41")
    (tmp_path / "script.py").write_text("print(of_the_agent + 1)\n")
    done = subprocess.run([str(JUPYTER / "jupyter-run"), "--existing", connect(sandbox)["file"], str(tmp_path / "script.py")],
                          env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "42\n", done
    assert sandbox.run("of_the_agent")["text"] == "41", "it was left, not ended"


NBCLIENT = """
import json, sys, nbformat, papermill
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from jupyter_client.manager import AsyncKernelManager

class Attached(AsyncKernelManager):
    '''Of a kernel that is there: none is started.'''
    has_kernel = True

def notebook(cells):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells], metadata={'kernelspec': {'name': 'x', 'display_name': 'x', 'language': 'python'}})

def attached():
    manager = Attached(owns_kernel=False)
    manager.load_connection_file(sys.argv[1])
    return manager

def run(cells, **kwargs):
    nb = notebook(cells)
    NotebookClient(nb, km=attached(), **kwargs).execute()
    return nb

nb = run(['x = 20', 'print("hi"); x * 2 + 2', 'import matplotlib.pyplot as p; p.plot([1, 2]); p.show()'])
print(json.dumps([[dict(o) for o in c['outputs']] for c in nb.cells]))
try:
    run(['1/0'])
except CellExecutionError as error:
    print(json.dumps(error.ename))
nbformat.write(notebook(['n = 1', 'n + x']), sys.argv[2])
nb = papermill.execute_notebook(sys.argv[2], sys.argv[2], parameters={'x': 22}, km=attached(), progress_bar=False)
print(json.dumps([dict(o) for o in nb.cells[-1]['outputs']]))
try:
    run(['import os; os._exit(3)'], timeout=30)
except (CellExecutionError, DeadKernelError) as error:
    print(json.dumps(getattr(error, 'ename', type(error).__name__)))
try:
    run(['import time\\nwhile True: time.sleep(0.05)'], timeout=1)
except CellTimeoutError as error:
    print(json.dumps(type(error).__name__))
"""


def test_cf_01_nbclient_and_papermill_run_notebooks(fresh: Sandbox, tmp_path: Path) -> None:
    """nbclient leaves a cell that is over its timeout; the context's owner can interrupt it."""
    script = tmp_path / "run.py"
    script.write_text(NBCLIENT)
    done = subprocess.run([str(JUPYTER / "python"), str(script), connect(fresh)["file"], str(tmp_path / "n.ipynb")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    cells, failed, parameters, dead, late = (json.loads(line) for line in done.stdout.splitlines())
    assert cells[0] == [] and [o["output_type"] for o in cells[1]] == ["stream", "execute_result"]
    assert cells[1][1]["data"]["text/plain"] == "42"
    assert any("image/png" in o.get("data", {}) for o in cells[2])
    assert failed == "ZeroDivisionError" and dead == "exited"
    assert parameters[0]["data"]["text/plain"] == "23"
    assert late == "CellTimeoutError" and fresh.get("/runs")["items"][0]["status"] == "running"
    fresh.post(f"/contexts/{kernel_of(fresh)}/interrupt")
    assert fresh.run("'goes on'")["status"] == "ok"


# ---- who may ----

def test_cf_03_a_key_that_may_only_attach(fresh: Sandbox, client: Client) -> None:
    owner = client.get("/v1/keys")["items"][0]["owner"]
    other = client.sandbox(template=TEMPLATE)
    try:
        key = client.post("/v1/keys", {"owner": owner, "scopes": [f"attach:{fresh.id}"]}, expect=201)
        attached = Client(client.url, key["key"])
        attached.error("POST", f"{other.path}/contexts/{kernel_of(other)}/connect", 403, "forbidden", json={})
        made = attached.post(f"{fresh.path}/contexts/{kernel_of(fresh)}/connect", {}, expect=201)
        with Peer(made["file"]) as peer:
            peer("ready")
            peer("execute", code="kept = 1")
            refused = peer.ask("shutdown_request", {"restart": True}, "control")
            assert refused["content"]["status"] == "error" and refused["content"]["ename"] == "forbidden"
            assert peer.ask("shutdown_request", {"restart": False}, "control")["content"]["status"] == "ok"
            assert fresh.run("kept")["text"] == "1", "it was only detached"
            assert outputs(peer("execute", code="kept"), "execute_result"), "and comes back as it likes"
            client.delete(f"/v1/keys/{key['id']}")
            assert not Path(made["file"]).exists(), "a file does not outlive its key"
            assert not peer("beat", timeout=0.5)
    finally:
        other.delete()


def test_cf_03_a_key_that_may_only_attach_has_to_do_with_its_own(fresh: Sandbox, client: Client) -> None:
    keys = [client.post("/v1/keys", {"owner": client.get("/v1/keys")["items"][0]["owner"], "scopes": [f"attach:{fresh.id}"]}, expect=201)
            for _ in range(2)]
    visitors = [Client(client.url, key["key"]) for key in keys]
    path = f"{fresh.path}/contexts/{kernel_of(fresh)}"
    made = [c.post(f"{path}/connect", {}, expect=201)["id"] for c in (client, *visitors)]
    for visitor, own in zip(visitors, made[1:]):
        assert [c["id"] for c in visitor.get(f"{path}/connections")["items"]] == [own]
        for other in made:
            if other != own:
                visitor.error("DELETE", f"{path}/connections/{other}", 404, "not_found")
    assert sorted(c["id"] for c in connections(fresh)) == sorted(made)
    visitors[0].delete(f"{path}/connections/{made[1]}")
    client.delete(f"{path}/connections/{made[2]}")
    assert [c["id"] for c in connections(fresh)] == made[:1]
    for key in keys:
        client.delete(f"/v1/keys/{key['id']}")


def test_cf_03_a_key_that_was_removed_elsewhere(daemon: Daemon, fresh: Sandbox, client: Client) -> None:
    key = client.post("/v1/keys", {"owner": client.get("/v1/keys")["items"][0]["owner"], "expires_in": 1}, expect=201)
    made = Client(client.url, key["key"]).post(f"{fresh.path}/contexts/{kernel_of(fresh)}/connect", {}, expect=201)
    wait_for(lambda: not Path(made["file"]).exists(), 15)
    assert connections(fresh) == []


def test_cf_03_restart_by_message_and_one_session_an_incarnation(fresh: Sandbox) -> None:  # SV-23
    with Peer(connect(fresh)["file"]) as peer:
        peer("ready")
        before = peer("execute", code="x = 1")["session"]
        assert peer.ask("shutdown_request", {"restart": True}, "control")["content"]["status"] == "ok"
        peer.until(lambda m: m["content"].get("execution_state") == "restarting")
        after = peer("execute", code="'x' in globals()")
        assert outputs(after, "execute_result")[0]["data"]["text/plain"] == "False" and after["session"] != before


def test_cf_03_shutdown_by_the_client_that_started_the_kernel_ends_it(client: Client) -> None:
    kernel = client.post("/api/kernels", {"name": TEMPLATE}, expect=201)["id"]
    sandbox = client.get(f"/v1/contexts/{kernel}")["sandbox"]
    made = client.post(f"/v1/sandboxes/{sandbox}/contexts/{kernel}/connect", {}, expect=201)
    with Peer(made["file"]) as peer:
        peer("ready")
        assert peer.ask("shutdown_request", {"restart": False}, "control")["content"]["status"] == "ok"
        wait_for(lambda: client.call("GET", f"/v1/sandboxes/{sandbox}").status_code == 404)
        wait_for(lambda: not Path(made["file"]).exists())


# ---- what strangers send ----

def counted(sandbox: Sandbox, file: str) -> int:
    return [c["dropped"] for c in connections(sandbox) if c["file"] == file][0]


def header(**fields: Any) -> bytes:
    return json.dumps({"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3",
                       "date": "2026-01-02T03:04:05.678901Z", **fields}).encode()


def test_cf_03_forged_and_repeated_messages_are_dropped_and_counted(sandbox: Sandbox, tmp_path: Path) -> None:
    file = connect(sandbox)["file"]
    info = json.loads(Path(file).read_text())
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps({**info, "key": "0" * 64}))
    with Peer(file) as peer, Peer(forged) as stranger:
        peer("ready")
        stranger("send", msg_type="execute_request", content={"code": "x = 'forged'", "silent": False})
        wait_for(lambda: counted(sandbox, file) == 1)
        assert stranger("get", channel="shell", timeout=0.2) is None
        peer("execute", code="n = 0")
        peer("open", name="raw", channel="shell", kind="DEALER")
        peer("signed", name="raw", parts=b64([header(), b"{}", b"{}", b'{"code":"n += 1"}']), times=3)
        wait_for(lambda: counted(sandbox, file) == 3)
        assert outputs(peer("execute", code="n, 'x' in globals()"), "execute_result")[0]["data"]["text/plain"] == "(1, False)"


JSON = b"{}"
SIGNED = [  # under the right signature: what a client may get wrong
    [b"", b"", b"", b""], [b"{", JSON, JSON, JSON], [b"[]", JSON, JSON, JSON], [b"{}", JSON, JSON, JSON], [b"null", b"null", b"null", b"null"],
    [header(msg_type=None), JSON, JSON, JSON], [header(msg_id=5), JSON, JSON, JSON], [header(), b"[", JSON, JSON],
    [header(), b'{"msg_id":' + b"[" * 100_000, JSON, JSON], [header(msg_id="x" * 300), JSON, JSON, JSON], [b"\xff\xfe", JSON, JSON, JSON],
]
ANSWERED = [  # the same, but that somebody can be told
    [JSON, b"{"], [JSON, b"[]"], [JSON, b'{"code":null}'], [JSON, b'{"code":5}'], [JSON, b'{"code":"1\\u0000"}'], [b"[]", b'{"code":"1"}'],
    [b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"code":"1"}'], [JSON, b'{"code":"1","silent":"no"}'],
]
UNSIGNED = [[b""], [b"x"], [b"<IDS|MSG>"], [b"<IDS|MSG>", b"", b"{}", b"{}"], [b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"],
            [b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"], [b"", b"<IDS|MSG>", b"0" * 64, b"{}", b"{}", b"{}", b"{}"], [b"a"] * 2000]


@pytest.mark.parametrize("template,put,get", [
    (TEMPLATE, "kept = 41", "kept + 1"), ("code-interpreter-node", "kept = 41", "kept + 1"), ("code-interpreter-r", "kept <- 41", "kept + 1")])
def test_cf_03_kq_02_to_04_crash_matrix_over_zeromq(client: Client, template: str, put: str, get: str) -> None:  # KQ-02 to KQ-04
    with client.sandbox(template=template) as sandbox:
        file = connect(sandbox)["file"]
        with Peer(file) as peer:
            peer("ready")
            peer("execute", code=put)
            for channel in ("shell", "control", "stdin"):
                peer("open", name=channel, channel=channel, kind="DEALER")
                for frames in UNSIGNED:
                    peer("raw", name=channel, frames=b64(frames))
                for parts in SIGNED:
                    peer("signed", name=channel, parts=b64(parts))
            # Repeated signatures are not looked at twice, but each channel's copy is one that was dropped.
            wait_for(lambda: counted(sandbox, file) == 3 * (len(UNSIGNED) + len(SIGNED)))
            for metadata, content in ANSWERED:
                peer("signed", name="shell", parts=b64([header(), JSON, metadata, content]))
                reply = peer("raw_get", name="shell")
                assert reply and reply[1]["content"]["status"] == "error", content
            for msg_type in ("no_such_request", "connect_request"):
                assert peer.ask(msg_type, {})["content"]["status"] == "error"
            for msg_type in ("complete_request", "inspect_request", "history_request", "is_complete_request", "comm_info_request"):
                assert peer.ask(msg_type, {})["content"]["status"] in ("ok", "complete"), msg_type
            peer("send", msg_type="input_reply", content={"value": "stray"}, channel="stdin")
            for channel in ("iopub", "hb"):  # what is no subscription and no ping
                peer("open", name=channel, channel=channel, kind={"iopub": "XSUB", "hb": "DEALER"}[channel])
                peer("raw", name=channel, frames=b64([b"junk", b"more"]))
            assert "42" in json.dumps(peer("execute", code=get)["outputs"])
            assert peer("beat")


def test_cf_03_frames_over_the_limit_cost_their_sender_the_connection(sandbox: Sandbox) -> None:
    file = connect(sandbox)["file"]
    with Peer(file) as peer:
        peer("ready")
        peer("open", name="raw", channel="shell", kind="DEALER")
        peer("large", name="raw", size=32 << 20)
        wait_for(lambda: counted(sandbox, file) == 1, 20)
        peer("large", name="raw", size=(32 << 20) + 1)
        assert peer("execute", code="1")["reply"]["status"] == "ok"
        assert counted(sandbox, file) == 1, "it never came"


def test_cf_03_clients_of_a_file_are_bounded(sandbox: Sandbox) -> None:
    file = connect(sandbox)["file"]
    info = [header(msg_type="kernel_info_request") for _ in range(41)]
    with Peer(file) as peer:
        peer("ready")
        for i in range(20):  # those who wait for nothing make room
            peer("open", name=str(i), channel="shell", kind="DEALER")
            peer("signed", name=str(i), parts=b64([info[i], JSON, JSON, JSON]))
            assert peer("raw_get", name=str(i))[1]["content"]["status"] == "ok"
        assert [c["clients"] for c in connections(sandbox) if c["file"] == file] == [16]
        sandbox.post("/exec", {"cmd": "touch go"})
        for i in range(17):
            code = "while __import__('os').path.exists('go'): pass"
            peer("signed", name=str(i), parts=b64([header(), JSON, JSON, json.dumps({"code": code}).encode()]))
        refused = peer("raw_get", name="16")
        assert refused[1]["content"]["ename"] == "quota_exceeded" and "16 clients" in refused[1]["content"]["evalue"]
        sandbox.post("/exec", {"cmd": "rm go"})
        for i in range(16):
            assert peer("raw_get", name=str(i))[1]["content"]["status"] == "ok"


def test_cf_03_revoke_while_attached(sandbox: Sandbox, client: Client) -> None:
    made = connect(sandbox)
    with Peer(made["file"]) as peer:
        peer("ready")
        peer("execute", code="kept = 'yes'")
        client.delete(f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connections/{made['id']}")
        peer("send", msg_type="execute_request", content={"code": "kept = 'no'"})
        assert not peer("beat", timeout=0.5) and peer("get", channel="shell", timeout=0.5) is None
    assert sandbox.run("kept")["text"] == "'yes'"


# ---- memory ----

LINES = 3000
NOISE = f"for i in range({LINES}): print('x' * 20_000, flush=True)"  # 60 MB


@pytest.mark.parametrize("bound,whole", [("128MiB", True), ("1MiB", False)])
def test_cf_03_zq_05_a_client_that_does_not_read(bound: str, whole: bool) -> None:  # ZQ-05
    """Below the bound nothing is lost; beyond it the loss is told, the idle comes, and memory stays."""
    with Daemon("--jupyter-unread-bytes", bound) as d:
        client = Client(d.url, d.key)
        with client.sandbox(template=TEMPLATE) as sandbox:
            made, other = connect(sandbox), connect(sandbox)
            with Peer(made["file"]) as slow, Peer(other["file"]) as reader:
                slow("ready")
                slow("stop_reading")
                reader("ready")
                reader("stop_reading")  # else it would be a second subscriber there that takes nothing
                reader("open", name="sub", channel="iopub", kind="SUB", rcvhwm=0)
                reader("raw_get", name="sub")
                slow("open", name="sub", channel="iopub", kind="SUB", rcvhwm=1)
                slow("raw_get", name="sub")
                before = rss_bytes(d.gateway_pid())
                cell = slow("send", msg_type="execute_request", content={"code": NOISE})
                heard = reader("drain", name="sub", until=cell)
                assert heard["idle"] and (not whole or heard["bytes"] == LINES * 20_001), heard
                assert slow.until(lambda m: m["parent_header"].get("msg_id") == cell, "shell")["content"]["status"] == "ok"
                if not whole:
                    grown = rss_bytes(d.gateway_pid()) - before
                    assert SANITIZED or grown < 48 << 20, grown
                    client.delete(f"{sandbox.path}/contexts/{kernel_of(sandbox)}/connections/{other['id']}")
                late = slow("drain", name="sub", until=cell)
                assert late["idle"], late
                lost = connections(sandbox)[0]["lost"]
                if whole:
                    assert late["bytes"] == LINES * 20_001 and not late["notes"] and lost == 0, late
                else:
                    cut = sum(int(re.match(r"\[(\d+) messages", note)[1]) for note in late["notes"])  # type: ignore[index]
                    assert late["bytes"] < LINES * 20_001 and lost == cut > 0, (late, lost)
                    assert slow.ask("kernel_info_request", {})["content"]["status"] == "ok"


def a_slow_one_and_a_reader(slow: Peer, reader: Peer) -> None:
    slow("ready")
    slow("stop_reading")
    slow("open", name="sub", channel="iopub", kind="SUB", rcvhwm=1)
    slow("raw_get", name="sub")
    reader("ready")
    reader("stop_reading")
    reader("open", name="sub", channel="iopub", kind="SUB", rcvhwm=0)
    reader("raw_get", name="sub")


@pytest.mark.parametrize("bound,whole", [("32MiB", True), ("1MiB", False)])
def test_cf_03_subscribers_of_a_file_do_not_wait_for_each_other(bound: str, whole: bool) -> None:
    """One takes nothing: the other has all of it long before the first begins, which loses nothing below the bound, and is told above it."""
    with Daemon("--jupyter-unread-bytes", bound) as d, Client(d.url, d.key).sandbox(template=TEMPLATE) as sandbox:
        file = connect(sandbox)["file"]
        with Peer(file) as slow, Peer(file) as reader:
            a_slow_one_and_a_reader(slow, reader)
            cell = reader("send", msg_type="execute_request", content={"code": "for i in range(1000): print('x' * 20_000, flush=True)"})
            heard = reader("drain", name="sub", until=cell)
            assert heard["idle"] and heard["bytes"] == 1000 * 20_001 and not heard["notes"], heard
            late = slow("drain", name="sub", until=cell)
            assert late["idle"] and (late["bytes"] == 1000 * 20_001) == whole, late
            cut = sum(int(re.match(r"\[(\d+) messages", note)[1]) for note in late["notes"])  # type: ignore[index]
            assert (cut == 0) == whole and connections(sandbox)[0]["lost"] == cut, late


def test_cf_03_a_subscriber_that_stops_in_the_middle_of_a_cell_delays_nobody(fresh: Sandbox) -> None:
    """What each line of the reader's took to come is far below what a stalled subscriber was once waited for."""
    file = connect(fresh)["file"]
    with Peer(file) as slow, Peer(file) as reader:
        a_slow_one_and_a_reader(slow, reader)
        for _ in range(3):
            begun = time.monotonic()
            cell = reader("send", msg_type="execute_request", content={"code": "for i in range(200): print('x' * 20_000, flush=True)"})
            assert reader("drain", name="sub", until=cell)["idle"]
            assert time.monotonic() - begun < 3 * slack()


def test_cf_03_subscribers_are_bounded_and_those_who_have_gone_make_room(sandbox: Sandbox) -> None:
    with Peer(connect(sandbox)["file"]) as peer:
        peer("ready")
        for i in range(15):  # with jupyter_client's own 16
            peer("open", name=str(i), channel="iopub", kind="SUB")
            assert peer("raw_get", name=str(i))[1]["header"]["msg_type"] == "iopub_welcome"
        assert peer_is_full(peer)
        for i in range(8):
            peer("close", name=str(i))
        wait_for(lambda: not peer_is_full(peer))
        assert outputs(peer("execute", code="6 * 7"), "execute_result")[0]["data"]["text/plain"] == "42"
        for i in range(8, 15):  # they hear on
            assert peer("raw_get", name=str(i))[1]["header"]["msg_type"] == "status"


def peer_is_full(peer: Peer) -> bool:
    peer("open", name="more", channel="iopub", kind="SUB")
    first = peer("raw_get", name="more")[1]
    peer("close", name="more")
    assert first["header"]["msg_type"] == "iopub_welcome" or "16 clients" in first["content"]["text"], first
    return first["header"]["msg_type"] == "stream"


def test_cf_03_a_subscription_to_a_topic_hears_that_alone(sandbox: Sandbox) -> None:
    file = connect(sandbox)["file"]
    with Peer(file) as peer, Peer(file) as runs:
        runs("ready")
        peer("stop_reading")
        peer("open", name="sub", channel="iopub", kind="SUB", topics=[f"kernel.{kernel_of(sandbox)}.stream", "kernel.nobody"])
        peer("open", name="all", channel="iopub", kind="SUB")
        peer("raw_get", name="all")  # the other subscribed before it
        runs("execute", code="print('one')")
        runs("execute", code="print('two')")
        got = [peer("raw_get", name="sub") for _ in range(2)]
        assert [m[1]["content"].get("text") for m in got] == ["one\n", "two\n"]
        assert all(m[0][0].startswith(f"kernel.{kernel_of(sandbox)}.stream") for m in got)


# ---- death ----

def test_cf_01_death_of_the_kernel_is_told_and_the_heart_goes_on(fresh: Sandbox) -> None:
    with Peer(connect(fresh)["file"]) as peer:
        peer("ready")
        reply = peer("execute", code="import os; os._exit(3)")["reply"]
        assert reply["status"] == "error" and reply["ename"] == "exited"
        assert peer("execute", code="1")["reply"]["status"] == "ok", "a fresh one is behind the same file"
        assert peer("beat")
        wait_for(lambda: peer("alive"))  # it missed the beats of the time between


def test_cf_01_no_heartbeat_of_a_dead_kernel(fakes: Fakes) -> None:
    with Daemon(template_dirs=[fakes.templates]) as d:
        client = Client(d.url, d.key)
        fakes.set_scenario("none")
        with client.sandbox(template="fake-switch") as sandbox:
            with Peer(connect(sandbox)["file"]) as peer:
                assert peer("beat")
                fakes.set_scenario("exit_before_bind")
                client.call("POST", f"{sandbox.path}/contexts/{kernel_of(sandbox)}/reset", json={})
                wait_for(lambda: sandbox.get(f"/contexts/{kernel_of(sandbox)}")["state"] == "dead")
                assert not peer("beat", timeout=0.5)
                fakes.set_scenario("none")
                client.post(f"{sandbox.path}/contexts/{kernel_of(sandbox)}/reset", {})
                assert peer("beat")


def test_cf_01_connections_end_with_the_gateway_and_the_kernel_does_not() -> None:
    with Daemon() as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        made = connect(sandbox)
        with Peer(made["file"]) as peer:
            peer("ready")
            peer("execute", code="kept = 42")
            sandbox.client = client = kill_gateway(d)
            wait_for(lambda: client.call("GET", "/readyz").status_code == 200)
            assert not Path(made["file"]).exists() and connections(sandbox) == []
            assert not list((d.state / "channels").iterdir()), "sockets of the gateway before"
            assert not peer("beat", timeout=0.5)
        with Peer(connect(sandbox)["file"]) as peer:
            peer("ready")
            assert outputs(peer("execute", code="kept"), "execute_result")[0]["data"]["text/plain"] == "42"
        file = Path(connect(sandbox)["file"])
        sandbox.delete()
    assert not file.exists()


def test_cf_01_tcp_where_the_operator_allows_it() -> None:
    with Daemon("--jupyter-connect-tcp") as d:
        client = Client(d.url, d.key)
        with client.sandbox(template=TEMPLATE) as sandbox:
            made = connect(sandbox, transport="tcp")
            info = made["connection"]
            ports = {info[f"{c}_port"] for c in ("shell", "control", "stdin", "iopub", "hb")}
            assert info["transport"] == made["transport"] == "tcp" and info["ip"] == "127.0.0.1" and len(ports) == 5
            with Peer(made["file"]) as peer:
                peer("ready")
                assert outputs(peer("execute", code="6 * 7"), "execute_result")[0]["data"]["text/plain"] == "42"


def test_cf_02_external_kernels_of_jupyter_server(fresh: Sandbox, client: Client, tmp_path: Path) -> None:
    """A stock jupyter_server takes the directory of connection files as external_connection_dir."""
    made = connect(fresh)
    folder = Path(made["file"]).parent
    fresh.run("of_the_agent = 41")
    argv = [str(JUPYTER / "jupyter-server"), "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0",
            "--IdentityProvider.token=t", "--ServerApp.allow_external_kernels=True", f"--ServerApp.external_connection_dir={folder}"]
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "run")}
    log = tmp_path / "log"
    with log.open("wb") as out:
        server = subprocess.Popen(argv, env=env, cwd=tmp_path, stderr=out, stdout=out, stdin=subprocess.DEVNULL)
    try:
        url = wait_for(lambda: re.search(r"http://127\.0\.0\.1:[1-9]\d*", log.read_text()), 60)[0]
        notebook = Client(url, "t")
        (kernel,) = wait_for(lambda: notebook.get("/api/kernels"), 30)
        with Channels(notebook, kernel["id"]) as ws:
            reply, published = ws.execute("of_the_agent + 1")
            assert reply["content"]["status"] == "ok" and "'42'" in str([m["content"] for m in published])
        client.delete(f"{fresh.path}/contexts/{made['context']}/connections/{made['id']}")
        wait_for(lambda: notebook.get("/api/kernels") == [], 30)
    finally:
        server.terminate()
        server.wait(30)
    assert fresh.run("of_the_agent")["text"] == "41"
