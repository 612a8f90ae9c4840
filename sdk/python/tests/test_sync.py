# Made from tests/test_async.py by scripts/unasync: edit that one.
"""Every call of the client, against the daemon. The blocking client's."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any, Iterator

import pytest
from conftest import not_elsewhere, own_daemon
from harness.daemon import ISOLATION, Daemon

from sandal import (
    APIConnectionError,
    APIError,
    ArgumentError,
    Sandal,
    Sandbox,
    AuthenticationError,
    CommandError,
    ConflictError,
    ExecutionError,
    InvalidRequestError,
    NotFoundError,
    NotSupportedError,
)



@pytest.fixture
def api(daemon: Daemon) -> Iterator[Sandal]:
    with Sandal(daemon.key, daemon.url) as made:
        yield made


@pytest.fixture
def box(api: Sandal, python_box: Sandbox) -> Sandbox:
    return api.sandboxes.get(python_box.id)


@pytest.fixture
def bare(api: Sandal, bare_box: Sandbox) -> Sandbox:
    return api.sandboxes.get(bare_box.id)


# --- Sandboxes ---


def test_a_sandbox_lives_as_long_as_its_block(api: Sandal) -> None:
    name = f"mine-{os.urandom(4).hex()}"
    with api.sandboxes.create("base", name=name, metadata={"team": name}, env={"WHO": "me"}, timeout=600) as made:
        assert made.name == name and made.template == "base" and made.state == "running" and made.metadata == {"team": name}
        assert made.info.created_at.tzinfo is not None and made.info.timeout == 600
        assert (api.sandboxes.get(name)).id == made.id
        assert [found.id for found in api.sandboxes.list(metadata={"team": name})] == [made.id]
        assert api.sandboxes.list(metadata={"team": "nobody's"}) == []
        assert (made.exec("echo $WHO")).stdout == "me\n"
        made.update(metadata={"team": "b"}, timeout=700)
        assert made.metadata == {"team": "b"} and (made.refresh()).info.timeout == 700
    with pytest.raises(NotFoundError) as caught:
        made.refresh()
    assert caught.value.code == "sandbox_not_found" and caught.value.status == 404


def test_more_sandboxes_than_a_page(api: Sandal, bare: Sandbox) -> None:
    runs = [bare.exec("true", background=True) for _ in range(3)]
    found = bare.processes.list()
    assert {run.pid for run in runs} <= {one.pid for one in found}
    for run in runs:
        run.kill()
    assert bare.id in [one.id for one in api.sandboxes.list(state="running")]


def test_kill_by_id(api: Sandal) -> None:
    made = api.sandboxes.create("base")
    api.sandboxes.kill(made.id)
    with pytest.raises(NotFoundError):
        api.sandboxes.get(made.id)


def test_errors_have_code_hint_and_pointer(api: Sandal, bare: Sandbox, daemon: Daemon) -> None:
    with pytest.raises(APIError) as caught:
        api.sandboxes.create("no-such-template")
    assert caught.value.code == "template_not_found" and isinstance(caught.value, NotFoundError)
    with pytest.raises(InvalidRequestError) as bad:
        api.sandboxes.create("base", timeout=-1)
    assert bad.value.code == "invalid_request" and bad.value.pointer == "/timeout" and bad.value.status == 400
    with Sandal("sk-wrong", daemon.url) as stranger:
        with pytest.raises(AuthenticationError) as refused:
            stranger.sandboxes.list()
    assert refused.value.code == "unauthorized" and str(refused.value).endswith(refused.value.hint or "")


def test_what_the_daemon_lacks_is_a_type(api: Sandal, bare: Sandbox) -> None:
    with pytest.raises(NotSupportedError) as caught:
        bare.fork(2)
    assert caught.value.status == 501 and caught.value.code == "not_supported"
    for attempt in (bare.snapshot, lambda: bare.restore("snap-x"), api.snapshots.list, lambda: api.snapshots.get("snap-x"),
                    lambda: api.snapshots.delete("snap-x"), lambda: api.sandboxes.create(snapshot="snap-x")):
        with pytest.raises(NotSupportedError):
            attempt()


def test_pause_and_resume(api: Sandal) -> None:
    with api.sandboxes.create("code-interpreter-python") as made:
        made.run_code("x = 41")
        if ISOLATION == "none":
            with pytest.raises(NotSupportedError):
                made.pause()
            return
        assert (made.pause()).state == "paused"
        assert (made.resume()).state == "running"
        made.pause()
        assert (made.run_code("x + 1")).text == "42"  # the call wakes it


def test_records(api: Sandal, box: Sandbox) -> None:
    names = {one.name for one in api.templates.list()}
    assert {"base", "code-interpreter-python"} <= names
    assert (api.templates.get("code-interpreter-python")).main_language == "python"
    assert box.id in [one.sandbox for one in api.usage()]
    assert (box.usage()).active_seconds >= 0
    if ISOLATION == "none":
        with pytest.raises(NotSupportedError):  # it can't tell what a sandbox uses
            box.metrics()
    else:
        assert (box.metrics()).sandbox == box.id
    assert (box.network_log()).cursor >= 0
    assert (api.health())["status"] == "ok"
    key = api.keys.create(name="t", scopes=["use"])
    assert key.key and key.id in [one.id for one in api.keys.list()]
    api.keys.delete(key.id)
    assert key.id not in [one.id for one in api.keys.list()]


# --- Contexts ---


def test_contexts_are_apart(api: Sandal, box: Sandbox) -> None:
    a, b = box.contexts.create(language="python"), box.contexts.create("python", name=f"b-{os.urandom(3).hex()}")
    try:
        box.run_code("x = 1", context=a.id)
        b.run_code("x = 2")
        assert (box.run_code("x", context=a)).text == "1" and (b.run_code("x")).text == "2"
        assert (box.run_code("x", context=str(b.name))).text == "2"
        assert {a.id, b.id} <= {one.id for one in box.contexts.list()}
        assert (box.contexts.get(b.id)).name == b.name and b.language == "python"
        assert (api.context(a.id)).sandbox == box.id
        assert [(one.name, one.type, one.preview) for one in a.variables(wait=5)] == [("x", "int", "1")]
        assert "import" in (a.complete("impo")).matches
        found = a.inspect("len")
        assert found.found and "len" in found.text
        assert a.interrupt() is False
        a.reset()
        assert (a.run_code("x")).error.name == "NameError"  # type: ignore[union-attr]
        a.rename("again" + a.id[:4])
        assert (a.refresh()).name == "again" + a.id[:4] and a.state == "idle"
    finally:
        a.remove()
        box.contexts.remove(b)
    with pytest.raises(NotFoundError) as caught:
        a.refresh()
    assert caught.value.code == "context_not_found"


# --- Runs ---


def test_an_execution(box: Sandbox) -> None:
    got = box.run_code("import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (got.status, got.ok, got.text, got.stdout, got.stderr) == ("ok", True, "42", "out\n", "err\n")
    assert got.error is None and got.raise_() is got and got.usage is not None and got.usage.wall_ms >= 0
    assert got.main is got.results[0] and got.results[0].type == "text/plain" and got.results[0].data == "42"
    assert got.context == box.info.default_context and got.run.startswith("run-")


def test_an_error_is_raised_when_asked_for(box: Sandbox) -> None:
    got = box.run_code("1/0")
    assert got.error is not None and (got.error.name, got.error.message) == ("ZeroDivisionError", "division by zero")
    assert got.error.started and got.error.state == "kept" and "division by zero" in got.error.traceback[-1]
    with pytest.raises(ExecutionError, match="ZeroDivisionError: division by zero") as caught:
        got.raise_()
    assert caught.value.execution is got and caught.value.name == "ZeroDivisionError"


def test_chunks_of_a_stream(box: Sandbox) -> None:
    code = "import sys\nfor i in range(3): print(i, flush=True)\nprint('e', file=sys.stderr)\n'end'"
    stream = box.run_code(code, stream=True)
    chunks = [chunk for chunk in stream]
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks))) and {chunk.run for chunk in chunks} == {stream.id}
    assert chunks[0].type == "started" and chunks[0].context == box.info.default_context
    assert "".join(chunk.text for chunk in chunks if chunk.type == "stdout") == "0\n1\n2\n"
    assert "".join(chunk.text for chunk in chunks if chunk.type == "stderr") == "e\n"
    last = chunks[-1]
    assert last.type == "result" and last.text == "'end'" and last.results[0].data == "'end'"
    assert stream.execution is last and stream.seq == last.seq


def test_every_kind_of_chunk(box: Sandbox) -> None:
    code = """
