"""Bad input gets a clear error and costs nothing: over HTTP, raw sockets and the WebSocket."""

from __future__ import annotations

import json
import socket
import threading
from urllib.parse import urlsplit

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, rss_bytes, wait_for

JSON = {"Content-Type": "application/json"}


def raw(url: str, data: bytes, timeout: float = 10, half: bool = False) -> bytes:
    """Sends bytes, reads until the peer closes or falls silent."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout) as s:
        got = b""
        try:
            s.sendall(data)
            if not half:
                s.shutdown(socket.SHUT_WR)
            while True:
                piece = s.recv(65536)
                if not piece:
                    return got
                got += piece
        except OSError:
            return got


BODIES = [
    (b"", 400, "invalid_request"),
    (b"{", 400, "invalid_json"),
    (b"[]", 400, "invalid_request"),
    (b"null", 400, "invalid_request"),
    (b'{"code": 1}', 400, "invalid_request"),
    (b'{"code": null}', 400, "invalid_request"),
    (b"{}", 400, "invalid_request"),
    (b'{"code": "1", "cod": 2}', 400, "invalid_request"),
    (b'{"code": "1", "timeout": "5"}', 400, "invalid_request"),
    (b'{"code": "1", "timeout": -1}', 400, "invalid_request"),
    (b'{"code": "1", "code": "2"}', 400, "invalid_json"),
    (b'{"code": "a\x00b"}', 400, "invalid_json"),
    (b'{"code": "a\\u0000b"}', 400, None),
    (b'{"code": "\\ud800"}', 400, None),
    (b'{"code": "\xff\xfe"}', 400, "invalid_json"),
    (b'{"code": "1"} x', 400, "invalid_json"),
    (b"[" * 10000 + b"]" * 10000, 400, None),
    (b'{"metadata": ' + b'{"a":' * 10000 + b"1" + b"}" * 10000 + b"}", 400, None),
    (b'{"code": "1", "context": "nope"}', 404, "context_not_found"),
    (b'{"code": "1", "language": "cobol"}', 400, "language_not_found"),
    (b'{"code": "1", "on_input": "maybe"}', 400, "invalid_request"),
    (b'{"code": "1", "limits": {"output_bytes": 0}}', 400, "invalid_request"),
    (b'{"code": "1", "limits": {"output_bytes": 1e400}}', 400, None),
    (b'{"code": "1", "limits": {"nope": 1}}', 400, "invalid_request"),
    (b'{"code": "1", "env": {"A": 1}}', 400, "invalid_request"),
    (b'{"code": "1", "env": {"A=B": "1"}}', 400, "invalid_request"),
    (b'{"code": "1", "cwd": "/nowhere/at/all"}', None, None),
]


@pytest.mark.parametrize("body,status,code", BODIES, ids=[repr(b[0][:40]) for b in BODIES])
def test_body(sandbox: Sandbox, body: bytes, status: int | None, code: str | None) -> None:
    answer = sandbox.client.call("POST", sandbox.path + "/run_code", content=body, headers=JSON)
    if status is None:
        assert answer.status_code in (200, 400), answer.text
    else:
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error["message"] and (code is None or error["code"] == code), error
    assert sandbox.run("1")["text"] == "1"


@pytest.mark.parametrize("body,pointer", [
    ({"code": 1}, "/code"), ({}, "/code"), ({"code": "1", "x": 1}, "/x"), ({"code": "1", "limits": {"y": 1}}, "/limits/y"),
    ({"code": "1", "env": {"A": 1}}, "/env/A"), ({"code": "1", "stdin": [1]}, "/stdin/0")])
def test_pointer_names_the_field(sandbox: Sandbox, body: dict, pointer: str) -> None:
    error = sandbox.client.error("POST", sandbox.path + "/run_code", 400, "invalid_request", json=body)
    assert error["pointer"] == pointer


def test_routes_and_methods(client: Client, daemon: Daemon) -> None:
    client.error("GET", "/v1/nothing", 404, "not_found")
    client.error("GET", "/", 404, "not_found")
    answer = client.call("PUT", "/v1/sandboxes", json={})
    assert answer.status_code == 405 and "POST" in answer.headers["allow"]
    client.error("POST", "/v1/sandboxes", 415, "unsupported_media_type", content=b"{}", headers={"Content-Type": "text/plain"})
    for path in ("/v1/sandboxes/%2e%2e%2f%2e%2e", "/v1/sandboxes/%00", "/v1/sandboxes/" + "x" * 5000, "/v1/sandboxes/%ff"):
        answer = client.call("GET", path)
        assert 400 <= answer.status_code < 500 and answer.headers["content-type"].startswith("application/json"), answer.text


def test_what_later_issues_bring_is_told(sandbox: Sandbox) -> None:
    for method, path in (("POST", "/fork"), ("POST", "/snapshots")):
        answer = sandbox.client.call(method, sandbox.path + path, **({"json": {}} if method == "POST" else {}))
        assert answer.status_code == 501 and answer.json()["error"]["code"] == "not_supported", answer.text


def test_body_over_the_cap(client: Client, daemon: Daemon) -> None:
    size = 64 * 1024 * 1024
    before = rss_bytes(daemon.gateway_pid())
    head = (f"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n").encode()
    assert b" 413 " in raw(daemon.url, head + b"x" * 100000, half=True, timeout=3).split(b"\r\n")[0]
    for _ in range(5):
        try:
            answer = client.call("POST", "/v1/sandboxes", content=b"x" * size, headers=JSON)
            assert answer.status_code == 413
        except Exception as e:  # the connection may be cut while we still send
            assert "WriteError" in type(e).__name__ or "ReadError" in type(e).__name__ or "RemoteProtocol" in type(e).__name__, e
    wait_for(lambda: rss_bytes(daemon.gateway_pid()) < before + 24 * 1024 * 1024, 10)


RAW = [
    b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x00\x01\x02\x03" * 100, b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 100000 + b"\r\n\r\n",
    b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: nonsense\r\nConnection: Upgrade\r\n\r\n",
]


@pytest.mark.parametrize("data", RAW, ids=[repr(d[:30]) for d in RAW])
def test_malformed_http(daemon: Daemon, client: Client, data: bytes) -> None:
    pid = daemon.gateway_pid()
    got = raw(daemon.url, data, timeout=5)
    assert b"<html" not in got.lower(), got[:300]
    assert client.get("/v1/templates") and daemon.gateway_pid() == pid


def test_one_host_and_an_upgrade_are_needed(daemon: Daemon) -> None:
    """RFC 9112 section 3.2; RFC 9110 sections 15.5.22 and 7.8."""
    for lines in ("", "Host: localhost\r\nHost: localhost\r\n", "Host: a b\r\n"):
        got = raw(daemon.url, f"GET /healthz HTTP/1.1\r\n{lines}\r\n".encode(), half=True).decode()
        assert got.split()[1] == "400" and '"invalid_request"' in got and "Host" in got, got
    for path in ("/v1/ws", "/v1/sandboxes/sbx-x/ws"):
        answer = Client(daemon.url, None).call("GET", path)
        assert answer.status_code == 426 and answer.json()["error"]["code"] == "upgrade_required", answer.text
        assert answer.headers["upgrade"] == "websocket" and answer.headers["connection"] == "Upgrade"


def test_a_line_break_and_a_semicolon_are_bytes_of_a_path(sandbox: Sandbox) -> None:
    for name in ("a%0Ab", "a%0D%0Ab", "a;b.txt"):
        url = f"{sandbox.path}/fs/file?path={name}"
        assert sandbox.client.call("PUT", url, content=name.encode(), headers={"Content-Type": "application/octet-stream"}).status_code == 201
        assert sandbox.client.call("GET", url).content == name.encode()


def test_an_encoded_slash_parts_no_path(daemon: Daemon, client: Client, sandbox: Sandbox) -> None:
    """Segments are told apart before they are decoded, and none of them leads up."""
    def status(method: str, target: str) -> tuple[int, str]:
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\nConnection: close\r\n\r\n"
        got = raw(daemon.url, head.encode(), half=True).decode()
        return int(got.split()[1]), got

    rows = [("DELETE", f"/contexts/..%2f..%2f{sandbox.id}", "context_not_found"), ("DELETE", f"/contexts/../../{sandbox.id}", "not_found"),
            ("DELETE", "/contexts/..", "not_found"), ("DELETE", "/contexts/%2e%2e", "context_not_found"), ("GET", "%2fcontexts", "sandbox_not_found"),
            ("GET", ";a", "sandbox_not_found"), ("GET", "/../" + sandbox.id, "not_found"), ("GET", "/./contexts", "not_found")]
    for method, tail, code in rows:
        number, text = status(method, sandbox.path + tail)
        assert number == 404 and f'"{code}"' in text, (method, tail, text)
    assert status("GET", sandbox.path)[0] == 200


def test_chunked_body_is_answered_411(daemon: Daemon) -> None:
    got = raw(daemon.url, f"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\n"
              "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n".encode(), half=True, timeout=3)
    assert b" 411 " in got.split(b"\r\n")[0] and b"length_required" in got


def test_half_sent_and_slow_senders() -> None:
    with Daemon("--timeouts-request", "2") as d:
        client = Client(d.url, d.key)
        parts = urlsplit(d.url)
        slow = []
        for _ in range(50):
            s = socket.create_connection((parts.hostname, parts.port))
            s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer "
                      + d.key.encode() + b"\r\nContent-Length: 100\r\n\r\n{")
            slow.append(s)
        assert client.get("/v1/templates")
        for s in slow:
            s.settimeout(15)
            got = s.recv(65536)
            assert b" 408 " in got.split(b"\r\n")[0] or got == b"", got
            s.close()
        assert client.get("/v1/templates")


FRAMES = [
    ("{", None, "invalid_json"), ("[]", None, None), ('{"id":"a"}', "a", "invalid_frame"),
    ('{"id":"a","op":"nope"}', "a", "not_found"), ('{"id":"a","op":"health"}', "a", "not_found"), ('{"op":"run_code"}', None, None), ('{"id":"a","op":5}', "a", "invalid_frame"),
    ('{"id":{},"op":"templates.list"}', None, "invalid_frame"), ('{"id":"a","op":"run_code","sandbox":"sbx-x","code":"1"}', "a", "sandbox_not_found"),
    ('{"id":"a","op":"run_code","code":"1","code":"2"}', None, None), ("[" * 10000, None, None), ("", None, None),
    ('{"id":"a","op":"sandboxes.create","template":"nope"}', "a", "template_not_found"),
]


@pytest.mark.parametrize("frame,ident,code", FRAMES, ids=[f[0][:40] or "empty" for f in FRAMES])
def test_malformed_frame_gets_a_failure_and_the_socket_lives(client: Client, frame: str, ident: str | None, code: str | None) -> None:
    with client.socket() as ws:
        ws.ws.send(frame)
        got = ws.receive(10)
        assert got["type"] == "failure" and got["error"]["message"], got
        assert ident is None or got["id"] == ident
        assert code is None or got["error"]["code"] == code, got
        assert ws.call("templates.list")["items"]


def test_binary_frame(client: Client) -> None:
    with client.socket() as ws:
        ws.ws.send(b"\x00\x01")
        got = ws.receive()
        assert got["type"] == "failure" and got["id"] is None and got["error"]["code"] == "invalid_frame"
        assert ws.call("templates.list")


def test_fragmented_frame(client: Client) -> None:
    with client.socket() as ws:
        text = json.dumps({"id": "frag", "op": "templates.list"})
        ws.ws.send([c for c in text])
        got = ws.receive()
        assert got["id"] == "frag" and got["type"] == "response"


def test_oversized_frame_closes_1009() -> None:
    from websockets.exceptions import ConnectionClosed
    with Daemon("--limits-frame-bytes", "65536") as d:
        client = Client(d.url, d.key)
        with client.socket() as ws:
            ws.ws.send(json.dumps({"id": "a", "op": "templates.list", "pad": "x" * 60000}))
            assert ws.receive()["type"] == "failure"
        ws = client.socket()
        with pytest.raises(ConnectionClosed) as closed:
            ws.ws.send("x" * 70000)
            ws.receive(10)
        assert closed.value.rcvd.code == 1009
        assert client.get("/v1/templates")


def test_ws_needs_a_key(daemon: Daemon) -> None:
    from websockets.exceptions import InvalidStatus
    with pytest.raises(InvalidStatus) as refused:
        Client(daemon.url, "sk-sandal-no").socket()
    assert refused.value.response.status_code == 401 and b"unauthorized" in refused.value.response.body
    assert refused.value.response.headers["WWW-Authenticate"].startswith("Bearer")
    from websockets.sync.client import connect
    with connect(daemon.url.replace("http", "ws", 1) + "/v1/ws", subprotocols=["sandal.v1", f"bearer.{daemon.key}"]) as ws:
        assert ws.subprotocol == "sandal.v1"
    with connect(daemon.url.replace("http", "ws", 1) + "/v1/ws", additional_headers={"X-API-Key": daemon.key}) as ws:
        assert ws.subprotocol is None


@pytest.fixture(scope="module")
def keyless():
    with Daemon(auth=False) as d:
        yield d


@pytest.mark.parametrize("headers,status,code", [
    ({"Host": "evil.example"}, 403, "foreign_host"), ({"Host": "evil.example:8717"}, 403, "foreign_host"),
    ({"Origin": "http://evil.example"}, 403, "foreign_origin"), ({"Origin": "null"}, 403, "foreign_origin"),
    ({"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type")])
def test_keyless_loopback_refuses_browsers_tricks(keyless: Daemon, headers: dict, status: int, code: str) -> None:
    client = Client(keyless.url, None)
    client.error("POST", "/v1/sandboxes", status, code, content=b'{"template":"base"}', headers={**JSON, **headers})
    assert client.get("/v1/sandboxes")["items"] == []


def test_with_a_key_any_host_is_served(client: Client) -> None:
    assert client.call("GET", "/v1/sandboxes", headers={"Host": "evil.example"}, expect=200).json()["items"] is not None
    no_key = httpx.get(client.url + "/v1/sandboxes", headers={"Host": "evil.example"})
    assert no_key.status_code == 401, no_key.text


def test_keyless_loopback_serves_the_local(keyless: Daemon) -> None:
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect
    client = Client(keyless.url, None)
    port = urlsplit(keyless.url).port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "localhost", f"[::1]:{port}"):
        assert client.call("GET", "/v1/templates", headers={"Host": host}).status_code == 200, host
    with pytest.raises(InvalidStatus) as refused:
        connect(keyless.url.replace("http", "ws", 1) + "/v1/ws", origin="http://evil.example")
    assert refused.value.response.status_code == 403
    with client.socket() as ws:
        assert ws.call("templates.list")


def test_no_auth_off_loopback_is_refused() -> None:
    d = Daemon(auth=False, listen="0.0.0.0:0")
    with pytest.raises(RuntimeError) as refused:
        d.start()
    assert "no_auth is refused" in str(refused.value)
    d.remove()


def test_memory_returns_after_bad_input(client: Client, daemon: Daemon) -> None:
    pid = daemon.gateway_pid()
    before = rss_bytes(pid)

    def hammer() -> None:
        c = Client(client.url, client.key)
        for _ in range(60):
            c.call("POST", "/v1/sandboxes", content=b"[" * 100000, headers=JSON)
            c.call("POST", "/v1/sandboxes", content=b'{"a":"' + b"x" * 1000000, headers=JSON)
        c.close()

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wait_for(lambda: rss_bytes(pid) < before + 24 * 1024 * 1024)


def test_connections_over_the_cap_are_told() -> None:
    with Daemon("--limits-connections", "8") as d:
        parts = urlsplit(d.url)
        held = [socket.create_connection((parts.hostname, parts.port)) for _ in range(8)]
        for s in held:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in s.recv(4096)
        got = raw(d.url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", timeout=3)
        assert b" 503 " in got.split(b"\r\n")[0] or got == b""
        for s in held:
            s.close()
        wait_for(lambda: b" 200 " in raw(d.url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", timeout=3), 5)


def test_queue_full_is_429() -> None:
    with Daemon("--limits-queue", "2") as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        with client.socket() as ws:
            for _ in range(3):
                ws.send("run_code", sandbox=sandbox.id, code="import time; time.sleep(3)")
            wait_for(lambda: sandbox.get("/contexts")["items"][0]["queue"] == 2)
            answer = client.call("POST", sandbox.path + "/run_code", json={"code": "1"})
            assert answer.status_code == 429 and answer.json()["error"]["code"] == "queue_full"
            assert int(answer.headers["retry-after"]) >= 1


def test_quota_of_sandboxes_and_contexts() -> None:
    with Daemon("--limits-sandboxes", "2", "--limits-contexts", "1") as d:
        client = Client(d.url, d.key)
        one = client.sandbox(template=TEMPLATE)
        client.sandbox(template="base")
        client.error("POST", "/v1/sandboxes", 429, "quota_exceeded", json={"template": "base"})
        client.error("POST", one.path + "/contexts", 429, "quota_exceeded", json={"language": "python"})
        one.delete()
        client.sandbox(template="base")
