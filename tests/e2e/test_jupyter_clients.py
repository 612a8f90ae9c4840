"""Real Jupyter servers as clients of the gateway (`--gateway-url`): what JupyterLab is to people. GA- are the ids of the contract."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, wait_for
from harness.jupyter import Channels, Jupyter, Message, kernel_of, texts, types
from harness.jupyter_server import LocalServer, free_port, why_not

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions")
SERVERS = [pytest.param(which, marks=pytest.mark.skipif(bool(why_not(which)), reason=why_not(which))) for which in ("current", "debian")]
SECRET = "a-secret-of-the-client"
LOGO = b"\x89PNG not really"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory(dir="/tmp") as specs:
        Path(specs).chmod(0o755)
        folder = Path(specs) / "with-logo"
        folder.mkdir(mode=0o755)
        (folder / "kernel.json").write_text(json.dumps({"argv": ["/bin/true", "{connection_file}"], "display_name": "Mine",
                                                        "language": "python"}))
        (folder / "logo-64x64.png").write_bytes(LOGO)
        with Daemon("--kernelspec-dirs", specs, "--log-level", "debug") as d:
            yield d


@pytest.fixture(scope="module")
def remote(gateway: Daemon) -> Client:
    return Client(gateway.url, gateway.key)


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, gateway: Daemon) -> Iterator[LocalServer]:
    with LocalServer(request.param, gateway.url, gateway.key, env={"KERNEL_ASKED": "yes", "AWS_SECRET": SECRET}) as s:
        yield s


@pytest.fixture(scope="module")
def agents(remote: Client) -> Iterator[Sandbox]:
    """A sandbox that somebody else works in."""
    with remote.sandbox(template=TEMPLATE, name="of-the-agent") as sandbox:
        yield sandbox


def browser(server: LocalServer, kernel: str, offer: bool = False) -> Channels:
    """What 1.23 gets from a browser before its own connection it may lose: the gateway's greeting comes when that is open."""
    ws = Channels(server, kernel, v1=False, offer=offer)
    ws.receive()
    return ws


@pytest.fixture
def notebook(server: LocalServer) -> Iterator[Channels]:
    """A kernel that the server has started, and a browser at it."""
    session = server.session({"name": TEMPLATE})
    with browser(server, session["kernel"]["id"]) as ws:
        yield ws
    server.http.delete(f"/api/sessions/{session['id']}")


def shown(published: list[Message]) -> str:
    return json.dumps([m["content"] for m in published])


def test_ga_01_to_03_kernelspecs_and_logos(server: LocalServer, gateway: Daemon, agents: Sandbox) -> None:
    server.get("/api/kernelspecs")  # the server takes the gateway's default over while it answers
    answer = server.get("/api/kernelspecs")
    specs = answer["kernelspecs"]
    assert answer["default"] == Jupyter(gateway.url, gateway.key).get("/api/kernelspecs")["default"]
    assert specs[answer["default"]]["spec"]["language"] == "python"
    assert specs[f"ctx-{kernel_of(agents)}"]["spec"]["display_name"].startswith("Sandal: of-the-agent")
    logo = specs["with-logo"]["resources"]["logo-64x64"]
    assert server.call("GET", logo, 200).content == LOGO
    assert server.get(f"/api/kernelspecs/{TEMPLATE}")["name"] == TEMPLATE  # GA-02
    assert server.http.get("/api/kernelspecs/nope").status_code == 404


