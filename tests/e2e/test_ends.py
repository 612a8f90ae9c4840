"""Ends that are true: each within a second of its cause, with the right status, what was printed kept, and the context usable."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest
from harness.client import Client, Sandbox
from harness.daemon import FORKS_ARE_MUTE, TEMPLATE, Daemon, slack, wait_for
from harness.processes import files_kept, host_pid


def start(sandbox: Sandbox, code: str, **fields) -> tuple[threading.Thread, list[dict]]:
    """Runs code in the background and waits until it printed `up`."""
    events: list[dict] = []
    seen = threading.Event()

    def follow() -> None:
        for event in sandbox.stream(code, **fields):
            events.append(event)
            if event["type"] == "stdout" and "up" in event["text"]:
                seen.set()
        seen.set()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert seen.wait(30), events
    return thread, events


def result(events: list[dict]) -> dict:
    assert [e["type"] for e in events].count("result") == 1, events
    return events[-1]


def usable(sandbox: Sandbox, kept: bool) -> None:
    got = sandbox.run("try:\n    print(marker)\nexcept NameError:\n    print('fresh')")
    assert got["status"] == "ok", got
    assert got["stdout"] == ("kept\n" if kept else "fresh\n")


def mark(sandbox: Sandbox) -> None:
    assert sandbox.run("marker = 'kept'")["status"] == "ok"


@pytest.mark.smoke
def test_timeout_interrupts_and_keeps_state(fresh: Sandbox) -> None:
    mark(fresh)
    begin = time.monotonic()
    got = fresh.run("import time\nprint('up', flush=True)\ntime.sleep(60)", timeout=1)
    took = time.monotonic() - begin
    assert got["status"] == "timeout" and got["stdout"] == "up\n", got
    assert got["error"]["name"] == "TimeoutError" and got["error"]["state"] == "kept" and got["error"]["started"] is True
    assert 1 <= took < 2 * slack(), took
    assert got["output"].rstrip("\n").split("\n")[-1].startswith("TimeoutError: "), got["output"]
    assert got["error"]["traceback"][-1].startswith("TimeoutError: ")
    usable(fresh, kept=True)


@pytest.mark.smoke
def test_timeout_of_an_await(fresh: Sandbox) -> None:
    begin = time.monotonic()
    got = fresh.run("import asyncio\nawait asyncio.sleep(60)", timeout=1)
    assert got["status"] == "timeout" and time.monotonic() - begin < 2 * slack(), got


@pytest.mark.smoke
def test_timeout_of_code_that_ignores_interrupts_kills(fresh: Sandbox) -> None:
    mark(fresh)
    code = ("import time\nprint('up', flush=True)\nwhile True:\n    try:\n        time.sleep(60)\n"
            "    except KeyboardInterrupt:\n        pass")
    begin = time.monotonic()
    got = fresh.run(code, timeout=1)
    took = time.monotonic() - begin
    assert got["status"] == "timeout" and got["error"]["state"] == "lost" and got["stdout"] == "up\n", got
    assert 3 <= took < 4.5 * slack(), took
    usable(fresh, kept=False)


@pytest.mark.smoke
def test_interrupt_of_a_context(fresh: Sandbox) -> None:
    mark(fresh)
    thread, events = start(fresh, "import time\nprint('up', flush=True)\ntime.sleep(60)")
    context = fresh.record["default_context"]
    begin = time.monotonic()
    assert fresh.post(f"/contexts/{context}/interrupt")["interrupted"] is True
    thread.join(5 * slack())
    assert time.monotonic() - begin < slack()
    end = result(events)
    assert end["status"] == "interrupted" and end["error"]["name"] == "Interrupted" and end["error"]["state"] == "kept"
    assert end["stdout"] == "up\n"
    usable(fresh, kept=True)
    assert fresh.post(f"/contexts/{context}/interrupt")["interrupted"] is False


@pytest.mark.smoke
def test_interrupt_ends_child_processes(fresh: Sandbox) -> None:
    thread, events = start(fresh, "import os\nos.system('echo up; sleep 60')")  # the child says it: it is there
    begin = time.monotonic()
    run = events[0]["run"]
    fresh.client.call("DELETE", f"{fresh.path}/runs/{run}")
    thread.join(5 * slack())
    assert time.monotonic() - begin < 1.5 * slack()
    assert result(events)["status"] == "interrupted"


def test_timeout_at_the_end_does_not_hit_the_next_run(fresh: Sandbox) -> None:
    """The interrupt comes while the cell ends by itself; what comes after it is innocent."""
    seen = set()
    for n in range(100):
        got = fresh.run("import time\ntime.sleep(0.03)\n'x'", timeout=0.02 + n % 30 / 1000)
        seen.add(got["status"])
        after = fresh.run(f"z = {n}\nz")
        assert after["status"] == "ok" and after["text"] == str(n) and after["stderr"] == "", (n, got, after)
    assert "timeout" in seen, seen


@pytest.mark.parametrize("code,status,says", [
    ("import os\nprint('up', flush=True)\nos._exit(3)", "exited", "3"),
    ("print('up', flush=True)\nexit()", "exited", "0"),
    ("print('up', flush=True)\nquit()", "exited", "0"),
    ("import os, signal\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
    ("import os, signal\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)", "killed", "SIGSEGV"),
    ("import os\nprint('up', flush=True)\nos.abort()", "killed", "SIGABRT"),
])
@pytest.mark.smoke
def test_death_is_told_by_its_cause(fresh: Sandbox, code: str, status: str, says: str) -> None:
    mark(fresh)
    begin = time.monotonic()
    got = fresh.run(code)
    assert got["status"] == status, got
    assert says in got["error"]["message"] and got["error"]["state"] == "lost" and got["error"]["started"] is True
    assert got["stdout"] == "up\n"
    assert time.monotonic() - begin < 3 * slack()
    usable(fresh, kept=False)
    context = fresh.get(f"/contexts/{fresh.record['default_context']}")
    assert context["incarnation"] >= 2
    assert context["last_exit"], context


LAST_WORDS = [
    ("import os\nprint('b4'); os._exit(1)", "b4\n", ""),
    ("import os\nprint('b4'); os.kill(os.getpid(), 9)", "b4\n", ""),
    ("import ctypes\nprint('b4'); ctypes.string_at(0)", "b4\n", ""),
    ("import os\nfor i in range(5000): print(i)\nos.kill(os.getpid(), 9)", "".join(f"{i}\n" for i in range(5000)), ""),
    ("import os, sys\nprint('out'); print('err', file=sys.stderr); os.abort()", "out\n", "err\n"),
    ("import os\nprint('x', flush=True); os.execv('/bin/true', ['true'])", "x\n", ""),
    ("import os\nprint('x'); os.execv('/bin/true', ['true'])", "x\n", ""),
    ("import os\nprint('\u20ac' * 60000); os._exit(1)", "\u20ac" * 60000 + "\n", ""),
    ("import os\nprint('b4', flush=True)\nif os.fork() == 0:\n    print('child', flush=True); os._exit(0)\n"
     # A forked child's output comes through the kernel, which needs a moment to read it.
     "import time; os.wait(); time.sleep(0.5); print('end'); os._exit(1)", "b4\nchild\nend\n", ""),
]


@pytest.mark.parametrize("code,stdout,stderr", LAST_WORDS)
@pytest.mark.smoke
def test_what_was_printed_just_before_death_is_kept(fresh: Sandbox, code: str, stdout: str, stderr: str) -> None:
    if "os.fork()" in code and FORKS_ARE_MUTE:
        pytest.skip(FORKS_ARE_MUTE)
    got = fresh.run(code)
    assert got["status"] in ("exited", "killed"), got
    assert got["stdout"] == stdout
    if not stderr:  # faulthandler may add to it
        return
    assert got["stderr"].startswith(stderr)


@pytest.mark.smoke
def test_last_words_beyond_their_room_are_counted(fresh: Sandbox) -> None:
    text = "x" * 400_000
    got = fresh.run(f"import os\nprint('x' * {len(text)}); os._exit(1)")
    kept, _, said = got["stdout"].partition("\n")
    assert text.startswith(kept) and len(kept) >= 200_000, len(kept)
    assert len(kept) == len(text) or said == f"[{len(text) + 1 - len(kept)} bytes of output were lost when the kernel died]\n"


def test_last_words_come_once(fresh: Sandbox) -> None:
    """Before the flush and after it. (The instant of the flush itself may tell it twice.)"""
    for i in range(30):
        wait = random.choice((random.uniform(0, 0.15), random.uniform(0.25, 0.3)))
        flush = i % 3 == 0
        got = fresh.run(f"import os, time\nprint('once {i}', flush={flush}); time.sleep({wait}); os._exit(1)")
        assert got["status"] == "exited" and got["stdout"] == f"once {i}\n", (i, got)


@pytest.mark.smoke
def test_reset_aborts_what_runs_and_what_waits(fresh: Sandbox) -> None:
    mark(fresh)
    context = fresh.record["default_context"]
    thread, events = start(fresh, "import time\nprint('up', flush=True)\ntime.sleep(60)")
    queued: list[dict] = []
    waiting = threading.Thread(target=lambda: queued.append(fresh.run("1")))
    waiting.start()
    wait_for(lambda: fresh.get(f"/contexts/{context}")["queue"] == 1)
    begin = time.monotonic()
    got = fresh.post(f"/contexts/{context}/reset")
    assert got["id"] == context
    thread.join(5 * slack())
    waiting.join(5 * slack())
    assert time.monotonic() - begin < 3 * slack()
    running = result(events)
    assert running["status"] == "aborted" and running["error"]["started"] is True and running["error"]["state"] == "lost"
    assert running["stdout"] == "up\n"
    assert queued[0]["status"] == "aborted" and queued[0]["error"]["started"] is False
    usable(fresh, kept=False)
    assert fresh.run("1")["execution_count"] == 2  # usable() was the first after the reset


@pytest.mark.smoke
def test_delete_of_a_sandbox_aborts(client: Client) -> None:
    sandbox = client.sandbox(template=TEMPLATE)
    thread, events = start(sandbox, "import time\nprint('up', flush=True)\ntime.sleep(60)")
    sandbox.delete()
    thread.join(5 * slack())
    assert result(events)["status"] == "aborted"
    client.error("GET", sandbox.path, 404, "sandbox_not_found")


@pytest.mark.smoke
def test_wedged_kernel_ends_at_the_deadline(fresh: Sandbox) -> None:
    got = fresh.run("import sys\nsys.stdout.close()", timeout=2)
    assert got["status"] in ("timeout", "ok", "error"), got
    assert fresh.run("1+1", timeout=20)["status"] in ("ok", "timeout")
    fresh.post(f"/contexts/{fresh.record['default_context']}/reset")
    assert fresh.run("1+1")["text"] == "2"


@pytest.mark.smoke
def test_kernel_killed_from_outside_while_idle(fresh: Sandbox) -> None:
    mark(fresh)
    inner = int(fresh.run("import os; print(os.getpid())")["stdout"])
    os.kill(host_pid(fresh.id, inner), signal.SIGKILL)
    context = fresh.record["default_context"]
    wait_for(lambda: fresh.get(f"/contexts/{context}")["last_exit"])
    usable(fresh, kept=False)


@pytest.mark.smoke
def test_stop_of_the_daemon_ends_runs_as_gateway_restart() -> None:
    with Daemon("--timeouts-drain", "1") as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE, name="keeps-its-name")
        mark(sandbox)
        thread, events = start(sandbox, "import time\nprint('up', flush=True)\ntime.sleep(60)")
        begin = time.monotonic()
        assert d.stop() == 0
        assert time.monotonic() - begin < 6 * slack()
        thread.join(5 * slack())
        end = result(events)
        assert end["status"] == "gateway_restart" and end["stdout"] == "up\n", end
        d.start()
        again = Client(d.url, d.key)
        sandbox = Sandbox(again, again.get(f"/v1/sandboxes/{sandbox.id}"))
        assert sandbox.record["name"] == "keeps-its-name"
        assert sandbox.get(f"/runs/{end['run']}")["status"] == "gateway_restart"
        usable(sandbox, kept=False)


@pytest.mark.smoke
def test_files_of_a_sandbox_that_was_not_used_again_go_with_it() -> None:
    with Daemon() as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        sandbox.run("open('left.txt', 'w').write('x')")
        d.stop()
        d.start()
        assert files_kept(d, sandbox.id)
        client = Client(d.url, d.key)
        client.delete(sandbox.path)
        wait_for(lambda: not files_kept(d, sandbox.id))
        client.error("GET", sandbox.path, 404, "sandbox_not_found")


@pytest.mark.smoke
def test_draining_refuses_new_runs() -> None:
    with Daemon("--timeouts-drain", "20") as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        with client.socket() as ws:
            ident = ws.send("run_code", sandbox=sandbox.id, code="import time\nprint('up', flush=True)\ntime.sleep(4)")
            wait_for(lambda: ws.receive()["type"] == "stdout")
            sandbox.client.call("PUT", sandbox.path + "/fs/file?path=a", content=b"kept", headers={"Content-Type": "application/octet-stream"})
            os.kill(d.pid, signal.SIGTERM)
            wait_for(lambda: "gateway.stop" in d.log())
            assert sandbox.client.call("GET", sandbox.path + "/fs/file?path=a").content == b"kept", "reads go on"
            assert sandbox.get("/fs/stat?path=a")["size"] == 4 and len(sandbox.get("/fs/dir?path=.")["items"]) == 1
            client.error("DELETE", sandbox.path + "/fs/file?path=a", 503, "draining")
            late = ws.send("run_code", sandbox=sandbox.id, code="1")
            frames = [ws.receive(), ws.receive()]
            refused = next(f for f in frames if f["id"] == late)
            assert refused["type"] == "failure" and refused["error"]["code"] == "draining"
            ended = next((f for f in frames if f["id"] == ident), None)
            assert ended and ended["type"] == "result" and ended["status"] == "ok", "a running run gets its grace"


@pytest.mark.smoke
def test_kill_of_the_gateway_keeps_what_was_shown() -> None:
    with Daemon() as d:
        client = Client(d.url, d.key)
        sandbox = client.sandbox(template=TEMPLATE)
        events = []
        stream = sandbox.stream("import time\nprint('up', flush=True)\ntime.sleep(6)")
        for event in stream:
            events.append(event)
            if event["type"] == "stdout":
                break
        run = events[0]["run"]
        os.kill(d.gateway_pid(), signal.SIGKILL)
        again = wait_for(lambda: back(d, sandbox.id), 20)
        got = again.get(f"/runs/{run}")
        assert got["status"] == "gateway_restart" and got["stdout"] == "up\n", got
        replay = again.events(run)
        assert replay[: len(events)] == events
        usable(again, kept=False)


def test_a_restart_alone_ends_no_kernel_that_is_silent() -> None:
    code = """
import asyncio, os, time
def hang():
    open('in', 'w').close()
    end = time.monotonic() + 14  # past any deadline of a request of the gateway's own
    while time.monotonic() < end:
        try:
            time.sleep(0.05)
        except KeyboardInterrupt:
            open('hit', 'w').close()
asyncio.get_event_loop().call_later(0.2, hang)
marker = 'kept'
os.getpid()
"""
    with Daemon() as d:
        sandbox = Client(d.url, d.key).sandbox(template=TEMPLATE)
        kernel = host_pid(sandbox.id, int(sandbox.run(code)["text"]))
        wait_for(lambda: os.path.exists(f"/proc/{kernel}/cwd/in"))
        os.kill(d.gateway_pid(), signal.SIGKILL)
        again = wait_for(lambda: back(d, sandbox.id), 20)
        usable(again, kept=True)
        assert again.run("os.path.exists('hit')")["text"] == "False"


def back(d: Daemon, ident: str) -> Sandbox | None:
    """The sandbox, once the keeper has started a new gateway (on a new port, since 0 was asked for)."""
    try:
        client = Client(d.urls[-1], d.key)
        return Sandbox(client, client.get(f"/v1/sandboxes/{ident}"))
    except Exception:
        return None
