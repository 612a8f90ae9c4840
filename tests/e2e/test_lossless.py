"""Nothing is lost and nothing is left: output from the first moment of a kernel on, environments that stay apart, rounds after
which descriptors, processes and files are as many as before. Few rounds here, many with --long."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import LONG, TEMPLATE, Daemon, wait_for
from harness.fakes import Fakes


def rounds(normal: int, long: int) -> range:
    return range(long if LONG else normal)


# --- Output from the first moment ---------------------------------------------------------------------------------------

FIRST = "import os\nprint('first', flush=True)\nos.write(1, b'raw')\nprint('last')\n{n} * 2"


def whole(got: dict, n: int) -> None:
    assert got["status"] == "ok" and got["execution_count"] == 1 and got["text"] == str(n * 2), got
    # Where what went by the descriptor itself stands among what was printed is the kernel's affair.
    assert sorted(got["stdout"]) == sorted("first\nrawlast\n"), got


def test_print_the_moment_a_sandbox_is_there(client: Client) -> None:
    for n in rounds(10, 100):
        with client.sandbox(template=TEMPLATE) as sb:
            whole(sb.run(FIRST.format(n=n)), n)


def test_print_the_moment_a_context_is_there(fresh: Sandbox) -> None:
    for n in rounds(10, 100):
        context = fresh.context(language="python")["id"]
        whole(fresh.run(FIRST.format(n=n), context=context), n)
        fresh.client.delete(f"{fresh.path}/contexts/{context}")


def test_print_the_moment_a_reset_is_done(fresh: Sandbox) -> None:
    context = fresh.record["default_context"]
    for n in rounds(10, 200):
        fresh.post(f"/contexts/{context}/reset")
        whole(fresh.run(FIRST.format(n=n)), n)
        assert fresh.run("try:\n    print(old)\nexcept NameError:\n    print('fresh')\nold = 1")["stdout"] == "fresh\n"
    assert fresh.get(f"/contexts/{context}")["incarnation"] == len(rounds(10, 200)) + 1


def test_a_run_sent_while_the_kernel_starts_loses_nothing(fresh: Sandbox) -> None:
    """Queued behind resets that follow each other at once: each run is whole or was passed over, never half of one."""
    context = fresh.record["default_context"]
    with ThreadPoolExecutor(2) as pool:
        for n in rounds(5, 50):
            reset = pool.submit(fresh.post, f"/contexts/{context}/reset")
            got = fresh.run("print('one', flush=True)\nprint('two')")
            reset.result()
            if got["status"] == "ok":
                assert got["stdout"] == "one\ntwo\n", got
            else:
                assert got["status"] == "aborted", got
    assert fresh.run("print('one')")["stdout"] == "one\n"


@pytest.fixture(scope="module")
def rig(fakes: Fakes) -> Iterator[Client]:
    with Daemon(template_dirs=[fakes.templates]) as d:
        c = Client(d.url, d.key)
        yield c
        c.close()


def test_print_the_moment_a_quick_kernel_is_there(rig: Client) -> None:
    """The fake kernel answers at once: there is no start-up time for a late subscription to hide behind."""
    with rig.sandbox(template="fake") as sb:
        for n in rounds(60, 1000):
            context = sb.context(language="fake")["id"]
            got = sb.run(f"print a\nresult {n}\nprint b", context=context)
            assert got["status"] == "ok" and got["stdout"] == "ab" and got["text"] == str(n), got
            rig.delete(f"{sb.path}/contexts/{context}")


# --- Flush ------------------------------------------------------------------------------------------------------------

WAITED_FOR = """
import sys, threading
from IPython.display import publish_display_data
out, iopub, sent, late = sys.stdout, sys.stdout.pub_thread, [], []
send = iopub._really_send
def recorded(message, *args, **kwargs):
    send(message, *args, **kwargs)
    sent.append(b''.join(bytes(part) for part in message))
iopub._really_send = recorded
def work(number):
    for i in range(100):
        mark = f'<{number}.{i}>'
        if i % 3:
            print(mark, file=out)
        else:
            publish_display_data({'text/plain': mark})
        (out if i % 2 else sys.stderr if i % 3 == 0 else out).flush()
        if not any(mark.encode() in message for message in list(sent)):
            late.append(mark)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_flush_returns_when_all_before_it_was_sent(fresh: Sandbox) -> None:
    """Text and displays, whichever thread they come from, and whichever stream is flushed for a display."""
    got = fresh.run(WAITED_FOR + "(len(late), late[:5])")
    assert got["text"] == "(0, [])", got


def test_flush_of_what_was_waited_for_costs_no_turn_of_another_thread(fresh: Sandbox) -> None:
    code = ("import sys\nqueue, given = sys.stdout._queue, []\ngive = queue._give\n"
            "queue._give = lambda step: (given.append(step), give(step))\n"
            "print('x', flush=True)\nsys.stdout.flush()\nbefore = len(given)\n"
            "[stream.flush() for stream in (sys.stdout, sys.stderr) for _ in range(5)]\n"
            "again = len(given)\nprint('y', flush=True)\n"
            "(before > 0, again - before, len(given) > again)")
    assert fresh.run(code)["text"] == "(True, 0, True)"


# --- Many at once -------------------------------------------------------------------------------------------------------


