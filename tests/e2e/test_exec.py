"""exec: commands in the foreground and the background, their streams, signals, terminals and ends."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox, Socket
from harness.daemon import ISOLATION, Daemon, wait_for
from harness.processes import inits


@pytest.fixture(scope="module")
def box(client: Client) -> Iterator[Sandbox]:
    """Without a kernel: commands need none."""
    with client.sandbox(template="base") as sb:
        yield sb


def run(box: Sandbox, cmd: Any, **fields: Any) -> dict[str, Any]:
    return box.post("/exec", {"cmd": cmd, **fields})


def background(box: Sandbox, cmd: Any, **fields: Any) -> dict[str, Any]:
    return box.post("/exec", {"cmd": cmd, "background": True, **fields}, expect=201)


def events(box: Sandbox, pid: int, **params: Any) -> list[dict[str, Any]]:
    text = box.client.call("GET", f"{box.path}/processes/{pid}/events", expect=200, params=params).text
    return [json.loads(line) for line in text.split("\n") if line.strip()]


@pytest.mark.smoke
def test_string_and_argv(box: Sandbox) -> None:
    got = run(box, "echo out; echo err >&2; exit 3")
    assert (got["exit_code"], got["signal"], got["timed_out"]) == (3, None, False)
    assert (got["stdout"], got["stderr"], got["truncated"], got["status"]) == ("out\n", "err\n", None, "error")
    assert got["duration_ms"] >= 0
    got = run(box, ["printf", "%s", "$HOME; true"])
    assert got["stdout"] == "$HOME; true" and got["exit_code"] == 0 and got["status"] == "ok"


def test_place_and_environment(box: Sandbox) -> None:
    got = run(box, "echo a > f; pwd; cat f; echo $HOME; id -u; echo $MINE", env={"MINE": "yes"})
    lines = got["stdout"].split("\n")
    assert lines[0].endswith("workspace") and lines[1] == "a" and lines[3] != "0" and lines[4] == "yes", got
    assert run(box, "mkdir -p d")["exit_code"] == 0
    assert run(box, "pwd", cwd="d")["stdout"].endswith("workspace/d\n")
    assert run(box, "pwd", cwd="/workspace/d")["stdout"].endswith("workspace/d\n")
    error = box.client.error("POST", f"{box.path}/exec", 404, "not_found", json={"cmd": "true", "cwd": "nowhere"})
    assert error["pointer"] == "/cwd"
    assert box.post("/exec", {"cmd": "true", "cwd": "d", "background": True}, expect=201)["cwd"] == "/workspace/d"


@pytest.mark.smoke
def test_every_end_has_a_code_or_a_signal(box: Sandbox) -> None:
    got = run(box, "kill -TERM $$")
    assert got["exit_code"] is None and got["signal"] == "SIGTERM" and got["status"] == "killed"
    got = run(box, ["no-such-program"])
    assert got["exit_code"] == 127 and "no-such-program" in got["stderr"]
    assert run(box, ["/etc/passwd"])["exit_code"] == 126
    got = run(box, "echo begun; setsid sleep 300 & sleep 300", timeout=0.5)
    assert got["timed_out"] and got["exit_code"] is None and got["signal"] == "SIGKILL"
    assert got["status"] == "timeout" and got["stdout"] == "begun\n"


def test_bad_input(box: Sandbox) -> None:
    client, path = box.client, f"{box.path}/exec"
    for body, pointer in (({}, "/cmd"), ({"cmd": ""}, "/cmd"), ({"cmd": []}, "/cmd"), ({"cmd": ["ls", 1]}, "/cmd/1"),
                          ({"cmd": "ls", "user": "bin"}, "/user"), ({"cmd": "ls", "env": {"1": "x"}}, "/env/1"),
                          ({"cmd": "ls", "pty": {"cols": 0}}, "/pty/cols"), ({"cmd": "ls", "nope": 1}, "/nope"),
                          ({"cmd": "ls", "stdin": "?", "stdin_encoding": "base64"}, "/stdin")):
        error = client.error("POST", path, 400, "invalid_request", json=body)
        assert error["pointer"] == pointer, error
    client.error("POST", path, 413, "too_large", json={"cmd": "x" * 70_000})
    client.error("GET", f"{box.path}/processes/999999", 404, "process_not_found")
    assert run(box, "echo fine")["stdout"] == "fine\n"


def test_bytes_and_limits(box: Sandbox) -> None:
    assert run(box, r"printf 'a\377b'")["stdout"] == "a\ufffdb"
    got = run(box, r"printf 'a\377b'", encoding="base64")
    assert base64.b64decode(got["stdout"]) == b"a\xffb" and got["encoding"] == "base64"
    got = run(box, "head -c 3000000 /dev/zero | tr '\\0' x", limits={"output_bytes": 100_000})
    cut = got["truncated"]["stdout"]
    assert cut + len(got["stdout"]) == 3_000_000 and len(got["stdout"]) == 125_000
    assert run(box, "yes", limits={"output_bytes": 1000, "on_exceed": "stop"})["status"] == "output_limit"
    sent = "é" * 200_000
    assert run(box, "cat", stdin=sent)["stdout"] == sent
    assert run(box, "wc -c", stdin=base64.b64encode(b"\x00\xff").decode(), stdin_encoding="base64")["stdout"] == "2\n"
    assert run(box, "cat")["stdout"] == ""


def test_streams_like_a_run(box: Sandbox) -> None:
    got = []
    with box.client.http.stream("POST", f"{box.path}/exec", json={"cmd": "echo 1; echo 2 >&2", "stream": True}) as r:
        assert r.status_code == 200 and r.headers["content-type"] == "application/x-ndjson"
        got = [json.loads(line) for line in r.iter_lines() if line.strip()]
    assert [e["seq"] for e in got] == list(range(len(got))) and len({e["run"] for e in got}) == 1
    assert got[0]["type"] == "started" and got[0]["pid"] > 0
    assert got[-1]["type"] == "result" and got[-1]["exit_code"] == 0
    assert "".join(e["text"] for e in got if e["type"] == "stdout") == "1\n" == got[-1]["stdout"]
    # The log is a run's: it is read again by its id.
    again = box.get(f"/runs/{got[0]['run']}")
    assert again["stdout"] == "1\n" and again["stderr"] == "2\n"
    assert got[0]["run"] not in [r["run"] for r in box.get("/runs")["items"]]


@pytest.mark.smoke
def test_background(box: Sandbox) -> None:
    made = background(box, "while read line; do echo got $line; done; echo over")
    pid = made["pid"]
    assert made["state"] == "running" and made["background"] and made["cmd"].startswith("while")
    assert pid in [p["pid"] for p in box.get("/processes")["items"]]
    box.client.call("POST", f"{box.path}/processes/{pid}/input", expect=204, json={"data": "one\n"})
    box.client.call("POST", f"{box.path}/processes/{pid}/input", expect=204, json={"data": "two\n", "eof": True})
    got = events(box, pid)  # follows to its end
    assert got[-1]["type"] == "result" and got[-1]["stdout"] == "got one\ngot two\nover\n"
    assert events(box, pid, after=got[-2]["seq"])[0] == got[-1]
    assert box.get(f"/processes/{pid}")["exit_code"] == 0
    box.client.error("POST", f"{box.path}/processes/{pid}/input", 409, "conflict", json={"data": "x"})
    box.client.error("POST", f"{box.path}/processes/{pid}/signal", 409, "conflict", json={"signal": "SIGTERM"})
    box.client.delete(f"{box.path}/processes/{pid}")
    box.client.error("GET", f"{box.path}/processes/{pid}", 404, "process_not_found")


def test_background_goes_on_without_a_client(box: Sandbox) -> None:
    made = background(box, "echo here; while [ ! -e stop ]; do sleep 0.05; done; echo end")
    for _ in range(2):  # each follows from the start, as if it had come back
        with box.client.http.stream("GET", f"{box.path}/processes/{made['pid']}/events") as r:
            first = [json.loads(line) for line in take(r.iter_lines(), 2)]
        assert [e["type"] for e in first] == ["started", "stdout"]
    run(box, "touch stop")
    assert events(box, made["pid"])[-1]["stdout"] == "here\nend\n"


def take(lines: Iterator[str], count: int) -> list[str]:
    got: list[str] = []
    while len(got) < count:
        line = next(lines)
        if line.strip():
            got.append(line)
    return got


def test_signals_by_name(box: Sandbox) -> None:
    made = background(box, "trap 'echo usr' USR1; echo ready; while :; do sleep 0.05; done")
    pid = made["pid"]
    follower = Follower(box, pid)
    follower.until("ready")
    box.client.error("POST", f"{box.path}/processes/{pid}/signal", 400, "invalid_request", json={"signal": "SIGNO"})
    box.client.call("POST", f"{box.path}/processes/{pid}/signal", expect=204, json={"signal": "SIGUSR1"})
    follower.until("usr")
    box.client.delete(f"{box.path}/processes/{pid}")
    assert follower.end()["signal"] == "SIGKILL"


class Follower:
    """Reads the events of a process as they come."""

    def __init__(self, box: Sandbox, pid: int):
        self.text, self.last = "", {}
        self.thread = threading.Thread(target=self._read, args=(box, pid), daemon=True)
        self.thread.start()

    def _read(self, box: Sandbox, pid: int) -> None:
        other = Client(box.client.url, box.client.key)
        with other.http.stream("GET", f"{box.path}/processes/{pid}/events") as r:
            for line in r.iter_lines():
                if line.strip():
                    event = json.loads(line)
                    self.last = event
                    self.text += event.get("text", "")
        other.close()

    def until(self, text: str) -> None:
        wait_for(lambda: text in self.text, 20)

    def end(self) -> dict[str, Any]:
        self.thread.join(20)
        assert self.last["type"] == "result", self.last
        return self.last


@pytest.mark.skipif(ISOLATION == "gvisor", reason="minders in gVisor's kernel are no processes of the host's, which the test would stop")
def test_an_end_that_is_not_seen_is_not_told_as_that_of_the_sandbox(client: Client) -> None:
    """As in the middle of a fork bomb, where everything takes its time: it was killed, and the sandbox lives."""
    with client.sandbox(template="base") as box:
        other = background(box, ["sleep", "600"])["pid"]
        before = set(inits(box.id))
        follower = Follower(box, background(box, ["sleep", "600"], timeout=1)["pid"])
        (minder,) = wait_for(lambda: [pid for pid in inits(box.id) if pid not in before
                                      and Path(f"/proc/{pid}/comm").read_text() == "sandal-minder\n"])
        os.kill(minder, signal.SIGSTOP)  # who would see the end
        try:
            end = follower.end()
        finally:
            os.kill(minder, signal.SIGCONT)
        assert (end["status"], end["signal"], end["timed_out"]) == ("timeout", "SIGKILL", True), end
        assert "not seen in time" in end["message"] and "sandbox" not in end["message"], end
        assert end["usage"] == {"cpu_ms": None, "peak_memory": None}, end
        assert box.get(f"/processes/{other}")["state"] == "running" and run(box, "echo here")["stdout"] == "here\n"
        wait_for(lambda: minder not in inits(box.id))  # and nothing of it is left in the end


def test_websocket_runs_commands(client: Client, box: Sandbox) -> None:
    with client.socket() as ws:
        ident = ws.send("exec", sandbox=box.id, cmd="echo one; sleep 0.1; echo two")
        got = until_result(ws, ident)
        assert got[-1]["stdout"] == "one\ntwo\n"
        ident = ws.send("exec", sandbox=box.id, cmd="echo one", stream=False)
        frame = ws.receive()
        assert frame["type"] == "result" and frame["stdout"] == "one\n"


def until_result(ws: Socket, ident: str) -> list[dict[str, Any]]:
    got = []
    while not got or got[-1]["type"] != "result":
        frame = ws.receive()
        assert frame["id"] == ident and frame["type"] != "failure", frame
        got.append(frame)
    return got


def test_terminal_over_websocket(client: Client, box: Sandbox) -> None:
    with client.socket() as ws, client.socket() as other:
        ident = ws.send("exec", sandbox=box.id, cmd=["sh"], pty={"cols": 100, "rows": 30}, env={"PS1": "$ "})
        pid = ws.receive()["pid"]

        def ask(op: str, **fields: Any) -> None:
            other.call(op, sandbox=box.id, pid=pid, **fields)

        def read_until(text: str) -> str:
            seen = ""
            while text not in seen:
                frame = ws.receive()
                assert frame["id"] == ident and frame["type"] == "stdout", frame
                seen += frame["text"]
            return seen

        ask("processes.input", data="tty && stty size\n")
        assert "/dev/" in read_until("30 100")
        ask("processes.resize", cols=77, rows=11)
        ask("processes.input", data="stty size\n")
        read_until("11 77")
        ask("processes.input", eof=True)
        got = until_result(ws, ident)
        assert got[-1]["exit_code"] == 0


@pytest.mark.skipif(ISOLATION == "gvisor", reason="no terminals in gVisor's kernel")
def test_a_terminal_is_come_back_to(box: Sandbox) -> None:
    """Its client leaves; another one resizes it, interrupts what runs there by the key for it, and reads all from the start."""
    pid = background(box, ["sh"], pty={"cols": 80, "rows": 24}, env={"PS1": "$ "})["pid"]

    def ask(what: str, status: int = 204, **fields: Any) -> None:
        box.client.call("POST", f"{box.path}/processes/{pid}/{what}", expect=status, json=fields)

    first = Follower(box, pid)
    ask("input", data="trap 'echo int''errupted' INT; echo be''gun; sleep 600\n")
    first.until("begun")
    second = Follower(box, pid)
    second.until("begun")
    ask("resize", cols=132, rows=43)
    for cols, rows in ((0, 24), (80, 0), (100_000, 24)):
        ask("resize", 400, cols=cols, rows=rows)
    ask("input", data="\x03")
    second.until("interrupted")
    ask("input", data="stty size; exit 7\n")
    assert second.end()["exit_code"] == first.end()["exit_code"] == 7
    assert "43 132" in second.text and second.text == first.text
    plain = background(box, ["sleep", "600"])["pid"]
    box.client.error("POST", f"{box.path}/processes/{plain}/resize", 409, "conflict", json={"cols": 80, "rows": 24})
    box.client.delete(f"{box.path}/processes/{plain}")


def test_idempotency_key_runs_once(box: Sandbox) -> None:
    first = run(box, "echo x >> once; wc -l < once", key="exec-1")
    assert run(box, "echo x >> once; wc -l < once", key="exec-1")["stdout"] == first["stdout"] == "1\n"
    box.client.error("POST", f"{box.path}/exec", 409, "key_reused", json={"cmd": "true", "key": "exec-1"})


def test_a_client_that_leaves_kills_what_it_waited_for(client: Client, box: Sandbox) -> None:
    other = Client(client.url, client.key)
    other.http.timeout = 1
    with pytest.raises(Exception):
        other.post(f"{box.path}/exec", {"cmd": "echo $$ > leaver; exec sleep 300"})
    other.close()
    wait_for(lambda: not box.get("/processes")["items"]
             or all("leaver" not in str(p["cmd"]) for p in box.get("/processes")["items"]), 10)


def test_as_root_of_the_sandbox(box: Sandbox) -> None:
    if box.record["isolation"]["kind"] in ("none", "process", "bubblewrap"):
        error = box.client.error("POST", f"{box.path}/exec", 409, "isolation_unavailable", json={"cmd": "id", "user": "root"})
        assert error["pointer"] == "/user"
        return
    assert run(box, "id -u; echo $HOME", user="root")["stdout"] == "0\n/root\n"
    assert run(box, "grep CapEff /proc/self/status")["stdout"].split()[1].strip("0") == ""


def test_commands_are_counted(client: Client, daemon: Daemon, box: Sandbox) -> None:
    def count() -> int:
        text = client.call("GET", "/metrics", expect=200).text
        return int(next(line.split()[1] for line in text.split("\n") if line.startswith("sandal_commands_started_total ")))
    before = count()
    run(box, "true")
    assert count() == before + 1


@pytest.mark.parametrize("most", [65536, 1000])
def test_a_command_at_its_limit_and_past_it(most: int) -> None:
    options = [] if most == 65536 else ["--limits-cmd-bytes", str(most)]
    with Daemon(*options) as daemon:
        own = Client(daemon.url, daemon.key)
        with own.sandbox(template="base") as sb:
            line, argv = "echo ok; #", ["echo", "ok"]
            at = [line.ljust(most, "x"), [*argv, "x" * (most - len("echo0ok00"))]]
            for cmd in at:
                assert sb.post("/exec", {"cmd": cmd})["stdout"].startswith("ok")
            past = [at[0] + "x", [*argv, at[1][-1] + "x"], ["x"] * 1025, "x" * (2 << 20), ["x" * (2 << 20)]]
            for cmd in past:
                error = own.error("POST", f"{sb.path}/exec", 413, "too_large", json={"cmd": cmd})
                assert error["pointer"] == "/cmd" and str(most) in error["message"]
        own.close()
