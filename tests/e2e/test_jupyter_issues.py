"""Public issues of Jupyter's projects, replayed at the gateway as black boxes. The ids name the issue; those that other tests show already
are not here."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Callable, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, slack, wait_for
from harness.jupyter import Channels, Jupyter, Message, kernel_of, texts

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions")
INERT = "$(id) `id` ${HOME} {{7*7}}\n- a: *b\r\n'\"\\ %s %00"


@pytest.fixture(scope="module")
def jupyter(daemon: Daemon) -> Jupyter:
    return Jupyter(daemon.url, daemon.key)


@pytest.fixture(scope="module")
def sandboxes(client: Client) -> Iterator[Callable[[str], Sandbox]]:
    """One a language, made when it is asked for."""
    made: dict[str, Sandbox] = {}

    def get(template: str) -> Sandbox:
        if template not in made:
            made[template] = client.sandbox(template=template)
        return made[template]
    yield get
    for sandbox in made.values():
        sandbox.delete()


def shown(messages: list[Message]) -> str:
    return json.dumps([m["content"] for m in messages])


# ---- cells: what comes of them, and that the kernel goes on ----

R, NODE = "code-interpreter-r", "code-interpreter-node"
CELLS = {
    "ipykernel-847": (TEMPLATE, "import subprocess\nsubprocess.run('yes | head -c 5000000', shell=True).returncode", 5_000_000),
    "notebook-2287": (TEMPLATE, "print('x' * 10_000_000)", 10_000_001),
    "IRkernel-17": (R, "invisible(system('echo hi'))", 3),
    "IRkernel-625": (R, "for (i in 1:3) { cat(i); flush.console() }", 3),
    "ijavascript-52": (NODE, "console.log('hi')", 3),
}


@pytest.mark.parametrize("issue", CELLS)
def test_output_is_whole(issue: str, client: Client, sandboxes: Callable[[str], Sandbox]) -> None:
    template, code, want = CELLS[issue]
    with Channels(client, kernel_of(sandboxes(template))) as ws:
        reply, published = ws.execute(code)
        assert reply["content"]["status"] == "ok", reply
        assert len(texts(published)) == want
        assert ws.execute("1")[0]["content"]["status"] == "ok"


ENDLESS = {
    "ipykernel-1101": (TEMPLATE, "import time\nwhile True: time.sleep(0.01)"),
    "IRkernel-245": (R, "Sys.sleep(60)"),
    "IRkernel-677": (R, "repeat print(1)"),
    "ijavascript-49": (NODE, "while (true) {}"),
}


@pytest.mark.parametrize("issue", ENDLESS)
def test_interrupt_ends_it(issue: str, client: Client, sandboxes: Callable[[str], Sandbox]) -> None:
    template, code = ENDLESS[issue]
    with Channels(client, kernel_of(sandboxes(template))) as ws:
        msg_id = ws.send("execute_request", {"code": code})
        ws.until(lambda m: m["content"].get("execution_state") == "busy" and m["parent_header"].get("msg_id") == msg_id)
        begin = time.monotonic()
        assert ws.ask("interrupt_request", {}, "control")[0]["content"]["status"] == "ok"
        assert ws.answer(msg_id)[0]["content"]["status"] in ("error", "abort")
        assert time.monotonic() - begin < 5 * slack()
        assert ws.execute("1")[0]["content"]["status"] == "ok"


# ---- kernels and their channels ----

def test_jupyter_client_593_output_of_the_first_cells(client: Client, jupyter: Jupyter) -> None:
    """Sent the moment that create returns, all at once."""
    for _ in range(4):
        kernel = jupyter.post("/api/kernels", {"name": TEMPLATE})["id"]
        with Channels(client, kernel) as ws:
            asked = [ws.send("execute_request", {"code": f"print({i})"}) for i in range(50)]
            for i, msg_id in enumerate(asked):
                assert texts(ws.answer(msg_id)[1]) == f"{i}\n"
        jupyter.call("DELETE", f"/api/kernels/{kernel}", 204)


def test_jupyter_server_1506_sockets_come_and_go(client: Client, daemon: Daemon, sandbox: Sandbox, jupyter: Jupyter) -> None:
    """Half of them while a cell runs. Nothing is left of them."""
    def connections() -> int:
        return int(jupyter.get(f"/api/kernels/{kernel_of(sandbox)}")["connections"])

    def descriptors() -> int:
        return len(os.listdir(f"/proc/{daemon.gateway_pid()}/fd"))
    if not os.access(f"/proc/{daemon.gateway_pid()}/fd", os.R_OK):
        pytest.skip("another user's descriptors are not to be counted")
    with Channels(client, kernel_of(sandbox)) as ws:
        ws.execute("1")
        wait_for(lambda: connections() == 1)
        before = descriptors()
        for i in range(200):
            if i == 100:
                # Ends by the interrupt alone, which is to find the cell, not ipykernel's own code before it.
                running = ws.send("execute_request", {"code": "import time\nprint('runs')\nwhile True: time.sleep(0.05)"})
                ws.until(lambda m: m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == running)
            with Channels(client, kernel_of(sandbox), v1=i % 2 == 0) as other:
                other.send("kernel_info_request")
        jupyter.call("POST", f"/api/kernels/{kernel_of(sandbox)}/interrupt", 204)
        assert ws.answer(running)[0]["content"]["ename"] == "KeyboardInterrupt"
        wait_for(lambda: connections() == 1 and descriptors() <= before + 2)
        assert ws.execute("1")[0]["content"]["status"] == "ok"


def test_kernel_gateway_224_each_output_once(client: Client, sandbox: Sandbox) -> None:
    with Channels(client, kernel_of(sandbox)) as a, Channels(client, kernel_of(sandbox), v1=False) as b:
        for ws, name in ((a, "a"), (b, "b")):
            for i in range(20):
                ws.send("execute_request", {"code": f"print('{name}{i}.')"})
        want = sorted(f"{name}{i}." for name in "ab" for i in range(20))
        for ws in (a, b):
            while len(texts(ws.seen).split()) < len(want):
                ws.receive()
            assert sorted(texts(ws.seen).split()) == want


def test_notebook_3705_right_after_a_restart(client: Client, jupyter: Jupyter, fresh: Sandbox) -> None:
    for i in range(3):
        jupyter.call("POST", f"/api/kernels/{kernel_of(fresh)}/restart", 200)
        with Channels(client, kernel_of(fresh)) as ws:
            assert texts(ws.execute(f"print('after {i}')")[1]) == f"after {i}\n"


def test_notebook_3468_twelve_mebibytes_both_ways(client: Client, sandbox: Sandbox) -> None:
    with Channels(client, kernel_of(sandbox)) as ws:
        ws.execute("""