def test_environments_of_parallel_creates_stay_apart(client: Client) -> None:
    """25 sandboxes and then 25 contexts in them, all at once, each with an environment of its own."""
    code = "import os; print(os.environ['WHO'], os.environ.get('MORE'))"
    with ThreadPoolExecutor(25) as pool:
        made = list(pool.map(lambda i: client.sandbox(template=TEMPLATE, env={"WHO": f"s{i}"}), range(25)))
        try:
            for i, got in enumerate(pool.map(lambda sb: sb.run(code), made)):
                assert got["stdout"] == f"s{i} None\n", got
            contexts = list(pool.map(lambda i: made[i].context(language="python", env={"WHO": f"c{i}", "MORE": str(i)}), range(25)))
            for i, got in enumerate(pool.map(lambda i: made[i].run(code, context=contexts[i]["id"]), range(25))):
                assert got["stdout"] == f"c{i} {i}\n", got
            for i, got in enumerate(pool.map(lambda sb: sb.run(code), made)):
                assert got["stdout"] == f"s{i} None\n", got
        finally:
            list(pool.map(lambda sb: sb.delete(), made))


# --- Nothing is left ----------------------------------------------------------------------------------------------------


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            parents.setdefault(int(proc.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(proc.name))
        except OSError:
            pass
    found, rest = [], [pid]
    while rest:
        rest += parents.get(rest[0], [])
        found.append(rest.pop(0))
    return found


def holdings(d: Daemon) -> dict[str, object]:
    """What a daemon holds: descriptors, processes, files but for the database and the budgeted logs, which are reused."""
    files = sorted(str(p.relative_to(d.state)) for p in d.state.rglob("*"))
    return {
        "keeper": len(os.listdir(f"/proc/{d.pid}/fd")),
        "gateway": len(os.listdir(f"/proc/{d.gateway_pid()}/fd")),
        "processes": len(descendants(d.pid)),
        "files": [f for f in files if not f.startswith(("sandal.db", "runs/"))],
        "logs": sum(f.startswith("runs/") for f in files),
    }


def settled(d: Daemon) -> dict[str, object]:
    """Once it has not changed for half a second: what was deleted is cleared away behind the answer."""
    seen = [holdings(d)]

    def still() -> bool:
        time.sleep(0.5)
        seen.append(holdings(d))
        return seen[-1] == seen[-2]

    wait_for(still, 15)
    return seen[-1]


def back_to(before: dict[str, object], d: Daemon) -> None:
    def close() -> bool:
        now = holdings(d)
        same = all(now[k] == before[k] for k in ("keeper", "processes", "files"))
        # The pool of files for logs that come may have grown, by the few that it keeps open.
        return same and abs(now["gateway"] - before["gateway"]) <= 8 and now["logs"] - before["logs"] <= 8  # type: ignore[operator]

    try:
        wait_for(close, 15, 0.1)
    except AssertionError:
        raise AssertionError(f"before {before}\nafter  {holdings(d)}") from None


def test_rounds_of_sandboxes_leave_nothing() -> None:
    with Daemon() as d:
        client = Client(d.url, d.key)
        client.sandbox(template="base").delete()
        before = settled(d)
        for _ in rounds(30, 1000):
            client.sandbox(template="base", env={"A": "b"}, metadata={"c": "d"}).delete()
        back_to(before, d)
        assert client.get("/v1/sandboxes")["items"] == []


def test_rounds_of_sandboxes_with_kernels_leave_nothing() -> None:
    with Daemon() as d:
        client = Client(d.url, d.key)
        work = "import subprocess\nopen('file', 'w').write('x')\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)\nprint(1)"

        def one_round() -> None:
            sb = client.sandbox(template=TEMPLATE)
            assert sb.run(work)["stdout"] == "1\n"
            sb.delete()

        one_round()
        before = settled(d)
        for _ in rounds(5, 100):
            one_round()
        back_to(before, d)


def test_rounds_of_contexts_and_resets_leave_nothing(fakes: Fakes) -> None:
    with Daemon(template_dirs=[fakes.templates]) as d:
        client = Client(d.url, d.key)
        with client.sandbox(template="fake") as sb:
            def one_round() -> None:
                context = sb.context(language="fake")["id"]
                assert sb.run("print a", context=context)["stdout"] == "a"
                sb.post(f"/contexts/{context}/reset")
                assert sb.run("print a\nexit 3", context=context)["status"] == "exited"
                client.delete(f"{sb.path}/contexts/{context}")

            one_round()
            before = settled(d)
            for _ in rounds(30, 1000):
                one_round()
            before["logs"] = holdings(d)["logs"]  # finished runs of a sandbox that lives are kept
            back_to(before, d)


def test_clients_that_come_and_go_leave_nothing(client: Client, daemon: Daemon, sandbox: Sandbox) -> None:
    """Half requests, dropped streams, sockets closed without a word."""
    import socket as sockets

    def visit(n: int) -> None:
        host, port = daemon.url.split("//")[1].split(":")
        with sockets.create_connection((host, int(port))) as s:
            s.sendall([b"GET /v1/sand", b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
                       b"\x16\x03\x01", b""][n % 4])
        ws = client.socket()
        ws.send("run_code", sandbox=sandbox.id, code="print(1)")
        ws.ws.socket.close()
        for event in sandbox.stream("print(1)", on_disconnect="detach"):
            if event["type"] == "started":
                break

    visit(0)
    wait_for(lambda: sandbox.get(f"/contexts/{sandbox.record['default_context']}")["state"] == "idle")
    before = settled(daemon)
    for n in rounds(40, 1000):
        visit(n)
    wait_for(lambda: sandbox.get(f"/contexts/{sandbox.record['default_context']}")["state"] == "idle")
    before["logs"] = holdings(daemon)["logs"]
    back_to(before, daemon)
