"""Exposed ports: HTTP and WebSocket through the proxy to servers in the sandbox, in both forms of address."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import socket
import threading
import time
from typing import Any, Iterator

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, Daemon, rss_bytes, wait_for
from websockets.sync.client import connect

MIB = 1 << 20
POLICY = "sandbox allow-scripts allow-forms"
PORT = 30000 + os.getpid() % 20000  # without isolation it is the machine's

SERVER = r'''
import base64, hashlib, json, struct, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def body(self):
        if self.headers.get("transfer-encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("content-length") or 0)
        while left:
            piece = self.rfile.read(min(left, 65536))
            left -= len(piece)
            yield piece

    def answer(self, data, status=200, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def any(self):
        path = self.path.partition("?")[0]
        if path == "/big":
            n = int(self.path.partition("=")[2])
            self.send_response(200)
            self.send_header("Content-Length", str(n << 20))
            self.end_headers()
            block = bytes(1 << 20)
            for _ in range(n):
                self.wfile.write(block)
        elif path == "/echo":
            self.answer(b"".join(self.body()))
        elif path == "/refuse":  # without reading what was sent with it
            self.answer(b"too large", 413, [("Connection", "close")])
            self.close_connection = True
        elif path == "/more":  # than was asked for
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(100000) + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        elif path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for word in (b"one", b"two", b"three"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(word), word))
                self.wfile.flush()
                time.sleep(0.2)
            self.wfile.write(b"0\r\n\r\n")
        elif path == "/until_close":
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it")
            self.close_connection = True
        elif path == "/cookie":
            self.answer(b"", headers=[("Set-Cookie", "a=b; Domain=localhost; Path=/"), ("Set-Cookie", "sandal_token=evil")])
        elif path == "/redirect":
            self.answer(b"", 302, [("Location", "/there")])
        elif path == "/ws":
            self.websocket()
        elif path == "/nonsense":
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            self.close_connection = True
        elif path == "/interim":  # so many, or without end
            n = int(self.path.partition("=")[2])
            try:
                while n != 0:
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                    n -= 1
                self.answer(b"the true one")
            except OSError:
                self.close_connection = True
        elif path == "/bare":  # an answer that ends with its head, whatever the head tells
            status, _, form = self.path.partition("?")[2].partition("-")
            row = "Transfer-Encoding: chunked" if form == "chunked" else "Content-Length: " + form
            if status == "100":  # the true one has a body
                self.wfile.write(b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            else:
                self.wfile.write(("HTTP/1.1 %s X\r\nETag: \"a\"\r\n%s\r\n\r\n" % (status, row)).encode())
        elif path == "/leave":
            self.close_connection = True
        else:
            digest, size = hashlib.sha256(), 0
            for piece in self.body():
                digest.update(piece)
                size += len(piece)
            rows = [[k, v] for k, v in self.headers.items()]
            self.answer(json.dumps({"method": self.command, "path": self.path, "headers": rows, "size": size,
                                    "sha256": digest.hexdigest(), "peer": self.client_address[1]}).encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = any

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Accept: %s\r\n\r\n" % accept).encode())
        while True:
            a, b = self.rfile.read(2)
            n = b & 127
            if n == 126:
                n, = struct.unpack(">H", self.rfile.read(2))
            elif n == 127:
                n, = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = bytes(c ^ mask[i & 3] for i, c in enumerate(self.rfile.read(n)))
            head = bytes([a]) + (bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65536 else b"\x7f" + struct.pack(">Q", n))
            self.wfile.write(head + data)
            if a & 15 == 8:
                break
        self.close_connection = True

class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''


@pytest.fixture(scope="module")
def proxied() -> Iterator[Daemon]:
    with Daemon("--proxy-domain", "box.example", "--timeouts-header", "2") as d:
        yield d


@pytest.fixture(scope="module")
def client(proxied: Daemon) -> Iterator[Client]:
    c = Client(proxied.url, proxied.key)
    yield c
    c.close()


@pytest.fixture(scope="module")
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template="base") as sb:
        serve(sb, PORT)
        yield sb


@pytest.fixture(scope="module")
def open_port(box: Sandbox) -> dict[str, Any]:
    return box.post("/expose", {"port": PORT})


def test_a_proxy_whose_port_is_taken_comes_when_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with Daemon("--proxy-listen", f"127.0.0.1:{port}") as d:
            client = Client(d.url, d.key)
            with client.sandbox(template="base") as sb:
                error = client.error("POST", f"{sb.path}/expose", 501, "not_supported", json={"port": PORT})
                assert "Address already in use" in error["message"], error
                other.close()
                wait_for(lambda: "proxy.there" in d.log())
                assert d.log().count("proxy.not_there") == 1, d.log()
                if ISOLATION != "process":
                    assert proxy_port(sb.post("/expose", {"port": PORT})) == port


@pytest.mark.smoke
@pytest.mark.skipif(ISOLATION != "process", reason="of isolation process")
def test_where_nothing_can_listen_nothing_is_exposed(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        assert "unix" in client.error("POST", f"{sb.path}/expose", 501, "not_supported", json={"port": PORT})["message"]


def serve(sb: Sandbox, port: int) -> dict[str, Any]:
    if ISOLATION == "process":
        pytest.skip("isolation process has no sockets but unix ones, so nothing can listen")
    sb.client.call("PUT", f"{sb.path}/fs/file", params={"path": "server.py"}, content=SERVER.encode())
    return sb.post("/exec", {"cmd": ["python3", "server.py", str(port)], "background": True}, expect=201)


def proxy_port(exposed: dict[str, Any]) -> int:
    return int(exposed["path_url"].split("/")[2].rpartition(":")[2])


def host_form(exposed: dict[str, Any], sb: Sandbox) -> tuple[str, dict[str, str]]:
    """No resolver is needed: the address is the proxy's, the name goes into Host."""
    return f"http://127.0.0.1:{proxy_port(exposed)}", {"Host": f"{exposed['port']}-{sb.id}.localhost"}


