"""run_code with every option of the contract, streams, replay, input, limits, queue, idempotency."""

from __future__ import annotations

import json
import threading
import time

import pytest
from harness.client import Client, Sandbox
from harness.daemon import wait_for

STREAM_HEAD = ["started"]


def kinds(events: list[dict]) -> list[str]:
    return [e["type"] for e in events]


@pytest.mark.smoke
def test_stream_has_every_event_in_order(sandbox: Sandbox) -> None:
    events = list(sandbox.stream("import sys\nprint('a', flush=True)\ndisplay(1)\nprint('b', file=sys.stderr, flush=True)\n2"))
    assert kinds(events) == ["started", "stdout", "display", "stderr", "display", "result"], events
    assert [e["seq"] for e in events] == list(range(6))
    assert len({e["run"] for e in events}) == 1
    assert events[0]["context"] == sandbox.record["default_context"] and events[0]["execution_count"] >= 1
    assert events[2]["result"]["main"] is False and events[4]["result"]["main"] is True
    assert events[-1]["text"] == "2" and len(events[-1]["results"]) == 2


@pytest.mark.smoke
def test_output_is_streamed_while_the_code_runs(sandbox: Sandbox) -> None:
    begin = time.monotonic()
    for event in sandbox.stream("import time\nprint('first', flush=True)\ntime.sleep(2)"):
        if event["type"] == "stdout":
            break
    assert time.monotonic() - begin < 1.5


def test_sse(sandbox: Sandbox) -> None:
    with sandbox.client.http.stream("POST", sandbox.path + "/run_code", json={"code": "print('x')\n1"},
                                    headers={"Accept": "text/event-stream"}) as r:
        assert r.status_code == 200 and r.headers["content-type"].startswith("text/event-stream")
        text = "".join(r.iter_text())
    blocks = [b for b in text.split("\n\n") if b.strip() and not b.startswith(":")]
    seqs, events = [], []
    for block in blocks:
        fields = dict(line.split(":", 1) for line in block.split("\n") if ":" in line and not line.startswith(":"))
        if "data" in fields:
            seqs.append(int(fields["id"]))
            events.append(json.loads(fields["data"]))
    assert seqs == [e["seq"] for e in events] == list(range(len(events)))
    assert events[-1]["type"] == "result" and events[-1]["text"] == "1"
    run = events[0]["run"]
    with sandbox.client.http.stream("GET", f"{sandbox.path}/runs/{run}/events",
                                    headers={"Accept": "text/event-stream", "Last-Event-ID": "0"}) as r:
        text = "".join(r.iter_text())
    assert "id: 0" not in text.replace("id:0", "id: 0").split("\n") and '"type":"result"' in text


def test_replay_after_every_seq(sandbox: Sandbox) -> None:
    events = list(sandbox.stream("for i in range(5):\n    print(i, flush=True)\n    display(i)"))
    run = events[0]["run"]
    for after in range(-1, len(events)):
        params = {} if after < 0 else {"after": after}
        assert sandbox.events(run, **params) == events[after + 1:]


def test_a_dropped_stream_is_followed_live(sandbox: Sandbox) -> None:
    seen = []
    for event in sandbox.stream("import time\nfor i in range(5):\n    print(i, flush=True)\n    time.sleep(0.3)"):
        seen.append(event)
        if event["type"] == "stdout":
            break
    rest = sandbox.events(seen[0]["run"], after=seen[-1]["seq"])
    assert [e["seq"] for e in seen + rest] == list(range(len(seen) + len(rest)))
    assert rest[-1]["type"] == "result" and rest[-1]["stdout"] == "0\n1\n2\n3\n4\n"


def test_the_execution_reads_the_same_everywhere(sandbox: Sandbox) -> None:
    got = sandbox.run("print('x')\n3")
    again = sandbox.get(f"/runs/{got['run']}")
    assert {k: v for k, v in again.items() if k in got} == got
    result = sandbox.events(got["run"])[-1]
    assert {k: v for k, v in result.items() if k not in ("seq", "type")} == got
    listed = sandbox.get("/runs")["items"]
    assert not {"text", "output", "results", "stdout", "stderr"} & set(listed[0])
    assert got["run"] in [r["run"] for r in listed]


