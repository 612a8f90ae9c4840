"""The R template: stock IRkernel through the template's start-up file."""

from __future__ import annotations

import time

import pytest
from harness.client import Sandbox
from harness.daemon import slack
from harness.golden import MIB, cases, check_case, own_sandbox, shared_sandbox
from harness.jupyter import Channels, kernel_of

r = shared_sandbox("code-interpreter-r")
own = own_sandbox("code-interpreter-r")


@pytest.mark.parametrize("case", cases("r"))
def test_kq_05_case(r: Sandbox, case: dict) -> None:
    check_case(r, case)


@pytest.mark.parametrize("code", ["Sys.sleep(20)", "while (TRUE) {}", "repeat Sys.sleep(0.01)"])
def test_interrupt_keeps_state_and_output(own: Sandbox, code: str) -> None:
    own.run("kept <- 41")
    got = own.run(f"cat('before\\n'); {code}", timeout=min(slack(), 15))  # of which its first line takes some
    assert (got["status"], got["error"]["state"], got["stdout"]) == ("timeout", "kept", "before\n")
    assert own.run("kept + 1")["text"] == "[1] 42"


def test_quit_and_kill_are_told(own: Sandbox) -> None:
    got = own.run("cat('before\\n'); quit(status = 4); cat('after\\n')")
    assert (got["status"], got["error"]["message"], got["stdout"]) == ("exited", "exit code 4", "before\n")
    got = own.run("cat('now\\n'); tools::pskill(Sys.getpid(), 9)")
    assert (got["status"], got["stdout"]) == ("killed", "now\n")
    assert own.run("2")["text"] == "[1] 2"


def test_output_streams_while_a_loop_runs(own: Sandbox) -> None:
    times = [time.monotonic() for e in own.stream("for (i in 1:4) { cat(i, '\\n'); Sys.sleep(0.3) }") if e["type"] == "stdout"]
    assert times[-1] - times[0] > 0.5  # not all at the end


def test_many_lines_and_many_bytes(own: Sandbox) -> None:
    assert own.run("for (i in 1:10000) writeLines(as.character(i))")["stdout"] == "".join(f"{i}\n" for i in range(1, 10001))
    big = own.run(f"cat(strrep('x', {20 * MIB}))", limits={"output_bytes": 32 * MIB}, timeout=120)
    assert len(big["stdout"]) == 20 * MIB


def test_comms_are_listed(own: Sandbox) -> None:
    with Channels(own.client, kernel_of(own)) as ws:
        def listed(**content: str) -> dict:
            return dict(ws.ask("comm_info_request", content)[0]["content"]["comms"])
        assert listed() == {}
        ws.execute("IRkernel::comm_manager()$register_target('t', function(comm, message) NULL)")
        ws.send("comm_open", {"comm_id": "c", "target_name": "t", "data": {}})
        assert listed() == listed(target_name="t") == {"c": {"target_name": "t"}}
        assert listed(target_name="u") == {}
        ws.send("comm_close", {"comm_id": "c", "data": {}})
        assert listed() == {}


def test_env_and_cwd_of_one_run(own: Sandbox) -> None:
    own.run("dir.create('deep')")
    code = "paste(Sys.getenv('FOO', 'none'), basename(getwd()))"
    assert own.run(code, env={"FOO": "b"}, cwd="deep")["text"] == '[1] "b deep"'
    assert own.run(code)["text"] == '[1] "none workspace"'


def test_variables_disturb_nothing(own: Sandbox) -> None:
    own.run("m <- matrix(1:6, 2); d <- mtcars; e <- new.env(); s <- 'txt'; delayedAssign('p', stop('forced'))\n"
            "makeActiveBinding('active', function() stop('called'), globalenv()); f <- function() 1")
    context = own.get("/contexts")["items"][0]["id"]
    items = {v["name"]: v for v in own.get(f"/contexts/{context}/variables")["items"]}
    assert set(items) == {"m", "d", "e", "s"}
    assert (items["m"]["shape"], items["d"]["shape"], items["s"]["shape"]) == ([2, 3], [32, 11], None)
    assert items["d"]["type"] == "data.frame" and items["s"]["preview"] == '"txt"'
    assert own.run("1")["execution_count"] == 2


def test_complete_and_inspect(own: Sandbox) -> None:
    context = own.get("/contexts")["items"][0]["id"]
    assert "mtcars" in own.post(f"/contexts/{context}/complete", {"code": "mtca", "cursor": 4})["matches"]
    assert own.post(f"/contexts/{context}/inspect", {"code": "mean", "cursor": 4})["found"] is True
