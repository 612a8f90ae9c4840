"""Kernels that misbehave, through the whole daemon: tests/integ/fake_kernel.c does on demand what stock kernels do not.
Whatever it does, the run ends with the right status close to its cause, keeps what was printed, says what was dropped,
and the context goes on."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import Daemon, slack, wait_for
from harness.fakes import Fakes
from harness.processes import of_sandbox

START_SECONDS = 2  # the daemon's timeouts.kernel_start here
GRACE_SECONDS = 2  # its timeouts.interrupt_grace, as by default
NO_REPLY_SECONDS = 1  # of gateway/kernel/kernel.h
NO_IDLE_SECONDS = 10


@pytest.fixture(scope="module")
def rig(fakes: Fakes) -> Iterator[Daemon]:
    with Daemon("--timeouts-kernel-start", str(START_SECONDS), template_dirs=[fakes.templates]) as d:
        yield d


@pytest.fixture(scope="module")
def there(rig: Daemon) -> Iterator[Client]:
    c = Client(rig.url, rig.key)
    yield c
    c.close()


@pytest.fixture
def fake(there: Client) -> Iterator[Sandbox]:
    with there.sandbox(template="fake") as sb:
        yield sb


def timed(sandbox: Sandbox, code: str, **fields: Any) -> tuple[dict[str, Any], float]:
    begin = time.monotonic()
    got = sandbox.run(code, **fields)
    return got, time.monotonic() - begin


def context_of(sandbox: Sandbox) -> dict[str, Any]:
    return sandbox.get(f"/contexts/{sandbox.record['default_context']}")


def usable(sandbox: Sandbox, incarnation: int = 1) -> None:
    """The context takes the next cell, in the kernel of that incarnation, with nothing of the last one in it."""
    got = sandbox.run("print next\nresult 2")
    assert got["status"] == "ok" and got["stdout"] == "next" and got["text"] == "2" and got["stderr"] == "", got
    context = context_of(sandbox)
    assert context["state"] == "idle" and context["incarnation"] == incarnation and context["queue"] == 0, context


def back(d: Daemon, ident: str) -> Sandbox | None:
    """The sandbox, once the keeper has started a new gateway (on a new port, since 0 was asked for)."""
    try:
        client = Client(d.urls[-1], d.key)
        return Sandbox(client, client.get(f"/v1/sandboxes/{ident}"))
    except Exception:
        return None


def metric(client: Client, name: str) -> int:
    found = re.search(rf"^sandal_{name} (\d+)$", client.call("GET", "/metrics", expect=200).text, re.M)
    assert found, name
    return int(found.group(1))


# --- Ends that are not complete -----------------------------------------------------------------------------------------


def test_idle_without_reply(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\nmissing_reply")
    assert got["status"] == "error" and got["stdout"] == "a", got
    assert got["error"]["name"] == "KernelError" and "without a reply" in got["error"]["message"]
    assert got["error"]["started"] is True and got["error"]["state"] == "kept"
    assert NO_REPLY_SECONDS <= took < NO_REPLY_SECONDS + slack(), took
    usable(fake)


def test_reply_without_idle(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\nresult 5\nmissing_idle")
    assert got["status"] == "ok" and got["stdout"] == "a" and got["text"] == "5" and got["error"] is None, got
    assert NO_IDLE_SECONDS <= took < NO_IDLE_SECONDS + slack(), took
    usable(fake)


def test_neither_reply_nor_idle_ends_by_the_timeout(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\nmissing_both", timeout=1)
    assert got["status"] == "timeout" and got["error"]["name"] == "TimeoutError" and got["stdout"] == "a", got
    assert got["error"]["state"] == "lost", "no interrupt ends what has ended: the kernel is killed"
    assert 1 + GRACE_SECONDS <= took < 1 + GRACE_SECONDS + slack(), took
    usable(fake, incarnation=2)


def test_doubled_reply(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\nresult 5\ndouble_reply")
    assert got["status"] == "ok" and got["stdout"] == "a" and got["text"] == "5", got
    assert took < slack()
    assert [e["type"] for e in fake.events(got["run"])] == ["started", "stdout", "display", "result"]
    usable(fake)


@pytest.mark.parametrize("order", ["reply_first", "idle_first"])
def test_reply_and_idle_in_either_order(fake: Sandbox, order: str) -> None:
    got, took = timed(fake, f"print a\n{order} 300")
    assert got["status"] == "ok" and got["stdout"] == "a", got
    assert 0.3 <= took < 0.3 + slack(), took
    usable(fake)


def test_error_of_the_kernel(fake: Sandbox) -> None:
    got, _ = timed(fake, "print a\nerror\nprint not run")
    assert got["status"] == "error" and got["stdout"] == "a", got
    assert got["error"]["name"] == "FakeError" and got["error"]["message"] == "as asked"
    assert got["error"]["state"] == "kept" and got["error"]["started"] is True
    usable(fake)


def test_error_on_iopub_that_is_none_by_the_reply(fake: Sandbox) -> None:
    got, _ = timed(fake, "print a\nerror_but_ok\nresult 5")
    assert got["status"] == "ok" and got["error"] is None and got["text"] == "5", got
    assert got["stdout"] == "a" and "FakeError: as asked" in got["stderr"]
    usable(fake)


# --- Messages that are not right ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault,dropped", [
    ("bad_signature", 1),
    ("garbage", 3),
    ("no_delimiter", 1),
    ("short", 1),
    ("huge_header 2000000", 1),
])
def test_a_message_that_cannot_be_taken_is_counted(fakes: Fakes, rig: Daemon, fake: Sandbox, fault: str, dropped: int) -> None:
    before = metric(fake.client, "kernel_messages_dropped_total")
    lines = len(rig.lines)
    got, took = timed(fake, f"print a\n{fault}\nprint b\nresult 5")
    assert got["status"] == "ok" and got["stdout"] == "ab" and got["text"] == "5", got
    assert took < slack()
    assert metric(fake.client, "kernel_messages_dropped_total") == before + dropped
    wait_for(lambda: any("kernel.bad_message" in line and " warn " in line for line in rig.lines[lines:]), 2)
    usable(fake)


def test_a_flood_of_bad_messages_does_not_flood_the_log(rig: Daemon, fake: Sandbox) -> None:
    before = metric(fake.client, "kernel_messages_dropped_total")
    lines = len(rig.lines)
    assert fake.run("\n".join(["bad_signature"] * 1000 + ["print a"]))["stdout"] == "a"
    assert metric(fake.client, "kernel_messages_dropped_total") == before + 1000
    assert len(rig.lines) - lines < 20
    usable(fake)


MIB = 1 << 20
HUGE = 20_000_000  # its text goes to the log's file while its signature is checked
RAISED = {"output_bytes": 256 * MIB}


def test_a_huge_message_with_a_bad_signature_leaves_nothing(rig: Daemon, fake: Sandbox) -> None:
    before = metric(fake.client, "kernel_messages_dropped_total")
    got = fake.run(f"print a\nbad_signature {HUGE}\nprint b\nresult 5", limits=RAISED)
    assert got["status"] == "ok" and got["stdout"] == "ab" and got["text"] == "5" and got["truncated"] is None, got
    assert metric(fake.client, "kernel_messages_dropped_total") == before + 1
    events = fake.events(got["run"])
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert max(log.stat().st_size for log in Path(rig.state, "runs").glob("*.log")) < MIB
    usable(fake)


@pytest.mark.parametrize("between", ["print b", "fd1 b\nprint c", f"big {HUGE}", f"bad_signature {HUGE}\nprint b"])
def test_a_huge_message_keeps_its_place(fake: Sandbox, between: str) -> None:
    got = fake.run(f"print a\nbig {HUGE}\n{between}\nprint d", limits=RAISED)
    assert got["status"] == "ok" and got["truncated"] is None, got["status"]
    text = got["stdout"].replace("x" * HUGE, "X")
    if between.startswith("fd1"):  # the process's own output comes by another way
        assert text.replace("b", "") == "aXcd" and text.count("b") == 1, text
    else:
        assert text == {"p": "aXbd", "b": "aXXd" if between.startswith("big") else "aXbd"}[between[0]], text
    events = fake.events(got["run"])
    assert [e["seq"] for e in events] == list(range(len(events)))
    usable(fake)


def test_a_kill_while_a_huge_message_is_checked(fakes: Fakes) -> None:
    """What was shown is there afterwards; of the message a beginning at most, in whole events."""
    with Daemon(template_dirs=[fakes.templates]) as own:
        client = Client(own.url, own.key)
        box = client.sandbox(template="fake")
        stream = box.stream(f"print a\nbig {HUGE}\nsleep 60000", limits=RAISED)
        run = next(e["run"] for e in stream if e["type"] == "stdout")
        logs = Path(own.state, "runs")
        wait_for(lambda: max(log.stat().st_size for log in logs.glob("*.log")) > 4 * MIB, 20, 0.001)
        os.kill(own.gateway_pid(), signal.SIGKILL)
        again = wait_for(lambda: back(own, box.id), 20)
        got = again.get(f"/runs/{run}")
        assert got["status"] == "gateway_restart" and got["stdout"].rstrip("x") == "a", got["status"]
        events = again.events(run)
        assert [e["seq"] for e in events] == list(range(len(events)))
        assert "".join(e["text"] for e in events if e["type"] == "stdout") == got["stdout"]


SLOT = 16384  # of a pack: gateway/run/pack.h


def test_a_kill_while_a_log_moves_to_its_own_file(fakes: Fakes) -> None:
    """The log is in both places then: the run is there once, and the slot is free again."""
    with Daemon(template_dirs=[fakes.templates]) as own:
        client = Client(own.url, own.key)
        box = client.sandbox(template="fake")
        runs = [box.run(f"print {name}")["run"] for name in ("first", "second")]
        (pack,) = Path(own.state, "runs").glob("*.pack")
        os.kill(own.pid, signal.SIGSTOP)  # the keeper would start the next gateway at once
        try:
            os.kill(own.gateway_pid(), signal.SIGKILL)
            at = next(at for at in range(0, 1024 * SLOT, SLOT) if runs[0].encode() in pack.read_bytes()[at:at + SLOT])
            copy = pack.with_name("moved.log")
            copy.write_bytes(pack.read_bytes()[at:at + SLOT])  # the zeros behind it are cut, as what is torn is
            os.chown(copy, pack.stat().st_uid, pack.stat().st_gid)
        finally:
            os.kill(own.pid, signal.SIGCONT)
        again = wait_for(lambda: back(own, box.id), 20)
        assert sorted(item["run"] for item in again.get("/runs")["items"]) == sorted(runs)
        assert [again.get(f"/runs/{run}")["stdout"] for run in runs] == ["first", "second"]
        assert copy.exists() and not any(pack.read_bytes()[at:at + SLOT])
        assert again.run("print third")["stdout"] == "third"
        assert [again.get(f"/runs/{run}")["stdout"] for run in runs] == ["first", "second"]


@pytest.mark.parametrize("levels", [200, 100_000])
def test_a_result_nested_too_deep_is_cut_and_told(fake: Sandbox, levels: int) -> None:
    got, took = timed(fake, f"print a\ndeep {levels}\nprint b")
    assert got["status"] == "ok" and got["stdout"] == "ab" and took < slack(), got
    assert got["truncated"]["result"] > 0 and len(got["results"]) == 1, got
    assert [e["type"] for e in fake.events(got["run"])].count("truncated") == 1
    usable(fake)


def test_unknown_message_type_is_ignored(fake: Sandbox) -> None:
    before = metric(fake.client, "kernel_messages_dropped_total")
    got, _ = timed(fake, "unknown_type\nprint a")
    assert got["status"] == "ok" and got["stdout"] == "a", got
    assert metric(fake.client, "kernel_messages_dropped_total") == before
    usable(fake)


def test_invalid_utf8_in_a_signed_frame_is_shown_as_such(fake: Sandbox) -> None:
    got, _ = timed(fake, "invalid_utf8\nprint b")
    assert got["status"] == "ok" and got["stdout"] == "a\ufffd\ufffdzb", got
    usable(fake)


# --- Output that comes from elsewhere, or later -------------------------------------------------------------------------


def test_late_output_is_the_old_runs(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\nlate 300 tail")
    assert got["status"] == "ok" and got["stdout"] == "a" and got["late"] is False and took < 0.3 * slack(), got
    after = fake.run("print b")
    assert after["stdout"] == "b", "late output is not the next run's"
    old = fake.get(f"/runs/{got['run']}")
    assert old["late"] is True and old["status"] == "ok"
    events = []
    with fake.client.http.stream("GET", f"{fake.path}/runs/{got['run']}/events", params={"late": "true"}) as answer:
        for line in answer.iter_lines():
            events.append(json.loads(line))
            if events[-1].get("late") and events[-1]["type"] != "result":
                break
    assert [e["seq"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events] == ["started", "stdout", "result", "stdout"], events
    assert events[-1]["text"] == "tail"


def test_output_without_a_known_parent_is_the_running_ones(fake: Sandbox) -> None:
    got, _ = timed(fake, "orphan o\nprint a")
    assert got["status"] == "ok" and got["stdout"] == "oa", got
    usable(fake)


def test_raw_bytes_on_the_kernels_own_descriptors(fake: Sandbox) -> None:
    got, _ = timed(fake, "fd1 raw\nfd2 err\nsleep 100\nprint a")
    assert got["status"] == "ok" and got["stdout"] == "rawa" and got["stderr"] == "err", got
    usable(fake)


# --- input() ------------------------------------------------------------------------------------------------------------


def test_unwanted_input_is_answered_and_no_hang(fake: Sandbox) -> None:
    got, took = timed(fake, "input ?\nprint b")
    assert got["status"] == "ok" and got["stdout"] == "b" and took < slack(), got
    usable(fake)


def test_input_asked_twice_before_an_answer(fake: Sandbox) -> None:
    got, took = timed(fake, "input_twice ?\nprint b", stdin=["x", "y"])
    assert got["status"] == "ok" and got["stdout"] == "xyb" and took < slack(), got
    usable(fake)


def test_input_asked_twice_with_one_line_left(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\ninput_twice ?\nprint b", stdin=["x"])
    assert got["status"] == "error" and got["error"]["name"] == "EOFError" and got["error"]["state"] == "kept", got
    assert got["stdout"].startswith("a") and took < slack(), got
    usable(fake)


def test_input_asked_twice_of_a_client(fake: Sandbox) -> None:
    events = []
    for event in fake.stream("input_twice ?\nprint b", timeout=1):
        events.append(event)
        if event["type"] == "input":
            value = "xy"[sum(e["type"] == "input" for e in events) - 1]
            fake.client.call("POST", f"{fake.path}/runs/{event['run']}/input", json={"value": value})
    # A second request before the answer to the first takes its place; the kernel, which wants two, ends by the timeout.
    end = events[-1]
    assert end["type"] == "result" and (end["status"], end["stdout"]) in (("ok", "xyb"), ("timeout", "x"), ("timeout", "y")), end
    usable(fake, incarnation=context_of(fake)["incarnation"])


# --- Interrupts ---------------------------------------------------------------------------------------------------------


def test_timeout_interrupts_by_message(fake: Sandbox) -> None:
    got, took = timed(fake, "print a\nsleep 60000", timeout=1)
    assert got["status"] == "timeout" and got["error"]["name"] == "TimeoutError" and got["error"]["state"] == "kept", got
    assert got["stdout"] == "a" and 1 <= took < 1 + slack(), took
    usable(fake)


@pytest.mark.parametrize("deaf", ["stubborn", "freeze"])
def test_timeout_of_a_kernel_that_does_not_listen(fake: Sandbox, deaf: str) -> None:
    got, took = timed(fake, f"print a\n{deaf} 60000", timeout=1)
    assert got["status"] == "timeout" and got["error"]["name"] == "TimeoutError" and got["error"]["state"] == "lost", got
    assert got["stdout"] == "a" and 1 + GRACE_SECONDS <= took < 1 + GRACE_SECONDS + slack(), took
    usable(fake, incarnation=2)


def test_interrupt_between_reply_and_idle_changes_nothing(fake: Sandbox) -> None:
    done: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: done.append(fake.run("print a\nreply_first 1500")))
    thread.start()
    wait_for(lambda: context_of(fake)["state"] == "busy")
    time.sleep(0.2)  # no client sees the reply before the idle
    fake.post(f"/contexts/{fake.record['default_context']}/interrupt")
    thread.join(5 * slack())
    assert done and done[0]["stdout"] == "a" and done[0]["status"] in ("interrupted", "ok"), done
    usable(fake)


# --- Death in each state ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how,status,name,says", [
    ("exit 7", "exited", "KernelExited", "exit code 7"),
    ("exit 0", "exited", "KernelExited", "exit code 0"),
    ("segfault", "killed", "KernelKilled", "SIGSEGV"),
    ("kill", "killed", "KernelKilled", "SIGKILL"),
    ("exit_after_reply 9", "exited", "KernelExited", "exit code 9"),
])
def test_death_while_a_cell_runs(fake: Sandbox, how: str, status: str, name: str, says: str) -> None:
    got, took = timed(fake, f"print a\nresult 5\n{how}")
    assert got["status"] == status and got["error"]["name"] == name and says in got["error"]["message"], got
    assert got["error"]["started"] is True and got["error"]["state"] == "lost"
    assert got["stdout"] == "a" and len(got["results"]) == 1, "what came before the death is kept"
    assert took < slack(), took
    usable(fake, incarnation=2)
    assert context_of(fake)["last_exit"], "says how the kernel went"


def test_death_while_idle(fakes: Fakes, fake: Sandbox) -> None:
    assert fake.run("print a")["stdout"] == "a"
    mine = set(fakes.pids()) & set(of_sandbox(fake.id))
    assert len(mine) == 1
    for pid in mine:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: context_of(fake)["last_exit"], slack())
    wait_for(lambda: context_of(fake)["state"] == "idle", slack())
    usable(fake, incarnation=2)


def test_runs_that_wait_behind_a_death_run_in_the_next_kernel(fake: Sandbox) -> None:
    done: dict[int, dict[str, Any]] = {}
    codes = ["print a\nsleep 500\nexit 7", "print b", "print c"]
    threads = []
    for i, code in enumerate(codes):
        threads.append(threading.Thread(target=lambda i=i, code=code: done.update({i: fake.run(code)})))
        threads[-1].start()
        wait_for(lambda: context_of(fake)["state"] == "busy" and context_of(fake)["queue"] >= i)
    for thread in threads:
        thread.join(10 * slack())
    assert done[0]["status"] == "exited" and done[0]["stdout"] == "a", done
    assert [(done[i]["status"], done[i]["stdout"]) for i in (1, 2)] == [("ok", "b"), ("ok", "c")], done
    usable(fake, incarnation=2)


# --- Starts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario,status,code,says", [
    ("exit_before_bind:3", 502, "kernel_start_failed", "status 3"),
    ("exit_before_bind:3", 502, "kernel_start_failed", "leaving before bind"),
    ("segfault_before_bind", 502, "kernel_start_failed", "SIGSEGV"),
    ("exit_before_info:4", 502, "kernel_start_failed", "status 4"),
    ("hang_before_bind", 504, "kernel_timeout", "did not open its sockets"),
    ("mute", 504, "kernel_timeout", "did not answer kernel_info"),
])
def test_a_start_that_fails_says_why_and_leaves_nothing(fakes: Fakes, fake: Sandbox, scenario: str, status: int, code: str,
                                                         says: str) -> None:
    before = len(fakes.pids())
    begin = time.monotonic()
    error = fake.client.error("POST", fake.path + "/contexts", status, code,
                              json={"language": "fake", "env": {"FAKE_KERNEL_SCENARIO": scenario}})
    took = time.monotonic() - begin
    assert says in error["message"], error
    cause = START_SECONDS if code == "kernel_timeout" else 0
    assert cause <= took < cause + slack(), took
    assert len(fake.get("/contexts")["items"]) == 1
    wait_for(lambda: len(fakes.pids()) == before, slack())
    usable(fake)


def test_a_sandbox_whose_first_kernel_fails_is_not_made(fakes: Fakes, there: Client) -> None:
    error = there.error("POST", "/v1/sandboxes", 502, "kernel_start_failed",
                        json={"template": "fake", "env": {"FAKE_KERNEL_SCENARIO": "exit_before_bind:3"}})
    assert "leaving before bind" in error["message"]
    assert there.get("/v1/sandboxes")["items"] == []
    wait_for(lambda: not fakes.pids(), slack())


@pytest.mark.parametrize("scenario", ["slow_bind:1000", "mute_shell", "mute_control", "silent_iopub:6", "silent_iopub:100", "welcome"])
def test_a_start_that_limps_loses_nothing(there: Client, scenario: str) -> None:
    begin = time.monotonic()
    with there.sandbox(template="fake", env={"FAKE_KERNEL_SCENARIO": scenario}) as sb:
        assert time.monotonic() - begin < START_SECONDS * slack()
        got = sb.run("print first\nresult 1")
        assert got["status"] == "ok" and got["stdout"] == "first" and got["text"] == "1", got
        usable(sb)


def test_a_kernel_that_no_longer_starts_makes_the_context_dead_and_the_next_run_tries_again(fakes: Fakes, there: Client) -> None:
    fakes.set_scenario("none")
    with there.sandbox(template="fake-switch") as sb:
        usable(sb)
        fakes.set_scenario("exit_before_bind:5")
        got, took = timed(sb, "print a\nexit 7")
        assert got["status"] == "exited" and got["stdout"] == "a" and took < slack(), got
        wait_for(lambda: context_of(sb)["state"] == "dead", 10)
        got, took = timed(sb, "print b")
        assert got["status"] == "exited" and got["error"]["started"] is False, got
        assert "status 5" in got["error"]["message"], got
        fakes.set_scenario("none")
        got, took = timed(sb, "print c")
        assert got["status"] == "ok" and got["stdout"] == "c", got
        assert context_of(sb)["state"] == "idle"