@pytest.mark.smoke
def test_counts_begin_at_one_and_silent_raises_none(fresh: Sandbox) -> None:
    assert fresh.run("1")["execution_count"] == 1
    quiet = fresh.run("print('seen')\n7", silent=True)
    assert quiet["stdout"] == "seen\n" and quiet["results"] == []
    assert fresh.run("1")["execution_count"] == 2


def test_tracebacks_have_the_number_of_their_run(fresh: Sandbox) -> None:
    """Cells that IPython does not count, and silent ones, do not part its numbers from ours."""
    for code, fields in (("", {}), (" \n", {}), ("# nothing", {}), ("hidden = 1", {"silent": True}), ("1/0", {"silent": True}), ("", {"silent": True})):
        fresh.run(code, **fields)
        got = fresh.run("1/0")
        assert f"Cell In[{got['execution_count']}], line 1" in "\n".join(got["error"]["traceback"]), (code, fields, got)
    assert fresh.get(f"/contexts/{fresh.record['default_context']}")["execution_count"] == got["execution_count"]


def test_stdin_lines(sandbox: Sandbox) -> None:
    got = sandbox.run("a = input('first? '); b = input(); print(a + b)", stdin=["x", "y"])
    assert got["status"] == "ok" and got["stdout"].endswith("xy\n"), got


def test_input_without_lines_is_an_error_and_no_hang(sandbox: Sandbox) -> None:
    begin = time.monotonic()
    got = sandbox.run("print('before')\ninput('?')")
    assert got["status"] == "error" and got["stdout"] == "before\n" and got["error"]["state"] == "kept", got
    assert time.monotonic() - begin < 5
    got = sandbox.run("input(); input()", stdin=["one"])
    assert got["status"] == "error", got
    assert sandbox.run("1")["text"] == "1"


def answer(sandbox: Sandbox, event: dict, value: str) -> None:
    sandbox.client.call("POST", f"{sandbox.path}/runs/{event['run']}/input", json={"value": value}, expect=204)


@pytest.mark.smoke
def test_input_answered_by_rest(sandbox: Sandbox) -> None:
    events = []
    for event in sandbox.stream("name = input('who? '); print('hi', name)"):
        events.append(event)
        if event["type"] == "input":
            assert event["prompt"] == "who? " and event["password"] is False
            answer(sandbox, event, "Ada ✓")
    assert events[-1]["status"] == "ok" and "hi Ada ✓\n" in events[-1]["stdout"]
    sandbox.client.error("POST", f"{sandbox.path}/runs/{events[0]['run']}/input", 409, "not_waiting", json={"value": "x"})


def test_getpass(sandbox: Sandbox) -> None:
    for event in sandbox.stream("import getpass; print(len(getpass.getpass('pw ')))"):
        if event["type"] == "input":
            assert event["password"] is True
            answer(sandbox, event, "secret")
        last = event
    assert last["stdout"].endswith("6\n")


def test_interrupt_while_input_waits(sandbox: Sandbox) -> None:
    for event in sandbox.stream("input('?')"):
        if event["type"] == "input":
            sandbox.client.call("DELETE", f"{sandbox.path}/runs/{event['run']}")
        last = event
    assert last["status"] == "interrupted", last
    assert sandbox.run("1")["text"] == "1"


def test_env_and_cwd_of_one_run(sandbox: Sandbox) -> None:
    code = "import os; print(os.environ.get('SANDAL_X'), os.path.basename(os.getcwd()))"
    sandbox.run("import os; os.makedirs('sub', exist_ok=True)")
    base = sandbox.run(code)["stdout"]
    assert sandbox.run(code, env={"SANDAL_X": "1"}, cwd="sub")["stdout"] == "1 sub\n"
    assert sandbox.run(code)["stdout"] == base
    failed = sandbox.run(code + "\n1/0", env={"SANDAL_X": "1"}, cwd="sub")
    assert failed["status"] == "error" and failed["stdout"] == "1 sub\n"
    assert sandbox.run(code)["stdout"] == base


def test_ansi_on_request(sandbox: Sandbox) -> None:
    assert any("\x1b[" in line for line in sandbox.run("1/0", ansi=True)["error"]["traceback"])
    assert not any("\x1b" in line for line in sandbox.run("1/0")["error"]["traceback"])