def test_ga_04_to_10_a_notebooks_life(server: LocalServer, gateway: Daemon, remote: Client) -> None:
    session = server.session({"name": TEMPLATE})
    kernel = session["kernel"]["id"]
    assert kernel in server.kernel_ids() and server.get(f"/api/kernels/{kernel}")["name"] == TEMPLATE
    box = remote.get(f"/v1/contexts/{kernel}")["sandbox"]
    with browser(server, kernel) as ws:
        assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"
        reply, published = ws.execute("x = 20\nprint('out')\nx + 1")
        assert reply["content"]["status"] == "ok" and texts(published) == "out\n" and "'21'" not in shown(published)
        assert [m["content"]["data"]["text/plain"] for m in published if m["header"]["msg_type"] == "execute_result"] == ["21"]
        _, published = ws.execute(PLOT)
        assert [len(m["content"]["data"]["image/png"]) > 1000 for m in published if m["header"]["msg_type"] == "display_data"] == [True]
        reply, _ = ws.execute("1/0")
        assert reply["content"]["ename"] == "ZeroDivisionError"
        # What the server sent of its environment: by allow-list, and nothing of it in the log.
        _, published = ws.execute(f"import os\nos.environ.get('KERNEL_ASKED'), {SECRET!r} in str(os.environ), 'JUPYTER_GATEWAY_AUTH_TOKEN' in os.environ")
        assert "('yes', False, False)" in shown(published)
    assert SECRET not in gateway.log() and gateway.key and gateway.key not in gateway.log()
    server.call("DELETE", f"/api/sessions/{session['id']}", 204)
    assert kernel not in server.kernel_ids()
    remote.error("GET", f"/v1/sandboxes/{box}", 404, "sandbox_not_found")  # it had started it


def test_ga_08_interrupt(server: LocalServer, notebook: Channels) -> None:
    notebook.execute("x = 1")
    # Ends by the interrupt alone. It says when it runs: one in ipykernel's own code before that ends the run without a reply.
    msg_id = notebook.send("execute_request", {"code": "import time\nprint('runs')\nwhile True: time.sleep(0.05)"})
    notebook.until(lambda m: m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == msg_id)
    server.call("POST", f"/api/kernels/{notebook.kernel}/interrupt", 204)
    assert notebook.answer(msg_id)[0]["content"]["ename"] == "KeyboardInterrupt"
    assert notebook.execute("x")[0]["content"]["status"] == "ok"


def test_ga_09_restart(server: LocalServer, notebook: Channels) -> None:
    notebook.execute("x = 1")
    before = {m["header"]["session"] for m in notebook.seen}
    assert server.call("POST", f"/api/kernels/{notebook.kernel}/restart", 200).json()["id"] == notebook.kernel
    with browser(server, notebook.kernel) as ws:  # as browsers do
        assert ws.execute("x")[0]["content"]["ename"] == "NameError"
        assert not before & {m["header"]["session"] for m in ws.seen}  # SV-23
    assert notebook.execute("1")[0]["content"]["status"] == "ok"  # the older connection sees the new kernel


def test_input(notebook: Channels) -> None:
    msg_id = notebook.send("execute_request", {"code": "input('name? ')", "allow_stdin": True})
    question = notebook.until(lambda m: m["header"]["msg_type"] == "input_request")
    assert question["channel"] == "stdin" and question["content"]["prompt"] == "name? "
    notebook.send("input_reply", {"value": "Ada"}, "stdin", parent=question["header"])
    assert "'Ada'" in shown(notebook.answer(msg_id)[1])


def test_a_browser_that_offers_v1(server: LocalServer, notebook: Channels) -> None:
    """The server chooses none of its protocols, as it has none with the gateway."""
    with browser(server, notebook.kernel, offer=True) as ws:
        assert ws.execute("1")[0]["content"]["status"] == "ok"
    assert notebook.execute("2")[0]["content"]["status"] == "ok"


def test_ga_17_attach_by_kernelspec(server: LocalServer, agents: Sandbox) -> None:
    agents.run("seen = 'by both'")
    session = server.session({"name": f"ctx-{kernel_of(agents)}"})
    assert session["kernel"]["id"] == kernel_of(agents)
    with browser(server, kernel_of(agents)) as ws:
        assert "by both" in shown(ws.execute("seen")[1])
        agents.run("print('from the agent')")
        ws.until(lambda m: m["content"].get("text") == "from the agent\n")
    server.call("DELETE", f"/api/sessions/{session['id']}", 204)
    assert agents.run("seen")["text"] == "'by both'"  # GA-17


