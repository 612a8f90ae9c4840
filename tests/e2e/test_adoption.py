"""Sandboxes and their kernels outlive a gateway and a keeper that are killed; what they were asked to run meanwhile ends truly."""

from __future__ import annotations

import base64
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, TEMPLATE, Daemon, wait_for
from harness.jupyter import Channels, kernel_of
from harness.processes import first_init, host_pid, inits, named, of_sandbox

pytestmark = pytest.mark.smoke
host_process = pytest.mark.skipif(ISOLATION == "gvisor", reason="a process in gVisor's kernel is none of the host's, which the test would stop or end")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with Daemon() as d:
        yield d


def begin(sandbox: Sandbox) -> None:
    assert sandbox.run("open('kept', 'w').write('here'); marker = 1")["status"] == "ok"


def back(d: Daemon) -> Client | None:
    """A client of the next gateway, once it answers (on a new port, since 0 was asked for)."""
    client = Client(d.urls[-1], d.key)
    try:
        client.get("/v1/sandboxes")
        return client
    except Exception:  # noqa: BLE001: it is not there yet
        return None


def test_a_key_runs_a_command_once_whenever_the_gateway_is_killed(daemon: Daemon) -> None:
    """The requests that the kill cut off are sent again: each command ran once, or not at all before."""
    box = Client(daemon.url, daemon.key).sandbox(template="base")
    cut: list[str] = []

    def ask(client: Client, token: str) -> str:
        return client.call("POST", f"{box.path}/exec", expect=200, json={
            "cmd": f"echo {token} >> tokens", "key": token, "on_disconnect": "detach"}).json()["status"]

    def work(name: int) -> None:
        client = Client(daemon.urls[-1], daemon.key)
        for i in range(100_000):
            try:
                assert ask(client, f"{name}.{i}") == "ok"
            except Exception:  # noqa: BLE001: its gateway is killed
                cut.append(f"{name}.{i}")
                return

    threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    wait_for(lambda: box.client.call("GET", f"{box.path}/fs/file", params={"path": "tokens"}).text.count("\n") > 40)
    os.kill(daemon.gateway_pid(), signal.SIGKILL)
    for thread in threads:
        thread.join()
    again = wait_for(lambda: back(daemon), 20)
    told = {token: ask(again, token) for token in cut}
    tokens = again.call("GET", f"{box.path}/fs/file", params={"path": "tokens"}).text.split()
    assert set(told.values()) <= {"ok", "gateway_restart"}, told
    assert len(tokens) == len(set(tokens)), (told, [t for t in tokens if tokens.count(t) > 1])
    assert all(token in tokens for token, status in told.items() if status == "ok")


def slow_run(sandbox: Sandbox) -> str:
    return begin_run(sandbox, "import time\nprint('up', flush=True)\ntime.sleep(600)")


def ended(sandbox: Sandbox, run: str) -> dict[str, Any]:
    """Waits for the end of a run."""
    return wait_for(lambda: (got := sandbox.get(f"/runs/{run}")) and got["status"] not in ("queued", "running") and got, timeout=30)


def begin_run(sandbox: Sandbox, code: str) -> str:
    """Leaves a run behind that goes on, and has printed; its id."""
    ids: list[str] = []
    up = threading.Event()

    def follow() -> None:
        try:
            for event in sandbox.stream(code, on_disconnect="detach"):
                ids.extend([event["run"]] if "run" in event else [])
                if event["type"] == "stdout":
                    up.set()
        except Exception:  # noqa: BLE001: its gateway is killed
            pass

    threading.Thread(target=follow, daemon=True).start()
    assert up.wait(30)
    return ids[0]


def goes_on(d: Daemon, sandbox_id: str, init: int) -> None:
    """Through a fresh client: the same sandbox, its files, a kernel that works."""
    client = Client(d.url, d.key)
    record = client.get(f"/v1/sandboxes/{sandbox_id}")
    assert record["state"] == "running", record
    again = Sandbox(client, record)
    contexts = again.get("/contexts")["items"]
    got = again.run("print(open('kept').read(), marker)")
    assert got["status"] == "ok" and got["stdout"] == "here 1\n", got
    assert [c["incarnation"] for c in contexts] == [1], contexts
    assert first_init(sandbox_id) == init
    client.delete(f"/v1/sandboxes/{sandbox_id}")
    wait_for(lambda: not inits(sandbox_id))
    client.close()


