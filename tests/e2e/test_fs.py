"""Files of a sandbox: bytes in and out, tus uploads, directories, watches, names of any bytes."""

from __future__ import annotations

import base64
import concurrent.futures
import hashlib
import json
import os
import socket
import threading
import time

from pathlib import Path
from typing import Any, Iterator

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, Daemon, rss_bytes, wait_for

MIB = 1 << 20
OWN_ROOT = ISOLATION not in ("none", "process")


@pytest.fixture(scope="module")
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template="base") as sb:
        yield sb


@pytest.fixture
def empty(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template="base") as sb:
        yield sb


def put(sb: Sandbox, path: str, data: bytes, expect: int | None = None, **params: str) -> httpx.Response:
    answer = sb.client.call("PUT", f"{sb.path}/fs/file", params={"path": path, **params}, content=data)
    assert answer.status_code == expect if expect else answer.status_code in (201, 204), answer.text
    return answer


def read(sb: Sandbox, path: str, expect: int = 200, **headers: str) -> httpx.Response:
    return sb.client.call("GET", f"{sb.path}/fs/file", params={"path": path}, headers=headers, expect=expect)


def error(sb: Sandbox, method: str, place: str, status: int, code: str, **kwargs: Any) -> dict[str, Any]:
    return sb.client.error(method, f"{sb.path}/fs/{place}", status, code, **kwargs)


def shell(sb: Sandbox, cmd: str) -> str:
    """By the sandbox's own hands."""
    answer = sb.post("/exec", {"cmd": cmd})
    assert answer["exit_code"] == 0, answer
    return answer["stdout"]


def names(sb: Sandbox, path: str = "/workspace", **params: Any) -> list[str]:
    return [e["path"] for e in sb.get("/fs/dir", params={"path": path, **params})["items"]]


# --- Bytes ---------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_write_read_replace_remove(box: Sandbox) -> None:
    answer = put(box, "notes/a b.txt", b"one\n", 201)
    assert answer.headers["location"] == f"{box.path}/fs/file?path=notes/a%20b.txt"
    assert box.client.call("GET", answer.headers["location"], expect=200).content == b"one\n"
    put(box, "/workspace/notes/a b.txt", b"two", 204)
    got = read(box, "notes/a b.txt")
    assert got.content == b"two" and got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-length"] == "3" and got.headers["accept-ranges"] == "bytes"
    head = box.client.call("HEAD", f"{box.path}/fs/file", params={"path": "notes/a b.txt"}, expect=200)
    assert head.headers["content-length"] == "3" and head.content == b"" and head.headers["etag"]
    assert shell(box, "cat 'notes/a b.txt'") == "two"
    box.client.call("DELETE", f"{box.path}/fs/file", params={"path": "notes/a b.txt"}, expect=204)
    error(box, "GET", "file", 404, "not_found", params={"path": "notes/a b.txt"})
    error(box, "DELETE", "file", 404, "not_found", params={"path": "notes/a b.txt"})
    put(box, "/home/user/x", b"", 201)
    assert read(box, "/home/user/x").content == b"" and shell(box, "cat $HOME/x") == ""


def test_mode_and_owner(box: Sandbox) -> None:
    put(box, "run.sh", b"#!/bin/sh\necho ran\n", 201, mode="0755")
    assert shell(box, "./run.sh") == "ran\n"
    put(box, "run.sh", b"#!/bin/sh\necho again\n", 204)  # keeps its mode
    assert shell(box, "./run.sh") == "again\n"
    put(box, "run.sh", b"", 204, mode="600")
    entry = box.get("/fs/stat", params={"path": "run.sh"})
    assert entry["mode"] == "0600" and entry["type"] == "file" and entry["size"] == 0
    assert str(entry["uid"]) == shell(box, "stat -c %u run.sh").strip()
    for mode in ("rw", "4755", "1644"):
        refused = error(box, "PUT", "file", 400, "invalid_request", params={"path": "x", "mode": mode}, content=b"")
        assert refused["pointer"] == "/mode"
    error(box, "POST", "dir", 400, "invalid_request", json={"path": "x", "mode": "2755"})
    assert box.post("/fs/dir", {"path": "sticky", "mode": "1777"}, expect=201)["mode"] == "1777"


def test_a_put_through_a_link_keeps_the_link(box: Sandbox) -> None:
    shell(box, "mkdir -p l && echo old > l/real && ln -sf real l/link")
    put(box, "l/link", b"new", 204)
    assert shell(box, "cat l/real; readlink l/link") == "newreal\n"