def test_key_runs_once(sandbox: Sandbox) -> None:
    sandbox.run("n = 0")
    first = sandbox.run("n += 1; n", key="once")
    again = sandbox.run("n += 1; n", key="once")
    assert first["run"] == again["run"] and again["text"] == "1"
    for other in ({"code": "2"}, {"code": "n += 1; n", "language": "r"}):
        error = sandbox.client.error("POST", sandbox.path + "/run_code", 409, "key_reused", json={**other, "key": "once"})
        assert "other code, or with another context or language" in error["message"] and first["run"] in error["message"]
    assert sandbox.run("n")["text"] == "1"


def test_queue_is_seen_and_in_order(fresh: Sandbox) -> None:
    with fresh.client.socket() as ws:
        ids = [ws.send("run_code", sandbox=fresh.id, code=f"import time; time.sleep(0.2); {i}") for i in range(4)]
        by_id: dict[str, list[dict]] = {i: [] for i in ids}
        while not all(v and v[-1]["type"] == "result" for v in by_id.values()):
            frame = ws.receive()
            by_id[frame["id"]].append(frame)
        assert [by_id[i][-1]["text"] for i in ids] == ["0", "1", "2", "3"]
        assert kinds(by_id[ids[0]])[0] == "started"
        assert [by_id[i][0].get("position") for i in ids[1:]] == [1, 2, 3]
        assert by_id[ids[3]][-1]["usage"]["queued_ms"] >= 500


@pytest.mark.parametrize("limit,size,cut", [(65536, 65536, 0), (65536, 65537, 1), (65536, 1_000_000, 1)])
def test_output_limit_truncates_and_says_so(sandbox: Sandbox, limit: int, size: int, cut: int) -> None:
    code = f"import sys; _ = sys.stdout.write('a' * {size - 5} + 'the e')"
    events = list(sandbox.stream(code, limits={"output_bytes": limit}))
    end = events[-1]
    assert end["status"] == "ok"
    kept = sum(len(e["text"]) for e in events if e["type"] == "stdout")
    if not cut:
        assert end["truncated"] is None and kept == size
        return
    assert kept + end["truncated"]["stdout"] == size
    assert [e["what"] for e in events if e["type"] == "truncated"] == ["stdout"]
    tail = [e for e in events if e.get("tail")]
    assert tail and "the e".endswith(tail[-1]["text"][-5:])


def test_output_limit_can_stop(sandbox: Sandbox) -> None:
    begin = time.monotonic()
    got = sandbox.run("while True: print('x' * 1000)", limits={"output_bytes": 65536, "on_exceed": "stop"})
    assert got["status"] == "output_limit" and got["error"]["name"] == "OutputLimit", got["error"]
    assert time.monotonic() - begin < 10
    assert sandbox.run("1")["text"] == "1"


def test_result_limit(sandbox: Sandbox) -> None:
    events = list(sandbox.stream("display({'text/plain': 'x' * 100000}, raw=True); 1", limits={"result_bytes": 65536}))
    assert [e["what"] for e in events if e["type"] == "truncated"] == ["result"]
    assert events[-1]["truncated"]["result"] > 0 and events[-1]["status"] == "ok"


def test_event_limit(sandbox: Sandbox) -> None:
    events = list(sandbox.stream("for i in range(100): display(i)", limits={"events": 32}))
    assert "truncated" in kinds(events) and len(events) <= 40
    assert events[-1]["truncated"]["events"] > 0


def test_late_output_stays_with_its_run(sandbox: Sandbox) -> None:
    code = "import threading, time\ndef f():\n    time.sleep(1); print('late')\nthreading.Thread(target=f).start()"
    got = sandbox.run(code)
    other = sandbox.run("print('other')")
    assert other["stdout"] == "other\n"
    wait_for(lambda: sandbox.get(f"/runs/{got['run']}")["late"], 5)
    again = sandbox.get(f"/runs/{got['run']}")
    assert again["stdout"] == "late\n"
    events = sandbox.events(got["run"])
    late = sandbox.client.http.stream("GET", f"{sandbox.path}/runs/{got['run']}/events", params={"late": "true"})
    with late as r:
        for line in r.iter_lines():
            if line.strip():
                event = json.loads(line)
                if event.get("late") is True and event["type"] == "stdout":
                    assert event["text"] == "late\n" and event["seq"] == events[-1]["seq"] + 1
                    return
    raise AssertionError("no late event")


