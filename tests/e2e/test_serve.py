"""The command line, unix sockets, TLS, CORS, HTTP habits and slow clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import socket
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from harness.client import Client, Sandbox
from harness.daemon import BUILD, ROOT, TEMPLATE, Daemon, clean_environment, let_in, rss_bytes, wait_for
from harness.jupyter import Channels
from harness.processes import host_pid, inits
from websockets.exceptions import ConnectionClosed

SANDALD = str(BUILD / "sandald")


def sandald(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SANDALD, *args], capture_output=True, text=True, env={**clean_environment(), **(env or {})}, timeout=20)


def test_help_and_version() -> None:
    top = sandald("--help")
    assert top.returncode == 0 and "serve" in top.stdout
    for command in ("serve", "check-config", "doctor", "keys", "completion", "version"):
        got = sandald(command, "--help")
        assert got.returncode == 0 and "Usage: sandald " + command in got.stdout, got
        assert not re.search(" $", got.stdout, re.M), got.stdout
    assert sandald("version").stdout.startswith("sandald ")
    assert json.loads(sandald("version", "--json").stdout)["version"]
    assert sandald("nope").returncode == 2 and sandald().returncode == 2


def test_doctor(tmp_path: Path) -> None:
    """It tells the truth about `none`, which is there everywhere, and leaves nothing behind."""
    state = tmp_path / "state"
    state.mkdir()
    got = sandald("doctor", "--json", "--state-dir", str(state), "--isolation", "none")
    assert got.returncode == 0, (got.stdout, got.stderr)
    report = json.loads(got.stdout)
    assert report["ok"] and report["isolation"] == "none" and report["root"] == (os.geteuid() == 0)
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert states["none"] == "ok" and states["host"] == "ok"
    assert {"memory", "pids", "cpu", "freeze", "disk", "egress", "overlay", "checkpoint",
            "namespace", "bubblewrap", "process", "gvisor", "runc"} <= states.keys()
    for check in report["checks"]:
        assert check["state"] in ("ok", "limited", "no") and (check["state"] == "ok" or check["detail"]), check
    assert list(state.iterdir()) == []
    text = sandald("doctor", "--state-dir", str(state), "--isolation", "none")
    assert text.returncode == 0 and "isolation none" in text.stdout
    assert sandald("doctor", "--listen", "nowhere").returncode == 2


@pytest.mark.parametrize("code,state,said", [(0, "ok", "content"), (1, "no", "lacking"), (None, "no", "not installed")])
def test_doctor_asks_criu(tmp_path: Path, code: int | None, state: str, said: str) -> None:
    if code is not None:
        (tmp_path / "criu").write_text(f'#!/bin/sh\n[ "$1" = check ] && exit {code}\nexit 9\n')
        (tmp_path / "criu").chmod(0o755)
    path = f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin" if code is not None else f"{tmp_path}:/nonexistent"
    got = sandald("doctor", "--json", "--state-dir", str(tmp_path), "--isolation", "none", env={"PATH": path})
    row = next(check for check in json.loads(got.stdout)["checks"] if check["name"] == "checkpoint")
    assert row["state"] == state and said in row["detail"] and "no snapshots" in row["detail"], row


def test_doctors_do_not_disturb_each_other(tmp_path: Path) -> None:
    """As root their keepers would have the same ids."""
    argv = [SANDALD, "doctor", "--json", "--state-dir", str(tmp_path), "--isolation", "none"]
    doctors = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment()) for _ in range(3)]
    said = [(*doctor.communicate(timeout=200), doctor.returncode) for doctor in doctors]
    states = [{check["name"]: check["state"] for check in json.loads(out)["checks"]} for out, _, _ in said]
    assert all(code == 0 for _, _, code in said), said
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions(shell: str) -> None:
    got = sandald("completion", shell)
    assert got.returncode == 0 and "listen" in got.stdout
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=got.stdout, text=True).returncode == 0


def test_check_config(tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    good.write_text('{"listen": ["127.0.0.1:1"], "limits": {"queue": 5}}')
    got = sandald("check-config", "--config", str(good), "--limits-contexts", "3", env={"SANDAL_LIMITS_QUEUE": "6"})
    assert got.returncode == 0, got.stderr
    config = json.loads(got.stdout)
    assert config["listen"] == ["127.0.0.1:1"] and config["limits"]["queue"] == 6 and config["limits"]["contexts"] == 3
    for text, says in (('{"lisen": []}', "lisen: unknown key"), ('{"limits": {"queue": "x"}}', "limits.queue"),
                       ('{"listen": ["127.0.0.1:1"], "listen": []}', "good.json"), ("{", "good.json")):
        good.write_text(text)
        got = sandald("check-config", "--config", str(good))
        assert got.returncode == 2 and says in got.stderr, got.stderr
    got = sandald("serve", "--no-auth", "--listen", "0.0.0.0:1")
    assert got.returncode == 2 and "no_auth is refused" in got.stderr
    for whole, warned in (("64MiB", False), ("63MiB", True)):  # a sandbox's own is 64 MiB
        got = sandald("check-config", "--budgets-log-bytes", whole)
        assert got.returncode == 0 and json.loads(got.stdout), got
        assert ("warning: budgets.sandbox_log_bytes (67108864) is more than budgets.log_bytes" in got.stderr) == warned, got.stderr


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    let_in(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        got = sandald("serve", "--listen", listen, "--proxy-listen", "off", "--state-dir", str(tmp_path / "state"), "--isolation", "none")
    assert got.returncode != 0 and f"Cannot listen on {listen}" in got.stderr, got
    assert "hint: Another program listens there" in got.stderr, got.stderr


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path is short enough for a runtime directory below it."""
    with tempfile.TemporaryDirectory(prefix="sandal-", dir="/tmp") as made:
        yield let_in(Path(made))