def seen(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    return answer.json()


def header(row: dict[str, Any], name: str) -> list[str]:
    return [v for k, v in row["headers"] if k.lower() == name]


# --- What the API says ---------------------------------------------------------------------------


def test_addresses(box: Sandbox, open_port: dict[str, Any]) -> None:
    port = proxy_port(open_port)
    assert open_port == {"port": PORT, "token": None, "url": open_port["host_url"],
                         "path_url": f"http://127.0.0.1:{port}/s/{box.id}/{PORT}/",
                         "host_url": f"http://{PORT}-{box.id}.box.example:{port}/"}
    assert box.post("/expose", {"port": PORT}) == open_port


def test_bad_wishes(box: Sandbox) -> None:
    for port in (0, 65536, "80", None, 1.5):
        box.client.error("POST", f"{box.path}/expose", 400, "invalid_request", json={"port": port})
    box.client.error("DELETE", f"{box.path}/expose/9", 404, "not_found")


def test_as_many_as_there_may_be(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        for port in range(1, 33):
            sb.post("/expose", {"port": port})
        client.error("POST", f"{sb.path}/expose", 429, "quota_exceeded", json={"port": 33})
        sb.post("/expose", {"port": 32})
        client.call("DELETE", f"{sb.path}/expose/32", expect=204)
        sb.post("/expose", {"port": 33})


# --- HTTP ----------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_both_forms(box: Sandbox, open_port: dict[str, Any]) -> None:
    url, host = host_form(open_port, box)
    path = seen(httpx.get(open_port["path_url"] + "a/b?x=1&y=%20"))
    assert path["path"] == "/a/b?x=1&y=%20" and header(path, "x-forwarded-prefix") == [f"/s/{box.id}/{PORT}"]
    for name in (host["Host"], f"{PORT}-{box.id}.box.example:99", host["Host"].upper()):
        got = seen(httpx.get(url + "/a/b?x=1", headers={"Host": name}))
        assert got["path"] == "/a/b?x=1" and header(got, "host") == [name]
        assert header(got, "x-forwarded-for") == ["127.0.0.1"] and header(got, "x-forwarded-host") == [name]


def test_headers_of_ours_stay_here(box: Sandbox, open_port: dict[str, Any], client: Client) -> None:
    url, host = host_form(open_port, box)
    ours = {"Authorization": f"Bearer {client.key}", "X-Api-Key": client.key, "X-Sandal-Token": "t", "X-Forwarded-For": "6.6.6.6",
            "Connection": "keep-alive, X-Hop", "X-Hop": "1", "Cookie": "a=1; sandal_token=x; b=2", "X-Own": "kept", "TE": "trailers"}
    got = seen(httpx.get(url, headers={**host, **ours}))
    assert client.key not in json.dumps(got) and header(got, "cookie") == ["a=1; b=2"]
    assert header(got, "x-own") == ["kept"] and header(got, "x-forwarded-for") == ["127.0.0.1"]
    for name in ("authorization", "x-api-key", "x-sandal-token", "x-hop", "te"):
        assert header(got, name) == [], name
    assert header(seen(httpx.get(url, headers={**host, "Authorization": "Basic YTpi"})), "authorization") == ["Basic YTpi"]
    assert header(seen(httpx.get(open_port["path_url"], headers=ours)), "cookie") == []


SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "A" * 22 + "=="}
FORMS: dict[str, tuple[str, dict[str, str]]] = {  # each is one that the daemon takes a key in
    "spaces": ("", {"Authorization": "Bearer  KEY"}),
    "tab": ("", {"Authorization": "bearer \tKEY"}),
    "token": ("", {"Authorization": "token KEY"}),
    "token in capitals": ("", {"AUTHORIZATION": "TOKEN   KEY"}),
    "x-api-key": ("", {"x-api-key": "KEY"}),
    "query": ("token=KEY", {}),
    "query among others": ("x=1&token=KEY&y=2", {}),
    "encoded query": ("x=1&token=%73%6B-sandal%2D" + "TAIL", {}),
    "subprotocol": ("", {**SOCKET, "Sec-WebSocket-Protocol": "sandal.v1, bearer.KEY"}),
    "only a subprotocol": ("", {**SOCKET, "Sec-WebSocket-Protocol": "bearer.KEY"}),
    "referer": ("", {"Referer": "http://x/?token=KEY"}),
}


@pytest.mark.parametrize("name", FORMS)
def test_no_form_of_a_key_gets_into_a_sandbox(box: Sandbox, open_port: dict[str, Any], client: Client, name: str) -> None:
    query, given = FORMS[name]
    secret = client.key.removeprefix("sk-sandal-")
    assert secret != client.key
    url, host = host_form(open_port, box)
    query = "?" + query.replace("KEY", client.key).replace("TAIL", secret) if query else ""
    rows = {k: v.replace("KEY", client.key) for k, v in given.items()}
    for base, more in ((url + "/", host), (open_port["path_url"], {})):
        answer = httpx.get(base + query, headers={**more, **rows})
        got = seen(answer)
        assert secret not in answer.text, got
        assert got["path"] == ("/?x=1&y=2" if "y=2" in query else "/?x=1" if "x=1" in query else "/"), got
        assert header(got, "sec-websocket-protocol") == (["sandal.v1"] if name == "subprotocol" else [])
    # …and what is in the same places and no key of the daemon's gets there as it is
    own = {k: v.replace("KEY", "its-own") for k, v in given.items() if k not in SOCKET}
    got = seen(httpx.get(url + "/?token=its-own", headers={**host, **own}))
    assert got["path"] == "/?token=its-own"
    for key, value in own.items():
        assert header(got, key.lower()) == [value], got


def test_subprotocols_in_more_lines_than_one(box: Sandbox, open_port: dict[str, Any], client: Client) -> None:
    rows = [*SOCKET.items(), ("Sec-WebSocket-Protocol", f"a,bearer.{client.key}, b"), ("Sec-WebSocket-Protocol", f"bearer.{client.key}"),
            ("Sec-WebSocket-Protocol", "bearer.its-own,c")]
    got = seen(httpx.get(open_port["path_url"], headers=rows))
    assert client.key not in json.dumps(got) and header(got, "sec-websocket-protocol") == ["a, b", "bearer.its-own,c"]


def test_keys_are_in_no_line_of_the_log(proxied: Daemon, box: Sandbox, open_port: dict[str, Any], client: Client) -> None:
    for where in (open_port["path_url"], open_port["path_url"].replace(f"/{PORT}/", f"/{PORT + 9}/"), open_port["path_url"] + "nonsense"):
        for query, rows in (("", {"Authorization": f"token {client.key}"}), (f"?token={client.key}", {"Accept": "text/html"})):
            answer = httpx.get(where + query, headers=rows)
            assert client.key not in answer.text and client.key not in str(answer.headers)
    assert client.key not in proxied.log()


def test_the_shared_origin_is_none(box: Sandbox, open_port: dict[str, Any]) -> None:
    url, host = host_form(open_port, box)
    answer = httpx.get(open_port["path_url"] + "cookie")
    assert answer.headers["content-security-policy"] == POLICY and "set-cookie" not in answer.headers
    assert httpx.get(open_port["path_url"] + "redirect").headers["location"] == f"/s/{box.id}/{PORT}/there"
    answer = httpx.get(url + "/cookie", headers=host)
    assert "content-security-policy" not in answer.headers
    assert answer.headers.get_list("set-cookie") == ["a=b; Path=/"]  # for its own host alone, and never ours
    answer = httpx.get(open_port["path_url"][:-1] + "?q=1")
    assert answer.status_code == 308 and answer.headers["location"] == f"/s/{box.id}/{PORT}/?q=1"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_methods(box: Sandbox, open_port: dict[str, Any], method: str) -> None:
    assert seen(httpx.request(method, open_port["path_url"]))["method"] == method


def test_head_and_keep_alive(box: Sandbox, open_port: dict[str, Any]) -> None:
    conn = http.client.HTTPConnection("127.0.0.1", proxy_port(open_port))
    peers = set()
    for method in ("GET", "HEAD", "GET", "POST", "GET"):
        conn.request(method, f"/s/{box.id}/{PORT}/x", body=b"abc" if method == "POST" else None)
        answer = conn.getresponse()
        data = answer.read()
        assert answer.status == 200 and (method == "HEAD") == (data == b"")
        if data:
            peers.add(json.loads(data)["peer"])
    assert len(peers) == 1  # one connection all the way
    conn.close()


@pytest.mark.parametrize(("method", "what", "kept"), [
    ("GET", "304-1234", ["1234"]), ("GET", "304-chunked", []), ("GET", "304-0", ["0"]), ("GET", "204-1234", []),
    ("HEAD", "200-1234", ["1234"]), ("HEAD", "200-chunked", []), ("HEAD", "304-1234", ["1234"]), ("GET", "100-5", ["2"]),
])
def test_what_follows_an_answer_without_a_body(box: Sandbox, open_port: dict[str, Any], method: str, what: str, kept: list[str]) -> None:
    """Its head may tell of a body that it does not have; the next answer on the same connections is not taken for that."""
    peers = set()
    with socket.create_connection(("127.0.0.1", proxy_port(open_port)), timeout=20) as s:
        for _ in range(2):
            for verb, path in ((method, "bare?" + what), ("GET", "x")):
                s.sendall(b"%s /s/%s/%d/%s HTTP/1.1\r\nHost: x\r\n\r\n" % (verb.encode(), box.id.encode(), PORT, path.encode()))
                answer = http.client.HTTPResponse(s, method=verb)
                answer.begin()
                data = answer.read()
                if path == "x":
                    assert answer.status == 200
                    peers.add(json.loads(data)["peer"])
                else:
                    assert answer.status == (200 if what == "100-5" else int(what[:3])) and data == (b"ok" if what == "100-5" else b"")
                    lengths = [v for k, v in answer.getheaders() if k == "Content-Length"]
                    assert lengths == kept and answer.getheader("Transfer-Encoding") is None, answer.getheaders()
    assert len(peers) == 1  # one connection all the way


def test_pipelined(box: Sandbox, open_port: dict[str, Any]) -> None:
    with socket.create_connection(("127.0.0.1", proxy_port(open_port))) as s:
        s.sendall(b"".join(b"GET /s/%s/%d/%d HTTP/1.1\r\nHost: x\r\n%s\r\n" %
                           (box.id.encode(), PORT, i, b"Connection: close\r\n" if i == 4 else b"") for i in range(5)))
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert re.findall(rb'"path": "/(\d)"', data) == [b"0", b"1", b"2", b"3", b"4"]


def test_chunks_come_as_they_are_made(box: Sandbox, open_port: dict[str, Any]) -> None:
    with httpx.stream("GET", open_port["path_url"] + "chunks") as answer:
        pieces = list(answer.iter_raw())
    assert pieces == [b"one", b"two", b"three"]
    assert httpx.get(open_port["path_url"] + "until_close").text == "all of it"


def test_chunked_upload(box: Sandbox, open_port: dict[str, Any]) -> None:
    pieces = [os.urandom(n) for n in (1, 70000, 5, 300000)]
    got = seen(httpx.post(open_port["path_url"], content=iter(pieces)))
    assert got["size"] == sum(map(len, pieces)) and got["sha256"] == hashlib.sha256(b"".join(pieces)).hexdigest()
    assert header(got, "transfer-encoding") == ["chunked"]


def test_large_bodies_with_flat_memory(proxied: Daemon, box: Sandbox, open_port: dict[str, Any]) -> None:
    size = 256

    def source() -> Iterator[bytes]:
        block = bytes(MIB)
        for _ in range(size):
            yield block

    def gateway() -> int:
        return rss_bytes(proxied.gateway_pid())

    seen(httpx.post(open_port["path_url"], content=bytes(MIB)))
    before, most, got = gateway(), 0, 0
    with httpx.stream("GET", open_port["path_url"] + f"big?n={size}", timeout=120) as answer:
        for i, piece in enumerate(answer.iter_raw(MIB)):
            got += len(piece)
            if i % 32 == 0:
                most = max(most, gateway())
    assert got == size * MIB
    row = seen(httpx.post(open_port["path_url"], content=source(), headers={"Content-Length": str(size * MIB)}, timeout=120))
    assert row["size"] == size * MIB
    assert max(most, gateway()) - before < 8 * MIB


def test_large_bodies_of_many_keep_their_bytes(open_port: dict[str, Any]) -> None:
    """They share a pipe on their way. Some clients rest while they read, so that it is full and emptied otherwise."""
    wrong: list[str] = []

    def one(number: int) -> None:
        body = os.urandom(1 << 16) * (64 + number)
        with httpx.Client() as client:
            for turn in range(2):
                got = b""
                with client.stream("POST", open_port["path_url"] + "echo", content=body, timeout=120) as answer:
                    for i, piece in enumerate(answer.iter_raw(MIB)):
                        got += piece
                        if number % 2 and i == 1:
                            time.sleep(0.3)  # the sender meets full buffers meanwhile
                if got != body:
                    wrong.append(f"client {number}, turn {turn}: {len(got)} bytes of {len(body)}")

    threads = [threading.Thread(target=one, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bodies_of_any_size_end_where_they_end(box: Sandbox, open_port: dict[str, Any]) -> None:
    """About the sizes at which they are moved another way, all on one connection."""
    near = [edge + off for edge in (16384, 32768, 49152, 65536, 131072, 262144, 294912, MIB) for off in (-1, 0, 1)]
    conn = http.client.HTTPConnection("127.0.0.1", proxy_port(open_port))
    peers = set()
    for size in near:
        body = os.urandom(size)
        conn.request("POST", f"/s/{box.id}/{PORT}/echo", body=body)
        assert conn.getresponse().read() == body, size
        conn.request("POST", f"/s/{box.id}/{PORT}/x", body=body)
        row = json.loads(conn.getresponse().read())
        assert row["sha256"] == hashlib.sha256(body).hexdigest(), size
        peers.add(row["peer"])
    assert len(peers) == 1
    conn.close()


def test_a_large_body_that_is_refused_unread(open_port: dict[str, Any]) -> None:
    answer = httpx.post(open_port["path_url"] + "refuse", content=bytes(16 * MIB))
    assert answer.status_code == 413 and answer.text == "too large"


def test_more_than_was_asked_for_is_no_answer(box: Sandbox, open_port: dict[str, Any]) -> None:
    with socket.create_connection(("127.0.0.1", proxy_port(open_port))) as s:
        s.sendall(b"GET /s/%s/%d/more HTTP/1.1\r\nHost: x\r\n\r\nGET /s/%s/%d/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                  % (box.id.encode(), PORT, box.id.encode(), PORT))
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert b"evil" not in data and b'"path": "/x"' in data


def test_a_slow_client_holds_the_server_back(proxied: Daemon, box: Sandbox, open_port: dict[str, Any]) -> None:
    with socket.create_connection(("127.0.0.1", proxy_port(open_port))) as s:
        before = rss_bytes(proxied.gateway_pid())
        s.sendall(b"GET /s/%s/%d/big?n=128 HTTP/1.1\r\nHost: x\r\n\r\n" % (box.id.encode(), PORT))
        assert seen(httpx.get(open_port["path_url"]))["path"] == "/"
        assert rss_bytes(proxied.gateway_pid()) - before < 8 * MIB
        left = 128 * MIB
        while left > 0:
            piece = s.recv(MIB)
            assert piece
            left -= len(piece)


# --- WebSocket -----------------------------------------------------------------------------------


@pytest.mark.smoke
def test_websocket(box: Sandbox, open_port: dict[str, Any]) -> None:
    port = proxy_port(open_port)
    for where, name in ((f"/s/{box.id}/{PORT}/ws", "127.0.0.1"), ("/ws", f"{PORT}-{box.id}.localhost")):
        with socket.create_connection(("127.0.0.1", port)) as s, connect(f"ws://{name}:{port}{where}", sock=s, max_size=None) as ws:
            for message in ("hello", "x" * 70000, b"\x00\xff" * 500):
                ws.send(message)
                assert ws.recv() == message


def test_unexpose_cuts(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        port = PORT + 1
        serve(sb, port)
        exposed = sb.post("/expose", {"port": port})
        where = f"ws://127.0.0.1:{proxy_port(exposed)}/s/{sb.id}/{port}/ws"
        wait_for(lambda: httpx.get(exposed["path_url"]).status_code == 200, 20)
        with connect(where) as ws:
            ws.send("a")
            assert ws.recv() == "a"
            client.call("DELETE", f"{sb.path}/expose/{port}", expect=204)
            with pytest.raises(Exception):
                ws.recv(timeout=10)
        assert httpx.get(exposed["path_url"]).status_code == 404


@pytest.mark.skipif(ISOLATION in ("none", "process"), reason="nothing can be paused")
def test_traffic_wakes(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        port = PORT + 5
        serve(sb, port)
        exposed = sb.post("/expose", {"port": port})
        with httpx.Client() as kept:
            for _ in range(2):
                wait_for(lambda: kept.get(exposed["path_url"]).status_code == 200, 20)
                sb.post("/pause")
                assert client.get(sb.path)["state"] == "paused"
                assert kept.get(exposed["path_url"], timeout=30).status_code == 200
                assert client.get(sb.path)["state"] == "running"
        with connect(f"ws://127.0.0.1:{proxy_port(exposed)}/s/{sb.id}/{port}/ws") as ws:
            ws.send("a")
            assert ws.recv() == "a"
            sb.post("/pause")
            ws.send("b")
            assert ws.recv(timeout=30) == "b" and client.get(sb.path)["state"] == "running"


# --- Tokens --------------------------------------------------------------------------------------


def test_token(box: Sandbox) -> None:
    exposed = box.post("/expose", {"port": PORT, "token": True})
    try:
        token = exposed["token"]
        url, host = host_form(exposed, box)
        assert re.fullmatch(r"[0-9a-f]{32}", token) and box.post("/expose", {"port": PORT, "token": True}) == exposed
        assert box.post("/expose", {"port": PORT}) == exposed  # asking for the address opens nothing
        for wrong in ("", f"?sandal_token={token[:-1]}", "?sandal_token=", f"?sandal_token={token}x"):
            answer = httpx.get(exposed["path_url"] + wrong)
            assert answer.status_code == 401 and answer.json()["error"]["code"] == "unauthorized"
        got = seen(httpx.get(exposed["path_url"] + f"p?a=1&sandal_token={token}&b=2"))
        assert got["path"] == "/p?a=1&b=2"
        assert seen(httpx.get(exposed["path_url"], headers={"X-Sandal-Token": token}))["path"] == "/"
        assert "set-cookie" not in httpx.get(exposed["path_url"] + f"?sandal_token={token}").headers
        assert httpx.get(exposed["path_url"], headers={"Cookie": f"sandal_token={token}"}).status_code == 401
        page = httpx.get(url + f"/p?sandal_token={token}&a=1", headers={**host, "Accept": "text/html"})
        assert page.status_code == 302 and page.headers["location"] == "/p?a=1"
        cookie = page.headers["set-cookie"]
        assert cookie == f"sandal_token={token}; Path=/; HttpOnly; SameSite=Lax"
        got = seen(httpx.get(url + "/p", headers={**host, "Cookie": f"own=1; sandal_token={token}"}))
        assert header(got, "cookie") == ["own=1"] and token not in json.dumps(got)
        answer = httpx.post(url + f"/p?sandal_token={token}", headers=host)
        assert answer.status_code == 200 and answer.headers["set-cookie"] == cookie
    finally:
        box.post("/expose", {"port": PORT, "token": False})


# --- What does not work --------------------------------------------------------------------------


def test_unknown(box: Sandbox, open_port: dict[str, Any]) -> None:
    base = f"http://127.0.0.1:{proxy_port(open_port)}"
    for path in ("/", "/v1/sandboxes", f"/s/{box.id}/{PORT + 7}/", f"/s/{box.id}/0{PORT}/", "/s/sbx-none/80/", f"/s/{box.id}/x/",
                 f"/s/{box.id.upper()}/{PORT}/"):
        answer = httpx.get(base + path)
        assert answer.status_code == 404 and answer.json()["error"]["code"] == "not_found", path
    for name in (f"{PORT}-{box.id}.localhost.evil.example", f"{PORT}-{box.id}.other.example", f"x{PORT}-{box.id}.localhost",
                 f"{PORT}.localhost", f"a.{PORT}-{box.id}.localhost"):
        assert httpx.get(base, headers={"Host": name}).status_code == 404, name


def test_nothing_listens(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        exposed = sb.post("/expose", {"port": PORT + 2})
        answer = httpx.get(exposed["path_url"], timeout=30)
        assert answer.status_code == 502 and answer.json()["error"]["code"] == "nothing_listens" and answer.headers["retry-after"]
        page = httpx.get(exposed["path_url"], headers={"Accept": "text/html"}, timeout=30)
        assert page.status_code == 502 and f"port {PORT + 2} of sandbox {sb.id}" in page.text


LATE = """
import socket, time
s = socket.socket()
s.bind(("127.0.0.1", %d))
s.listen(0)
full = [socket.socket() for _ in range(3)]
for one in full:
    one.setblocking(False)
    one.connect_ex(s.getsockname())
open("full", "w").close()
time.sleep(2)  # the connection hangs meanwhile
"""


def test_a_connection_that_is_refused_late(client: Client) -> None:
    """The queue of a listener is full, so the connection hangs; then the listener goes. The refusal comes after the head was sent."""
    with client.sandbox(template="base") as sb:
        port = PORT + 4
        exposed = sb.post("/expose", {"port": port})
        sb.post("/exec", {"cmd": ["python3", "-c", LATE % port], "background": True}, expect=201)
        wait_for(lambda: client.call("GET", f"{sb.path}/fs/stat", params={"path": "full"}).status_code == 200, 20)
        answer = httpx.get(exposed["path_url"], timeout=30)
        assert answer.status_code == 502 and f"Nothing listens on port {port}" in answer.text, answer.text


def test_a_server_that_starts_is_waited_for(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        port = PORT + 3
        exposed = sb.post("/expose", {"port": port})
        got: list[int] = []
        asker = threading.Thread(target=lambda: got.append(httpx.get(exposed["path_url"], timeout=30).status_code))
        asker.start()
        serve(sb, port)
        asker.join()
        assert got == [200]


def test_answers_that_are_none(box: Sandbox, open_port: dict[str, Any]) -> None:
    for path in ("nonsense", "leave"):
        assert httpx.get(open_port["path_url"] + path, timeout=30).status_code == 502
    assert httpx.get(open_port["path_url"]).status_code == 200


BAD = {
    "both lengths": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "other lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length of words": b"Content-Length: +3\r\n\r\nabc",
    "other encoding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "encoding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "space before colon": b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "hosts": b"Host: y\r\n\r\n",
    "control characters": b"X-A: a\x01b\r\n\r\n",
    "chunk size": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
}


def test_interim_answers_have_an_end(box: Sandbox, open_port: dict[str, Any]) -> None:
    url = open_port["path_url"] + "interim?n="
    assert httpx.get(url + "16", timeout=30).text == "the true one"
    for n in ("17", "-1"):
        answer = httpx.get(url + n, timeout=30)
        assert answer.status_code == 502 and "interim" in answer.text, answer.text
    assert httpx.get(url + "16", timeout=30).text == "the true one"


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(data)
        out = b""
        while piece := s.recv(65536):
            out += piece
        return out


@pytest.mark.parametrize("name", BAD)
def test_smuggling_is_refused(box: Sandbox, open_port: dict[str, Any], name: str) -> None:
    head = b"POST /s/%s/%d/ HTTP/1.1\r\nHost: x\r\n" % (box.id.encode(), PORT)
    answer = raw(proxy_port(open_port), head + BAD[name] + b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 ") == 1 and b"smuggled" not in answer, answer


def test_what_is_refused_reaches_nobody(box: Sandbox, open_port: dict[str, Any]) -> None:
    """The good half of a bad body must not get into the request of another client."""
    head = b"POST /s/%s/%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" % (box.id.encode(), PORT)
    port = proxy_port(open_port)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as good:
        good.sendall(head + b"3\r\nabc\r\n")
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as bad:
                bad.sendall(head)
                assert seen(httpx.get(open_port["path_url"]))["size"] == 0
                bad.sendall(b"3\r\nBAD\r\nzz\r\n")
                while bad.recv(65536):
                    pass
        good.sendall(b"3\r\ndef\r\n0\r\n\r\n")
        data = b""
        while piece := good.recv(65536):
            data += piece
    assert hashlib.sha256(b"abcdef").hexdigest().encode() in data, data


def test_limits_of_a_head(box: Sandbox, open_port: dict[str, Any]) -> None:
    port, line = proxy_port(open_port), b"GET /s/%s/%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" % (box.id.encode(), PORT)
    assert raw(port, line + b"X: %s\r\n\r\n" % (b"a" * 30000)).startswith(b"HTTP/1.1 200 ")
    assert raw(port, line + b"X: %s\r\n\r\n" % (b"a" * 33000)).startswith(b"HTTP/1.1 431 ")
    many, too_many = (raw(port, line + b"".join(b"X%d: y\r\n" % i for i in range(n)) + b"\r\n") for n in (98, 99))
    assert b"headers_too_large" not in many and too_many.startswith(b"HTTP/1.1 431 ") and b"headers_too_large" in too_many
    assert raw(port, line[:-20]) == b""  # a head that never ends, after timeouts.header


def test_it_is_there_after_a_restart() -> None:
    with Daemon() as d:
        sb = Client(d.url, d.key).sandbox(template="base")
        exposed = sb.post("/expose", {"port": PORT + 4, "token": True})
        assert d.stop() == 0
        d.start()
        again = Client(d.url, d.key)
        answer = again.post(f"{sb.path}/expose", {"port": PORT + 4, "token": True})
        assert answer["token"] == exposed["token"]
        again.delete(sb.path)