def test_ga_17_attach_by_id(server: LocalServer, agents: Sandbox, gateway: Daemon) -> None:
    if server.which == "debian":
        pytest.skip("jupyter-server 1.23 starts a new kernel where a session asks for a live one")
    agents.run("seen = 'by id'")
    before = Jupyter(gateway.url, gateway.key).kernel_ids()
    session = server.session({"id": kernel_of(agents)})
    assert session["kernel"]["id"] == kernel_of(agents)
    with browser(server, kernel_of(agents)) as ws:
        assert "by id" in shown(ws.execute("seen")[1])
    server.call("DELETE", f"/api/sessions/{session['id']}", 204)
    assert agents.run("seen")["text"] == "'by id'" and Jupyter(gateway.url, gateway.key).kernel_ids() == before


def test_ga_15_16_large_output_and_binary_comms_leave_the_connection(notebook: Channels) -> None:
    """GA-15, GA-16: either would end the server's reading."""
    _, published = notebook.execute("print('x' * 12_000_000)\nfrom IPython.display import HTML\nHTML('y' * 12_000_000)")
    assert len(texts(published)) == 12_000_001 and "is not shown" in shown([m for m in published if m["header"]["msg_type"] == "execute_result"])
    notebook.execute("from comm import create_comm\nc = create_comm(target_name='t', data={}, buffers=[b'\\xff'])\nc.send({}, buffers=[b'\\0'])")
    assert notebook.execute("1")[0]["content"]["status"] == "ok"


@pytest.mark.parametrize("which", SERVERS)
def test_ga_07_17_the_servers_end(which: str, gateway: Daemon, remote: Client, agents: Sandbox) -> None:
    """GA-07, GA-17: it deletes every kernel it knows. What it had started ends, what it was attached to goes on."""
    agents.run("kept = 'yes'")
    with LocalServer(which, gateway.url, gateway.key) as server:
        own = server.session({"name": TEMPLATE})["kernel"]["id"]
        server.session({"name": f"ctx-{kernel_of(agents)}"})
        assert {own, kernel_of(agents)} <= set(server.kernel_ids())
        server.stop()
    wait_for(lambda: own not in Jupyter(gateway.url, gateway.key).kernel_ids())
    assert agents.run("kept")["text"] == "'yes'"


@pytest.mark.parametrize("which", SERVERS)
def test_ga_18_the_gateway_is_killed(which: str) -> None:
    with Daemon(listen=f"127.0.0.1:{free_port()}") as gateway, Client(gateway.url, gateway.key).sandbox(template=TEMPLATE) as agents, \
            LocalServer(which, gateway.url, gateway.key) as server:
        own = server.session({"name": TEMPLATE})["kernel"]["id"]
        server.session({"name": f"ctx-{kernel_of(agents)}"})
        with browser(server, own) as ws, browser(server, kernel_of(agents)) as attached:
            for one in (ws, attached):
                one.execute("x = 42")
            before = sorted(server.kernel_ids())
            gateway.urls.clear()
            os.kill(gateway.gateway_pid(), signal.SIGKILL)
            wait_for(lambda: gateway.urls, 30)
            wait_for(lambda: server.http.get("/api/kernels").status_code == 200, 30)
            assert sorted(server.kernel_ids()) == before
            for one in (ws, attached):
                assert comes_back(one), server.log()


def comes_back(ws: Channels) -> bool:
    """The server connects anew behind the browser's back; what is sent meanwhile is lost."""
    def asked() -> Any:
        msg_id = ws.send("execute_request", {"code": "x"})
        try:
            return ws.answer(msg_id, 0.5)
        except TimeoutError:
            return None
    reply, published = wait_for(asked, 30)
    return reply["content"]["status"] == "ok" and "42" in shown(published) and types(published)[-1] == "idle"