REFUSED = {
    "cors.origins: without keys": ["--no-auth", "--cors-origins", "*"],
    "cors.origins: `foo`": ["--cors-origins", "foo"],
    "template_dirs: there is no directory": ["--template-dirs", "/nowhere"],
    "kernelspec_dirs: there is no directory": ["--kernelspec-dirs", "/nowhere"],
    "pools.sizes: `x:5`": ["--pools-sizes", "x:5"],
    "tls.cert": ["--tls-cert", "/etc/passwd", "--tls-key", "/etc/passwd"],
    "listen: `localhost:7`": ["--listen", "127.0.0.1:7", "--listen", "localhost:7"],
    "proxy_listen": ["--listen", "127.0.0.1:7", "--proxy-listen", "127.0.0.1:7"],
    "gateway_user": ["--gateway-user", "nobody-of-this-name"],
    "cannot write in /etc": ["--listen", "unix:/etc/sandal.sock"],
    "listen: unix:/nowhere/s: there is no directory /nowhere": ["--listen", "unix:/nowhere/s"],
    "listen: unix:/etc/passwd is there already": ["--listen", "unix:/etc/passwd"],
    "state_dir: an empty path": ["--state-dir", ""],
    "state_dir: /proc": ["--state-dir", "/proc/x/y"],
    "state_dir: /sys": ["--state-dir", "/sys/x"],
    "state_dir: /etc/passwd: not a directory": ["--state-dir", "/etc/passwd"],
    "state_dir: /etc/passwd/x: Not a directory": ["--state-dir", "/etc/passwd/x"],
    "state_dir: /proc/self/cwd: a symbolic link": ["--state-dir", "/proc/self/cwd"],
    "state_dir: /tmp/: the whole system has it": ["--state-dir", "/tmp/"],
    "state_dir: longer than 200 bytes": ["--state-dir", "/tmp/" + "x" * 196],
    "state_dir: the user `sandal` (gateway_user) cannot get at /root": ["--state-dir", "/root/sandal-test/state"],
    "runtime_dir: /proc": ["--runtime-dir", "/proc/x"],
    "runtime_dir: /var/tmp: not a directory that belongs": ["--runtime-dir", "/var/tmp"],
    "template_dirs: an empty path": ["--config", '{"template_dirs": [""]}'],
    "tls.key: an empty path": ["--tls-key", ""],
}


@pytest.mark.parametrize("says", REFUSED)
def test_check_config_refuses_what_serve_refuses(says: str, tmp_path: Path) -> None:
    if os.geteuid() != 0 and ("gateway_user" in says or "write" in says or "get at" in says):
        pytest.skip("of a daemon that root starts")
    options = list(REFUSED[says])
    if options[0] == "--config":
        options[1] = str(tmp_path / "config.json")
        (tmp_path / "config.json").write_text(REFUSED[says][1])
    before = list(let_in(tmp_path).iterdir())
    for command in ("check-config", "serve"):
        got = sandald(command, "--state-dir", str(tmp_path / "state"), *options)
        assert got.returncode == 2 and says in got.stderr, got
    assert list(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="the gateway has another user where root starts the daemon")