def test_update_by_id_across_cells(sandbox: Sandbox) -> None:
    first = sandbox.run("h = display('old', display_id='shared')")
    second = list(sandbox.stream("h.update('new')"))
    assert "update" in kinds(second)
    wait_for(lambda: sandbox.get(f"/runs/{first['run']}")["results"][0]["data"] == "'new'")


def test_disconnect_interrupts_a_plain_call_and_detaches_a_stream(fresh: Sandbox) -> None:
    import httpx
    with pytest.raises(httpx.ReadTimeout):
        fresh.client.http.post(fresh.path + "/run_code", json={"code": "import time; time.sleep(30)"}, timeout=0.7)
    run = fresh.get("/runs")["items"][0]["run"]
    wait_for(lambda: fresh.get(f"/runs/{run}")["status"] == "interrupted", 4)
    for event in fresh.stream("import time\nprint('up', flush=True)\ntime.sleep(1)\nprint('end')"):
        if event["type"] == "stdout":
            break
    wait_for(lambda: fresh.get(f"/runs/{event['run']}")["status"] == "ok", 5)
    assert fresh.get(f"/runs/{event['run']}")["stdout"] == "up\nend\n"


def test_many_runs_on_one_socket_over_two_contexts(fresh: Sandbox) -> None:
    other = fresh.context(language="python", name="other")
    with fresh.client.socket(f"/v1/sandboxes/{fresh.id}/ws") as ws:
        want = {}
        for i in range(20):
            context = "other" if i % 2 else fresh.record["default_context"]
            want[ws.send("run_code", context=context, code=f"print({i})\n{i} * 2")] = i
        done = {}
        while len(done) < 20:
            frame = ws.receive()
            assert frame["type"] != "failure", frame
            if frame["type"] == "result":
                done[frame["id"]] = frame
        assert all(done[k]["text"] == str(i * 2) and done[k]["stdout"] == f"{i}\n" for k, i in want.items())
        assert {f["context"] for f in done.values()} == {other["id"], fresh.record["default_context"]}


@pytest.mark.smoke
def test_ten_thousand_lines_and_twenty_megabytes(sandbox: Sandbox) -> None:
    got = sandbox.run("for i in range(10000): print(i)")
    assert got["stdout"] == "".join(f"{i}\n" for i in range(10000))
    got = sandbox.run("print('x' * 20_000_000)")
    assert got["status"] == "ok" and got["truncated"]["stdout"] + len(got["stdout"]) == 20_000_001


def test_variables_complete_inspect(fresh: Sandbox) -> None:
    sandbox = fresh
    sandbox.run("alpha_list = [1, 2, 3]\nbeta = {'k': 'v'}\n_x = 1\n99")
    context = sandbox.record["default_context"]
    items = {v["name"]: v for v in sandbox.get(f"/contexts/{context}/variables")["items"]}
    assert items["alpha_list"]["type"] == "list" and items["alpha_list"]["length"] == 3
    assert "[1, 2, 3]" in items["alpha_list"]["preview"]
    before = sandbox.run("1")["execution_count"]
    got = sandbox.post(f"/contexts/{context}/complete", {"code": "alpha_li", "cursor": 8})
    assert "alpha_list" in got["matches"] and (got["start"], got["end"]) == (0, 8)
    got = sandbox.post(f"/contexts/{context}/inspect", {"code": "len", "cursor": 3})
    assert got["found"] is True and "text/plain" in got["formats"]
    assert sandbox.get(f"/contexts/{context}/variables")
    assert sandbox.run("_")["text"] == "1"
    assert sandbox.run("1")["execution_count"] == before + 2


HOSTILE = """
import os, time
class Slow:
    @property
    def shape(self): time.sleep(60)
    def memory_usage(self): time.sleep(60)
    def __len__(self): time.sleep(60)
class Exits:
    @property
    def shape(self): os._exit(3)
    @property
    def __class__(self): os._exit(4)
    def __sizeof__(self): os._exit(5)
class Raises:
    def __getattr__(self, name): raise KeyboardInterrupt
class Recurses:
    def __repr__(self): return repr(self)
class Items(dict):
    def items(self): os._exit(6)
    def __iter__(self): os._exit(6)
    def __len__(self): os._exit(6)
class Meta(type):
    def __getattribute__(cls, name): os._exit(7)
    def __hash__(cls): os._exit(7)
class OfMeta(metaclass=Meta): pass
class ndarray:
    __module__ = "numpy"
    shape = property(lambda self: os._exit(8))
hostile = dict(slow=Slow(), exits=Exits(), raises=Raises(), recurses=Recurses(), items=Items(a=1), of_meta=OfMeta(), lies=ndarray())
globals().update({f"h_{name}": value for name, value in hostile.items()})
h_list = list(hostile.values())
h_good = [1, "two", {3: None}]
"""