def test_ranges(box: Sandbox) -> None:
    data = os.urandom(300_000)
    put(box, "big", data)
    shell(box, "touch -d '2020-01-02 03:04:05 UTC' big")
    whole = read(box, "big")
    etag, modified = whole.headers["etag"], whole.headers["last-modified"]
    assert modified == "Thu, 02 Jan 2020 03:04:05 GMT" and etag.startswith('"')
    for text, want in (("bytes=0-0", data[:1]), ("bytes=100-199", data[100:200]), ("bytes=299990-", data[299990:]),
                       ("bytes=-7", data[-7:]), ("bytes=65535-131073", data[65535:131074])):
        part = read(box, "big", 206, Range=text)
        assert part.content == want, text
        assert part.headers["content-range"].endswith("/300000")
    assert read(box, "big", 206, **{"Range": "bytes=1-2", "If-Range": etag}).content == data[1:3]
    assert read(box, "big", 206, **{"Range": "bytes=1-2", "If-Range": modified}).content == data[1:3]
    assert read(box, "big", 200, **{"Range": "bytes=1-2", "If-Range": '"x"'}).content == data
    assert read(box, "big", 200, Range="bytes=0-1,4-5").content == data
    for first in ("300000", str(2**64), "9" * 20):  # no position has a bound; no file is as long
        refused = read(box, "big", 416, Range=f"bytes={first}-")
        assert refused.headers["content-range"] == "bytes */300000" and "Content-Range" in refused.json()["error"]["hint"]
        assert refused.json()["error"]["pointer"] == "/range"
    whole = read(box, "big", 206, Range="bytes=0-" + "9" * 20)
    assert whole.content == data and whole.headers["content-range"] == "bytes 0-299999/300000"
    assert read(box, "big", 304, **{"If-None-Match": etag}).content == b""
    shell(box, "echo more >> big && touch -d '2020-01-02 03:04:06 UTC' big")
    assert len(read(box, "big", 200, **{"Range": "bytes=1-2", "If-Range": etag}).content) == 300_005


@pytest.mark.smoke
def test_conditions_of_writes(box: Sandbox) -> None:
    """RFC 9110, 13.1 and 14.5: nothing is overwritten or removed that the client does not know."""
    def ask(method: str, status: int, path: str = "cond", content: bytes = b"", **headers: str) -> Any:
        return box.client.call(method, f"{box.path}/fs/file", params={"path": path}, expect=status,
                               headers={k.replace("_", "-"): v for k, v in headers.items()},
                               **({"content": content} if method == "PUT" else {}))

    ask("PUT", 412, content=b"x", If_Match="*")
    error(box, "GET", "file", 404, "not_found", params={"path": "cond"})
    ask("PUT", 201, content=b"one", If_None_Match="*")
    refused = ask("PUT", 412, content=b"two", If_None_Match="*").json()["error"]
    assert refused["code"] == "precondition_failed" and refused["pointer"] == "/if_none_match"
    shell(box, "touch -d '2020-01-02 03:04:05 UTC' cond")
    tag = read(box, "cond").headers["etag"]
    refused = ask("PUT", 400, content=b"n", Content_Range="bytes 0-0/3").json()["error"]
    assert refused["pointer"] == "/content_range" and "uploads" in refused["hint"]
    assert read(box, "cond").content == b"one"
    ask("PUT", 204, content=b"two", If_Match=tag)
    ask("PUT", 412, content=b"three", If_Match=tag)
    ask("DELETE", 412, If_Match=tag)
    assert read(box, "cond").content == b"two" and shell(box, "ls -A | grep -c sandal- || true") == "0\n"
    shell(box, "touch -d '2020-01-02 03:04:05 UTC' cond")
    ask("DELETE", 204, If_Match=read(box, "cond").headers["etag"])


def test_one_of_many_writers_with_the_same_tag_wins(box: Sandbox) -> None:
    """The second check is made when the bytes have come, and no other write gets between it and the rename."""
    put(box, "race", b"old", 201)
    shell(box, "touch -d '2020-01-02 03:04:05 UTC' race")
    tag = read(box, "race").headers["etag"]
    begun = threading.Barrier(8)

    def body(n: int) -> Iterator[bytes]:
        yield b"%d" % n
        begun.wait(30)  # all are under way
        yield b"."

    def write(n: int) -> int:
        with httpx.Client(base_url=box.client.http.base_url, headers=box.client.http.headers, timeout=60) as http:
            return http.put(f"{box.path}/fs/file", params={"path": "race"}, content=body(n),
                            headers={"If-Match": tag, "Content-Length": "2"}).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(write, range(8)))
    assert sorted(codes) == [204] + [412] * 7
    assert read(box, "race").content == b"%d." % codes.index(204)


def stream(n: int) -> Iterator[bytes]:
    block = bytes(range(256)) * 4096
    for _ in range(n):
        yield block


@pytest.mark.parametrize("size", [pytest.param(256), pytest.param(1500, marks=pytest.mark.long)])
def test_large_files_cost_no_memory(empty: Sandbox, daemon: Daemon, size: int) -> None:
    put(empty, "warm", b"x" * MIB)
    read(empty, "warm")
    pid = daemon.gateway_pid()
    before = rss_bytes(pid)
    peak, stop = [before], threading.Event()

    def sample() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], rss_bytes(pid))

    thread = threading.Thread(target=sample)
    thread.start()
    sent = hashlib.sha256()
    for block in stream(size):
        sent.update(block)
    answer = empty.client.call("PUT", f"{empty.path}/fs/file", params={"path": "large"}, content=stream(size),
                               headers={"Content-Length": str(size * MIB)})
    assert answer.status_code == 201, answer.text
    got, count = hashlib.sha256(), 0
    with empty.client.http.stream("GET", f"{empty.path}/fs/file", params={"path": "large"}) as r:
        assert r.status_code == 200 and r.headers["content-length"] == str(size * MIB)
        for block in r.iter_bytes():
            got.update(block)
            count += len(block)
    stop.set()
    thread.join()
    assert count == size * MIB and got.digest() == sent.digest()
    assert peak[0] - before <= 8 * MIB, f"{(peak[0] - before) / MIB:.1f} MiB"