def answers(d: Daemon) -> bool:
    try:
        client = Client(d.url, d.key)
        try:
            return client.call("GET", "/v1/sandboxes").status_code == 200
        finally:
            client.close()
    except Exception:  # noqa: BLE001: not there yet
        return False


def kill_gateway(daemon: Daemon) -> Client:
    """And waits for the next one."""
    old = daemon.gateway_pid()
    daemon.urls.clear()
    daemon.ready.clear()
    os.kill(old, signal.SIGKILL)
    assert daemon.ready.wait(30), daemon.log()
    wait_for(lambda: answers(daemon))
    assert daemon.gateway_pid() != old
    return Client(daemon.url, daemon.key)


def test_sandbox_outlives_the_gateway(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    sandbox = client.sandbox()
    begin(sandbox)
    init = first_init(sandbox.id)
    run = slow_run(sandbox)
    client = kill_gateway(daemon)
    again = Sandbox(client, client.get(f"/v1/sandboxes/{sandbox.id}"))
    got = ended(again, run)
    assert (got["status"], got["stdout"]) == ("gateway_restart", "up\n"), got
    assert (got["error"]["started"], got["error"]["state"]) == (True, "kept"), got
    context = again.get("/contexts")["items"][0]
    assert context["state"] == "busy", context
    again.client.error("POST", f"{again.path}/contexts/{context['id']}/complete", 409, "busy", json={"code": "mar"})
    assert again.post(f"/contexts/{context['id']}/interrupt")["interrupted"] is True
    goes_on(daemon, sandbox.id, init)


def test_what_a_cell_prints_after_the_crash_is_its_late_output(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    run = begin_run(sandbox, "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
                             "print('end'); answer = 42")
    for _ in range(2):  # a second crash finds no run under way, and a cell that is
        sandbox.client = kill_gateway(daemon)
        assert ended(sandbox, run)["error"]["state"] == "kept"
        wait_for(lambda: sandbox.get("/contexts")["items"][0]["state"] == "busy")
    result: dict[str, Any] = {}
    after = threading.Thread(target=lambda: result.update(sandbox.run("answer")))
    after.start()
    wait_for(lambda: sandbox.get("/contexts")["items"][0]["queue"] == 1)
    sandbox.client.call("PUT", f"{sandbox.path}/fs/file", params={"path": "go"}, content=b"", expect=201)
    after.join(30)
    assert (result["status"], result["text"]) == ("ok", "42"), result
    got = wait_for(lambda: (got := sandbox.get(f"/runs/{run}")) and got["late"] and got)
    assert (got["status"], got["stdout"]) == ("gateway_restart", "up\nend\n"), got
    sandbox.delete()


def test_clients_hear_when_the_cell_of_before_the_crash_is_over(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    begin_run(sandbox, "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)")
    sandbox.client = kill_gateway(daemon)
    wait_for(lambda: sandbox.get("/contexts")["items"][0]["state"] == "busy")
    with Channels(sandbox.client, kernel_of(sandbox)) as ws:
        assert ws.receive()["content"] == {"execution_state": "busy"}
        sandbox.client.call("PUT", f"{sandbox.path}/fs/file", params={"path": "go"}, content=b"", expect=201)
        ws.until(lambda m: m["content"].get("execution_state") == "idle", 20)
    with Channels(sandbox.client, kernel_of(sandbox)) as ws:
        assert ws.receive()["content"] == {"execution_state": "idle"}
    sandbox.delete()


def test_late_output_is_never_of_a_run_after_the_crash(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    code = """
import os, sys, threading, time
from IPython.display import display
def late():
    while not os.path.exists('go'): time.sleep(0.01)
    print('late'); print('wrong', file=sys.stderr); display('shown')
    sys.stdout.flush(); sys.stderr.flush()
    open('said', 'w').close()
threading.Thread(target=late).start()
print('begun')
"""
    first = sandbox.run(code)
    assert (first["status"], first["stdout"]) == ("ok", "begun\n"), first
    sandbox.client = kill_gateway(daemon)
    got = sandbox.run("open('go', 'w').close()\nwhile not os.path.exists('said'): time.sleep(0.01)\ntime.sleep(0.3)\nprint('own')")
    assert (got["status"], got["stdout"], got["stderr"], got["results"]) == ("ok", "own\n", "", []), got
    told = wait_for(lambda: (t := sandbox.get(f"/runs/{first['run']}")) and t["stderr"] and len(t["results"]) == 1 and t)
    assert (told["stdout"], told["stderr"], told["late"]) == ("begun\nlate\n", "wrong\n", True), told
    sandbox.delete()


def test_a_kernel_that_was_found_again_is_whole(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    assert sandbox.run("import os, threading\nx = 42\no = os.getpid()")["execution_count"] == 1
    assert sandbox.run("x", env={"Z": "1"}, cwd="/tmp")["execution_count"] == 2
    for round_ in (3, 4):
        sandbox.client = kill_gateway(daemon)
        got = sandbox.run("print(x, o == os.getpid(), os.environ.get('Z')); x")
        assert (got["stdout"], got["text"], got["execution_count"]) == ("42 True None\n", "42", round_), got
    context = sandbox.get("/contexts")["items"][0]
    names = sandbox.get(f"/contexts/{context['id']}/variables")
    assert any(v["name"] == "x" for v in names["items"]), names
    run = begin_run(sandbox, "import time\nprint('up', flush=True)\ntime.sleep(600)")
    assert sandbox.post(f"/contexts/{context['id']}/interrupt")["interrupted"] is True
    assert ended(sandbox, run)["status"] == "interrupted"
    plot = sandbox.run("import matplotlib.pyplot as p; p.plot([1, 2]); p.show()")
    assert any(r["type"] == "image/png" for r in plot["results"]), plot
    # Files of its own descriptors too: what a child prints comes by them.
    assert sandbox.run("os.system('echo child')")["stdout"] == "child\n"
    assert sandbox.post(f"/contexts/{context['id']}/reset")["incarnation"] == 2
    assert sandbox.run("'x' in globals()")["text"] == "False"
    sandbox.delete()


def test_a_forked_kernel_is_found_again_or_told_of(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox(checkpointable=False)
    if sandbox.record["start"] != "zygote":
        pytest.skip("there are no zygotes here")
    assert sandbox.run("x = 42")["status"] == "ok"
    sandbox.client = kill_gateway(daemon)
    assert sandbox.run("x")["text"] == "42"
    sandbox.delete()


@host_process
def test_a_kernel_that_dies_meanwhile_is_told_of(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    kernel = host_pid(sandbox.id, int(sandbox.run("import os; os.getpid()")["text"]))
    run = slow_run(sandbox)
    daemon.kill()
    os.kill(kernel, signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{kernel}"))
    daemon.start()
    sandbox.client = Client(daemon.url, daemon.key)
    got = ended(sandbox, run)
    assert (got["status"], got["error"]["state"]) == ("gateway_restart", "lost"), got
    context = sandbox.get("/contexts")["items"][0]
    assert (context["state"], context["last_exit"]["signal"]) == ("restarting", signal.SIGKILL), context
    assert sandbox.run("'os' in globals()")["text"] == "False"
    assert sandbox.get("/contexts")["items"][0]["incarnation"] == 2
    sandbox.delete()


@host_process
def test_last_words_of_a_kernel_that_dies_meanwhile_are_told(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    kernel = host_pid(sandbox.id, int(sandbox.run("import os; os.getpid()")["text"]))
    run = begin_run(sandbox, "import time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
                             "print('farewell'); os._exit(3)")
    daemon.kill()
    open(f"/proc/{kernel}/cwd/go", "w").close()
    wait_for(lambda: not os.path.exists(f"/proc/{kernel}"))
    daemon.start()
    sandbox.client = Client(daemon.url, daemon.key)
    got = ended(sandbox, run)
    assert (got["status"], got["stdout"], got["error"]["state"]) == ("gateway_restart", "up\nfarewell\n", "lost"), got
    context = sandbox.get("/contexts")["items"][0]
    assert context["execution_count"] == 0, context
    sandbox.delete()


def test_a_keeper_that_is_killed_while_kernels_are_looked_for_loses_nothing(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    begin(sandbox)
    init = first_init(sandbox.id)
    run = slow_run(sandbox)
    os.kill(init, signal.SIGSTOP)  # it answers nobody
    try:
        sandbox.client = kill_gateway(daemon)
        assert sandbox.get(f"/runs/{run}")["status"] == "running"
        daemon.kill()
    finally:
        os.kill(init, signal.SIGCONT)
    daemon.start()
    sandbox.client = Client(daemon.url, daemon.key)
    got = ended(sandbox, run)
    assert (got["status"], got["error"]["state"]) == ("gateway_restart", "kept"), got
    context = sandbox.get("/contexts")["items"][0]
    assert sandbox.post(f"/contexts/{context['id']}/interrupt")["interrupted"] is True
    goes_on(daemon, sandbox.id, init)


def test_a_paused_sandbox_is_paused_again(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    assert sandbox.run("x = 42")["status"] == "ok"
    if sandbox.client.call("POST", f"{sandbox.path}/pause").status_code != 200:
        pytest.skip("this isolation pauses nothing")
    sandbox.client = kill_gateway(daemon)
    wait_for(lambda: sandbox.get()["state"] == "paused")
    assert sandbox.run("x")["text"] == "42"
    sandbox.delete()


@host_process
def test_a_sandbox_that_was_resumed_stays_awake(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    kernel = host_pid(sandbox.id, int(sandbox.run("import os; x = 42; os.getpid()")["text"]))
    os.kill(kernel, signal.SIGSTOP)  # it is looked for until it goes on
    try:
        if sandbox.client.call("POST", f"{sandbox.path}/pause").status_code != 200:
            pytest.skip("this isolation pauses nothing")
        sandbox.client = kill_gateway(daemon)
        wait_for(lambda: sandbox.get("/contexts")["items"][0]["state"] == "starting" and sandbox.get()["state"] == "running")
        sandbox.post("/resume")
    finally:
        os.kill(kernel, signal.SIGCONT)
    for crash in (True, False):
        wait_for(lambda: sandbox.get("/contexts")["items"][0]["state"] == "idle")
        assert sandbox.run("x")["text"] == "42"
        if crash:
            sandbox.client = kill_gateway(daemon)  # it is written down too
    assert daemon.log().count("sandbox.paused") == 1, daemon.log()
    sandbox.delete()


@pytest.mark.parametrize("template, begin_code, code, text", [
    ("code-interpreter-node", "var x = 42", "x", "42"),
    ("code-interpreter-r", "x <- 42", "x", "[1] 42"),
])
def test_kernels_of_other_languages_outlive_the_gateway(daemon: Daemon, template: str, begin_code: str, code: str, text: str) -> None:
    client = Client(daemon.url, daemon.key)
    if template not in [t["name"] for t in client.get("/v1/templates")["items"] if t.get("built", True)]:
        pytest.skip(f"template {template} is not there")
    sandbox = client.sandbox(template=template)
    assert sandbox.run(begin_code)["status"] == "ok"
    slow = {"code-interpreter-node": "const fs = require('fs'); console.log('up'); while (!fs.existsSync('go')) {}; var y = x + 1",
            "code-interpreter-r": "cat('up\\n'); while (!file.exists('go')) Sys.sleep(.05); y <- x + 1"}[template]
    run = begin_run(sandbox, slow)
    sandbox.client = kill_gateway(daemon)
    assert ended(sandbox, run)["error"]["state"] == "kept"
    assert sandbox.get("/contexts")["items"][0]["state"] == "busy"
    assert sandbox.post("/exec", {"cmd": "touch go"})["exit_code"] == 0
    got = sandbox.run(code.replace("x", "y"))
    assert (got["status"], got["text"]) == ("ok", text.replace("42", "43")), got
    got = sandbox.run(code)
    assert (got["text"], got["execution_count"]) == (text, 4), got
    sandbox.delete()


@host_process
def test_a_kernel_that_did_not_see_the_crash_is_found_again(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    template = "code-interpreter-node"
    if template not in [t["name"] for t in client.get("/v1/templates")["items"] if t.get("built", True)]:
        pytest.skip(f"template {template} is not there")
    sandbox = client.sandbox(template=template)
    assert sandbox.run("var x = 42")["status"] == "ok"
    for _ in range(3):
        stopped = list(of_sandbox(sandbox.id))
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)  # so its router has the old peer still when the new one comes
        try:
            sandbox.client = kill_gateway(daemon)
            wait_for(lambda: sandbox.get("/contexts")["items"][0]["state"] == "starting" and sandbox.get()["state"] == "running")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        assert sandbox.run("x")["text"] == "42"
    assert sandbox.get("/contexts")["items"][0]["incarnation"] == 1
    sandbox.delete()


def test_sandbox_outlives_the_keeper(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    sandbox = client.sandbox()
    begin(sandbox)
    init = first_init(sandbox.id)
    run = slow_run(sandbox)
    daemon.kill()
    assert first_init(sandbox.id) == init
    daemon.start()
    sandbox.client = Client(daemon.url, daemon.key)
    got = ended(sandbox, run)
    assert (got["status"], got["error"]["state"]) == ("gateway_restart", "kept"), got
    context = sandbox.get("/contexts")["items"][0]
    assert sandbox.post(f"/contexts/{context['id']}/interrupt")["interrupted"] is True
    goes_on(daemon, sandbox.id, init)


@pytest.fixture
def same_port() -> Iterator[Daemon]:
    """A daemon that listens where it did before when it is started again."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with Daemon(listen=f"127.0.0.1:{port}") as d:
        yield d


def taken(address: tuple[str, int]) -> socket.socket | None:
    try:
        return socket.create_server(address)
    except OSError:
        return None


def still_has(d: Daemon, sandbox: Sandbox, init: int) -> None:
    sandbox.client = Client(d.url, d.key)
    context = sandbox.get("/contexts")["items"][0]
    # That its cell still runs is known when the kernel has been taken over, a moment after the start.
    wait_for(lambda: sandbox.post(f"/contexts/{context['id']}/interrupt")["interrupted"])
    goes_on(d, sandbox.id, init)


def test_a_start_after_a_killed_keeper_has_its_listeners_and_kernels(same_port: Daemon) -> None:
    sandbox = Client(same_port.url, same_port.key).sandbox()
    begin(sandbox)
    init, run, gateway = first_init(sandbox.id), slow_run(sandbox), same_port.gateway_pid()
    same_port.kill()
    same_port.start()  # at once: the gateway before has the port yet, and a run that it would wait for
    wait_for(lambda: not os.path.exists(f"/proc/{gateway}/fd/0"), 2)
    sandbox.client = Client(same_port.url, same_port.key)
    got = ended(sandbox, run)
    assert (got["status"], got["error"]["state"]) == ("gateway_restart", "kept"), got
    still_has(same_port, sandbox, init)
    assert "core.drained" not in same_port.log(), same_port.log()


def test_a_start_waits_for_the_gateway_before(same_port: Daemon) -> None:
    sandbox = Client(same_port.url, same_port.key).sandbox()
    begin(sandbox)
    init, gateway = first_init(sandbox.id), same_port.gateway_pid()
    slow_run(sandbox)
    os.kill(gateway, signal.SIGSTOP)  # it notices nothing
    same_port.kill()
    waits = threading.Thread(target=lambda: (wait_for(lambda: "gateway.waits" in same_port.log()), os.kill(gateway, signal.SIGCONT)))
    waits.start()
    same_port.start()
    waits.join()
    still_has(same_port, sandbox, init)


def test_a_start_that_fails_leaves_what_lives(same_port: Daemon) -> None:
    sandbox = Client(same_port.url, same_port.key).sandbox()
    begin(sandbox)
    init = first_init(sandbox.id)
    slow_run(sandbox)
    address = ("127.0.0.1", int(same_port.url.rsplit(":", 1)[1]))
    same_port.kill()
    with wait_for(lambda: taken(address)):  # by another program, as soon as the gateway before has left
        with pytest.raises(RuntimeError, match="Address already in use"):
            same_port.start()
        assert same_port.proc and same_port.proc.wait(10) == 2
    assert "core.drained" not in same_port.log() and "keeper.left_sandboxes" in same_port.log(), same_port.log()
    assert first_init(sandbox.id) == init
    same_port.start()
    still_has(same_port, sandbox, init)


@pytest.mark.parametrize("fill", ["off", "start"])
def test_a_start_that_fails_and_has_nothing_to_leave_gives_all_back(fill: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        d = Daemon("--pools-fill", fill, listen=f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(RuntimeError, match="Address already in use"):
            d.start()
        assert d.proc and d.proc.wait(10) == 2
    try:
        assert not named(d) and "keeper.left_" not in d.log(), d.log()
        second = Daemon()
        second.uid_base = d.uid_base
        with second:  # the networks of that range are free
            Client(second.url, second.key).sandbox(template="base").delete()
            assert "Address already in use" not in second.log(), second.log()
    finally:
        d.remove()


def test_sandbox_that_died_meanwhile_keeps_its_files(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    sandbox = client.sandbox()
    begin(sandbox)
    daemon.kill()
    os.kill(first_init(sandbox.id), signal.SIGKILL)
    wait_for(lambda: not inits(sandbox.id))
    daemon.start()
    client = Client(daemon.url, daemon.key)
    again = Sandbox(client, client.get(f"/v1/sandboxes/{sandbox.id}"))
    wait_for(lambda: again.get("/contexts")["items"][0]["last_exit"])
    got = again.run("print(open('kept').read())")
    assert got["status"] == "ok" and got["stdout"] == "here\n", got
    client.delete(f"/v1/sandboxes/{sandbox.id}")
    wait_for(lambda: not inits(sandbox.id))


def test_orderly_stop_ends_the_processes(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    sandbox = client.sandbox()
    begin(sandbox)
    assert daemon.stop() == 0
    assert not inits(sandbox.id)
    daemon.start()
    client = Client(daemon.url, daemon.key)
    again = Sandbox(client, client.get(f"/v1/sandboxes/{sandbox.id}"))
    told = wait_for(lambda: again.get("/contexts")["items"][0]["last_exit"])  # its kernel is gone, with what it knew
    assert (told["code"], told["signal"]) == (None, None) and told["at"], told
    assert again.run("print(open('kept').read())")["stdout"] == "here\n"


def test_seconds_of_use_do_not_go_back(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    lives, dies = client.sandbox(), client.sandbox()
    for sandbox in (lives, dies):
        wait_for(lambda s=sandbox: client.get(f"/v1/sandboxes/{s.id}/usage")["active_seconds"] >= 1)
    told = {s.id: client.get(f"/v1/sandboxes/{s.id}/usage")["active_seconds"] for s in (lives, dies)}
    gateway = daemon.gateway_pid()
    os.kill(gateway, signal.SIGSTOP)  # else it hears of the keeper's end and writes
    daemon.kill()
    os.kill(gateway, signal.SIGKILL)
    os.kill(first_init(dies.id), signal.SIGKILL)
    wait_for(lambda: not inits(dies.id))
    daemon.start()
    client = Client(daemon.url, daemon.key)
    after = {item["sandbox"]: item["active_seconds"] for item in client.get("/v1/usage")["items"]}
    assert after[lives.id] > told[lives.id] and after[dies.id] >= told[dies.id], (told, after)
    for sandbox in (lives, dies):
        assert client.get(f"/v1/sandboxes/{sandbox.id}/usage")["active_seconds"] >= told[sandbox.id]
        client.delete(f"/v1/sandboxes/{sandbox.id}")


def test_what_the_gateway_had_under_way_is_told_of(daemon: Daemon) -> None:
    tus = {"Tus-Resumable": "1.0.0"}
    box = Client(daemon.url, daemon.key).sandbox(template="base")

    def background(cmd: str) -> dict[str, Any]:
        return box.post("/exec", {"cmd": cmd, "background": True}, expect=201)

    def upload(path: str, data: bytes, length: int) -> str:
        place = box.client.call("POST", f"{box.path}/fs/uploads", expect=201, headers={
            **tus, "Upload-Length": str(length), "Upload-Metadata": f"path {base64.b64encode(path.encode()).decode()}"}).headers["location"]
        box.client.call("PATCH", place, content=data, expect=204,
                        headers={**tus, "Upload-Offset": "0", "Content-Type": "application/offset+octet-stream"})
        return place

    def process(pid: int) -> dict[str, Any]:
        return box.get(f"/processes/{pid}")

    cut, over, gone = background("echo out; echo err >&2; exec sleep 600"), background("echo bye; exit 3"), background("exit 0")
    wait_for(lambda: process(over["pid"])["status"] == "error" and process(gone["pid"])["status"] == "ok")
    box.client.delete(f"{box.path}/processes/{gone['pid']}")
    with box.client.http.stream("GET", f"{box.path}/processes/{cut['pid']}/events") as r:
        assert any('"err' in line for line in r.iter_lines())  # it is in the log
    half, whole = upload("half", b"12345", 10), upload("whole", b"12345", 5)

    box.client = kill_gateway(daemon)
    assert [p["pid"] for p in box.get("/processes")["items"]] == [cut["pid"], over["pid"]]
    told = process(cut["pid"])
    assert (told["state"], told["status"], told["exit_code"]) == ("exited", "gateway_restart", None)
    assert (told["cmd"], told["started_at"]) == (cut["cmd"], cut["started_at"])
    got = box.get(f"/runs/{cut['run']}")
    assert (got["status"], got["stdout"], got["stderr"]) == ("gateway_restart", "out\n", "err\n")
    ended = process(over["pid"])
    assert (ended["status"], ended["exit_code"], ended["signal"]) == ("error", 3, None)
    assert box.events(over["run"])[-1]["stdout"] == "bye\n"
    box.client.error("GET", half, 410, "upload_lost", headers=tus)
    box.client.error("PATCH", half, 410, "upload_lost", content=b"67890", headers={
        **tus, "Upload-Offset": "5", "Content-Type": "application/offset+octet-stream"})
    head = box.client.call("HEAD", whole, headers=tus, expect=200).headers
    assert head["upload-offset"] == head["upload-length"] == "5"
    assert box.client.call("GET", f"{box.path}/fs/file", params={"path": "whole"}).content == b"12345"
    box.client.delete(f"{box.path}/processes/{cut['pid']}")
    assert [p["pid"] for p in box.get("/processes")["items"]] == [over["pid"]]
    box.delete()


def test_subshells_outlive_the_gateway(daemon: Daemon) -> None:
    if "python" not in TEMPLATE:
        pytest.skip("its cell is in Python")
    sandbox = Client(daemon.url, daemon.key).sandbox()
    with Channels(sandbox.client, kernel_of(sandbox)) as ws:
        if "kernel subshells" not in ws.ask("kernel_info_request")[0]["content"].get("supported_features", []):
            pytest.skip("this template's kernel has no subshells")
        made = ws.ask("create_subshell_request", {}, "control")[0]["content"]["subshell_id"]
        cell = ws.send("execute_request", {"code": "import time\nprint('up')\nwhile True: time.sleep(0.05)"})
        ws.until(lambda m: m["header"]["msg_type"] == "stream" and m["parent_header"]["msg_id"] == cell)
    sandbox.client = kill_gateway(daemon)
    with Channels(sandbox.client, kernel_of(sandbox)) as ws:
        for subshell, want in ((made, "complete"), ("nobody's", "error")):
            reply, _ = ws.ask("is_complete_request", {"code": "1"}, subshell=subshell)
            assert reply["content"]["status"] == want, reply
    assert sandbox.post(f"/contexts/{kernel_of(sandbox)}/interrupt")["interrupted"] is True


def test_a_gateway_that_keeps_crashing_leaves_what_lives(daemon: Daemon) -> None:
    sandbox = Client(daemon.url, daemon.key).sandbox()
    begin(sandbox)
    init = first_init(sandbox.id)
    for _ in range(5):
        kill_gateway(daemon)
    os.kill(daemon.gateway_pid(), signal.SIGKILL)
    assert daemon.proc and daemon.proc.wait(10) == 1
    # What it said last is read by a thread, which may come to it later than its end.
    wait_for(lambda: "gateway.given_up" in daemon.log() and "keeper.left_sandboxes" in daemon.log())
    daemon.start()
    goes_on(daemon, sandbox.id, init)


def uid_of(sandbox: Sandbox) -> int:
    """On the host, of its usual user."""
    """On the host, of a process of its usual user."""
    pid = sandbox.post("/exec", {"cmd": ["sleep", "600"], "background": True}, expect=201)["pid"]
    return Path(f"/proc/{host_pid(sandbox.id, pid)}").stat().st_uid


@host_process
@pytest.mark.skipif(os.geteuid() != 0 or ISOLATION == "none", reason="there are no ranges of user ids")
def test_user_ids_of_sandboxes_that_outlive_a_daemon_are_nobody_elses() -> None:
    """Another daemon of the same range leaves them alone, and its own sandboxes get others."""
    with Daemon() as killed, Client(killed.url, killed.key).sandbox(template="base") as old:
        theirs = uid_of(old)
        killed.kill()
        second = Daemon()
        second.uid_base = killed.uid_base
        with second:
            client = Client(second.url, second.key)
            assert "uids.of_others" in second.log(), second.log()
            for _ in range(2):  # the second may have what the first gave back
                with client.sandbox(template="base") as new:
                    assert uid_of(new) != theirs
            assert [pid for pid in of_sandbox(old.id) if Path(f"/proc/{pid}").stat().st_uid == theirs], "its processes live"
        killed.start()
        old.client = Client(killed.url, killed.key)