from IPython.display import display, clear_output
handle = display('one', display_id='d1')
handle.update('two')
clear_output(wait=False)
print(input('name? '))
1/0
"""
    seen: list[str] = []
    with box.run_code(code, stream=True) as stream:
        for chunk in stream:
            seen.append(chunk.type)
            if chunk.type == "input":
                assert chunk.prompt == "name? " and not chunk.password
                stream.input("you")
            elif chunk.type == "update":
                assert chunk.display_id == "d1" and chunk.result.text == "'two'"
            elif chunk.type == "error":
                assert chunk.error.name == "ZeroDivisionError"
    assert [kind for kind in seen if kind != "stdout"] == ["started", "display", "update", "clear", "input", "error", "result"]
    assert stream.execution is not None and stream.execution.stdout == "you\n"


def test_callbacks(box: Sandbox) -> None:
    out: list[str] = []
    results: list[Any] = []
    kinds: list[str] = []
    got = box.run_code(
        "import sys\nprint(input('who? '))\nprint('bad', file=sys.stderr)\ndisplay(5)\n1/0", on_stdout=out.append,
        on_stderr=lambda text: out.append("!" + text), on_result=results.append, on_error=lambda error: out.append(error.name),
        on_input=lambda chunk: chunk.prompt.upper(), on_event=lambda chunk: kinds.append(chunk.type))
    text = "".join(out)
    assert "WHO? \n" in text and "!bad\n" in text and text.endswith("ZeroDivisionError")
    assert [result.data for result in results] == ["5"] and kinds[-1] == "result" and got.status == "error"


def test_a_callback_that_fails_ends_the_run(box: Sandbox) -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    with pytest.raises(ValueError, match="first"):
        box.run_code("print('first', flush=True)\nimport time\ntime.sleep(60)", on_stdout=fail)
    assert (box.run_code("1")).text == "1"  # did not wait a minute for it
    assert (box.runs.list())[1].status == "interrupted"


def test_input_without_anybody_to_answer(box: Sandbox) -> None:
    got = box.run_code("input()")
    assert got.error is not None and got.error.name == "StdinNotImplementedError"
    assert (box.run_code("input() + input()", stdin=["a", "b"])).text == "'ab'"


def test_options_of_a_run(box: Sandbox) -> None:
    got = box.run_code("import os; print(os.getcwd(), os.environ['A'])", env={"A": "1"}, cwd="/tmp", key=f"k-{box.id}")
    assert got.stdout.endswith("tmp 1\n")
    again = box.run_code("import os; print(os.getcwd(), os.environ['A'])", env={"A": "1"}, cwd="/tmp", key=f"k-{box.id}")
    assert again.run == got.run
    with pytest.raises(ConflictError) as caught:
        box.run_code("another", key=f"k-{box.id}")
    assert caught.value.code == "key_reused"
    ended = box.run_code("import time; time.sleep(60)", timeout=0.3)
    assert ended.status == "timeout" and ended.error is not None and ended.error.name == "TimeoutError"
    cut = box.run_code("print('x' * 100000)", limits={"output_bytes": 4096})
    assert cut.truncated is not None and cut.truncated["stdout"] > 0
    assert (box.run_code("5", silent=True)).results == []


def test_leaving_a_stream_early(box: Sandbox) -> None:
    code = "import time\nprint('here', flush=True)\ntime.sleep(60)"
    with box.run_code(code, stream=True) as stream:
        for chunk in stream:
            if chunk.type == "stdout":
                break
    assert (box.run_code("'free'")).text == "'free'"
    assert (box.runs.get(str(stream.id))).status == "interrupted"
    # Without a block it goes on, and is found again.
    gone = box.run_code("import time\nprint('a', flush=True)\ntime.sleep(0.2)\nprint('b')", stream=True)
    for chunk in gone:
        if chunk.type == "stdout":
            break
    gone.close()
    found = box.runs.attach(str(gone.id), after=gone.seq)
    assert (found.wait()).stdout == "a\nb\n"
    assert [chunk.type for chunk in box.runs.replay(str(gone.id))] == ["started", "stdout", "stdout", "result"]


def test_runs(box: Sandbox) -> None:
    stream = box.run_code("print(input('?'))", stream=True)
    for chunk in stream:
        if chunk.type == "input":
            assert (box.runs.get(str(stream.id))).status == "waiting"
            box.runs.input(str(stream.id), "value")
    assert (box.runs.get(str(stream.id))).stdout == "value\n"
    assert stream.id in [run.run for run in box.runs.list(context=box.info.default_context)]
    stream = box.run_code("import time\nprint(1, flush=True)\ntime.sleep(60)", stream=True)
    for chunk in stream:
        if chunk.type == "stdout":
            box.runs.interrupt(str(stream.id))
    assert stream.execution is not None and stream.execution.status == "interrupted"
    assert stream.execution.error is not None and stream.execution.error.name == "Interrupted"
    with pytest.raises(NotFoundError) as caught:
        box.runs.get("run-none")
    assert caught.value.code == "run_not_found"


def test_output_after_the_end(box: Sandbox) -> None:
    stream = box.run_code("import threading\nthreading.Timer(0.2, lambda: print('late')).start()", stream=True)
    stream.wait()
    for chunk in box.runs.attach(str(stream.id), late=True):
        if chunk.type == "stdout":
            assert chunk.text.startswith("late") and chunk.late
            break


def test_other_languages(api: Sandal) -> None:
    for template, code in (("code-interpreter-node", "const x: number = 41; x + 1"), ("code-interpreter-r", "41 + 1")):
        if not (api.templates.get(template)).available:
            pytest.skip(f"{template} is not built here")
        with api.sandboxes.create(template) as made:
            assert "42" in (made.run_code(code)).text


# --- Results ---


def test_a_figure(box: Sandbox, tmp_path: Path) -> None:
    got = box.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [4, 1, 2])\nplt.title('demo')\nplt.show()")
    figure = got.raise_().results[0]
    assert figure.type == "image/png" and figure.to_bytes().startswith(b"\x89PNG")
    data, metadata = figure._repr_mimebundle_()
    assert data["image/png"] == figure.data and isinstance(metadata, dict)
    assert figure._repr_mimebundle_(include=["text/plain"])[0] == {"text/plain": figure.text}
    saved = figure.save(tmp_path)
    assert saved == tmp_path / "result.png" and saved.read_bytes() == figure.to_bytes()
    assert figure.save(tmp_path).name == "result-2.png"
    assert figure.save(tmp_path / "as.txt").read_text() == figure.text


@not_elsewhere("no pandas there")
def test_a_table(box: Sandbox) -> None:
    import pandas

    code = """