def half_sent(sb: Sandbox, path: str, method: str, headers: str, body: bytes, length: int) -> socket.socket:
    host, port = sb.client.url.removeprefix("http://").split(":")
    s = socket.create_connection((host, int(port)))
    s.sendall((f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {sb.client.key}\r\n"
               f"Content-Length: {length}\r\n{headers}\r\n").encode() + body)
    return s


def test_what_shrinks_while_it_is_read_ends_short(box: Sandbox) -> None:
    """And never as if it were whole."""
    put(box, "shrinks", b"s" * 64 * MIB)
    s = half_sent(box, f"{box.path}/fs/file?path=shrinks", "GET", "", b"", 0)
    s.settimeout(20)
    head = s.recv(65536)
    assert f"Content-Length: {64 * MIB}".encode() in head
    count = len(head.partition(b"\r\n\r\n")[2])
    shell(box, "truncate -s 1000 shrinks")  # the socket holds some MiB, so most of it is not sent yet
    while got := s.recv(1 << 20):
        assert got.strip(b"s\0") == b""  # pages that were on their way are cleared by the cut
        count += len(got)
    assert 1000 < count < 64 * MIB
    s.close()
    assert read(box, "shrinks").content == b"s" * 1000


def held(daemon: Daemon, name: str) -> int:
    """Descriptors that the gateway has of files of this name."""
    fds = Path(f"/proc/{daemon.gateway_pid()}/fd")
    found = 0
    for fd in os.listdir(fds):
        try:
            found += os.readlink(fds / fd).endswith(f"/{name}")
        except FileNotFoundError:
            pass  # closed meanwhile
    return found


def test_a_download_waits_for_its_client_and_ends_with_it(empty: Sandbox, daemon: Daemon) -> None:
    data = os.urandom(MIB) * 63 + os.urandom(MIB)
    put(empty, "awaited", data)
    stays, leaves = [half_sent(empty, f"{empty.path}/fs/file?path=awaited", "GET", "", b"", 0) for _ in range(2)]
    got = [s.recv(65536) for s in (stays, leaves)][0]
    assert got.startswith(b"HTTP/1.1 200 ") and f"Content-Length: {len(data)}".encode() in got
    assert held(daemon, "awaited") == 2
    assert read(empty, "awaited").content == data  # they hold nobody up
    leaves.close()
    wait_for(lambda: held(daemon, "awaited") == 1)
    stays.settimeout(20)
    body = bytearray(got.partition(b"\r\n\r\n")[2])
    while len(body) < len(data) and (more := stays.recv(MIB)):
        body += more
    assert body == data
    wait_for(lambda: held(daemon, "awaited") == 0)
    stays.close()


def test_a_half_sent_put_leaves_the_old_file(box: Sandbox) -> None:
    put(box, "half/file", b"old")
    s = half_sent(box, f"{box.path}/fs/file?path=half/file", "PUT", "", b"x" * 700_000, 5_000_000)
    wait_for(lambda: len(shell(box, "ls -A half").split()) == 2, 10)  # the temporary one beside it
    assert read(box, "half/file").content == b"old"
    s.close()
    wait_for(lambda: shell(box, "ls -A half").split() == ["file"], 10)
    assert read(box, "half/file").content == b"old"


def test_what_is_no_file_is_refused(box: Sandbox) -> None:
    shell(box, "mkdir -p no/dir && mkfifo no/fifo 2>/dev/null; ln -sfn loop no/loop; touch no/dir/x")
    for path, hint in (("no/dir", "fs/dir lists"), ("no/fifo", "Only regular files"), ("/dev/null", "Only regular files")):
        for method, more in (("GET", {}), ("PUT", {"content": b"x"})):
            if path == "/dev/null" and not OWN_ROOT:
                error(box, method, "file", 403, "forbidden", params={"path": path}, **more)
            else:
                assert hint in error(box, method, "file", 409, "conflict", params={"path": path}, **more)["hint"]
    error(box, "PUT", "file", 400, "invalid_request", params={"path": "no/new/"}, content=b"x")
    assert "no directory" in error(box, "PUT", "file", 409, "conflict", params={"path": "no/dir/x/y"}, content=b"x")["hint"]
    assert "in a circle" in error(box, "GET", "file", 409, "conflict", params={"path": "no/loop"})["hint"]
    error(box, "GET", "file", 400, "invalid_request", params={"path": "x" * 256})
    error(box, "GET", "file", 400, "invalid_request", params={"path": "x/" * 2040 + "y" * 20})
    error(box, "GET", "file", 400, "invalid_request")
    chunked = box.client.call("PUT", f"{box.path}/fs/file", params={"path": "c"}, content=stream(1))
    assert chunked.status_code == 411 and chunked.json()["error"]["code"] == "length_required"
    error(box, "GET", "file", 404, "not_found", params={"path": "c"})


