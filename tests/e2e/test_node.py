"""The node template: stock IJavaScript through the template's start-up files."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from harness.client import Client, Sandbox
from harness.daemon import slack, wait_for
from harness.golden import MIB, cases, check_case, own_sandbox, shared_sandbox

node = shared_sandbox("code-interpreter-node")
own = own_sandbox("code-interpreter-node")


@pytest.mark.parametrize("case", cases("node"))
def test_kq_05_case(node: Sandbox, case: dict) -> None:
    check_case(node, case)


@pytest.mark.parametrize("code", [
    "while (true) {}",
    "await new Promise(() => {})",
    "await 1; while (true) {}",
    "setTimeout(() => { while (true); }, 5); await new Promise(r => setTimeout(r, 100))",
], ids=["a loop", "an await", "a loop after an await", "a loop in a timer"])
def test_interrupt_keeps_the_state(own: Sandbox, code: str) -> None:
    own.run("let kept = 41")
    got = own.run(code, timeout=1)
    assert got["status"] == "timeout" and got["error"]["state"] == "kept", got
    assert own.run("kept + 1")["text"] == "42"


def test_exit_and_crash_are_told(own: Sandbox) -> None:
    got = own.run("console.log('before'); process.exit(3)")
    assert (got["status"], got["error"]["message"], got["stdout"]) == ("exited", "exit code 3", "before\n")
    assert own.run("1")["text"] == "1"
    assert own.run("process.abort()")["status"] == "killed"
    assert own.run("process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})")["status"] == "killed"
    assert own.run("2")["text"] == "2"


@pytest.mark.parametrize("language", ["typescript", "javascript"])
def test_a_full_heap_is_out_of_memory(client: Client, language: str) -> None:
    """V8 ends the process by SIGABRT at the limit of its own, with memory left in the sandbox."""
    with client.sandbox(template="code-interpreter-node", env={"NODE_OPTIONS": "--max-old-space-size=48"}) as sb:
        eat = "const kept = []; console.log('before'); while (true) kept.push({ x: new Array(100).fill(1.5) })"
        got = sb.run(eat, language=language, timeout=120)
        assert (got["status"], got["error"]["name"], got["error"]["state"]) == ("oom", "OutOfMemory", "lost"), got
        assert got["error"]["message"].endswith("JavaScript heap out of memory") and got["stdout"] == "before\n", got
        assert sb.run("1 + 1", language=language)["text"] == "2"
        # A child's heap is not the kernel's, and neither is what code prints.
        got = sb.run(f"""
            const {{ spawnSync }} = require('child_process')
            const child = spawnSync(process.execPath, ['--max-old-space-size=20', '-e', {eat!r}], {{ stdio: 'inherit' }})
            console.log(child.signal); process.abort()""", language=language, timeout=120)
        assert got["status"] == "killed" and "SIGABRT" in got["stdout"], got


def test_late_output_stays_with_its_run(own: Sandbox) -> None:
    first = own.run("setTimeout(() => console.log('late'), 200); 'first'")
    second = own.run("await new Promise(r => setTimeout(r, 400)); console.log('second')")
    assert second["stdout"] == "second\n"
    wait_for(lambda: own.get(f"/runs/{first['run']}")["late"], 5 * slack())
    assert own.get(f"/runs/{second['run']}")["late"] is False
    assert own.get(f"/runs/{first['run']}")["stdout"] == "late\n"


def test_many_lines_and_many_bytes(own: Sandbox) -> None:
    lines = own.run("for (let i = 0; i < 10000; i++) console.log(i)")["stdout"]
    assert lines == "".join(f"{i}\n" for i in range(10000))
    big = own.run(f"console.log('x'.repeat({20 * MIB}))", limits={"output_bytes": 32 * MIB}, timeout=120)
    assert len(big["stdout"]) == 20 * MIB + 1


def test_output_streams_while_a_loop_runs(own: Sandbox) -> None:
    seen = 0.0
    for event in own.stream("console.log('a'); const end = Date.now() + 1500; while (Date.now() < end) console.log('b')"):
        seen = seen or (time.monotonic() if event["type"] == "stdout" else 0)
        ended = time.monotonic()
    assert ended - seen > 0.5  # the first text came long before the end


def test_env_and_cwd_of_one_run(own: Sandbox) -> None:
    own.run("require('fs').mkdirSync('deep')")
    assert own.run("[process.env.FOO, process.cwd().endsWith('deep')]", env={"FOO": "bar"}, cwd="deep")["text"] == "[ 'bar', true ]"
    assert own.run("[process.env.FOO, process.cwd().endsWith('deep')]")["text"] == "[ undefined, false ]"
    got = own.run("1", cwd="nowhere")
    assert got["status"] == "error" and got["error"]["started"] is False


def test_variables_disturb_nothing(own: Sandbox) -> None:
    own.run("const list = [1, 2]; let text = 's'; var old = new Map([[1, 2]]); function f() {}\n"
            "const trap = new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 } })")
    context = own.get("/contexts")["items"][0]["id"]
    items = {v["name"]: v for v in own.get(f"/contexts/{context}/variables")["items"]}
    assert set(items) == {"list", "text", "old", "trap"}
    assert (items["list"]["type"], items["list"]["length"], items["list"]["preview"]) == ("Array", 2, "[ 1, 2 ]")
    assert items["old"]["type"] == "Map" and items["text"]["preview"] == "'s'"
    assert own.run("list")["execution_count"] == 2


def test_complete_and_inspect(own: Sandbox) -> None:
    own.run("const words = { alpha: 1 }; globalThis.shown = words")
    context = own.get("/contexts")["items"][0]["id"]
    got = own.post(f"/contexts/{context}/complete", {"code": "shown.al", "cursor": 8})
    assert got["matches"] == ["shown.alpha"] and (got["start"], got["end"]) == (0, 8)
    found = own.post(f"/contexts/{context}/inspect", {"code": "parseInt", "cursor": 8})
    assert found["found"] is True and "radix" in found["formats"]["text/plain"]


def test_nothing_of_the_template_needs_a_compiler() -> None:
    tree = Path("/opt/sandal/node")
    if not tree.is_dir():
        pytest.skip("the tree lies elsewhere for a user without root")
    version = subprocess.run([tree / "bin/node", "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("v24.")