def test_a_unix_socket_where_the_gateways_user_cannot_come_is_refused(short: Path) -> None:
    socket_dir = short / "closed" / "own"
    socket_dir.mkdir(parents=True)
    shutil.chown(socket_dir, "sandal")
    socket_dir.parent.chmod(0o700)
    for command in ("check-config", "serve"):
        got = sandald(command, "--state-dir", str(short / "state"), "--listen", f"unix:{socket_dir}/s")
        assert got.returncode == 2 and f"cannot get at {socket_dir}" in got.stderr, got
        assert f"{socket_dir.parent} lets others not through: listen in another directory" in got.stderr, got


def test_check_config_makes_nothing_of_what_serve_makes(short: Path) -> None:
    """Directories below others that are not there yet, and a socket in the state directory."""
    state = short / "a" / "state"
    got = sandald("check-config", "--state-dir", str(state), "--listen", f"unix:{state}/s.sock", "--runtime-dir", str(short / "r" / "un"))
    assert got.returncode == 0, got.stderr
    assert not list(short.iterdir())


def test_a_state_directory_at_its_limit_in_length(short: Path) -> None:
    state = short / ("x" * (200 - len(str(short)) - 1))
    state.mkdir()
    assert len(str(state)) == 200
    with Daemon("--runtime-dir", str(short / "r"), state=state) as daemon:
        sandbox = Client(daemon.url, daemon.key).sandbox(template=TEMPLATE)
        assert sandbox.run("1+1")["text"] == "2" and sandbox.post("/exec", {"cmd": "pwd"})["exit_code"] == 0


@pytest.mark.smoke
def test_every_line_of_a_log_in_json_is_json() -> None:
    with Daemon("--log-format", "json", "--log-level", "debug") as daemon:
        assert daemon.stop() == 0
        events = [json.loads(line)["event"] for line in daemon.lines]
    assert {"gateway.started", "gateway.says"} <= set(events), events  # of the keeper, and for people


def test_unix_socket(tmp_path: Path) -> None:
    path = Path("/tmp") / f"sandal-{os.getpid()}.sock"
    with Daemon(listen=f"unix:{path}", auth=False) as d:
        assert path.stat().st_mode & 0o777 == 0o600
        client = Client(d.url, None)
        sandbox = client.sandbox(template=TEMPLATE)
        assert sandbox.run("1+1")["text"] == "2"
        with client.socket() as ws:
            assert ws.run(sandbox=sandbox.id, code="2")[-1]["text"] == "2"
    assert not path.exists()


def test_address_in_use_is_told(daemon: Daemon) -> None:
    other = Daemon(listen=daemon.url.split("//")[1])
    with pytest.raises(RuntimeError) as refused:
        other.start()
    assert "in use" in str(refused.value)
    other.remove()


def refusal(other: Daemon) -> str:
    with pytest.raises(RuntimeError) as refused:
        other.start()
    assert other.proc and other.proc.wait(10) != 0
    return str(refused.value)


@pytest.mark.smoke
def test_second_daemon_is_refused_and_disturbs_nothing(tmp_path: Path) -> None:
    """Neither on the same state directory, nor on the same runtime directory, nor with the same user ids."""
    with Daemon() as d:
        client = Client(d.url, d.key)
        assert client.sandbox(template=TEMPLATE).run("1")["text"] == "1"
        run = d.state / "run"
        before = sorted(run.rglob("*"))
        same_state = Daemon("--runtime-dir", str(run), "--gateway-user", "nobody", state=d.state)
        same_run = Daemon("--runtime-dir", str(run), state=let_in(tmp_path))
        said = refusal(same_state)
        waits, _, said = said.partition("sandal-keeper: ")
        assert "keeper.waits" in waits and str(d.state) in waits and f"pid {d.pid}" in waits
        assert str(d.state) in said and f"pid {d.pid}" in said and "--state-dir" in said and "temporarily" not in said
        assert f"{run} already" in refusal(same_run)
        assert not list(tmp_path.iterdir())
        assert sorted(run.rglob("*")) == before
        assert d.state.stat().st_uid == (d.state / "key").stat().st_uid
        if os.geteuid() == 0:
            same_ids = Daemon(state=tmp_path)
            same_ids.uid_base = d.uid_base
            assert "--uid-base" in refusal(same_ids)
            assert not list(tmp_path.iterdir())
        assert client.sandbox(template=TEMPLATE).run("2")["text"] == "2"