def test_errors_of_a_path_point_at_it(box: Sandbox) -> None:
    shell(box, "mkdir -p at/dir && touch at/dir/x")
    content = {"content": b"x"}
    for method, place, path, status, code, more in (
            ("GET", "file", "at/none", 404, "not_found", {}), ("GET", "file", "at/dir", 409, "conflict", {}),
            ("PUT", "file", "at/dir", 409, "conflict", content), ("PUT", "file", "at/dir/x/y", 409, "conflict", content),
            ("PUT", "file", "at/dir/", 400, "invalid_request", content), ("PUT", "file", "/etc/x", 403, "forbidden", content),
            ("DELETE", "file", "at/none", 404, "not_found", {}), ("DELETE", "file", "at/dir", 409, "conflict", {}),
            ("DELETE", "file", "/workspace", 403, "forbidden", {}),
            ("GET", "stat", "at/none", 404, "not_found", {}), ("GET", "dir", "at/none", 404, "not_found", {}),
            ("GET", "dir", "at/dir/x", 409, "conflict", {}), ("GET", "watch", "at/none", 404, "not_found", {})):
        refused = error(box, method, place, status, code, params={"path": path}, **more)
        assert refused["pointer"] == "/path", (method, place, path, refused)
    in_base64 = {"path_base64": base64.b64encode(b"at/none").decode()}
    assert error(box, "GET", "file", 404, "not_found", params=in_base64)["pointer"] == "/path"
    for path, status, code in (("at/dir", 409, "conflict"), ("n/o", 404, "not_found")):
        refused = error(box, "POST", "dir", status, code, json={"path": path, "parents": False})
        assert refused["pointer"] == "/path", refused
    for source, target, pointer in (("/workspace", "at/w", "/from"), ("at/dir", "/workspace", "/to")):
        assert error(box, "POST", "move", 403, "forbidden", json={"from": source, "to": target})["pointer"] == pointer


@pytest.mark.smoke
def test_places(box: Sandbox) -> None:
    put(box, "/home/user/../user/./p", b"home")
    assert read(box, "/home/user/p").content == b"home"
    if OWN_ROOT:
        assert b"root:" in read(box, "/etc/passwd").content
        assert read(box, "/proc/cpuinfo").content  # a size of 0, and yet something
        assert read(box, "/proc/uptime").headers["accept-ranges"] == "none"
        error(box, "PUT", "file", 403, "forbidden", params={"path": "/etc/x"}, content=b"")
    else:
        for path in ("/etc/passwd", "/workspace/../../etc/passwd", "../../etc/passwd", "/workspacex"):
            assert "/workspace" in error(box, "GET", "file", 403, "forbidden", params={"path": path})["message"]
        shell(box, "ln -sfn /etc etc && ln -sfn ../../../../../../etc up")
        for path in ("etc/passwd", "up/passwd"):
            answer = box.client.call("GET", f"{box.path}/fs/file", params={"path": path})
            assert answer.status_code in (400, 403, 404), answer.text
        inside = shell(box, "pwd").strip()  # what code calls its directory is good too
        put(box, "w", b"w")
        assert read(box, inside + "/w").content == b"w"
    for path in ("/", "/workspace", "/home/user", "/workspace/.", "/workspace/..", "x/.."):
        answer = box.client.call("DELETE", f"{box.path}/fs/file", params={"path": path, "recursive": "true"})
        assert answer.status_code == 403, answer.text


# --- Names ---------------------------------------------------------------------------------------


def test_names_of_any_bytes(box: Sandbox) -> None:
    raw = b"odd/\xff\xfe.txt"
    code = base64.b64encode(raw).decode()
    answer = box.client.call("PUT", f"{box.path}/fs/file", params={"path_base64": code}, content=b"odd", expect=201)
    assert box.client.call("GET", answer.headers["location"], expect=200).content == b"odd"
    entry = box.get("/fs/dir", params={"path": "odd"})["items"][0]
    assert base64.b64decode(entry["name_base64"]) == b"\xff\xfe.txt" and "\ufffd" in entry["name"]
    assert base64.b64decode(entry["path_base64"]) == b"/workspace/" + raw
    moved = box.post("/fs/move", {"from_base64": entry["path_base64"], "to": "odd/plain"})
    assert moved["path"] == "/workspace/odd/plain" and "name_base64" not in moved
    for name in ("ä ö", "-rf", "日本", "'\"$(x)`"):
        put(box, f"odd/{name}", name.encode())
        assert read(box, f"odd/{name}").content == name.encode()
    code = base64.b64encode(b"odd/a\nb").decode()  # URLs carry no line breaks
    box.client.call("PUT", f"{box.path}/fs/file", params={"path_base64": code}, content=b"lines", expect=201)
    assert set(names(box, "odd")) >= {"/workspace/odd/a\nb", "/workspace/odd/日本"}


# --- Directories ---------------------------------------------------------------------------------


