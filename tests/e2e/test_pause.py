"""pause and resume: frozen with all state, deadlines stand still, who needs it wakes it."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, TEMPLATE, Daemon, wait_for
from harness.processes import first_init

needs_freezer = pytest.mark.skipif(ISOLATION == "none" or os.geteuid() != 0,
                                   reason="isolation none, and users without control groups of their own, have no freezer")


@pytest.fixture
def box(client: Client) -> Iterator[Sandbox]:
    with client.sandbox(template="base") as sb:
        yield sb


def state(box: Sandbox) -> str:
    return box.get()["state"]


@pytest.mark.skipif(ISOLATION != "none", reason="of isolation none")
def test_none_cannot_pause(client: Client, box: Sandbox) -> None:
    client.error("POST", f"{box.path}/pause", 501, "not_supported")
    error = client.error("POST", "/v1/sandboxes", 501, "not_supported", json={"template": "base", "on_timeout": "pause"})
    assert error["pointer"] == "/on_timeout"
    assert box.get()["on_timeout"] == "kill" and box.post("/resume")["state"] == "running"


@pytest.mark.smoke
def test_where_nothing_can_be_paused_idle_is_kill(client: Client) -> None:
    with client.sandbox(template="base", timeout=600) as sb:
        answer = client.call("POST", f"{sb.path}/pause")
        if answer.status_code == 200:
            pytest.skip("sandboxes can be paused here")
        why = answer.json()["error"]
        assert (answer.status_code, why["code"]) == (501, "not_supported") and why["hint"], why
        assert sb.get()["on_timeout"] == "kill"
        for method, path in (("POST", "/v1/sandboxes"), ("PATCH", sb.path)):
            body = {"on_timeout": "pause", **({"template": "base"} if method == "POST" else {})}
            error = client.error(method, path, 501, "not_supported", json=body)
            assert (error["message"], error["pointer"]) == (why["message"], "/on_timeout") and error["hint"], error
        assert client.call("PATCH", sb.path, json={"on_timeout": "kill", "timeout": 1}).status_code == 200
        wait_for(lambda: client.call("GET", sb.path).status_code == 404)


@needs_freezer
@pytest.mark.smoke
def test_state_is_kept_and_a_run_wakes_it(fresh: Sandbox) -> None:
    fresh.run("x = 41")
    swap = len(Path("/proc/swaps").read_text().splitlines()) > 1
    assert fresh.record["memory_stays"] is None
    told = fresh.post("/pause")
    assert told["state"] == "paused" and (told["memory_stays"] is None) <= swap, told
    assert fresh.post("/pause")["state"] == "paused"
    assert state(fresh) == "paused" and fresh.get()["expires_at"] is None
    assert fresh.get("/contexts")["items"]  # reading a record does not wake it
    assert state(fresh) == "paused"
    assert fresh.run("x + 1")["text"] == "42"
    assert state(fresh) == "running"
    assert fresh.post("/resume")["state"] == "running"
    fresh.post("/pause")
    assert fresh.post("/resume")["state"] == "running"


@needs_freezer
def test_exec_and_contexts_wake_it(box: Sandbox) -> None:
    for use in (lambda: box.post("/exec", {"cmd": "echo awake"})["stdout"] == "awake\n",
                lambda: box.context(language="python")["state"] == "idle"):
        assert box.post("/pause")["state"] == "paused"
        assert use()
        assert state(box) == "running"


@needs_freezer
def test_its_processes_stand_still(box: Sandbox) -> None:
    made = box.post("/exec", {"cmd": "while :; do echo x >> ticks; sleep 0.02; done", "background": True}, expect=201)

    def ticks() -> int:
        return int(box.post("/exec", {"cmd": "wc -l < ticks || echo 0"})["stdout"])
    wait_for(lambda: ticks() > 5)
    box.post("/pause")
    cpu = box.get("/metrics")["cpu_seconds"]
    paused = time.monotonic()
    wait_for(lambda: time.monotonic() - paused > 1)
    again = box.get("/metrics")["cpu_seconds"]
    assert state(box) == "paused"
    if cpu is not None:
        assert again == cpu
    box.client.call("POST", f"{box.path}/processes/{made['pid']}/signal", expect=204, json={"signal": "SIGTERM"})
    wait_for(lambda: box.get(f"/processes/{made['pid']}")["state"] == "exited")
    assert box.get(f"/processes/{made['pid']}")["signal"] == "SIGTERM"


@needs_freezer
def test_a_run_that_comes_while_it_is_being_paused(daemon: Daemon, fresh: Sandbox) -> None:
    fresh.run("x = 41")
    with fresh.client.socket() as ws:
        os.kill(daemon.pid, signal.SIGSTOP)  # the keeper: nothing is frozen yet
        try:
            pause = ws.send("sandboxes.pause", sandbox=fresh.id)
            assert ws.call("sandboxes.get", sandbox=fresh.id)["state"] == "running"
            run = ws.send("run_code", sandbox=fresh.id, code="x + 1")
            assert ws.call("contexts.list", sandbox=fresh.id)["items"][0]["queue"] == 1
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        frames: list[dict[str, Any]] = []
        while {(pause, "response"), (run, "result")} - {(frame["id"], frame["type"]) for frame in frames}:
            frames.append(ws.receive(30))
    assert next(frame for frame in frames if frame["type"] == "result")["text"] == "42", frames
    assert state(fresh) == "running"


def half_sent(daemon: Daemon, method: str, path: str, **headers: str) -> socket.socket:
    """The head of a request with ten bytes, and the first five of them."""
    sock = socket.create_connection(("127.0.0.1", int(daemon.url.rsplit(":", 1)[1])), timeout=30)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {daemon.key}", "Content-Length: 10", "Connection: close",
             *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    sock.sendall("\r\n".join([*lines, "", "12345"]).encode())
    return sock


def status_of(sock: socket.socket) -> int:
    with sock, sock.makefile("rb") as answer:
        return int(answer.readline().split()[1])


@needs_freezer
@pytest.mark.parametrize("way", ["put", "put as it stands", "tus"])
def test_what_is_being_sent_wakes_it(daemon: Daemon, client: Client, way: str) -> None:
    with client.sandbox(template="base") as box:
        path, method, more = f"{box.path}/fs/file?path=sent", "PUT", {"Content_Type": "application/octet-stream"}
        if way == "put as it stands":
            more["If_None_Match"] = "*"
        if way == "tus":
            made = client.call("POST", f"{box.path}/fs/uploads", expect=201, headers={
                "Tus-Resumable": "1.0.0", "Upload-Length": "10", "Upload-Metadata": "path " + base64.b64encode(b"sent").decode()})
            path, method = made.headers["location"], "PATCH"
            more = {"Tus_Resumable": "1.0.0", "Upload_Offset": "0", "Content_Type": "application/offset+octet-stream"}
        sock = half_sent(daemon, method, path, **more)
        temporary = "ls -A | wc -l"
        wait_for(lambda: box.post("/exec", {"cmd": temporary})["stdout"] == "1\n", 20)
        box.post("/pause")
        assert state(box) == "paused"
        sock.sendall(b"67890")
        assert status_of(sock) in (201, 204)
        assert state(box) == "running" and box.post("/exec", {"cmd": "cat sent"})["stdout"] == "1234567890"


@needs_freezer
def test_a_question_that_came_before_it_was_frozen_wakes_it(client: Client) -> None:
    """It is with sandal-init, which stands still: who asks would wait for as long as nobody else wakes it."""
    with client.sandbox(template="base") as box, client.socket() as ws:
        init = first_init(box.id)
        for op, fields in (("fs.list", {"path": "."}), ("exec", {"cmd": "echo here", "stream": False})):
            os.kill(init, signal.SIGSTOP)
            try:
                asked = ws.send(op, sandbox=box.id, **fields)
                assert ws.call("sandboxes.get", sandbox=box.id)["state"] == "running"  # what came before has been passed on
                pause = ws.send("sandboxes.pause", sandbox=box.id)
                first = ws.receive(30)
                assert first["id"] == pause and first["data"]["state"] == "paused", first
            finally:
                os.kill(init, signal.SIGCONT)
            answer = ws.receive(30)
            assert answer["id"] == asked and answer["type"] != "failure", answer
            assert state(box) == "running"


@needs_freezer
def test_files_and_pauses_at_once(client: Client) -> None:
    """Whatever step a call is at when the sandbox is frozen, it is carried out."""
    with client.sandbox(template="base") as box:
        box.post("/fs/dir", {"path": "d/e/f"}, expect=201)
        over = threading.Event()
        pauses: list[int] = []

        def pause() -> None:
            own = Client(client.url, client.key)
            while not over.is_set():
                pauses.append(own.call("POST", f"{box.path}/pause").status_code)
            own.close()

        thread = threading.Thread(target=pause)
        thread.start()
        try:
            for number in range(40):
                name = f"d/{number}"
                client.call("PUT", f"{box.path}/fs/file", params={"path": name}, content=b"x", expect=201)
                box.post("/fs/move", {"from": name, "to": f"{name}-moved"})
                assert len(box.get("/fs/dir", params={"path": "d", "depth": "3"})["items"]) == 3
                client.call("DELETE", f"{box.path}/fs/file", params={"path": f"{name}-moved"}, expect=204)
        finally:
            over.set()
            thread.join()
        assert pauses.count(200) > 4, pauses


@needs_freezer
def test_deadlines_stand_still(fresh: Sandbox) -> None:
    """A run and a command whose time would be over long before they are woken."""
    path = fresh.path
    with fresh.client.http.stream("POST", f"{path}/run_code", json={
            "code": "import time\nprint('begun', flush=True)\nfor _ in range(40): time.sleep(0.05)\n'whole'",
            "timeout": 10, "stream": True}) as r:
        lines = (json.loads(line) for line in r.iter_lines() if line.strip())
        assert next(e for e in lines if e["type"] == "stdout")
        command = fresh.post("/exec", {"cmd": "sleep 2; echo whole", "background": True, "timeout": 10}, expect=201)
        fresh.post("/pause")
        at = time.monotonic()
        wait_for(lambda: time.monotonic() - at > 11, 20)
        assert fresh.post("/resume")["state"] == "running"
        result = next(e for e in lines if e["type"] == "result")
    assert result["status"] == "ok" and result["text"] == "'whole'", result
    text = fresh.client.call("GET", f"{path}/processes/{command['pid']}/events", expect=200).text
    last: dict[str, Any] = json.loads(text.strip().split("\n")[-1])
    assert last["status"] == "ok" and last["stdout"] == "whole\n", last


@needs_freezer
def test_idle_sandbox_is_paused_or_ended(client: Client) -> None:
    with client.sandbox(template="base", timeout=1) as paused:
        assert paused.record["on_timeout"] == "pause"
        ended = client.sandbox(template="base", timeout=1, on_timeout="kill")
        wait_for(lambda: state(paused) == "paused", 10)
        wait_for(lambda: client.call("GET", ended.path).status_code == 404, 10)
        assert paused.post("/exec", {"cmd": "echo back"})["stdout"] == "back\n"


@needs_freezer
def test_a_paused_sandbox_can_be_ended(client: Client) -> None:
    sandbox = client.sandbox(template=TEMPLATE)
    sandbox.run("x = 1")
    sandbox.post("/exec", {"cmd": "sleep 300", "background": True}, expect=201)
    sandbox.post("/pause")
    sandbox.delete()
    client.error("GET", sandbox.path, 404, "sandbox_not_found")


@needs_freezer
def test_reset_and_interrupt_wake_it(fresh: Sandbox) -> None:
    context = fresh.record["default_context"]
    with fresh.client.http.stream("POST", f"{fresh.path}/run_code", json={
            "code": "import time\nprint('begun', flush=True)\ntime.sleep(300)", "stream": True}) as r:
        lines = (json.loads(line) for line in r.iter_lines() if line.strip())
        assert next(e for e in lines if e["type"] == "stdout")
        fresh.post("/pause")
        assert fresh.post(f"/contexts/{context}/interrupt")["interrupted"]
        assert next(e for e in lines if e["type"] == "result")["status"] == "interrupted"
    fresh.post("/pause")
    assert fresh.post(f"/contexts/{context}/reset")["state"] == "idle"


@needs_freezer
def test_usage_tells_active_from_paused(client: Client, box: Sandbox) -> None:
    box.post("/pause")
    before = box.get("/usage")
    at = time.monotonic()
    wait_for(lambda: time.monotonic() - at > 0.5)
    after = box.get("/usage")
    assert after["paused_seconds"] >= before["paused_seconds"] + 0.4
    assert after["active_seconds"] == before["active_seconds"]
    box.post("/resume")
    mine = client.get("/v1/usage", params={"limit": 1000})
    row = next(r for r in mine["items"] if r["sandbox"] == box.id)
    assert row["ended_at"] is None and row["paused_seconds"] >= 0.4
    assert mine["paused_seconds"] >= row["paused_seconds"]


def test_usage_outlives_the_sandbox(client: Client) -> None:
    sandbox = client.sandbox(template="base")
    wait_for(lambda: client.get(f"{sandbox.path}/usage")["active_seconds"] > 0)  # one that is gone at once has used nothing
    sandbox.delete()
    rows: list[dict[str, Any]] = []
    after = None
    while True:
        page = client.get("/v1/usage", params={"limit": 50, **({"after": after} if after else {})})
        rows += page["items"]
        after = page["next"]
        if not after:
            break
    row = next(r for r in rows if r["sandbox"] == sandbox.id)
    assert row["ended_at"] and row["active_seconds"] > 0 and row["template"] == "base"
    client.error("GET", "/v1/usage", 400, "invalid_request", params={"after": "nothing"})


def test_ledger_survives_a_restart(tmp_path: Path) -> None:
    with Daemon() as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template="base")
        sandbox.post("/exec", {"cmd": "true"})
        wait_for(lambda: client.get(f"{sandbox.path}/usage")["active_seconds"] > 0.2)
        client.close()
        d.stop()
        d.start()
        client = Client(d.url, d.key)
        assert client.get(f"{sandbox.path}/usage")["active_seconds"] > 0.2
        client.delete(sandbox.path)
        client.close()


@needs_freezer
def test_an_orderly_stop_and_the_next_start() -> None:
    """The stop waits for nothing that is frozen; the first use of what was paused then is whatever comes."""
    with Daemon() as d:
        client = Client(d.url, d.key)
        first, second, third = client.sandbox(template=TEMPLATE), client.sandbox(template="base"), client.sandbox(template="base")
        third.post("/exec", {"cmd": "echo kept > left_behind"})
        for sandbox in (first, second, third):
            assert sandbox.post("/pause")["state"] == "paused"
        client.close()
        assert d.stop() == 0
        assert "kernel.exit_missing" not in d.log() and "kernel.unkillable" not in d.log()
        d.start()
        kept = Path(f"/proc/{d.pid}/root{d.state}")  # with the volumes that the keeper alone has mounted
        assert list(kept.rglob("left_behind"))
        client = Client(d.url, d.key)
        client.http.timeout = 60
        for path in (first.path, second.path, third.path):
            assert client.get(path)["state"] == "paused"
        assert client.post(f"{first.path}/run_code", {"code": "1 + 1"})["text"] == "2"
        assert client.post(f"{second.path}/contexts", {"language": "python"}, expect=201)["state"] == "idle"
        client.delete(third.path)
        assert not list(kept.rglob("left_behind"))
        for path in (first.path, second.path):
            client.delete(path)
        client.close()