def test_a_daemon_that_waits_for_another_says_so_at_once() -> None:
    with Daemon() as first:
        second = Daemon("--runtime-dir", str(first.state / "run"), "--log-format", "json", state=first.state)
        begin = time.monotonic()
        with subprocess.Popen(second.command(), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=clean_environment()) as proc:
            assert proc.stderr
            try:
                line = json.loads(next(line for line in proc.stderr if "waits" in line))
                assert line["event"] == "keeper.waits" and str(first.state) in line["for"] and f"pid {first.pid}" in line["for"], line
                assert time.monotonic() - begin < 4  # of 5 s that it waits
            finally:
                proc.kill()


def test_tls(tmp_path: Path) -> None:
    let_in(tmp_path)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"],
                   cwd=tmp_path, check=True, capture_output=True)
    os.chmod(tmp_path / "key.pem", 0o644)
    with Daemon("--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem")) as d:
        assert d.url.startswith("https://")
        trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        client = Client(d.url, d.key, verify=trust)
        sandbox = client.sandbox(template=TEMPLATE)
        assert sandbox.run("print('x' * 3_000_000)")["stdout"] == "x" * 3_000_000 + "\n"
        code = "#" + "y" * 7_000_000 + "\n5"
        assert sandbox.run(code)["text"] == "5"
        from websockets.sync.client import connect
        with connect(d.url.replace("https", "wss", 1) + "/v1/ws", ssl=trust, additional_headers=client.headers()) as ws:
            ws.send(json.dumps({"id": "a", "op": "run_code", "sandbox": sandbox.id, "code": "6"}))
            while True:
                frame = json.loads(ws.recv(10))
                if frame["type"] == "result":
                    assert frame["text"] == "6"
                    break
        for v1 in (True, False):  # long messages, which are sent from where they lie, in TLS' records
            with Channels(client, sandbox.context()["id"], v1=v1, ssl=trust) as channels:
                published = channels.execute("print('z' * 9_000_000)")[1]
                assert "".join(m["content"]["text"] for m in published if m["header"]["msg_type"] == "stream") == "z" * 9_000_000 + "\n"