def test_list_pages_and_depth(empty: Sandbox) -> None:
    shell(empty, "mkdir -p a/b/c && touch a/b/c/deep a/x z && for i in $(seq 500); do : > a/f$i; done && ln -s z link")
    assert names(empty) == ["/workspace/a", "/workspace/link", "/workspace/z"]
    assert "/workspace/a/b/c/deep" not in names(empty, depth=3, limit=1000)
    assert "/workspace/a/b/c/deep" in names(empty, depth=4, limit=1000)
    want = sorted(f"/workspace/{p}" for p in shell(empty, "find . -mindepth 1 -printf '%P\\n'").split("\n") if p)
    got, after = [], None
    while True:
        page = empty.get("/fs/dir", params={"depth": 9, "limit": 37, **({"after": after} if after else {})})
        got += [e["path"] for e in page["items"]]
        assert len(page["items"]) <= 37
        after = page["next"]
        if not after:
            break
    assert got == want
    link = next(e for e in empty.get("/fs/dir")["items"] if e["name"] == "link")
    assert link["type"] == "symlink" and link["target"] == "z"
    assert empty.get("/fs/stat", params={"path": "link"})["type"] == "symlink"
    assert empty.get("/fs/stat", params={"path": "link", "follow": "true"})["type"] == "file"
    error(empty, "GET", "dir", 404, "not_found", params={"path": "nope"})
    assert "no directory" in error(empty, "GET", "dir", 409, "conflict", params={"path": "z"})["hint"]


def test_mkdir_move_remove(empty: Sandbox) -> None:
    made = empty.client.call("POST", f"{empty.path}/fs/dir", json={"path": "d/e/f", "mode": "0700"}, expect=201)
    assert made.json()["type"] == "dir" and made.json()["mode"] == "0700"
    assert empty.client.get(made.headers["location"])["items"] == []
    empty.client.call("POST", f"{empty.path}/fs/dir", json={"path": "d/e/f"}, expect=201)
    error(empty, "POST", "dir", 409, "conflict", json={"path": "d/e/f", "parents": False})
    error(empty, "POST", "dir", 404, "not_found", json={"path": "n/o", "parents": False})
    put(empty, "d/1", b"one")
    put(empty, "d/2", b"two")
    for source, target, status, code, pointer in (
            ("d/1", "d/2", 409, "conflict", "/to"), ("d/1", "no/where", 404, "not_found", "/to"), ("d/1", "d/2/x", 409, "conflict", "/to"),
            ("d", "d/e/in", 400, "invalid_request", "/to"), ("d/0", "d/2", 404, "not_found", "/from"), ("no/1", "d/3", 404, "not_found", "/from")):
        refused = error(empty, "POST", "move", status, code, json={"from": source, "to": target})
        named = target if pointer == "/to" else source
        assert refused["pointer"] == pointer and f"/workspace/{named}: " in refused["message"], refused
    assert read(empty, "d/2").content == b"two"
    assert empty.post("/fs/move", {"from": "d/1", "to": "d/2", "overwrite": True})["path"] == "/workspace/d/2"
    assert read(empty, "d/2").content == b"one"
    error(empty, "POST", "move", 404, "not_found", json={"from": "d/1", "to": "d/3"})
    empty.post("/fs/move", {"from": "d", "to": "moved"})
    assert read(empty, "moved/2").content == b"one"
    assert "recursive=true" in error(empty, "DELETE", "file", 409, "conflict", params={"path": "moved"})["hint"]
    empty.client.call("DELETE", f"{empty.path}/fs/file", params={"path": "moved", "recursive": "true"}, expect=204)
    assert names(empty) == []
    key = {"Idempotency-Key": "once"}
    for _ in range(2):
        answer = empty.client.call("POST", f"{empty.path}/fs/dir", json={"path": "k", "parents": False}, headers=key)
        assert answer.status_code == 201, answer.text


# --- tus -----------------------------------------------------------------------------------------

TUS = {"Tus-Resumable": "1.0.0"}
OCTETS = {**TUS, "Content-Type": "application/offset+octet-stream"}


def meta(path: str, **more: str) -> str:
    return ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in {"path": path, **more}.items())


def create(sb: Sandbox, path: str, length: int | None, **more: str) -> str:
    size = {"Upload-Defer-Length": "1"} if length is None else {"Upload-Length": str(length)}
    answer = sb.client.call("POST", f"{sb.path}/fs/uploads", expect=201,
                            headers={**TUS, **size, "Upload-Metadata": meta(path, **more)})
    assert answer.headers["tus-resumable"] == "1.0.0"
    return answer.headers["location"]


def offset(sb: Sandbox, upload: str) -> int:
    answer = sb.client.call("HEAD", upload, headers=TUS, expect=200)
    assert answer.headers["cache-control"] == "no-store"
    return int(answer.headers["upload-offset"])


def patch(sb: Sandbox, upload: str, at: int, data: bytes, expect: int = 204, **headers: str) -> httpx.Response:
    return sb.client.call("PATCH", upload, headers={**OCTETS, "Upload-Offset": str(at), **headers}, content=data,
                          expect=expect)