import pandas as pd, numpy as np
df = pd.DataFrame({
    "i": [1, 2**60, 3], "f": [1.5, np.nan, np.inf], "s": ["a", None, "c"], "b": [True, False, True],
    "t": pd.to_datetime(["2024-01-01T00:00:00", None, "2024-02-03T04:05:06"]),
    "z": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]).tz_localize("Europe/Berlin"),
    "d": pd.to_timedelta([1, 2, 3], unit="h"), "c": pd.Categorical(["x", "y", "x"], categories=["y", "x"], ordered=True),
    "n": pd.array([1, None, 3], dtype="Int64"), ("two", "level"): [1, 2, 3]}, index=pd.Index(["r1", "r2", "r3"], name="row"))
df
"""
    got = box.run_code(code)
    result = got.raise_().results[0]
    assert result.type == "text/html" and result.dataframe is not None
    frame = result.to_pandas()
    want = (box.run_code("for dtype in df.dtypes: print(dtype)")).stdout
    assert [str(dtype) for dtype in frame.dtypes] == want.splitlines()
    assert frame["i"].tolist() == [1, 2**60, 3] and frame["f"].isna().tolist() == [False, True, True]
    assert frame["z"].iloc[0] == pandas.Timestamp("2024-01-01", tz="Europe/Berlin") and frame["d"].iloc[2].seconds == 10800
    assert frame["c"].cat.ordered and list(frame["c"].cat.categories) == ["y", "x"]
    assert frame.index.tolist() == ["r1", "r2", "r3"] and frame.index.name == "row" and frame.columns[-1] == ("two", "level")
    assert frame.attrs["sandal"] == {"shape": [3, 10], "rows": 3, "nan_or_inf": ["f"]} and got.to_pandas().shape == (3, 10)
    arrow = (box.run_code("df[['i', 'f']]")).results[0].to_arrow()
    assert arrow.column("i").to_pylist() == [1, 2**60, 3] and got.to_arrow().num_rows == 3
    many = (box.run_code("pd.DataFrame({'x': range(1000)}, index=pd.MultiIndex.from_product([['a', 'b'], range(500)]))"))
    assert many.to_pandas().shape == (100, 1) and many.to_pandas().attrs["sandal"]["shape"] == [1000, 1]
    assert many.to_pandas().index.nlevels == 2
    odd = box.run_code("from datetime import date\npd.DataFrame({'o': [(1, 2), {'a': 1}, None], 'd': [date(2024, 1, 2), 1, 'x'], "
                             "'i': pd.interval_range(0, 3), 'c': pd.Categorical(pd.to_datetime(['2024-01-02'] * 3)), "
                             "'p': pd.period_range('2024-01', periods=3, freq='M')}, index=[7, 7, 8])")
    back = odd.raise_().to_pandas()  # as docs/sdk-python.md says: what has no form in JSON is its text
    assert [str(back[name].dtype) for name in back] == ["object", "object", "object", "category", "period[M]"]
    assert list(back["o"]) == ["(1, 2)", "{'a': 1}", None] and list(back["d"]) == ["2024-01-02", 1, "x"]
    assert back["i"].iloc[0] == "(0, 1]" and back["c"].iloc[0] == "2024-01-02T00:00:00" and list(back.index) == [7, 7, 8]
    with pytest.raises(ValueError, match="no table"):
        (box.run_code("1")).results[0].to_pandas()


# --- Commands ---


def test_commands(bare: Sandbox) -> None:
    got = bare.exec("echo out; echo err >&2; exit 3")
    assert (got.exit_code, got.signal, got.stdout, got.stderr, got.ok) == (3, None, "out\n", "err\n", False)
    with pytest.raises(CommandError, match="exit code 3: err"):
        got.raise_()
    assert (bare.exec(["printf", "%s", "$HOME"])).raise_().stdout == "$HOME"
    assert (bare.exec("cat", stdin="text")).stdout == "text"
    assert (bare.exec("wc -c", stdin=b"\x00\xff")).stdout == "2\n"
    assert (bare.exec("pwd; echo $A", cwd="/tmp", env={"A": "1"})).stdout.endswith("tmp\n1\n")
    ended = bare.exec("sleep 60", timeout=0.2)
    assert ended.timed_out and ended.signal == "SIGKILL" and ended.status == "timeout"
    out: list[str] = []
    bare.exec("echo a; echo b >&2", on_stdout=out.append, on_stderr=out.append)
    assert sorted(out) == ["a\n", "b\n"]


def test_a_command_as_a_stream(bare: Sandbox) -> None:
    stream = bare.exec("echo a; cat; echo b >&2; exit 2", stream=True, stdin_open=True)
    seen: list[str] = []
    for chunk in stream:
        seen.append(chunk.type)
        if chunk.type == "started":
            assert chunk.pid == stream.pid
            stream.input("typed\n")
            stream.close_stdin()
    assert seen[0] == "started" and seen[-1] == "result"
    assert stream.result is not None and stream.result.stdout == "a\ntyped\n" and stream.result.exit_code == 2
    with bare.exec("echo $$; sleep 60", stream=True) as left:
        for chunk in left:
            if chunk.type == "stdout":
                break
    assert left.pid not in [one.pid for one in bare.processes.list() if one.state == "running"]


def test_a_terminal(bare: Sandbox) -> None:
    if ISOLATION == "none":
        pytest.skip("isolation none has the host's terminals, whose size it cannot set in all places")
    got = bare.exec("stty size", pty=(100, 30))
    assert got.stdout == "30 100\r\n"
    assert (bare.exec("stty size", pty=True)).stdout == "24 80\r\n"
    text = ""
    stream = bare.exec("read x; stty size", stream=True, pty=(100, 30))
    for chunk in stream:
        if chunk.type == "started":
            stream.resize(77, 11)
            stream.input("\n")
        text += chunk.text if chunk.type == "stdout" else ""
    assert "11 77" in text


def test_processes(bare: Sandbox) -> None:
    process = bare.exec("echo ready; while read line; do echo got $line; done; echo over", background=True)
    assert process.state == "running" and process.pid in [one.pid for one in bare.processes.list()]
    process.input("one\n")
    for chunk in process.events():
        if chunk.type == "stdout" and "got one" in chunk.text:
            break
    process.input(b"two\n")
    process.close_stdin()
    end = process.wait()
    assert "got two\n" in end.stdout and end.stdout.endswith("over\n") and end.exit_code == 0
    assert (process.refresh()).state == "exited" and (bare.processes.get(process.pid)).info.exit_code == 0
    process.kill()
    with pytest.raises(NotFoundError):
        process.refresh()
    sleeper = bare.exec(["sleep", "60"], background=True)
    sleeper.signal("SIGTERM")
    assert (sleeper.wait()).signal == "SIGTERM"


def test_an_exposed_port(bare: Sandbox) -> None:
    if ISOLATION == "process":
        pytest.skip("under isolation process nothing can listen")
    url = bare.expose(8123)
    assert isinstance(url, str) and url.startswith("http://") and url.port == 8123 and url.token is None
    guarded = bare.expose(8124, token=True)
    assert guarded.endswith(f"?sandal_token={guarded.token}") and "localhost" in guarded.host_url
    bare.unexpose(8123)
    bare.unexpose(8124)


# --- Files ---


def test_files(bare: Sandbox, tmp_path: Path) -> None:
    fs = bare.fs
    fs.write("d/ä b.txt", "héllo")
    assert fs.read_text("d/ä b.txt") == "héllo" and fs.read("d/ä b.txt") == "héllo".encode()
    entry = fs.stat("d/ä b.txt")
    assert (entry.name, entry.type, entry.size, entry.is_dir) == ("ä b.txt", "file", 6, False)
    fs.write("d/run.sh", b"#!/bin/sh\necho ran\n", mode="0755")
    assert (bare.exec("d/run.sh")).stdout == "ran\n"
    with pytest.raises(ConflictError) as caught:
        fs.write("d/run.sh", "x", exclusive=True)
    assert caught.value.code == "precondition_failed"
    fs.mkdir("d/e/f")
    assert [one.path.rpartition("/")[2] for one in fs.list("d", depth=2)] == ["e", "f", "run.sh", "ä b.txt"]
    fs.move("d/run.sh", "d/e/moved")
    assert fs.exists("d/e/moved") and not fs.exists("d/run.sh")
    with pytest.raises(ConflictError):
        fs.remove("d")
    fs.remove("d", recursive=True)
    with pytest.raises(NotFoundError):
        fs.read("d/e/moved")
    with pytest.raises(NotFoundError, match="andbox"):
        (_other(bare)).exists("x")


def test_names_that_are_no_utf_8(bare: Sandbox, tmp_path: Path) -> None:
    fs = bare.fs
    fs.write(b"odd/a\xff", "1")
    fs.write("odd/plain", "2")
    fs.write("odd/b\udcfe", iter([b"3"]))  # as os.fsdecode() has it
    odd, other, plain = fs.list("odd")
    assert (odd.name, plain.name_base64, plain.path_base64) == ("a\ufffd", None, None) and odd.path_base64
    assert [fs.read(one) for one in (odd, other, plain)] == [b"1", b"3", b"2"] and (fs.stat(odd)).size == 1
    assert b"".join([piece for piece in fs.read(odd, stream=True)]) == b"1"
    assert os.fsencode((fs.download(odd, tmp_path)).name) == b"a\xff"
    fs.move(odd, b"odd/c\xfd")
    assert fs.exists(b"odd/c\xfd") and not fs.exists(odd)
    fs.remove(b"odd/c\xfd")
    with pytest.raises(ArgumentError, match="^path: "):
        fs.write("half\ud800", "1")


def test_where_a_download_goes(bare: Sandbox, tmp_path: Path) -> None:
    """What is no file stays what it is, and a link a link."""
    bare.fs.write("from", "data")
    (tmp_path / "link").symlink_to("file")
    for _ in range(2):  # to nothing yet, then to a file
        bare.fs.download("from", tmp_path / "link")
        assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "data"
    os.mkfifo(tmp_path / "pipe")
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    assert bare.fs.download("from", tmp_path / "pipe") == tmp_path / "pipe"
    reader.join(10)
    assert got == ["data"] and (tmp_path / "pipe").is_fifo()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "link", "pipe"]


def _other(bare: Sandbox) -> Any:
    return type(bare.fs)(bare._http, "sbx-none")


def test_large_files_and_progress(bare: Sandbox, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    told: list[tuple[int, Any]] = []
    local = tmp_path / "local.bin"
    local.write_bytes(data)
    bare.fs.upload(local, "up.bin", on_progress=lambda done, whole: told.append((done, whole)))
    assert told[-1] == (len(data), len(data)) and len(told) > 5 and told == sorted(told)
    told.clear()
    assert bare.fs.read("up.bin", on_progress=lambda done, whole: told.append((done, whole))) == data
    assert told[-1] == (len(data), len(data)) and len(told) > 1
    assert bare.fs.read("up.bin", offset=1000, length=50) == data[1000:1050]
    assert bare.fs.read("up.bin", offset=2_999_990) == data[-10:]
    assert bare.fs.read("up.bin", length=0) == b""
    pieces = [piece for piece in bare.fs.read("up.bin", stream=True)]
    assert b"".join(pieces) == data and len(pieces) > 1
    with bare.fs.read("up.bin", stream=True) as stream:
        for _ in stream:
            break
    assert stream.size == len(data)
    got = bare.fs.download("up.bin", tmp_path / "down.bin")
    assert got.read_bytes() == data and sorted(p.name for p in tmp_path.iterdir()) == ["down.bin", "local.bin"]
    with pytest.raises(NotFoundError):
        bare.fs.download("none", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["down.bin", "local.bin"]


def test_writes_of_unknown_length(bare: Sandbox) -> None:
    told: list[tuple[int, Any]] = []
    bare.fs.write("it.bin", (bytes([i]) * 1_000_000 for i in range(9)), mode="0600",
                        on_progress=lambda done, whole: told.append((done, whole)))
    data = bare.fs.read("it.bin")
    assert data == b"".join(bytes([i]) * 1_000_000 for i in range(9)) and told[-1] == (9_000_000, 9_000_000)
    assert (bare.fs.stat("it.bin")).mode == "0600"

    class Pipe(io.RawIOBase):
        left = 3

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            return b"x" * 10 if self.left >= 0 else b""

    bare.fs.write("pipe.bin", Pipe())
    assert bare.fs.read("pipe.bin") == b"x" * 30
    bare.fs.write("none.bin", iter(()))
    assert bare.fs.read("none.bin") == b""

    def broken() -> Any:
        yield b"x" * 10
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        bare.fs.write("broken.bin", broken())
    assert not bare.fs.exists("broken.bin")


def test_what_cannot_be_written(bare: Sandbox) -> None:
    """A number of bytes() is so many zeros, and a view may count in other things than bytes."""
    odd: list[Any] = [None, 5, [1, 2], range(3), ["text"], {"a": 1}, io.StringIO("text")]
    for data in odd:
        with pytest.raises(TypeError, match="bytes"):
            bare.fs.write("not.bin", data)
    assert not bare.fs.exists("not.bin")
    numbers = memoryview(bytes(80)).cast("d")
    for view in (numbers, numbers[::2]):
        bare.fs.write("view.bin", view)
        assert bare.fs.read("view.bin") == view.tobytes()


def test_a_watch(bare: Sandbox) -> None:
    bare.fs.mkdir("w")
    with bare.fs.watch("w", recursive=True) as events:
        bare.fs.write("w/a", "1")
        bare.fs.move("w/a", "w/b")
        bare.fs.remove("w/b")
        seen: list[tuple[str, str]] = []
        for event in events:
            seen.append((event.type, str(event.path).rpartition("/")[2]))
            if event.type == "moved":
                assert str(event.from_path).endswith("/a")
            if event.type == "deleted":
                break
    assert ("created", "a") in seen and ("moved", "b") in seen and seen[-1] == ("deleted", "b")


def test_who_does_not_answer_is_named(daemon: Daemon) -> None:
    plain = daemon.url.replace("http:", "https:")
    for url, words in (("http://127.0.0.1:1", "refused|failed"), ("unix:/none/such", "No such file"),
                       (plain, "; if it speaks plain HTTP there, its address begins with http://")):
        with Sandal(daemon.key, url, max_retries=1, timeout=10) as api:
            with pytest.raises(APIConnectionError, match=f"^{url} does not answer: .*({words})") as caught:
                api.sandboxes.list()
            assert str(caught.value).count(url) == 1


@own_daemon
def test_a_unix_socket() -> None:
    path = f"/tmp/sandal-{os.getpid()}.sock"  # where the gateway's user may write
    with Daemon(listen=f"unix:{path}") as other:
        with Sandal(other.key, f"unix:{path}") as api:
            with api.sandboxes.create("base") as made:
                assert (made.exec("echo over a socket")).stdout == "over a socket\n"