def opened(comm, message):
    @comm.on_msg
    def answer(message):
        comm.send({}, buffers=message['buffers'])
get_ipython().kernel.comm_manager.register_target('echo', opened)""")
        ws.send("comm_open", {"comm_id": "large", "target_name": "echo"})
        ws.send("comm_msg", {"comm_id": "large", "data": {}}, buffers=[bytes(12 << 20)])
        said = ws.until(lambda m: m["header"]["msg_type"] == "comm_msg" and m["content"]["comm_id"] == "large")
        assert said["buffers"] == [bytes(12 << 20)]


def test_jupyter_server_1429_idle_is_who_runs_nothing() -> None:
    """notebook#3896: a cell that prints nothing for longer than the timeout goes on, and asking for kernel_info keeps nobody."""
    with Daemon("--jupyter-kernel-timeout", "2", "--jupyter-kernel-on-timeout", "kill") as d:
        client, jupyter = Client(d.url, d.key), Jupyter(d.url, d.key)
        kernel = jupyter.post("/api/kernels", {"name": TEMPLATE})["id"]
        with Channels(client, kernel) as ws:
            # The cell sleeps: time is what it is about.
            assert ws.execute("import time\ntime.sleep(4)\nprint('done')")[0]["content"]["status"] == "ok"

            def gone() -> bool:
                ws.send("kernel_info_request")
                return kernel not in jupyter.kernel_ids()
            wait_for(gone, 20, step=0.3)
            assert ws.closed() == 1000