def test_tus_in_pieces(box: Sandbox) -> None:
    data = os.urandom(3 * MIB + 5)
    put(box, "tus/file", b"old")
    upload = create(box, "tus/file", len(data), mode="0640")
    assert offset(box, upload) == 0
    at = 0
    for size in (1, 70_000, 2 * MIB):
        answer = patch(box, upload, at, data[at:at + size])
        at += size
        assert int(answer.headers["upload-offset"]) == at == offset(box, upload)
    assert read(box, "tus/file").content == b"old"
    patch(box, upload, at - 1, data[at - 1:], 409)
    patch(box, upload, at, data[at:] + b"x", 413)
    assert offset(box, upload) == at
    patch(box, upload, at, data[at:])
    assert read(box, "tus/file").content == data
    assert box.get("/fs/stat", params={"path": "tus/file"})["mode"] == "0640"
    head = box.client.call("HEAD", upload, headers=TUS, expect=200)
    assert head.headers["upload-offset"] == head.headers["upload-length"] == str(len(data))
    patch(box, upload, len(data), b"", 409)
    assert names(box, "tus") == ["/workspace/tus/file"]


def test_tus_goes_on_after_a_cut(box: Sandbox) -> None:
    data = os.urandom(4 * MIB)
    upload = create(box, "tus/cut", len(data))
    s = half_sent(box, upload, "PATCH", "".join(f"{k}: {v}\r\n" for k, v in {**OCTETS, "Upload-Offset": "0"}.items()),
                  data[:MIB], len(data))
    wait_for(lambda: offset(box, upload) > 0, 10)
    s.close()

    def free() -> bool:  # until the cut is seen somebody is at it
        at = offset(box, upload)
        return box.client.call("PATCH", upload, headers={**OCTETS, "Upload-Offset": str(at)}, content=b"").status_code == 204

    wait_for(free, 10)
    at = offset(box, upload)
    assert 0 < at <= MIB
    patch(box, upload, at, data[at:])
    assert read(box, "tus/cut").content == data


def test_tus_deferred_length_empty_and_end(box: Sandbox) -> None:
    upload = create(box, "tus/later", None)
    assert box.client.call("HEAD", upload, headers=TUS, expect=200).headers["upload-defer-length"] == "1"
    patch(box, upload, 0, b"abc")
    patch(box, upload, 3, b"def", **{"Upload-Length": "6"})
    assert read(box, "tus/later").content == b"abcdef"
    upload = create(box, "tus/none", 0)
    assert read(box, "tus/none").content == b"" and offset(box, upload) == 0
    upload = create(box, "tus/gone", 10)
    patch(box, upload, 0, b"abc")
    box.client.call("DELETE", upload, headers=TUS, expect=204)
    box.client.call("HEAD", upload, headers=TUS, expect=404)
    error(box, "GET", "file", 404, "not_found", params={"path": "tus/gone"})
    wait_for(lambda: all(not n.startswith(".") for n in shell(box, "ls -A tus").split()), 10)


def test_tus_protocol(box: Sandbox) -> None:
    options = box.client.call("OPTIONS", f"{box.path}/fs/uploads", expect=204)
    assert options.headers["tus-version"] == "1.0.0" and "termination" in options.headers["tus-extension"]
    answer = box.client.call("POST", f"{box.path}/fs/uploads", expect=412, headers={"Upload-Length": "1"})
    assert answer.headers["tus-version"] == "1.0.0"
    error(box, "POST", "uploads", 400, "invalid_request", headers={**TUS, "Upload-Length": "1"})
    refused = error(box, "POST", "uploads", 409, "conflict",
                    headers={**TUS, "Upload-Length": "1", "Upload-Metadata": meta("/workspace")})
    assert "fs/dir lists" in refused["hint"] and refused["pointer"] == "/upload_metadata"
    for header in ("Upload-Length", "Upload-Offset"):  # past 64 bits, and past what they may be
        place, method = ("uploads", "POST") if header == "Upload-Length" else (create(box, "tus/far", 1).rsplit("/fs/", 1)[1], "PATCH")
        for number in (str(2**64), str(2**63 - 1)):
            refused = error(box, method, place, 400, "invalid_request", headers={**OCTETS, "Upload-Metadata": meta("x"), header: number})
            assert refused["pointer"] == "/" + header.lower().replace("-", "_") and number in refused["message"], refused
    refused = error(box, "PATCH", create(box, "tus/far", 9).rsplit("/fs/", 1)[1], 409, "conflict", headers={**OCTETS, "Upload-Offset": "3"}, content=b"x")
    assert refused["pointer"] == "/upload_offset"
    upload = create(box, "tus/p", 1)
    error(box, "PATCH", upload.rsplit("/fs/", 1)[1], 415, "unsupported_media_type",
          headers={**TUS, "Upload-Offset": "0"}, content=b"x")
    box.client.call("DELETE", upload, headers=TUS, expect=204)


def test_uploads_are_bounded(empty: Sandbox) -> None:
    made = [create(empty, f"u{i}", 1) for i in range(64)]
    headers = {**TUS, "Upload-Length": "1", "Upload-Metadata": meta("one more")}
    error(empty, "POST", "uploads", 429, "quota_exceeded", headers=headers)
    empty.client.call("DELETE", made[0], headers=TUS, expect=204)
    create(empty, "one more", 1)


