"""What two clients say, in their order, as data: jupyter_server's gateway client (as its version 1.23.3 was heard), and @jupyterlab/services
when a notebook is opened. `$ID` and `$SID` are those of the answers before; `$T` is the key."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from harness.client import Client
from harness.daemon import TEMPLATE, Daemon
from harness.jupyter import Channels, check_error, check_model, texts

pytestmark = pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions")

# method, target, body, status, what the answer is: the model of a kernel or a session, a list of kernels that has it or not, JSON that has a
# key, nothing, or an error.
GATEWAY_CLIENT = [
    ("GET", "/api/kernelspecs", None, 200, "kernelspecs"),
    ("POST", "/api/kernels", {"name": "python3", "env": {"KERNEL_LAUNCH_TIMEOUT": "40", "KERNEL_WORKING_DIR": "/home/me/notebooks"}}, 201, "kernel"),
    ("GET", "/api/kernels/$ID", None, 200, "kernel"),
    ("GET", "/api/kernels", None, 200, "listed"),
    ("WS", "/api/kernels/$ID/channels", None, 101, "legacy"),
    ("POST", "/api/kernels/$ID/interrupt", {}, 204, "nothing"),
    ("POST", "/api/kernels/$ID/restart", {}, 200, "kernel"),
    ("GET", "/api/kernelspecs/nope", None, 404, "error"),
    ("DELETE", "/api/kernels/$ID", None, 204, "nothing"),
    ("GET", "/api/kernels", None, 200, "gone"),
    ("POST", "/api/kernels", {"name": None, "env": {}}, 201, "kernel"),
    ("DELETE", "/api/kernels/$ID", None, 204, "nothing"),
]
NOTEBOOK = {"path": "n.ipynb", "type": "notebook", "name": "n.ipynb", "kernel": {"name": "python3"}}
SERVICES = [
    ("GET", "/api/kernelspecs?1700000000000", None, 200, "kernelspecs"),
    ("GET", "/api/kernels?1700000000001", None, 200, "gone"),
    ("GET", "/api/sessions?1700000000002", None, 200, "list"),
    ("GET", "/api/me?permissions=%7B%7D", None, 200, "identity"),
    ("POST", "/api/sessions?1700000000003", NOTEBOOK, 201, "session"),
    ("WS", "/api/kernels/$ID/channels?session_id=5d3c&token=$T", None, 101, "v1"),
    ("PATCH", "/api/sessions/$SID", {"path": "m.ipynb"}, 200, "session"),
    ("POST", "/api/kernels/$ID/restart", None, 200, "kernel"),
    ("WS", "/api/kernels/$ID/channels?session_id=5d3c&token=$T", None, 101, "v1"),
    ("DELETE", "/api/sessions/$SID", None, 204, "nothing"),
    ("GET", "/api/sessions/$SID", None, 404, "error"),
    ("GET", "/api/kernels", None, 200, "gone"),
]


class Session:
    def __init__(self, daemon: Daemon):
        self.daemon, self.names = daemon, {"$T": str(daemon.key), "$ID": "", "$SID": ""}

    def ask(self, method: str, target: str, body: Any) -> httpx.Response:
        """Each on a connection of its own, as the gateway client does."""
        headers = {"Authorization": f"token {self.daemon.key}", "Accept-Encoding": "gzip", "Connection": "close"}
        content = {} if body is None else {"content": json.dumps(body), "headers": {**headers, "Content-Type": "application/json"}}
        return httpx.request(method, self.daemon.url + target, **{"headers": headers, "timeout": 60, **content})

    def socket(self, target: str, protocol: str) -> None:
        path, _, query = target.partition("?")
        key = {} if "token=" in query else {"Authorization": f"token {self.daemon.key}"}
        with Channels(Client(self.daemon.url, self.daemon.key), path.split("/")[3], v1=protocol == "v1", query=query, headers=key) as ws:
            assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"
            assert texts(ws.execute("print('hi')")[1]) == "hi\n"

    def check(self, answer: httpx.Response, what: str) -> None:
        body = answer.json() if answer.content else None
        if what == "kernel":
            check_model(body)
            self.names["$ID"] = body["id"]
        elif what == "session":
            check_model(body["kernel"])
            assert body["notebook"] == {"path": body["path"], "name": body["name"]} and body["type"] == "notebook"
            self.names.update({"$ID": body["kernel"]["id"], "$SID": body["id"]})
        elif what in ("listed", "gone"):
            assert (self.names["$ID"] in [model["id"] for model in body]) == (what == "listed")
        elif what == "list":
            assert isinstance(body, list)
        elif what == "error":
            check_error(answer)
        elif what == "nothing":
            assert body is None
        else:
            assert what in body
        if answer.status_code == 201:
            assert answer.headers["location"].endswith(body["id"])


@pytest.mark.parametrize("transcript", [GATEWAY_CLIENT, SERVICES], ids=["gateway-client", "jupyterlab-services"])
def test_ga_10_sv_17_transcript(transcript: list[tuple[str, str, Any, int, str]], daemon: Daemon) -> None:
    session = Session(daemon)
    for method, target, body, status, what in transcript:
        for name, value in session.names.items():
            target = target.replace(name, value)
        if method == "WS":
            session.socket(target, what)
            continue
        answer = session.ask(method, target, body)
        assert answer.status_code == status, f"{method} {target}: {answer.status_code} {answer.text}"
        session.check(answer, what)