def test_cors() -> None:
    with Daemon("--cors-origins", "https://app.example") as d:
        client = Client(d.url, d.key)
        fine = client.call("GET", "/v1/templates", headers={"Origin": "https://app.example"})
        assert fine.headers["access-control-allow-origin"] == "https://app.example"
        other = client.call("GET", "/v1/templates", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        flight = httpx.options(d.url + "/v1/sandboxes", headers={"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
                               "Access-Control-Request-Headers": "authorization,content-type"})
        assert flight.status_code in (200, 204) and "POST" in flight.headers["access-control-allow-methods"]
        assert "authorization" in flight.headers["access-control-allow-headers"].lower()


def test_cors_is_off_by_default(client: Client) -> None:
    answer = client.call("GET", "/v1/templates", headers={"Origin": "https://app.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_keep_alive_and_pipelining(daemon: Daemon, sandbox: Sandbox) -> None:
    parts = urlsplit(daemon.url)

    def request(i: int) -> bytes:
        body = json.dumps({"code": str(i), "stream": i % 2 == 0}).encode()
        return (f"POST {sandbox.path}/run_code HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body

    with socket.create_connection((parts.hostname, parts.port), 30) as s:
        s.sendall(b"".join(request(i) for i in range(6)))
        got = b""
        while got.count(b'"text":') < 6 or got.count(b"HTTP/1.1 200") < 6:
            piece = s.recv(65536)
            assert piece, got
            got += piece
    places = [got.index(b'"text":"%d"' % i) for i in range(6)]
    assert places == sorted(places)


def test_head_and_options(client: Client) -> None:
    answer = client.call("HEAD", "/v1/templates")
    assert answer.status_code == 200 and answer.content == b""


def test_slow_reader_slows_nobody_and_loses_nothing(client: Client, daemon: Daemon, fresh: Sandbox) -> None:
    """Stops reading in the middle of 12 MiB of output, then reads on: all there, memory bounded, others served."""
    pid = daemon.gateway_pid()
    before = rss_bytes(pid)
    body = json.dumps({"code": "for i in range(12): print(chr(97 + i) * (1024 * 1024), flush=True)", "stream": True}).encode()
    parts = urlsplit(daemon.url)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect((parts.hostname, parts.port))
        s.sendall((f"POST {fresh.path}/run_code HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\n"
                   f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body)
        s.recv(1000)
        context = fresh.record["default_context"]
        wait_for(lambda: fresh.get(f"/contexts/{context}")["state"] == "idle", 20)
        assert fresh.run("1")["text"] == "1"
        assert rss_bytes(pid) < before + 32 * 1024 * 1024
        pieces = []
        s.settimeout(30)
        while not (pieces and (pieces[-2:] and b"".join(pieces[-2:]).endswith(b"\r\n0\r\n\r\n"))):
            pieces.append(s.recv(1 << 20))
            assert pieces[-1]
    got = b"".join(pieces)
    assert b'"type":"result"' in got
    for i in range(12):
        assert got.count(bytes([97 + i]) * 1000) > 1000


def test_two_thousand_idle_sockets(client: Client, daemon: Daemon, sandbox: Sandbox) -> None:
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    parts = urlsplit(daemon.url)
    held = []
    try:
        for _ in range(2000):
            s = socket.create_connection((parts.hostname, parts.port))
            s.sendall(f"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {daemon.key}\r\nUpgrade: websocket\r\n"
                      "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode())
            held.append(s)
        for s in held:
            assert b" 101 " in s.recv(4096).split(b"\r\n")[0]
        assert sandbox.run("1+1")["text"] == "2"
    finally:
        for s in held:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_for(lambda: sandbox.run("1")["text"] == "1")


def remove_key(d: Daemon, client: Client, ident: str, how: str) -> None:
    if how == "api":
        client.delete(f"/v1/keys/{ident}")
    else:
        subprocess.run([str(BUILD / "sandald"), "keys", "remove", ident, "--state-dir", str(d.state)], check=True)


@pytest.mark.smoke
@pytest.mark.parametrize("how,ping", [("api", "60"), ("command", "1")])  # keys are looked at three times in each `ping`
def test_sockets_end_with_their_key(how: str, ping: str) -> None:
    with Daemon("--timeouts-ping", ping) as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        key = client.post("/v1/keys", {"owner": "local", "scopes": ["use"]}, expect=201)
        other = Client(d.url, key["key"])
        with other.socket() as gone, client.socket() as stays, Channels(other, sandbox.get()["default_context"]) as channels:
            assert gone.run(sandbox=sandbox.id, code="1")[-1]["status"] == "ok"
            remove_key(d, client, key["id"], how)
            if how == "api":  # what is sent from now on is not carried out
                with contextlib.suppress(ConnectionClosed):
                    gone.ws.send(json.dumps({"op": "run_code", "id": "late", "sandbox": sandbox.id, "code": "late = 1"}))
                with contextlib.suppress(ConnectionClosed):
                    channels.send("execute_request", {"code": "late = 1"})
            for ws in (gone.ws, channels.ws):
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        ws.recv(10)
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
            assert len(client.get(f"{sandbox.path}/runs")["items"]) == 1
            assert stays.run(sandbox=sandbox.id, code="2")[-1]["text"] == "2"


def last_words(stream: httpx.Response) -> dict[str, Any]:
    """The last event, of NDJSON or SSE."""
    *_, last = [line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith(("data: ", "{"))]
    return dict(json.loads(last))


@pytest.mark.parametrize("how,ping", [("api", "60"), ("command", "1")])
def test_http_streams_end_with_their_key(how: str, ping: str) -> None:
    """And say why; who waits for the end of a run is refused, and the run goes on as it would without its client."""
    ndjson, sse = {"Accept": "application/x-ndjson"}, {"Accept": "text/event-stream"}
    cell = {"code": "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.05)\n42"}
    with Daemon("--timeouts-ping", ping) as d, contextlib.ExitStack() as open_ones:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        key = client.post("/v1/keys", {"owner": "local", "scopes": ["use"]}, expect=201)
        other = Client(d.url, key["key"])
        streams = [open_ones.enter_context(other.http.stream(*args, headers=headers, timeout=60, **more)) for args, headers, more in (
            (("POST", sandbox.path + "/run_code"), ndjson, {"json": cell}), (("POST", sandbox.path + "/run_code"), sse, {"json": cell}),
            (("POST", sandbox.path + "/exec"), ndjson, {"json": {"cmd": "echo up; sleep 600"}}),
            (("GET", sandbox.path + "/fs/watch"), sse, {"params": {"path": "."}}))]
        stays = open_ones.enter_context(client.http.stream("POST", sandbox.path + "/run_code", headers=ndjson, json=cell, timeout=60))
        waiting: list[httpx.Response] = []
        waits = threading.Thread(target=lambda: waiting.append(other.http.post(sandbox.path + "/run_code", json=cell, timeout=60)))
        waits.start()
        wait_for(lambda: len(client.get(f"{sandbox.path}/runs")["items"]) == 4)
        remove_key(d, client, key["id"], how)
        for stream in streams:
            said = last_words(stream)
            assert said["type"] == "failure" and said["error"]["code"] == "unauthorized" and said["error"]["message"], said
        waits.join(30)
        assert waiting[0].status_code == 401 and waiting[0].json()["error"]["code"] == "unauthorized"
        sandbox.post("/exec", {"cmd": "touch go"})
        assert last_words(stays)["text"] == "42"
        assert [r["status"] for r in client.get(f"{sandbox.path}/runs")["items"]][1:] == ["ok"] * 3


def test_ping_on_silent_streams() -> None:
    with Daemon("--timeouts-ping", "1") as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        with client.http.stream("POST", sandbox.path + "/run_code", json={"code": "import time; time.sleep(3.5)", "stream": True}) as r:
            blank = sum(1 for line in r.iter_lines() if line == "")
        assert blank >= 2
        with client.http.stream("POST", sandbox.path + "/run_code", json={"code": "import time; time.sleep(3.5)"},
                                headers={"Accept": "text/event-stream"}) as r:
            comments = sum(1 for line in r.iter_lines() if line.startswith(":"))
        assert comments >= 2


def test_close_code_at_the_end_of_the_daemon() -> None:
    from websockets.exceptions import ConnectionClosed
    with Daemon() as d:
        ws = Client(d.url, d.key).socket()
        threading.Thread(target=d.stop).start()
        with pytest.raises(ConnectionClosed) as closed:
            ws.ws.recv(20)
        assert closed.value.rcvd and closed.value.rcvd.code == 1001


def test_connections_are_not_bounded_by_the_soft_limit_of_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    with contextlib.ExitStack() as stack:
        try:
            d = stack.enter_context(Daemon())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        limits = Path(f"/proc/{d.gateway_pid()}/limits").read_text()
        most = "unlimited" if hard == resource.RLIM_INFINITY else hard
        assert re.search(rf"^Max open files +{most} +{most} ", limits, re.M), limits
        parts = urlsplit(d.url)
        for _ in range(few + 50):
            s = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=10))
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert s.recv(4096).startswith(b"HTTP/1.1 200"), d.log()


def test_nothing_is_left_behind() -> None:
    d = Daemon()
    with d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        code = ("import os, subprocess\nstray = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                "print(os.getpid(), stray.pid)")
        inner = [int(pid) for pid in sandbox.run(code)["stdout"].split()]
        pids = [host_pid(sandbox.id, pid) for pid in inner] + inits(sandbox.id)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_kill_of_the_keeper_leaves_no_process() -> None:
    with Daemon("--timeouts-orphan", "3") as d:  # no next keeper takes the sandbox within that time
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        pid = host_pid(sandbox.id, int(sandbox.run("import os; print(os.getpid())")["stdout"]))
        pids = [pid, d.gateway_pid(), *inits(sandbox.id)]
        d.kill()
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 15)


def test_documents_name_no_option_that_is_not_there() -> None:
    import re
    helps = [sandald(command, "--help").stdout for command in ("serve", "keys", "doctor", "template")]
    known = set(re.findall(r"--[a-z][a-z-]+", "".join(helps)))
    known |= {"--template", "--templates", "--long", "--asan", "--help", "--json", "--test", "--user", "--system", "--no-create-home"}
    known |= {"--cap-add", "--privileged", "--security-opt"}  # of docker run
    known |= {"--gateway-url"}  # of jupyter lab
    for page in [*ROOT.glob("docs/man/*.scd"), ROOT / "README.md"]:
        for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text())):
            assert flag in known, f"{page.name}: {flag}"


def test_time_of_a_round_trip_is_sane(client: Client, sandbox: Sandbox) -> None:
    begin = time.monotonic()
    with client.socket() as ws:
        for i in range(50):
            assert ws.run(sandbox=sandbox.id, code="1+1")[-1]["text"] == "2"
    assert time.monotonic() - begin < 30  # a bound against hangs; figures are tests/bench's