# --- Watch ---------------------------------------------------------------------------------------


class Watch:
    def __init__(self, sb: Sandbox, **params: Any):
        self.http = httpx.Client(base_url=sb.client.url, headers=sb.client.headers(), timeout=20)
        self.stream = self.http.stream("GET", f"{sb.path}/fs/watch", params=params)
        self.answer = self.stream.__enter__()
        assert self.answer.status_code == 200, self.answer.read()
        self.lines = self.answer.iter_lines()

    def until(self, last: tuple[str, str]) -> list[tuple[str, str]]:
        """(type, path) of the events, up to one."""
        seen, end = [], time.monotonic() + 30
        for line in self.lines:  # an empty one is a sign of life
            assert time.monotonic() < end, seen
            if line.strip():
                event = json.loads(line)
                seen.append((event["type"], event.get("path", "")))
                if seen[-1] == last:
                    return seen
        raise AssertionError(f"the stream ended: {seen}")

    def close(self) -> None:
        self.stream.__exit__(None, None, None)
        self.http.close()


@pytest.mark.smoke
def test_watch(empty: Sandbox) -> None:
    w = Watch(empty, path="/workspace")
    shell(empty, "echo 1 > a; mv a b; mkdir d; touch d/quiet; rm b")
    seen = w.until(("deleted", "/workspace/b"))
    assert ("created", "/workspace/a") in seen and ("modified", "/workspace/a") in seen
    assert ("moved", "/workspace/b") in seen and ("created", "/workspace/d") in seen
    assert not any(path.endswith("quiet") for _, path in seen)
    put(empty, "by put", b"x")
    seen = w.until(("created", "/workspace/by put"))
    assert all(path == "/workspace/by put" for _, path in seen), seen
    shell(empty, "touch again; mkdir drained")
    w.until(("created", "/workspace/drained"))
    for mode in (600, 640, 600):  # one event of the kernel's each; once one was sent, the next of its path is told too
        shell(empty, f"chmod {mode} again")
        seen = w.until(("modified", "/workspace/again"))  # gVisor tells of the new directory twice
        assert seen.count(("modified", "/workspace/again")) == 1, seen
    w.close()


def test_watch_recursive(empty: Sandbox) -> None:
    shell(empty, "mkdir -p old/sub")
    w = Watch(empty, path="/workspace", recursive="true")
    shell(empty, "touch old/sub/x; mkdir -p new/deep; touch new/deep/y")
    seen = w.until(("created", "/workspace/new/deep/y"))
    assert ("created", "/workspace/old/sub/x") in seen and ("created", "/workspace/new/deep") in seen
    shell(empty, "mv new renamed")
    w.until(("moved", "/workspace/renamed"))
    shell(empty, "touch renamed/deep/z")
    w.until(("created", "/workspace/renamed/deep/z"))
    w.close()


def test_an_upload_and_a_watch_of_a_name_of_any_bytes(empty: Sandbox) -> None:
    """In pieces cut at odd places, and none of them beyond what was said."""
    raw = b"odd\xff\xfe"
    code = base64.b64encode(b"/workspace/" + raw).decode()
    w = Watch(empty, path="/workspace")
    upload = empty.client.call("POST", f"{empty.path}/fs/uploads", expect=201, headers={
        **TUS, "Upload-Length": "6", "Upload-Metadata": f"path {base64.b64encode(raw).decode()}"}).headers["location"]
    at = 0
    for piece in (b"a", b"", b"bcde", b"f"):
        patch(empty, upload, at, piece)
        at += len(piece)
    for wrong in ("-1", "x", "", "99999999999999999999"):
        empty.client.call("PATCH", upload, headers={**OCTETS, "Upload-Offset": wrong}, content=b"z", expect=400)
    assert empty.client.call("GET", f"{empty.path}/fs/file", params={"path_base64": code}, expect=200).content == b"abcdef"
    for line in w.lines:
        if line.strip():
            event = json.loads(line)
            assert event["path_base64"] == code and "\ufffd" in event["path"], event
            break
    w.close()


def test_watch_ends_with_what_it_watches(empty: Sandbox) -> None:
    shell(empty, "mkdir t")
    w = Watch(empty, path="t")
    shell(empty, "rmdir t")
    assert w.until(("deleted", "/workspace/t"))
    assert [line for line in w.lines if line.strip()] == []
    w.close()
    error(empty, "GET", "watch", 404, "not_found", params={"path": "nope"})


def test_a_watch_and_a_download_end_with_the_sandbox(client: Client) -> None:
    sb = client.sandbox(template="base")
    put(sb, "f", b"x" * 32 * MIB)
    w = Watch(sb, path="/workspace")
    s = half_sent(sb, f"{sb.path}/fs/file?path=f", "GET", "", b"", 0)
    assert s.recv(100)
    sb.delete()
    with pytest.raises((AssertionError, httpx.HTTPError)):
        w.until(("created", "/never"))
    w.close()
    s.settimeout(20)
    count = 0
    while got := s.recv(1 << 20):
        count += len(got)
    assert count < 32 * MIB
    s.close()


# --- WebSocket -----------------------------------------------------------------------------------


