"""What needs no daemon: faults made by transports of our own, keys and addresses, and records."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, cast

import httpx
import pytest
from conftest import SDK, with_tools

from sandal import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    ArgumentError,
    ConfigError,
    Execution,
    ExecutionError,
    ExpiredError,
    NotFoundError,
    RateLimitError,
    Sandal,
    SandalError,
    Sandbox,
    SandboxInfo,
    ServerError,
    UnavailableError,
)
from sandal import _config, _protocol
from sandal._models import time_of
from sandal._results import DATAFRAME, Result

RUN = "run-1"
EVENTS: list[dict[str, Any]] = [
    {"run": RUN, "seq": 0, "type": "started", "context": "c", "execution_count": 1},
    {"run": RUN, "seq": 1, "type": "stdout", "text": "é\n"},
    {"run": RUN, "seq": 2, "type": "result", "context": "c", "execution_count": 1, "status": "ok", "text": "é", "stdout": "é\n",
     "results": [], "error": None},
]
LINES = [json.dumps(event, ensure_ascii=False).encode() + b"\n" for event in EVENTS]
INFO = {"id": "sbx-1", "template": "base", "created_at": "2024-01-01T00:00:00Z"}


class Body(httpx.SyncByteStream):
    def __init__(self, parts: list[Any]):
        self.parts = parts

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            if isinstance(part, Exception):
                raise part
            yield part


class Fake(httpx.BaseTransport):
    """Answers in turn: (status, headers, parts) or an exception; the last one again and again."""

    def __init__(self, *answers: Any):
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []
        self.bodies: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(request.read())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, headers, parts = answer
        return httpx.Response(status, headers=headers, stream=Body(parts if isinstance(parts, list) else [json.dumps(parts).encode()]))

    def seen(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]


def error(status: int, code: str, **more: Any) -> tuple[int, dict[str, str], Any]:
    headers = {"retry-after": str(more.pop("after"))} if "after" in more else {}
    return status, headers, {"error": {"code": code, "message": "why", **more}}


def client(*answers: Any, **options: Any) -> tuple[Sandal, Fake]:
    fake = Fake(*answers)
    return Sandal("key", "http://sandal.test", transport=fake, **options), fake


def box(*answers: Any, **options: Any) -> tuple[Sandbox, Fake]:
    made, fake = client(*answers, **options)
    return Sandbox(made._http, SandboxInfo(INFO)), fake


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr("sandal._sync._io.sleep", waits.append)
    return waits


# --- What is sent again ---


def test_what_never_left_is_sent_again(no_waits: list[float]) -> None:
    made, fake = client(httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), (200, {}, {"status": "ok"}))
    assert made.health() == {"status": "ok"} and len(fake.requests) == 3
    assert len(no_waits) == 2 and all(0 < wait < 0.2 for wait in no_waits)


def test_a_post_is_sent_again_with_the_same_key() -> None:
    made, fake = client(httpx.ReadError("reset"), httpx.RemoteProtocolError("disconnected"), (201, {}, INFO))
    assert made.sandboxes.create("base").id == "sbx-1"
    keys = {request.headers["idempotency-key"] for request in fake.requests}
    assert len(fake.requests) == 3 and len(keys) == 1 and len(set(fake.bodies)) == 1
    made.sandboxes.create("base")
    assert fake.requests[-1].headers["idempotency-key"] not in keys


def test_what_must_not_be_done_twice_is_not() -> None:
    made, fake = box(httpx.ReadError("reset"))
    with pytest.raises(APIConnectionError):
        made.fs.write("a", b"x", exclusive=True)
    assert len(fake.requests) == 1


def test_refusals_are_asked_again_after_the_time_that_the_daemon_names(no_waits: list[float]) -> None:
    made, fake = client(error(503, "starting", after=1), error(429, "queue_full", after=2), (200, {}, {"status": "ok"}))
    assert made.health()["status"] == "ok" and no_waits == [1.0, 2.0]


@pytest.mark.parametrize("status, code", [(400, "invalid_request"), (404, "not_found"), (409, "busy"), (500, "internal"),
                                          (502, "kernel_start_failed"), (504, "kernel_timeout"), (501, "not_supported"),
                                          (429, "quota_exceeded")])
def test_what_will_be_no_better_is_not_asked_again(status: int, code: str) -> None:
    made, fake = client(error(status, code))
    with pytest.raises(APIError) as caught:
        made.health()
    assert caught.value.code == code and caught.value.status == status and len(fake.requests) == 1


def test_attempts_end(no_waits: list[float]) -> None:
    for retries in (0, 2):
        made, fake = client(httpx.ConnectError("refused"), max_retries=retries)
        with pytest.raises(APIConnectionError, match="refused"):
            made.health()
        assert len(fake.requests) == retries + 1
    made, fake = client(error(503, "draining", after=200), timeout=100)
    with pytest.raises(UnavailableError) as caught:
        made.health()
    assert caught.value.retry_after == 200 and len(fake.requests) == 1  # not within the time of the request


def test_a_delete_whose_answer_was_lost_is_done() -> None:
    made, fake = client(httpx.ReadError("reset"), error(404, "sandbox_not_found"))
    made.sandboxes.kill("sbx-1")
    assert len(fake.requests) == 2
    made, fake = client(error(404, "sandbox_not_found"))
    with pytest.raises(NotFoundError):
        made.sandboxes.kill("sbx-1")


def test_a_time_is_held_though_bytes_drip(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Drip(Fake):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            def parts() -> Iterator[bytes]:
                for _ in range(100):
                    now[0] += 1
                    yield b" "
            body = Body([])
            body.__class__ = type("Parts", (Body,), {"__iter__": lambda self: parts()})
            self.requests.append(request)
            return httpx.Response(200, stream=body)

    made = Sandal("key", "http://sandal.test", transport=(fake := Drip()), timeout=10, max_retries=0)
    with pytest.raises(APITimeoutError):
        made.health()
    assert now[0] - 1000 <= 11 and fake.requests[0].extensions["timeout"]["read"] == 10


# --- Streams that break ---


def stream_of(*parts: Any) -> tuple[int, dict[str, str], list[Any]]:
    return 200, {"content-type": "application/x-ndjson"}, list(parts)


CUT = httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def test_a_stream_goes_on_after_the_last_seq() -> None:
    made, fake = box(stream_of(LINES[0], b"\n", LINES[1][:9], CUT), stream_of(LINES[1], CUT), stream_of(LINES[2]))
    got = list(made.run_code("x", stream=True))
    assert [chunk.seq for chunk in got] == [0, 1, 2]
    assert fake.seen() == ["POST /v1/sandboxes/sbx-1/run_code", f"GET /v1/sandboxes/sbx-1/runs/{RUN}/events?after=0",
                           f"GET /v1/sandboxes/sbx-1/runs/{RUN}/events?after=1"]


def test_a_stream_without_a_first_event_is_asked_for_by_its_key() -> None:
    made, fake = box(stream_of(LINES[0][:5], CUT), httpx.ReadTimeout("silence"), stream_of(*LINES))
    assert made.run_code("x").text == "é"
    assert fake.seen() == ["POST /v1/sandboxes/sbx-1/run_code"] * 3
    assert len({request.headers["idempotency-key"] for request in fake.requests}) == 1


def test_a_stream_that_ends_well_before_its_result_has_broken() -> None:
    made, fake = box(stream_of(LINES[0]), stream_of(*LINES[1:]))
    assert made.run_code("x").stdout == "é\n" and len(fake.requests) == 2


def test_a_break_after_the_result_is_none() -> None:
    made, fake = box(stream_of(*LINES, CUT))
    assert made.run_code("x").ok and len(fake.requests) == 1


def test_events_that_come_again_are_told_once() -> None:
    made, _ = box(stream_of(LINES[0], LINES[0], LINES[1], LINES[0], LINES[2]))
    assert [chunk.seq for chunk in made.run_code("x", stream=True)] == [0, 1, 2]


def test_a_run_that_ends_with_its_connection_is_not_looked_for() -> None:
    made, fake = box(stream_of(LINES[0], CUT))
    with pytest.raises(APIConnectionError):
        made.run_code("x", on_disconnect="interrupt")
    assert len(fake.requests) == 1


def test_a_daemon_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sandal._sync._io.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    made, fake = box(stream_of(LINES[0], CUT), httpx.ConnectError("refused"))
    with pytest.raises(APIConnectionError, match="refused"):
        made.run_code("x")
    assert 20 < now[0] <= _protocol.RECONNECT_TIME and len(fake.requests) > 10


def test_a_daemon_that_starts_again_is_waited_for(no_waits: list[float]) -> None:
    starting = error(503, "starting", after=1)
    made, fake = box(stream_of(LINES[0], CUT), httpx.ConnectError("refused"), *[starting] * 6, stream_of(*LINES[1:]))
    assert made.run_code("x").ok and len(fake.requests) == 9 and all(wait >= 1 for wait in no_waits[2:])


def test_a_log_that_is_gone_is_told() -> None:
    made, _ = box(stream_of(LINES[0], CUT), error(410, "run_expired"))
    with pytest.raises(ExpiredError):
        made.run_code("x")


def test_lines_that_are_no_events(no_waits: list[float]) -> None:
    for line in (b"{\n", b"[]\n", b'{"seq":0}\n', b"\xff\n"):
        made, _ = box(stream_of(line))
        with pytest.raises(APIConnectionError, match="no event"):
            list(made.run_code("x", stream=True, on_disconnect="kill"))


def test_a_line_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(_protocol.Lines(4).feed(b"abcd\n\nef\ng")) == [b"abcd", b"ef"]
    with pytest.raises(APIConnectionError, match="longer than 4"):
        list(_protocol.Lines(4).feed(b"abcde"))


def test_keyboard_interrupt_interrupts_the_run() -> None:
    made, fake = box(stream_of(LINES[0], _Interrupt()), (204, {}, [b""]))
    with pytest.raises(KeyboardInterrupt):
        made.run_code("x")
    assert fake.seen()[1:] == [f"DELETE /v1/sandboxes/sbx-1/runs/{RUN}"]


def test_an_interrupt_before_the_run_has_a_name_finds_it_by_its_key() -> None:
    made, fake = box(stream_of(_Interrupt()), stream_of(LINES[0]), (204, {}, [b""]))
    with pytest.raises(KeyboardInterrupt):
        made.run_code("x")
    assert fake.seen() == ["POST /v1/sandboxes/sbx-1/run_code"] * 2 + [f"DELETE /v1/sandboxes/sbx-1/runs/{RUN}"]


class _Interrupt(Exception):
    """Becomes a KeyboardInterrupt when it is raised by a body."""

    def __new__(cls) -> Any:
        return _Raise()


class _Raise(bytes):
    pass


@pytest.fixture(autouse=True)
def interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Body.__iter__

    def parts(self: Body) -> Iterator[bytes]:
        for part in plain(self):
            if isinstance(part, _Raise):
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(Body, "__iter__", parts)


def test_a_watch_tells_that_it_was_away() -> None:
    line = b'{"type":"created","path":"/workspace/a"}\n'
    made, fake = box(stream_of(b'{"type":"watching"}\n', line, CUT), stream_of(line))
    assert [event.type for event in made.fs.watch(".")] == ["created", "overflow", "created"] and len(fake.requests) == 2


def test_a_read_goes_on_where_it_broke() -> None:
    tag = {"etag": '"1"', "content-length": "6"}
    made, fake = box((200, tag, [b"abc", CUT]), (206, {**tag, "content-range": "bytes 3-5/6"}, [b"def"]))
    told: list[Any] = []
    assert made.fs.read("f", on_progress=lambda done, whole: told.append((done, whole))) == b"abcdef"
    assert fake.requests[1].headers["range"] == "bytes=3-" and fake.requests[1].headers["if-range"] == '"1"'
    assert told == [(3, 6), (6, 6)]
    made, _ = box((200, tag, [b"abc", CUT]), (200, tag, [b"xyzxyz"]))
    with pytest.raises(SandalError, match="changed while it was read"):
        made.fs.read("f")
    made, _ = box((200, {"etag": 'W/"1"'}, [b"abc", CUT]), (200, tag, [b"uvw", CUT]), (206, tag, [b"xyz"]))
    assert made.fs.read("f") == b"uvwxyz"
    made, fake = box((200, {"etag": 'W/"1"'}, [b"abc", CUT]), (200, {"etag": 'W/"1"'}, [b""]), (200, tag, [b""]), (206, tag, [b"xyz"]))
    assert b"".join(made.fs.read("f", stream=True)) == b"abcxyz"
    assert [request.method for request in fake.requests] == ["GET", "HEAD", "HEAD", "GET"] and fake.requests[3].headers["if-range"] == '"1"'
    made, _ = box((200, {}, [b"abc", CUT]))
    with pytest.raises(APIConnectionError):
        list(made.fs.read("f", stream=True))
    made, fake = box((200, tag, [CUT]), (200, tag, [b"abcdef"]))
    assert made.fs.read("f") == b"abcdef" and "range" not in fake.requests[1].headers


def test_an_upload_goes_on_where_it_broke() -> None:
    place = "/v1/sandboxes/sbx-1/fs/uploads/u1"
    made, fake = box((201, {"location": place}, [b""]), CUT, (200, {}, {"offset": 4, "done": False}), (204, {}, [b""]))
    made.fs.write("f", iter([b"abc", b"defg"]))
    assert [(request.headers.get("upload-offset"), body) for request, body in zip(fake.requests, fake.bodies)] == [
        (None, b""), ("0", b"abcdefg"), (None, b""), ("4", b"efg")]
    assert fake.requests[3].headers["upload-length"] == "7"
    made, fake = box((201, {"location": place}, [b""]), error(507, "storage_full"), (204, {}, [b""]))
    with pytest.raises(ServerError):
        made.fs.write("f", iter([b"abc"]))
    assert fake.seen()[-1] == f"DELETE {place}"


# --- Where, and with what key ---


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("SANDAL_API_KEY", "SANDAL_URL", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_config, "local_key_files", lambda: [str(tmp_path / "none"), str(tmp_path / "key")])
    return tmp_path


def test_the_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local, remote = _config.Address(), _config.Address("https://sandal.example")
    assert _config.find_key(None, local) is None
    (home / "key").write_text("from-file\n")
    assert _config.find_key(None, local) == "from-file"
    assert _config.find_key(None, _config.Address("unix:/run/s.sock")) == "from-file"
    assert _config.find_key(None, remote) is None  # this machine's key goes to no other
    monkeypatch.setenv("SANDAL_API_KEY", "from-env")
    assert _config.find_key(None, remote) == "from-env" and _config.find_key("given", remote) == "given"
    with Sandal() as made:
        assert made._http.headers["Authorization"] == "Bearer from-env"
    with pytest.raises(ConfigError, match="characters"):
        Sandal("line\nbreak")


def test_where_the_key_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert _config.local_key_files() == ["/state/sandal/key", "/var/lib/sandal/key"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert _config.local_key_files() == ["/var/lib/sandal/key"]


def test_the_address(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _config.Address().url == "http://127.0.0.1:8717" and _config.Address().local
    monkeypatch.setenv("SANDAL_URL", "http://box:1/base/")
    assert _config.Address().url == "http://box:1/base" and not _config.Address().local
    assert _config.Address("http://[::1]:8717").local
    assert (_config.Address("unix:///a/b").socket, _config.Address("unix:/a/b").socket) == ("/a/b", "/a/b")
    for bad in ("ftp://x", "localhost:8717", "http://", "unix:relative", "http://x/?q=1"):
        with pytest.raises(ConfigError):
            _config.Address(bad)


def test_a_closed_client_says_so() -> None:
    made, _ = client((200, {}, {}))
    made.close()
    with pytest.raises(SandalError, match="closed"):
        made.health()


# --- Records ---


def test_answers_that_are_not_the_daemons() -> None:
    made, _ = client((502, {}, [b"<html>Bad gateway"]))
    with pytest.raises(ServerError) as caught:
        made.health()
    assert caught.value.code == "http_502" and "Bad gateway" in caught.value.message


def test_errors_can_be_pickled() -> None:
    for one in (RateLimitError(429, "queue_full", "m", "h", "/p", 1.0), ExecutionError(Execution({"run": "r", "error": None, "status": "ok"}))):
        again = pickle.loads(pickle.dumps(one))
        assert type(again) is type(one) and str(again) == str(one)


def test_members_of_a_newer_daemon_are_there() -> None:
    info: Any = SandboxInfo({**INFO, "colour": "red", "expires_at": None})
    assert info.colour == "red" and info.expires_at is None and info == SandboxInfo({**INFO, "colour": "red", "expires_at": None})
    assert info.to_dict()["colour"] == "red" and "sbx-1" in repr(info)


def test_times() -> None:
    for text in ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05.0Z", "2024-01-02T03:04:05.000000000+00:00", "2024-01-02T03:04:05"):
        assert time_of(text).isoformat() == "2024-01-02T03:04:05+00:00"
    assert time_of("2024-01-02T03:04:05.12Z").microsecond == 120000


def test_what_is_saved(tmp_path: Path) -> None:
    result = Result({"type": "image/svg+xml", "data": "<svg/>", "text": "t", "formats": {
        "image/svg+xml": "<svg/>", "image/png": "iVBO", "application/json": {"a": "é"}, "text/plain": "t"}, "metadata": {
        "image/png": {"width": 1}, "whole": 1}, "main": False, "display_id": None})
    assert result.save(tmp_path / "a.png").read_bytes() == b"\x89PN" and result.save(tmp_path / "a.json").read_text() == '{"a": "é"}'
    assert result.save(tmp_path / "a.xyz").read_text() == "<svg/>" and result.save(tmp_path).name == "result.svg"
    assert result.save(tmp_path / "B.PNG").read_bytes() == b"\x89PN"
    for name, kind in (("a.pdf", "application/pdf"), ("a.jpeg", "image/jpeg")):  # and no picture of another type in it
        with pytest.raises(ArgumentError, match=f"this result has no {kind}, but image/svg.xml, image/png, application/json, text/plain"):
            result.save(tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(ArgumentError, match="no image/gif"):
        result.save(tmp_path / "a.png", "image/gif")
    assert result.save(tmp_path / "b.pdf", "text/plain").read_text() == "t"  # who says it is obeyed
    table = Result({"type": DATAFRAME, "data": {}, "text": "", "formats": {DATAFRAME: {"rows": 0}}, "metadata": {}, "main": True, "display_id": None})
    assert table.save(tmp_path / "t.json").read_text() == '{"rows": 0}'
    assert result.mimebundle(exclude=["image/svg+xml", "application/json"]) == (
        {"image/png": "iVBO", "text/plain": "t"}, {"image/png": {"width": 1}, "whole": 1})


@pytest.mark.parametrize("call, shape", [
    ({"type": "tool_use", "id": "t", "name": "run_code", "input": {}}, "anthropic"),
    ({"type": "function_call", "call_id": "c", "name": "run_code", "arguments": "{}"}, "openai"),
    ({"type": "function", "id": "c", "function": {"name": "run_code", "arguments": "{}"}}, "openai-chat"),
    ({"name": "run_code", "args": {}}, "gemini"), ({"functionCall": {"name": "run_code", "args": {}}}, "gemini"),
    ({"name": "run_code", "arguments": {}}, "mcp")])
def test_whose_tool_call_it_is(call: dict[str, Any], shape: str) -> None:
    assert _protocol.format_of(call) == shape

    class Block:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            return call

    made, fake = box((200, {}, {"ok": True}))
    assert made.tools.run_tool_call(Block()) == {"ok": True}
    assert fake.seen() == [f"POST /v1/tools/run_code?format={shape}&sandbox=sbx-1"] and json.loads(fake.bodies[0]) == call


def test_a_tool_call_needs_a_place_and_a_shape() -> None:
    made, _ = client((200, {}, {}))
    with pytest.raises(SandalError, match="session"):
        made.tools.call("run_code", {"code": "1"})
    with pytest.raises(ValueError, match="no known shape"):
        made.tools.run_tool_call({"x": 1}, session="s")
    with pytest.raises(TypeError, match="a dict"):
        made.tools.run_tool_call(5, session="s")


def test_arguments_that_nothing_can_be_done_with() -> None:
    """They are told before anything is sent, and by the name that they have."""
    made, fake = box((200, {}, {}))
    for nothing in (None, ""):
        with pytest.raises(ArgumentError, match="an id or a name"):
            client((200, {}, {}))[0].snapshots.delete(cast(Any, nothing))
        with pytest.raises(ValueError, match="an id or a name"):
            client((200, {}, {}))[0].sandboxes.get(cast(Any, nothing))
    for number in (float("inf"), float("nan")):
        with pytest.raises(ArgumentError, match="^timeout: "):
            made.run_code("print('inf and nan')", timeout=number)
    assert not fake.requests


def test_arguments_of_a_tool_as_json_text() -> None:
    made, fake = box((200, {}, {"content": [{"type": "text", "text": "1"}]}))
    assert made.tools.call("run_code", '{"code": "1"}').text == "1"
    assert json.loads(fake.bodies[0]) == {"name": "run_code", "arguments": '{"code": "1"}'}


# --- The package ---


def run(*argv: Any, check: bool = True, env: Optional[dict[str, str]] = None) -> str:
    done = subprocess.run([str(arg) for arg in argv], cwd=SDK, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_blocking_client_is_made_from_the_other() -> None:
    run("scripts/unasync", "--check")


@with_tools
def test_types() -> None:
    run(sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "src/sandal", "tests/typing_sample.py")
    run(Path(sys.executable).parent / "basedpyright", "--pythonpath", sys.executable)


@with_tools
def test_it_runs_on_python_3_9() -> None:
    run(Path(sys.executable).parent / "vermin", "--no-tips", "-t=3.9-", "--violations", "src")


@with_tools
def test_contents_of_wheel_and_sdist(tmp_path: Path) -> None:
    import tarfile
    import zipfile

    run(sys.executable, "-m", "hatchling", "build", "-d", tmp_path)
    wheel, = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(SDK / "src").as_posix() for path in (SDK / "src").rglob("*") if path.suffix in (".py", ".typed")}
    assert {name for name in names if ".dist-info/" not in name} == sources and "sandal/py.typed" in names
    assert wheel.stat().st_size < 100_000
    sdist, = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "scripts/unasync", "tests/test_units.py", "src/sandal/py.typed"} <= inside
    assert not any(name.endswith((".pyc", ".lock")) for name in inside)
    metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("/METADATA"))).decode()
    assert "Requires-Python: >=3.9" in metadata and "Private :: Do Not Upload" in metadata and "Provides-Extra: cli" in metadata
    # It is enough by itself.
    target = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", target, wheel)
    said = run(sys.executable, "-c", "import sandal; print(sandal.__file__, sandal.__version__)", env={"PYTHONPATH": str(target)})
    assert str(target) in said


def test_importing_is_light() -> None:
    code = "import sys; sys.path.insert(0, 'src'); import sandal; print(sorted({'httpx', 'anyio', 'pandas', 'asyncio'} & set(sys.modules)))"
    assert run(sys.executable, "-c", code).strip() == "[]"
