"""Jupyter's REST API. The ids GA- and SV- are those of the contract: how JupyterLab attaches by --gateway-url (GA) and how
clients of an existing server do (SV)."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, wait_for
from harness.jupyter import Channels, Jupyter, check_error, check_model
from harness.jupyter_server import free_port
from websockets.exceptions import InvalidStatus

NOWHERE = "11111111-1111-4111-8111-111111111111"
SECRET = "a-secret-of-the-client"
UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
           "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}


@pytest.fixture(scope="module")
def jupyter(daemon: Daemon) -> Jupyter:
    return Jupyter(daemon.url, daemon.key)


@pytest.fixture
def kernel(jupyter: Jupyter) -> Iterator[dict[str, Any]]:
    model = jupyter.post("/api/kernels", {"name": TEMPLATE})
    yield model
    jupyter.http.delete(f"/api/kernels/{model['id']}")


@pytest.fixture(scope="module")
def attached(client: Client, sandbox: Sandbox) -> Iterator[Client]:
    """A key that may attach to `sandbox` and no more."""
    key = client.post("/v1/keys", {"scopes": [f"attach:{sandbox.id}"]}, expect=201)
    c = Client(client.url, key["key"])
    yield c
    c.close()
    client.delete(f"/v1/keys/{key['id']}")


def context_of(sandbox: Sandbox) -> str:
    return str(sandbox.get()["default_context"])


def sandbox_of(client: Client, kernel_id: str) -> dict[str, Any]:
    context = client.get(f"/v1/contexts/{kernel_id}")
    return dict(client.get(f"/v1/sandboxes/{context['sandbox']}"))


# --- What is open, keys, errors --------------------------------------------------------------------


def test_sv_01_version_needs_no_key(daemon: Daemon) -> None:
    open_ = Jupyter(daemon.url, None)
    assert re.fullmatch(r"\d+\.\d+\.\d+", open_.get("/api")["version"])


def test_sv_26_what_vs_code_asks_first(daemon: Daemon) -> None:
    open_ = Jupyter(daemon.url, None)
    assert open_.call("GET", "/tree?", 200).headers["content-type"].startswith("text/html")
    open_.call("GET", "/hub/api", 404)


def test_sv_18_options_without_a_key() -> None:
    with Daemon("--cors-origins", "https://lab.example") as d:
        open_ = Jupyter(d.url, None)
        assert "access-control-allow-origin" not in open_.call("OPTIONS", "/api/kernels", 204).headers
        asked = open_.call("OPTIONS", "/api/kernels", 204, headers={"Origin": "https://lab.example",
                                                                   "Access-Control-Request-Method": "POST"})
        assert asked.headers["access-control-allow-origin"] == "https://lab.example"
        assert "PATCH" in asked.headers["access-control-allow-methods"]
        assert "authorization" in asked.headers["access-control-allow-headers"].lower()
        answer = Jupyter(d.url, d.key).call("GET", "/api/kernels", 200, headers={"Origin": "https://lab.example"})
        assert answer.headers["access-control-allow-origin"] == "https://lab.example"


@pytest.mark.parametrize("scheme", ["token", "Token", "Bearer", "bearer"])
def test_keys_by_header(daemon: Daemon, scheme: str) -> None:
    Jupyter(daemon.url, daemon.key, scheme).get("/api/kernels")


@pytest.mark.parametrize("header", [None, "token", "token nope", "None abc", "Basic YTpi", "Bearer"])
def test_ga_13_no_key_and_wrong_keys_are_403(daemon: Daemon, header: str | None) -> None:
    open_ = Jupyter(daemon.url, None)
    answer = open_.call("GET", "/api/kernels", 403, headers={"Authorization": header} if header is not None else {})
    assert answer.json()["message"] == "Forbidden"


def test_keys_in_urls_do_not_reach_logs() -> None:
    with Daemon("--log-level", "debug") as d:
        open_ = Jupyter(d.url, None)
        open_.get(f"/api/kernels?token={d.key}&1692000000000")
        open_.call("GET", f"/api/kernels?token=wrong-{SECRET}", 403)
        open_.call("GET", f"/api/kernels/{NOWHERE}/channels?session_id=x&token={d.key}", 404)
        for key, status in ((d.key, 404), (f"wrong-{SECRET}", 403)):  # GA-19
            open_.call("GET", f"/?token={key}/api/kernels/{NOWHERE}/channels", status, headers=UPGRADE)
        assert d.key and d.key not in d.log() and SECRET not in d.log()


def test_ga_13_sv_20_keyless_serves_the_empty_credential() -> None:
    with Daemon(auth=False) as d:
        assert Jupyter(d.url, "").get("/api/kernels") == []
        assert Jupyter(d.url, None).get("/api/kernels") == []
        Jupyter(d.url, "").call("GET", "/api/kernels", 403, headers={"Origin": "https://evil.example"})
        Jupyter(d.url, "").call("POST", "/api/kernels", 415, content=b"{}", headers={"Content-Type": "text/plain"})


def test_ga_14_the_base_path_is_lower_case(daemon: Daemon, jupyter: Jupyter, sandbox: Sandbox) -> None:
    """A gateway's client makes the WebSocket's URL of the other like this; VS Code takes a path with /user/ for JupyterHub."""
    assert daemon.url == daemon.url.lower() and daemon.url.count("http") == 1
    client = Client(daemon.url.lower(), daemon.key)  # Channels puts ws in the place of http
    with Channels(client, context_of(sandbox), v1=False) as ws:
        assert ws.ask("kernel_info_request")[0]["content"]["status"] == "ok"
    for url in (jupyter.call("POST", "/api/kernels", 201, json={"name": f"ctx-{context_of(sandbox)}"}).headers["location"], *logos(jupyter)):
        assert url == url.lower() and "http" not in url and "/user/" not in url
    for path in ("/user/ann/api", "/user/ann/tree", "/API/kernels"):
        assert jupyter.http.get(path).status_code == 404


def logos(jupyter: Jupyter) -> list[str]:
    return [url for spec in jupyter.get("/api/kernelspecs")["kernelspecs"].values() for url in spec["resources"].values()]


NEGATIVE = [
    # method, path, body, status, what the message says
    ("GET", f"/api/kernels/{NOWHERE}", None, 404, f"Kernel does not exist: {NOWHERE}"),
    ("DELETE", f"/api/kernels/{NOWHERE}", None, 404, f"Kernel does not exist: {NOWHERE}"),
    ("POST", f"/api/kernels/{NOWHERE}/interrupt", b"{}", 404, "Kernel does not exist"),
    ("POST", f"/api/kernels/{NOWHERE}/restart", b"{}", 404, "Kernel does not exist"),
    ("GET", f"/api/kernels/{NOWHERE}/channels", None, 404, ""),
    ("GET", "/api/kernels/no-uuid", None, 404, "Kernel does not exist"),
    ("GET", "/api/kernels/%2e%2e%2f", None, 404, ""),
    ("GET", "/api/kernels/%00", None, 404, ""),
    ("GET", "/api/kernels/" + "a" * 3000, None, 404, ""),
    ("POST", "/api/kernels", b"{bad", 400, "Invalid JSON in body of request"),
    ("POST", "/api/kernels", b"[]", 400, ""),
    ("POST", "/api/kernels", b"null", 400, ""),
    ("POST", "/api/kernels", b'{"name":"nope"}', 404, "Kernel spec nope not found"),
    ("POST", "/api/kernels", b'{"name":5}', 400, "name"),
    ("POST", "/api/kernels", b'{"env":[]}', 400, "env"),
    ("POST", "/api/kernels", b'{"kernel_id":"no-uuid"}', 400, "UUID"),
    ("POST", "/api/kernels", b'{"env":{"KERNEL_ID":"$(id)"}}', 400, "UUID"),
    ("POST", "/api/kernels", b'{"name":"ctx-nope"}', 404, "Kernel does not exist"),
    ("POST", "/api/kernels", b'{"name":"' + b"a" * 500 + b'"}', 404, "not found"),
    ("POST", "/api/kernels", b'{"name":"$(id)`{{7*7}}\\n"}', 404, "not found"),
    ("PUT", "/api/kernels", b"{}", 405, "Method Not Allowed"),
    ("PATCH", f"/api/kernels/{NOWHERE}", b"{}", 405, "Method Not Allowed"),
    ("GET", "/api/kernelspecs/nope", None, 404, "nope not found"),
    ("GET", "/kernelspecs/nope/logo-64x64.png", None, 404, ""),
    ("GET", f"/kernelspecs/{TEMPLATE}/kernel.json", None, 404, ""),
    ("GET", f"/kernelspecs/{TEMPLATE}/..%2f..%2fetc%2fpasswd", None, 404, ""),
    ("GET", f"/api/sessions/{NOWHERE}", None, 404, "Session not found"),
    ("DELETE", f"/api/sessions/{NOWHERE}", None, 404, "Session not found"),
    ("PATCH", f"/api/sessions/{NOWHERE}", b"{}", 404, "Session not found"),
    ("POST", "/api/sessions", b"", 400, "No JSON data"),
    ("POST", "/api/sessions", b"{bad", 400, "Invalid JSON"),
    ("POST", "/api/sessions", b'{"type":"notebook","kernel":{"name":"python3"}}', 400, "Missing field in JSON data: path"),
    ("POST", "/api/sessions", b'{"path":"a.ipynb","kernel":{"name":"python3"}}', 400, "Missing field in JSON data: type"),
    ("POST", "/api/sessions", b'{"path":"a.ipynb","type":"notebook","kernel":"python3"}', 400, "kernel"),
    ("POST", "/api/sessions", b'{"path":"a","type":"notebook","kernel":{"id":"' + NOWHERE.encode() + b'"}}', 404, "does not exist"),
    ("POST", "/api/sessions", b'{"path":"a","type":"' + b"t" * 65 + b'","kernel":{"id":"x"}}', 400, "type is longer than 64"),
    ("POST", "/api/sessions", b'{"path":"' + b"p" * 4097 + b'","type":"notebook"}', 400, "path is longer than 4096"),
    ("POST", "/api/sessions", b'{"path":"a","name":"' + b"n" * 1025 + b'","type":"notebook"}', 400, "name is longer than 1024"),
    ("GET", "/api/me?permissions=%7Bbad", None, 400, ""),
    ("GET", "/api/me?permissions=" + "a" * 5000, None, 400, "permissions"),
    ("GET", "/api/contents", None, 404, "Not Found"),
    ("POST", "/api/contents", b"{}", 404, "Not Found"),
    ("GET", "/api/terminals", None, 404, "Not Found"),
    ("GET", "/api/nope/nope", None, 404, "Not Found"),
    ("DELETE", "/api", None, 405, "Method Not Allowed"),
]


@pytest.mark.parametrize("method, path, body, status, says", NEGATIVE, ids=lambda v: str(v)[:60])
def test_ga_12_sv_06_to_08_negative_table(jupyter: Jupyter, method: str, path: str, body: bytes | None, status: int, says: str) -> None:
    before = jupyter.kernel_ids()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    answer = jupyter.call(method, path, status, content=body, headers=headers)
    assert says in answer.json()["message"], answer.text
    assert jupyter.kernel_ids() == before  # never a surprise kernel


def test_body_at_its_cap_and_over_it() -> None:
    with Daemon("--limits-body-bytes", "64KiB") as d:
        for size, status in ((65536, 404), (65537, 413)):
            body = b'{"name":"nope"' + b" " * (size - 15) + b"}"
            Jupyter(d.url, d.key).call("POST", "/api/kernels", status, content=body)


def test_sv_13_unknown_kernel_is_501_with_a_short_message(jupyter: Jupyter) -> None:
    answer = jupyter.call("POST", "/api/sessions", 501, json={"path": "x", "type": "notebook", "kernel": {"name": "nope"}})
    assert answer.json()["short_message"] == "nope not found"


def test_rest_with_a_foreign_origin_and_a_key(jupyter: Jupyter) -> None:
    jupyter.call("GET", "/api/kernels", 200, headers={"Origin": "https://evil.example"})


def test_upgrades_are_refused_before_they_open(daemon: Daemon, jupyter: Jupyter, sandbox: Sandbox) -> None:
    open_ = Jupyter(daemon.url, None)
    live = f"/api/kernels/{context_of(sandbox)}/channels"
    open_.call("GET", live, 403, headers=UPGRADE)
    jupyter.call("GET", f"/api/kernels/{NOWHERE}/channels", 404, headers=UPGRADE)
    jupyter.call("GET", live, 403, headers={**UPGRADE, "Origin": "https://evil.example"})


# --- Status, me, kernelspecs -----------------------------------------------------------------------


def test_sv_02_status(jupyter: Jupyter, sandbox: Sandbox) -> None:
    status = jupyter.get("/api/status")
    datetime.strptime(status["started"], "%Y-%m-%dT%H:%M:%S.%fZ")
    datetime.strptime(status["last_activity"], "%Y-%m-%dT%H:%M:%S.%fZ")
    assert status["kernels"] == len(jupyter.kernel_ids()) and isinstance(status["connections"], int)


def test_sv_03_me(jupyter: Jupyter, attached: Client) -> None:
    asked = {"permissions": json.dumps({"kernels": ["read", "write"], "contents": []})}
    me = jupyter.get("/api/me", params=asked)
    for name in ("username", "name", "display_name", "initials"):
        assert me["identity"][name], me
    assert me["identity"]["avatar_url"] is None and me["identity"]["color"] is None
    assert me["permissions"] == {"kernels": ["read", "write"], "contents": []}
    assert jupyter.get("/api/me")["permissions"] == {}
    visitor = Jupyter(attached.url, attached.key)
    assert visitor.get("/api/me", params=asked)["permissions"] == {"kernels": ["read"], "contents": []}


def check_spec(spec: dict[str, Any]) -> None:
    assert isinstance(spec["name"], str) and isinstance(spec["resources"], dict)
    assert isinstance(spec["spec"]["argv"], list)
    for name in ("language", "display_name"):
        assert isinstance(spec["spec"][name], str) and spec["spec"][name]


def test_ga_01_sv_10_kernelspecs(jupyter: Jupyter) -> None:
    answer = jupyter.get("/api/kernelspecs?user=someone&1692000000000")
    assert answer["default"] == next(iter(answer["kernelspecs"]))  # JupyterLab takes the first one before it knows the default
    assert "code-interpreter-python-debian" not in answer["kernelspecs"]  # hidden: can be named alone
    for name, spec in answer["kernelspecs"].items():
        assert spec["name"] == name
        check_spec(spec)


@pytest.mark.parametrize("name", [TEMPLATE, "code-interpreter-python-debian", "python3", "python"])
def test_ga_02_sv_11_one_kernelspec(jupyter: Jupyter, name: str) -> None:
    spec = jupyter.get(f"/api/kernelspecs/{name}")
    check_spec(spec)
    assert spec["spec"]["language"] == "python"
    assert "kernelspecs" in jupyter.get(f"/api/kernelspecs?user=ann/{name}")  # how a client with a user's name spells the same


@pytest.mark.parametrize("name,template", [
    *((name, "code-interpreter-node") for name in ("javascript", "js", "node", "JavaScript", "typescript", "ts")),
    *((name, "code-interpreter-r") for name in ("R", "r", "ir"))])
def test_kernels_by_the_names_of_languages(jupyter: Jupyter, client: Client, name: str, template: str) -> None:
    if template not in [t["name"] for t in client.get("/v1/templates")["items"]]:
        pytest.skip(f"{template} is not built here")
    assert jupyter.get(f"/api/kernelspecs/{name}")["name"] == template
    if name in ("javascript", "R"):  # the others start no other kernel
        model = jupyter.post("/api/kernels", {"name": name})
        assert sandbox_of(client, model["id"])["template"] == template
        jupyter.call("DELETE", f"/api/kernels/{model['id']}", 204)


def test_ga_03_logos() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as specs:
        Path(specs).chmod(0o755)
        folder = Path(specs) / "debian-python"
        folder.mkdir(mode=0o755)
        (folder / "kernel.json").write_text(json.dumps({"argv": ["/bin/true", "{connection_file}"], "display_name": "Mine",
                                                        "language": "python"}))
        (folder / "logo-64x64.png").write_bytes(b"\x89PNG not really")
        with Daemon("--kernelspec-dirs", specs) as d:
            jupyter = Jupyter(d.url, d.key)
            spec = jupyter.get("/api/kernelspecs/debian-python")
            assert spec["resources"] == {"logo-64x64": "/kernelspecs/debian-python/logo-64x64.png"}
            logo = jupyter.call("GET", spec["resources"]["logo-64x64"], 200)
            assert logo.content == b"\x89PNG not really" and logo.headers["content-type"] == "image/png"
            jupyter.call("GET", "/kernelspecs/debian-python/logo-32x32.png", 404)


@pytest.mark.smoke
def test_ga_17_live_contexts_are_kernelspecs(jupyter: Jupyter, client: Client) -> None:
    with client.sandbox(template=TEMPLATE, name=f"agent-{uuid.uuid4().hex[:8]}") as sb:
        context, name = context_of(sb), sb.get()["name"]
        spec = jupyter.get("/api/kernelspecs")["kernelspecs"][f"ctx-{context}"]
        assert spec["spec"]["display_name"] == f"Sandal: {name}/python ({sb.id})"
        sb.run("kept = 42")
        model = jupyter.post("/api/kernels", {"name": f"ctx-{context}", "env": {}})
        assert model["id"] == context
        jupyter.call("DELETE", f"/api/kernels/{context}", 204)  # GA-17: what JupyterLab sends when it ends
        assert context in jupyter.kernel_ids()
        assert sb.run("kept")["text"] == "42"


# --- Kernels ---------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_ga_04_to_09_sv_04_to_09_kernels_life(jupyter: Jupyter, client: Client) -> None:
    answer = jupyter.call("POST", "/api/kernels", 201, json={"name": TEMPLATE, "env": {}})
    model = answer.json()
    check_model(model)
    assert model["name"] == TEMPLATE
    kernel_id = model["id"]
    assert answer.headers["location"] == f"/api/kernels/{kernel_id}"
    record = sandbox_of(client, kernel_id)
    assert record["default_context"] == kernel_id and record["metadata"]["jupyter.kernelspec"] == TEMPLATE
    assert int(kernel_id[:6], 16) == int(record["node"], 36)  # ids of kernels carry the node that they are on
    assert f"ctx-{kernel_id}" not in jupyter.get("/api/kernelspecs")["kernelspecs"]
    check_model(jupyter.get(f"/api/kernels/{kernel_id}"))
    listed = jupyter.get("/api/kernels")
    assert kernel_id in [one["id"] for one in listed]
    for one in listed:
        check_model(one)
    assert jupyter.call("POST", f"/api/kernels/{kernel_id}/interrupt", 204, content=b"{}").content == b""
    sb = Sandbox(client, record)
    sb.run("x = 1")
    restarted = jupyter.call("POST", f"/api/kernels/{kernel_id}/restart", 200, content=b"{}").json()
    check_model(restarted)
    assert restarted["id"] == kernel_id
    assert sb.run("'x' in globals()")["text"] == "False"
    assert jupyter.call("DELETE", f"/api/kernels/{kernel_id}", 204).content == b""
    assert kernel_id not in jupyter.kernel_ids()
    jupyter.call("GET", f"/api/kernels/{kernel_id}", 404)
    client.error("GET", f"/v1/sandboxes/{record['id']}", 404, "sandbox_not_found")


@pytest.mark.parametrize("body", [b"", b"{}", b'{"name":null,"env":{}}', b'{"path":"a/b.ipynb"}'])
def test_ga_04_sv_05_no_name_is_the_default_kernel(jupyter: Jupyter, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    model = jupyter.call("POST", "/api/kernels", 201, content=body, headers=headers).json()
    assert model["name"] == jupyter.get("/api/kernelspecs")["default"]
    jupyter.call("DELETE", f"/api/kernels/{model['id']}", 204)


def test_sv_05_a_client_chooses_the_id(jupyter: Jupyter) -> None:
    for body in ({"kernel_id": str(uuid.uuid4())}, {"env": {"KERNEL_ID": str(uuid.uuid4())}}):
        chosen = body.get("kernel_id") or body["env"]["KERNEL_ID"]  # type: ignore[index]
        assert jupyter.post("/api/kernels", {"name": TEMPLATE, **body})["id"] == chosen
        assert chosen in jupyter.kernel_ids() and jupyter.get(f"/api/kernels/{chosen}")["id"] == chosen
        jupyter.call("POST", "/api/kernels", 409, json={"name": TEMPLATE, **body})
        jupyter.call("DELETE", f"/api/kernels/{chosen}", 204)
        jupyter.call("GET", f"/api/kernels/{chosen}", 404)


def test_ga_04_environment_by_allow_list() -> None:
    with Daemon("--jupyter-env", "KERNEL_*", "--jupyter-env", "LANGUAGE", "--log-level", "debug") as d:
        jupyter = Jupyter(d.url, d.key)
        env = {"KERNEL_WORKING_DIR": "/nowhere/at/all", "KERNEL_USERNAME": "ann", "LANGUAGE": "de",
               "JUPYTER_GATEWAY_AUTH_TOKEN": SECRET, "AWS_SECRET_ACCESS_KEY": SECRET, "PATH": "/nowhere",
               "KERNEL_BAD-NAME": "x", "KERNEL_NUMBER": 5}
        model = jupyter.post("/api/kernels", {"name": TEMPLATE, "env": env})
        client = Client(d.url, d.key)
        sb = Sandbox(client, sandbox_of(client, model["id"]))
        seen = sb.run("import os; {k: v for k, v in os.environ.items() if k in "
                      "('KERNEL_WORKING_DIR', 'KERNEL_USERNAME', 'LANGUAGE', 'KERNEL_NUMBER')}")["text"]
        assert eval(seen) == {"KERNEL_WORKING_DIR": "/nowhere/at/all", "KERNEL_USERNAME": "ann", "LANGUAGE": "de"}
        assert sb.run(f"import os; {SECRET!r} in str(os.environ) or os.environ['PATH'] == '/nowhere'")["text"] == "False"
        assert SECRET not in d.log() and SECRET not in json.dumps(sb.get())


def test_zq_06_parallel_starts_at_the_quota() -> None:
    """As many as there may be, each with the environment of its own request."""
    with Daemon("--limits-sandboxes", "4") as d:
        jupyter, client = Jupyter(d.url, d.key), Client(d.url, d.key)

        def one(i: int) -> httpx.Response:
            return jupyter.http.post("/api/kernels", json={"name": TEMPLATE, "env": {"KERNEL_NUMBER": str(i)}})

        with ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(one, range(12)))
        assert sorted(a.status_code for a in answers) == [201] * 4 + [403] * 8
        for i, answer in enumerate(answers):
            if answer.status_code == 201:
                sb = Sandbox(client, sandbox_of(client, answer.json()["id"]))
                assert sb.run("import os; os.environ['KERNEL_NUMBER']")["text"] == f"'{i}'"
            else:
                check_error(answer)


def test_one_chosen_id_at_once(jupyter: Jupyter) -> None:
    chosen = str(uuid.uuid4())
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: jupyter.http.post("/api/kernels", json={"name": TEMPLATE, "kernel_id": chosen}), range(4)))
    assert sorted(a.status_code for a in answers) == [201, 409, 409, 409]
    assert jupyter.kernel_ids().count(chosen) == 1
    jupyter.call("DELETE", f"/api/kernels/{chosen}", 204)


def test_restart_beside_delete(jupyter: Jupyter, client: Client) -> None:
    for _ in range(5):
        kernel_id = jupyter.post("/api/kernels", {"name": TEMPLATE})["id"]
        box = sandbox_of(client, kernel_id)["id"]
        with ThreadPoolExecutor(2) as pool:
            restart = pool.submit(jupyter.http.post, f"/api/kernels/{kernel_id}/restart")
            delete = pool.submit(jupyter.http.delete, f"/api/kernels/{kernel_id}")
        assert delete.result().status_code == 204
        assert restart.result().status_code in (200, 404, 500), restart.result().text
        jupyter.call("GET", f"/api/kernels/{kernel_id}", 404)
        client.error("GET", f"/v1/sandboxes/{box}", 404, "sandbox_not_found")


def test_one_path_at_once_is_one_session(jupyter: Jupyter) -> None:
    before = set(jupyter.kernel_ids())
    body = {"path": "raced.ipynb", "type": "notebook", "kernel": {"name": TEMPLATE}}
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: jupyter.http.post("/api/sessions", json=body), range(3)))
    assert [a.status_code for a in answers] == [201] * 3
    assert len({a.json()["id"] for a in answers}) == 1
    assert set(jupyter.kernel_ids()) - before == {answers[0].json()["kernel"]["id"]}
    jupyter.call("DELETE", f"/api/sessions/{answers[0].json()['id']}", 204)


def test_lifetime_is_the_operators() -> None:
    with Daemon("--jupyter-kernel-timeout", "77", "--jupyter-kernel-on-timeout", "kill") as d:
        jupyter, client = Jupyter(d.url, d.key), Client(d.url, d.key)
        model = jupyter.post("/api/kernels", {"name": TEMPLATE})
        record = sandbox_of(client, model["id"])
        assert record["timeout"] == 77 and record["on_timeout"] == "kill"


def test_sv_19_unknown_queries_are_ignored(jupyter: Jupyter) -> None:
    for path in ("/api/kernels", "/api/kernelspecs", "/api/sessions", "/api/status", "/api"):
        jupyter.get(f"{path}?1692000000000&no_track_activity=1&x&=y&%zz")


def test_kernels_of_others_do_not_exist(daemon: Daemon, client: Client, sandbox: Sandbox) -> None:
    key = client.post("/v1/keys", {"owner": "somebody-else", "scopes": ["use"]}, expect=201)
    other = Jupyter(daemon.url, key["key"])
    assert other.get("/api/kernels") == [] and other.get("/api/sessions") == []
    context = context_of(sandbox)
    other.call("GET", f"/api/kernels/{context}", 404)
    other.call("DELETE", f"/api/kernels/{context}", 404)
    other.call("POST", "/api/kernels", 404, json={"name": f"ctx-{context}"})
    assert not [name for name in other.get("/api/kernelspecs")["kernelspecs"] if name.startswith("ctx-")]
    client.delete(f"/v1/keys/{key['id']}")


# --- Attached --------------------------------------------------------------------------------------


def test_attach_keys_see_one_sandbox(attached: Client, sandbox: Sandbox, fresh: Sandbox, jupyter: Jupyter) -> None:
    visitor = Jupyter(attached.url, attached.key)
    context, other = context_of(sandbox), context_of(fresh)
    assert other in jupyter.kernel_ids()
    assert visitor.kernel_ids() == [context]
    assert [s["kernel"]["id"] for s in visitor.get("/api/sessions")] == [context]
    specs = visitor.get("/api/kernelspecs")
    assert list(specs["kernelspecs"]) == [f"ctx-{context}"] and specs["default"] == f"ctx-{context}"
    assert visitor.post("/api/kernels", {"name": None, "env": {}})["id"] == context
    visitor.call("POST", "/api/kernels", 403, json={"name": TEMPLATE})
    visitor.call("GET", f"/api/kernels/{other}", 403)
    visitor.call("DELETE", f"/api/kernels/{other}", 403)


def test_attach_keys_leave_and_may_not_restart(attached: Client, sandbox: Sandbox) -> None:
    visitor = Jupyter(attached.url, attached.key)
    context = context_of(sandbox)
    sandbox.run("state = 'kept'")
    visitor.call("POST", f"/api/kernels/{context}/restart", 403)
    visitor.call("POST", f"/api/kernels/{context}/interrupt", 204)
    visitor.call("DELETE", f"/api/kernels/{context}", 204)
    assert sandbox.run("state")["text"] == "'kept'"


def test_kernels_that_another_key_started_are_only_left(client: Client, daemon: Daemon, kernel: dict[str, Any]) -> None:
    owner = client.get("/v1/keys")["items"][0]["owner"]
    key = client.post("/v1/keys", {"owner": owner, "scopes": ["use"]}, expect=201)
    second = Jupyter(daemon.url, key["key"])
    second.call("DELETE", f"/api/kernels/{kernel['id']}", 204)
    assert kernel["id"] in second.kernel_ids()
    client.delete(f"/v1/keys/{key['id']}")


# --- Sessions --------------------------------------------------------------------------------------


def test_sv_27_contexts_are_sessions(jupyter: Jupyter, sandbox: Sandbox) -> None:
    context = context_of(sandbox)
    session = next(s for s in jupyter.get("/api/sessions") if s["kernel"]["id"] == context)
    assert session["type"] == "console" and sandbox.id in session["name"]
    assert jupyter.get(f"/api/sessions/{session['id']}") == session
    jupyter.call("DELETE", f"/api/sessions/{session['id']}", 204)
    assert context in jupyter.kernel_ids()


def test_sv_12_to_16_sessions_life(jupyter: Jupyter) -> None:
    body = {"path": "dir/ä n.ipynb", "type": "notebook", "name": None, "kernel": {"name": TEMPLATE, "id": None}}
    answer = jupyter.call("POST", "/api/sessions", 201, json=body)
    session = answer.json()
    assert answer.headers["location"] == f"/api/sessions/{session['id']}"
    assert session["path"] == "dir/ä n.ipynb" and session["name"] == "ä n.ipynb" and session["type"] == "notebook"
    assert session["notebook"] == {"path": session["path"], "name": session["name"]}
    check_model(session["kernel"])
    assert jupyter.post("/api/sessions", body) == session  # the path's session, not a second kernel
    assert [s["id"] for s in jupyter.get("/api/sessions") if s["kernel"]["id"] == session["kernel"]["id"]] == [session["id"]]
    moved = jupyter.call("PATCH", f"/api/sessions/{session['id']}", 200, json={"path": "m.ipynb", "name": "m"}).json()
    assert moved["path"] == "m.ipynb" and moved["name"] == "m" and moved["kernel"]["id"] == session["kernel"]["id"]
    assert jupyter.get(f"/api/sessions/{session['id']}")["path"] == "m.ipynb"
    jupyter.call("PATCH", f"/api/sessions/{session['id']}", 400, json={"kernel": {"id": NOWHERE}})
    jupyter.call("PATCH", f"/api/sessions/{session['id']}", 501, json={"kernel": {"name": "nope"}})
    changed = jupyter.call("PATCH", f"/api/sessions/{session['id']}", 200, json={"kernel": {"name": TEMPLATE}}).json()
    assert changed["kernel"]["id"] != session["kernel"]["id"]
    assert session["kernel"]["id"] not in jupyter.kernel_ids()
    jupyter.call("DELETE", f"/api/sessions/{session['id']}", 204)
    jupyter.call("GET", f"/api/sessions/{session['id']}", 404)
    assert changed["kernel"]["id"] not in jupyter.kernel_ids()


def test_a_session_on_a_live_context(jupyter: Jupyter, sandbox: Sandbox) -> None:
    context = context_of(sandbox)
    sandbox.run("state = 'kept'")
    made = jupyter.post("/api/sessions", {"path": "live.ipynb", "type": "notebook", "kernel": {"id": context}})
    assert made["kernel"]["id"] == context
    jupyter.call("DELETE", f"/api/sessions/{made['id']}", 204)
    assert sandbox.run("state")["text"] == "'kept'"


def test_sv_16_a_session_whose_kernel_has_gone(jupyter: Jupyter) -> None:
    sessions = [jupyter.post("/api/sessions", {"path": f"gone{i}.ipynb", "type": "notebook"}) for i in range(2)]
    for session in sessions:
        jupyter.call("DELETE", f"/api/kernels/{session['kernel']['id']}", 204)
    jupyter.call("DELETE", f"/api/sessions/{sessions[0]['id']}", 410)
    jupyter.call("GET", f"/api/sessions/{sessions[1]['id']}", 404)


def test_sessions_at_their_limit() -> None:
    with Daemon("--jupyter-sessions", "2") as d:
        jupyter, client = Jupyter(d.url, d.key), Client(d.url, d.key)
        sb = client.sandbox(template=TEMPLATE)
        kernel = {"kernel": {"id": context_of(sb)}, "type": "notebook"}
        for i in range(2):
            jupyter.post("/api/sessions", {"path": f"{i}", **kernel})
        jupyter.call("POST", "/api/sessions", 403, json={"path": "2", **kernel})
        assert len(jupyter.get("/api/sessions")) == 2
        for path in "345":  # no kernel is started for what will be refused, and none left
            jupyter.call("POST", "/api/sessions", 403, json={"path": path, "type": "notebook"})
        other = sb.context()["id"]
        jupyter.call("PATCH", f"/api/sessions/{other}", 403, json={"path": "x", "kernel": {"name": TEMPLATE}})
        assert [s["id"] for s in client.get("/v1/sandboxes")["items"]] == [sb.id]
        key = client.post("/v1/keys", {"owner": "somebody-else", "scopes": ["use"]}, expect=201)  # has a limit of its own
        assert Jupyter(d.url, key["key"]).post("/api/sessions", {"path": "0", "type": "notebook"})["path"] == "0"
        sb.delete()  # those of kernels that have gone make room
        assert jupyter.post("/api/sessions", {"path": "2", "type": "notebook"})["path"] == "2"


def test_starts_at_the_limit_leave_no_kernel() -> None:
    with Daemon("--jupyter-sessions", "1") as d:
        jupyter, client = Jupyter(d.url, d.key), Client(d.url, d.key)

        def one(i: int) -> int:
            body = {"path": f"{i}", "type": "notebook"}
            return jupyter.http.post("/api/sessions", json=body).status_code
        with ThreadPoolExecutor(3) as pool:  # all find room; when the kernels are there, one does
            codes = sorted(pool.map(one, range(3)))
        assert codes == [201, 403, 403]
        assert len(jupyter.get("/api/sessions")) == 1
        wait_for(lambda: len(client.get("/v1/sandboxes")["items"]) == 1)


def test_ga_18_sv_20_ids_and_sessions_outlive_the_gateway() -> None:
    with Daemon() as d:
        jupyter = Jupyter(d.url, d.key)
        chosen = str(uuid.uuid4())
        jupyter.post("/api/kernels", {"name": TEMPLATE, "kernel_id": chosen})
        session = jupyter.post("/api/sessions", {"path": "kept.ipynb", "type": "notebook", "kernel": {"name": TEMPLATE}})
        before = sorted(jupyter.kernel_ids())
        d.urls.clear()
        os.kill(d.gateway_pid(), signal.SIGKILL)
        wait_for(lambda: d.urls, 30)
        jupyter = Jupyter(d.url, d.key)
        answers: list[httpx.Response] = []

        def back() -> bool:
            answers.append(jupyter.http.get("/api/kernels"))
            return answers[-1].status_code == 200

        wait_for(back, 30)
        assert {a.status_code for a in answers} <= {200, 503}  # SV-20: never a short list
        assert sorted(k["id"] for k in answers[-1].json()) == before and chosen in before
        again = jupyter.get(f"/api/sessions/{session['id']}")
        assert again["path"] == "kept.ipynb" and again["kernel"]["id"] == session["kernel"]["id"]
        jupyter.call("DELETE", f"/api/kernels/{chosen}", 204)  # still the one that it started
        assert chosen not in jupyter.kernel_ids()


class Poll(threading.Thread):
    """What is answered, each time on a connection of its own, to who asks for kernels and sessions again and again."""

    def __init__(self, d: Daemon):
        super().__init__(daemon=True)
        self.base, self.headers = d.url, {"Authorization": f"token {d.key}", "Connection": "close"}
        self.seen: list[tuple[int, frozenset[str], str | None]] = []  # status or 0, kernels, Retry-After
        self.over = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self.base, headers=self.headers, timeout=60) as http:
            while not self.over.is_set():
                for path in ("/api/kernels", "/api/sessions"):
                    try:
                        answer = http.get(path)
                        rows = answer.json() if answer.status_code == 200 else []
                        ids = frozenset(row["kernel"]["id"] if "kernel" in row else row["id"] for row in rows)
                        self.seen.append((answer.status_code, ids, answer.headers.get("retry-after")))
                    except httpx.TransportError:
                        self.seen.append((0, frozenset(), None))
                time.sleep(0.001)  # who is refused would keep a core busy

    def saw(self, status: int, after: int = 0) -> int:
        """The place of the first such answer behind that one; 0: none yet."""
        return next((i for i, row in enumerate(self.seen) if i > after and row[0] == status), 0)

    def __enter__(self) -> "Poll":
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        self.join(60)


@pytest.mark.parametrize("killed", ["gateway", "daemon"])
def test_sv_20_all_is_listed_from_the_first_connection_on(killed: str) -> None:
    with Daemon(listen=f"127.0.0.1:{free_port()}") as d:
        jupyter, client = Jupyter(d.url, d.key), Client(d.url, d.key)
        boxes = [client.sandbox(template=TEMPLATE) for _ in range(2)]
        boxes += [Sandbox(client, sandbox_of(client, jupyter.post("/api/kernels", {"name": TEMPLATE})["id"])) for _ in range(2)]
        for box in boxes:
            assert box.run("kept = 42")["status"] == "ok"
        kernels = frozenset(context_of(box) for box in boxes)
        with Poll(d) as poll:
            wait_for(lambda: poll.saw(200))
            before = len(poll.seen)
            if killed == "gateway":
                os.kill(d.gateway_pid(), signal.SIGKILL)
            else:
                d.kill()
                d.start(60)
            wait_for(lambda: poll.saw(0, before))
            wait_for(lambda: poll.saw(200, poll.saw(0, before)), 30)
            for box in boxes:  # they are the same ones
                assert box.run("kept")["text"] == "42"
        assert {status for status, _, _ in poll.seen} <= {0, 200, 503}
        assert {ids for status, ids, _ in poll.seen if status == 200} == {kernels}


def test_sv_20_503_while_the_gateway_stops() -> None:
    """A list would lack what is being ended; a socket that was opened now would be closed at once."""
    with Daemon("--timeouts-drain", "3") as d:
        client = Client(d.url, d.key)
        box = client.sandbox(template=TEMPLATE)
        with Channels(client, context_of(box)) as ws, Poll(d) as poll:
            ws.send("execute_request", {"code": "import time; print('up', flush=True); time.sleep(600)"})
            ws.until(lambda m: m["header"]["msg_type"] == "stream")
            wait_for(lambda: poll.saw(200))
            stopped = threading.Thread(target=d.stop)
            stopped.start()
            first = wait_for(lambda: poll.saw(503))
            with pytest.raises(InvalidStatus) as refused:
                Channels(client, context_of(box))
            assert refused.value.response.status_code == 503
            assert ws.closed() == 1012
            stopped.join(60)
        assert 200 not in {status for status, _, _ in poll.seen[first:]}
        assert all(retry for status, _, retry in poll.seen if status == 503)
        assert {ids for status, ids, _ in poll.seen if status == 200} == {frozenset([box.record["default_context"]])}