def variables(sandbox: Sandbox) -> dict[str, dict]:
    items = sandbox.get(f"/contexts/{sandbox.record['default_context']}/variables")["items"]
    return {v["name"]: v for v in items}


@pytest.mark.smoke
def test_variables_run_no_code_of_the_users(fresh: Sandbox) -> None:
    assert fresh.run(HOSTILE)["status"] == "ok"
    begin = time.monotonic()
    items = variables(fresh)
    assert time.monotonic() - begin < 1
    kinds_of = {"h_slow": "Slow", "h_exits": "Exits", "h_raises": "Raises", "h_recurses": "Recurses", "h_items": "Items",
                "h_of_meta": "OfMeta"}
    for name, kind in kinds_of.items():
        want = {"name": name, "type": f"__main__.{kind}", "shape": None, "length": None, "bytes": None,
                "preview": f"<__main__.{kind} object>"}
        assert items[name] == want
    assert items["h_lies"]["preview"] == "<numpy.ndarray object>" and items["h_lies"]["shape"] is None
    assert items["h_list"]["length"] == 7 and items["h_list"]["preview"].startswith("[<__main__.Slow object>, ")
    assert items["h_good"]["preview"] == "[1, 'two', {3: None}]"
    assert fresh.run("h_good[0]")["text"] == "1"


def test_variables_are_bounded(fresh: Sandbox) -> None:
    fresh.run("import numpy as np, pandas as pd\n"
              "big = list(range(10**6)); table = {str(i): 'v' * 1000 for i in range(10**5)}; huge = 10**100000\n"
              "loop = [1]; loop.append(loop); text = 'x' * 10**7; deep = [[[[[0] * 99] * 99] * 99] * 99] * 99\n"
              "array = np.zeros((1000, 1000))[::2]; scalar = np.float64(2.5); objects = np.array([object()] * 3)\n"
              "frame = pd.DataFrame({'a': range(10**6), 'b': 1.5}); wide = pd.DataFrame(np.zeros((3, 5000)))\n"
              "series = pd.Series(['p', 'q'])")
    begin = time.monotonic()
    items = variables(fresh)
    assert time.monotonic() - begin < 2
    assert all(len(v["preview"]) <= 200 for v in items.values())
    assert items["big"]["length"] == 10**6 and items["big"]["preview"] == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...]"
    assert items["table"]["length"] == 10**5 and items["text"]["length"] == 10**7
    assert items["huge"]["preview"] == "<int of 332193 bits>"
    assert items["loop"]["preview"] == "[1, [1, [1, [...]]]]"
    assert items["array"]["shape"] == [500, 1000] and items["array"]["bytes"] == 4_000_000
    assert items["array"]["preview"].startswith("array([0.0, 0.0,") and "dtype=float64" in items["array"]["preview"]
    assert items["scalar"]["preview"] == "2.5" and items["objects"]["preview"] == "array([...], shape=(3,), dtype=object)"
    assert items["frame"]["shape"] == [10**6, 2] and items["frame"]["bytes"] >= 16_000_000
    assert items["frame"]["preview"].startswith("DataFrame({'a': [0, 1, 2,") and items["wide"]["shape"] == [3, 5000]
    assert items["series"]["preview"] == "Series(['p', 'q'])"


def test_variables_that_take_too_long_end(fresh: Sandbox) -> None:
    context = fresh.record["default_context"]
    fresh.run("import sandal_context, time; kept = 1; real = sandal_context.variables\n"
              "sandal_context.variables = lambda: time.sleep(60)")
    begin = time.monotonic()
    fresh.client.error("GET", f"{fresh.path}/contexts/{context}/variables", 504, "kernel_timeout")
    assert 9 < time.monotonic() - begin < 13
    assert fresh.run("sandal_context.variables = real; kept")["text"] == "1"
    assert variables(fresh)["kept"]["preview"] == "1"
    fresh.run("import sys; sys.modules.pop('sandal_context'); path, sys.path = sys.path, []")
    fresh.client.error("GET", f"{fresh.path}/contexts/{context}/variables", 501, "not_supported")
    fresh.run("sys.path = path")
    assert variables(fresh)["kept"]["preview"] == "1"


