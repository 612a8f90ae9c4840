"""Clients of an "existing Jupyter server": jupyter-kernel-client, and what VS Code asks for when it connects, in its order."""

from __future__ import annotations

import json
import subprocess
import uuid

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import ROOT, TEMPLATE, Daemon
from harness.jupyter import Channels, Jupyter, kernel_of, texts
from harness.jupyter_server import VENV, why_not

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions")


@pytest.mark.skipif(bool(why_not("current")), reason=why_not("current"))
def test_jupyter_kernel_client(daemon: Daemon, sandbox: Sandbox) -> None:
    """By the default protocol: that of v1 is broken in its version 1.0.2, which reads no message."""
    sandbox.run("kept = 'alive'")
    jupyter = Jupyter(daemon.url, daemon.key)
    before = jupyter.kernel_ids()
    # -P: the modules of the harness have names that others have too.
    ended = subprocess.run([VENV / "bin" / "python", "-P", ROOT / "tests" / "e2e" / "harness" / "kernel_client.py", daemon.url, daemon.key,
                            kernel_of(sandbox)], capture_output=True, text=True, timeout=90)
    assert ended.returncode == 0, ended.stderr
    saw = json.loads(ended.stdout)
    assert saw["id"] in saw["listed"] and kernel_of(sandbox) in saw["listed"]
    assert saw["run"]["status"] == "ok" and [o.get("text") or o["data"]["text/plain"] for o in saw["run"]["outputs"]] == ["out\n", "42"]
    assert saw["error"] == "error" and saw["interrupted"] == "error" and "x" in saw["variables"]
    assert saw["kept"] == "5" and saw["after restart"] == "False" and saw["live"] == "'alive'"
    assert jupyter.kernel_ids() == before  # its own has gone, the one it was attached to has not
    assert sandbox.run("kept")["text"] == "'alive'"


def test_sv_26_27_what_vs_code_does(daemon: Daemon, client: Client, sandbox: Sandbox) -> None:
    """SV-26, SV-27; vscode-jupyter#730, #13332, #14191, #14215: it connects without /api/contents."""
    with httpx.Client(base_url=daemon.url, timeout=60) as nobody:  # without key, redirects not followed
        assert nobody.get("/hub/api").status_code == 404
        assert nobody.get("/tree?").status_code == 200
    server = Jupyter(daemon.url, daemon.key)
    server.get(f"/api/kernels?token={daemon.key}&{uuid.uuid4().int}")
    name = server.get("/api/kernelspecs")["default"]
    live = [s for s in server.get("/api/sessions") if s["kernel"]["id"] == kernel_of(sandbox)]
    assert len(live) == 1 and live[0]["type"] == "console"
    # Older ones want a file to stand behind the session, and go on without.
    server.call("POST", "/api/contents", 404, json={"type": "notebook"})
    path = f"{uuid.uuid4()}.ipynb"
    session = server.post("/api/sessions", {"path": path, "type": "notebook", "name": path, "kernel": {"name": name}})
    assert session["kernel"]["name"] == name and session["notebook"]["path"] == path
    query = f"session_id={uuid.uuid4()}&token={daemon.key}"
    with Channels(client, session["kernel"]["id"], headers={}, query=query) as ws:
        assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"
        assert texts(ws.execute("print('from VS Code')")[1]) == "from VS Code\n"
        server.call("POST", f"/api/kernels/{session['kernel']['id']}/interrupt", 204)
    server.call("DELETE", f"/api/sessions/{session['id']}", 204)
    assert session["kernel"]["id"] not in server.kernel_ids()
    sandbox.run("seen = 'by the agent'")
    attached = server.post("/api/sessions", {"path": f"{uuid.uuid4()}.ipynb", "type": "notebook", "name": "n", "kernel": live[0]["kernel"]})
    with Channels(client, attached["kernel"]["id"], headers={}, query=query) as ws:
        assert "by the agent" in json.dumps([m["content"] for m in ws.execute("seen")[1]])
    server.call("DELETE", f"/api/sessions/{attached['id']}", 204)
    assert sandbox.run("seen")["text"] == "'by the agent'"