# ---- names, bodies, headers ----

@pytest.mark.parametrize("path", ["a%2Fb.ipynb", "100%25.ipynb", "a%", "ä/ö 字.ipynb", "../../etc/passwd", "a?b#c&d=e+f", INERT],
                         ids=lambda p: str(p)[:12].encode("unicode_escape").decode())
def test_jupyter_server_1620_paths_are_taken_as_they_are(path: str, jupyter: Jupyter, sandbox: Sandbox) -> None:
    """jupyter_server#1642, enterprise_gateway#1412."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": {"id": kernel_of(sandbox)}}
    session = jupyter.post("/api/sessions", body)
    assert session["path"] == path and session["name"] == path
    again = jupyter.get(f"/api/sessions/{session['id']}")
    assert again["path"] == path and jupyter.post("/api/sessions", body)["id"] == session["id"]
    jupyter.call("DELETE", f"/api/sessions/{session['id']}", 204)


@pytest.mark.parametrize("name", [f"{TEMPLATE}%2F", f"%2E%2E%2F{TEMPLATE}", f"{TEMPLATE}%00", "%25", "%", "%zz"])
def test_jupyter_server_1620_names_of_kernelspecs(name: str, jupyter: Jupyter) -> None:
    assert jupyter.http.get(f"/api/kernelspecs/{name}").status_code in (400, 404)
    assert jupyter.http.get(f"/kernelspecs/{name}/logo-64x64.png").status_code in (400, 404)


def test_jupyter_server_1620_one_decode(jupyter: Jupyter) -> None:
    assert jupyter.get(f"/api/kernelspecs/{TEMPLATE.replace('-', '%2D')}")["name"] == TEMPLATE
    jupyter.call("GET", f"/api/kernelspecs/{TEMPLATE.replace('-', '%252D')}", 404)


def test_enterprise_gateway_1412_variables_are_inert(jupyter: Jupyter, client: Client) -> None:
    kernel = jupyter.post("/api/kernels", {"name": TEMPLATE, "path": INERT, "env": {"KERNEL_X": INERT, "KERNEL_USERNAME": INERT}})["id"]
    with Channels(client, kernel) as ws:
        _, published = ws.execute(f"import os\nos.environ['KERNEL_X'] == os.environ['KERNEL_USERNAME'] == {INERT!r}")
        assert "True" in shown(published)
    jupyter.call("DELETE", f"/api/kernels/{kernel}", 204)


def test_enterprise_gateway_661_who_asks_is_not_in_the_body(daemon: Daemon) -> None:
    nobody = Jupyter(daemon.url, None)
    for body in ({"name": TEMPLATE}, {"name": TEMPLATE, "env": {"KERNEL_USERNAME": "root"}}, {}):
        nobody.call("POST", "/api/kernels", 403, json=body)


def test_jupyter_server_1558_cookies_are_no_matter(jupyter: Jupyter) -> None:
    jupyter.get("/api/kernels", headers={"Cookie": f"affinity={uuid.uuid4().hex}; affinity=old; _xsrf=1; username-localhost=x"})


@pytest.mark.skipif("debian" in TEMPLATE, reason="ipykernel 6 gives what a thread prints to the newest cell")
def test_ipykernel_1186_two_threads_two_cells(client: Client, sandbox: Sandbox) -> None:
    """What a thread prints belongs to the cell that started it, whichever cell runs."""
    start = "import threading\nt{0}, go{0} = None, threading.Event()\nt{0} = threading.Thread(target=lambda: (go{0}.wait(), print('thread {0}')))\nt{0}.start()"
    with Channels(client, kernel_of(sandbox)) as ws:
        cells = [ws.send("execute_request", {"code": start.format(i)}) for i in range(2)]
        for msg_id in cells:
            ws.answer(msg_id)
        ws.execute("go0.set(); go1.set(); t0.join(); t1.join()")

        def of(msg_id: str) -> str:
            return texts([m for m in ws.seen if m["parent_header"].get("msg_id") == msg_id])
        while not all(map(of, cells)):
            ws.receive()
        assert [of(msg_id).strip() for msg_id in cells] == ["thread 0", "thread 1"]