BAD_STREAM = "import sys\nclass Z:\n    def write(self, s): raise OSError('no')\n    def flush(self): raise {error}\n"
BROKEN = {
    "none": ("import sys; sys.stdout = None", "sys.stdout was None"),
    "closed": ("import sys; sys.stdout.close()", "sys.stdout was closed"),
    "both": ("import sys; sys.stdout = sys.stderr = None", "sys.stderr was None"),
    "stderr closed": ("import sys; sys.stderr.close()", "sys.stderr was closed"),
    "deleted": ("import sys; del sys.stdout", "sys.stdout was None"),
    "no flush": ("import sys\nclass Z: write = print\nsys.stdout = Z()", "raised AttributeError"),
    "raises": (BAD_STREAM.format(error="OSError") + "sys.stdout = Z()", "raised OSError"),
    "exits": (BAD_STREAM.format(error="SystemExit") + "sys.stdout = sys.stderr = Z()", "raised SystemExit"),
    "own flush": ("import sys; sys.stdout.flush = lambda: 1 / 0", "raised ZeroDivisionError"),
    "displays": ("import sys; sys.stdout = None; display(1); None", "sys.stdout was None"),
    "awaits": ("import asyncio, sys\nawait asyncio.sleep(0)\nsys.stdout = None", "sys.stdout was None"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_replaced_after_the_cell(sandbox: Sandbox, name: str) -> None:
    code, why = BROKEN[name]
    begin = time.monotonic()
    got = sandbox.run(code, timeout=10)
    # IPython's own hook after an expression or statement looks for sys.stdout where it was deleted.
    assert got["status"] == ("error" if name == "deleted" else "ok"), got
    assert time.monotonic() - begin < 2
    assert why in got["stderr"] and "the kernel's own stream again" in got["stderr"]
    again = sandbox.run("import os, sys\nprint('seen', flush=True)\nprint('told', file=sys.stderr)\n_ = os.system('echo sub')")
    assert (again["status"], again["stderr"]) == ("ok", "told\n"), again
    assert sorted(again["stdout"].split()) == ["seen", "sub"]


def test_a_broken_stream_hides_no_error_and_no_interrupt(sandbox: Sandbox) -> None:
    for code in (BAD_STREAM.format(error="OSError") + "sys.stdout = Z()\n", "import sys; sys.stderr = None\n"):
        got = sandbox.run(code + "1 / 0", timeout=10)
        assert got["status"] == "error" and got["error"]["name"] == "ZeroDivisionError", got
        got = sandbox.run(code + "while True: pass", timeout=1)
        assert got["status"] == "timeout" and got["error"]["state"] == "kept", got
    got = sandbox.run("import sys, time\nclass W:\n    write = print\n    def flush(self): time.sleep(60)\nsys.stdout = W()", timeout=1)
    assert got["status"] == "timeout" and got["error"]["state"] == "kept", got
    assert sandbox.run("print('seen')")["stdout"] == "seen\n"


def test_a_stream_that_works_stays(sandbox: Sandbox) -> None:
    assert sandbox.run("import io, sys; own, sys.stdout = sys.stdout, io.StringIO(); print('one')")["stdout"] == ""
    assert sandbox.run("print('two')")["stderr"] == ""
    got = sandbox.run("text, sys.stdout = sys.stdout.getvalue(), own\nprint(repr(text))")
    assert got["stdout"] == "'one\\ntwo\\n'\n", "what the kernel's own stream prints is the cell's that put it back"
    sandbox.run("class Tee:\n    __slots__ = ()\n    def write(self, s): return own.write(s.upper())\n    def flush(self): own.flush()\n"
                "sys.stdout = Tee()")
    assert sandbox.run("print('tee')")["stdout"] == "TEE\n"
    assert sandbox.run("print('tee'); sys.stdout = own")["stdout"] == "TEE\n"
    assert sandbox.run("print('seen')")["stdout"] == "seen\n"


def test_parallel_clients(client: Client, sandbox: Sandbox) -> None:
    results: list[str] = []
    threads = [threading.Thread(target=lambda i=i: results.append(Client(client.url, client.key).post(
        sandbox.path + "/run_code", {"code": f"{i}"})["text"])) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(results, key=int) == [str(i) for i in range(16)]