def test_over_a_websocket(empty: Sandbox) -> None:
    data = os.urandom(MIB + 7)
    with empty.client.socket(f"{empty.path}/ws") as ws:
        assert ws.call("fs.write", path="w", data=base64.b64encode(data).decode()) == {"created": True, "size": len(data)}
        assert read(empty, "w").content == data
        got, at = b"", 0
        while True:
            part = ws.call("fs.read", path="w", offset=at, length=400_000)
            got += base64.b64decode(part["data"])
            at = len(got)
            if part["eof"]:
                break
        assert got == data and part["size"] == len(data)
        ws.call("fs.write", path="t", data="hällo", encoding="utf8")
        assert read(empty, "t").content == "hällo".encode()
        assert ws.call("fs.stat", path="t")["size"] == 6
        assert [e["name"] for e in ws.call("fs.list")["items"]] == ["t", "w"]
        assert ws.call("fs.remove", path="t") is None
        watch = ws.send("fs.watch", path="/workspace")
        assert ws.receive() == {"id": watch, "type": "watching"}
        shell(empty, "mkdir seen")
        assert ws.receive() == {"id": watch, "type": "created", "path": "/workspace/seen"}
        ident = ws.send("fs.read", path="nope")
        frame = ws.receive()
        assert frame["id"] == ident and frame["error"]["code"] == "not_found" and frame["error"]["pointer"] == "/path"


# --- Company -------------------------------------------------------------------------------------


def test_many_at_once(empty: Sandbox) -> None:
    """Writers of one path: one of them wins, whole."""
    bodies = [bytes([65 + i]) * (200_000 + i) for i in range(8)]
    failures: list[str] = []

    def write(body: bytes) -> None:
        with httpx.Client(base_url=empty.client.url, headers=empty.client.headers(), timeout=60) as http:
            answer = http.put(f"{empty.path}/fs/file", params={"path": "one"}, content=body)
            if answer.status_code not in (201, 204):
                failures.append(answer.text)

    threads = [threading.Thread(target=write, args=(body,)) for body in bodies]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures and read(empty, "one").content in bodies
    assert shell(empty, "ls -A") == "one\n"


def test_a_slow_reader_holds_nobody_up(empty: Sandbox, daemon: Daemon) -> None:
    put(empty, "f", b"x" * 64 * MIB)
    before = rss_bytes(daemon.gateway_pid())
    slow = [half_sent(empty, f"{empty.path}/fs/file?path=f", "GET", "", b"", 0) for _ in range(10)]
    for s in slow:
        assert s.recv(1000)
    assert read(empty, "f").content == b"x" * 64 * MIB
    assert rss_bytes(daemon.gateway_pid()) - before <= 32 * MIB
    for s in slow:
        s.close()


def test_transfers_are_bounded(empty: Sandbox) -> None:
    put(empty, "f", b"x")
    held = [half_sent(empty, f"{empty.path}/fs/file?path=h{i}", "PUT", "", b"x", 1000) for i in range(64)]
    wait_for(lambda: len(shell(empty, "ls -A").split()) == 65)
    answer = empty.client.call("GET", f"{empty.path}/fs/file", params={"path": "f"}, expect=429)
    assert answer.json()["error"]["code"] == "quota_exceeded" and answer.headers["retry-after"]
    assert empty.get("/fs/stat", params={"path": "f"})["size"] == 1
    for s in held:
        s.close()
    wait_for(lambda: empty.client.call("GET", f"{empty.path}/fs/file", params={"path": "f"}).status_code == 200)
    wait_for(lambda: names(empty) == ["/workspace/f"])


def test_watches_are_bounded(empty: Sandbox) -> None:
    held = [Watch(empty, path="/workspace") for _ in range(64)]
    error(empty, "GET", "watch", 429, "quota_exceeded")
    for w in held:
        w.close()
    wait_for(lambda: not names(empty) and Watch(empty, path="/workspace").close() is None)


def test_owners_and_keys(empty: Sandbox) -> None:
    put(empty, "f", b"x")
    with httpx.Client(base_url=empty.client.url) as http:
        assert http.get(f"{empty.path}/fs/file", params={"path": "f"}).status_code == 401
        assert http.put(f"{empty.path}/fs/file", params={"path": "f"}, content=b"y").status_code == 401
    assert read(empty, "f").content == b"x"
    empty.client.error("GET", "/v1/sandboxes/nope/fs/stat", 404, "sandbox_not_found", params={"path": "f"})


def test_the_gateway_restarts_and_files_stay(tmp_path: Path) -> None:
    with Daemon() as d:
        client = Client(d.url, d.key)
        sb = client.sandbox(template="base")
        put(sb, "stays", b"here")
        upload = create(sb, "half", 10)
        patch(sb, upload, 0, b"abc")
        d.stop()
        d.start()
        client = Client(d.url, d.key)
        again = Sandbox(client, client.get(f"/v1/sandboxes/{sb.id}"))
        assert read(again, "stays").content == b"here"
        assert [p for p in names(again) if "half" in p] == []
        client.call("HEAD", upload, headers=TUS, expect=410)
        wait_for(lambda: shell(again, "ls -A").split() == ["stays"], 10)
        client.close()
