# Made from src/sandal/_async/streams.py by scripts/unasync: edit that one.
"""Streams of events that outlive their connections: what broke goes on from the last seq, unseen by who reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Iterator, Callable, Generic, Optional, TypeVar, Union, cast

from .. import _protocol
from .._errors import APIConnectionError, RateLimitError, SandalError, UnavailableError
from .._models import JSON
from .._protocol import Backoff, Feed, Request, path_of
from .._results import (
    CommandChunk,
    CommandEnd,
    CommandResult,
    Execution,
    InputChunk,
    ResultChunk,
    RunChunk,
    StartedChunk,
    command_chunk,
    run_chunk,
)
from . import _io
from .transport import Transport

if TYPE_CHECKING:
    from types import TracebackType

    import httpx
    from typing_extensions import Self

ChunkT = TypeVar("ChunkT")
EndT = TypeVar("EndT")


class Reader(Generic[ChunkT]):
    """What is iterated once, over connections that may change under it. As a context manager it is closed with the block."""

    def __init__(self, http: Transport):
        self._http = http
        self._iterator: Optional[Iterator[ChunkT]] = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChunkT:
        if self._iterator is None:
            self._iterator = self._follow()
        return self._iterator.__next__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connection. What runs goes on."""
        iterator: Any = self._iterator
        if iterator is not None:
            iterator.close()
            self._http.close_left()

    def _follow(self) -> Iterator[ChunkT]:
        raise NotImplementedError


class EventStream(Reader[ChunkT], Generic[ChunkT, EndT]):
    """Chunks of one run or command, to be iterated once.

    Stopping early leaves it running on the daemon (`runs.attach` finds it again); as a context manager it is interrupted when
    the block is left before its end. Cancellation of the task that reads it, and KeyboardInterrupt, interrupt it.
    """

    def __init__(self, http: Transport, sandbox: str, feed: Feed, owner: bool, resume: bool,
                 callbacks: Optional[dict[str, Callable[..., Any]]] = None):
        super().__init__(http)
        self._sandbox = sandbox
        self._feed = feed
        self._owner = owner
        self._resume = resume
        self._callbacks = callbacks or {}
        self._end: Optional[EndT] = None

    @property
    def id(self) -> Optional[str]:
        """Of the run; None until its first event came."""
        return self._feed.run

    @property
    def seq(self) -> int:
        """Of the last event that came; -1 before the first."""
        return self._feed.seq

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.close()
        if not isinstance(error, APIConnectionError):
            self._stop()

    def wait(self) -> EndT:
        """Reads what is left, and returns what it came to."""
        for _ in self:
            pass
        if self._end is None:
            raise SandalError("the stream ended without a result")
        return self._end

    def _follow(self) -> Iterator[ChunkT]:
        try:
            for raw in self._events():
                chunk = self._chunk_of(raw)
                try:
                    self._react(chunk)
                except SandalError:  # of a callback: as any other error of one
                    self._stop()
                    raise
                yield chunk
        except (GeneratorExit, SandalError):
            raise
        except BaseException:  # cancelled, or a callback failed: nobody waits for what the code still does
            self._stop()
            raise

    def _stop(self) -> None:
        if self._owner and not self._feed.done:
            _io.shielded(self._give_up, _protocol.INTERRUPT_TIME)

    def _events(self) -> Iterator[JSON]:
        feed, backoff = self._feed, cast("Optional[Backoff]", None)
        begun = False  # or it may have: then it is looked for until RECONNECT_TIME is over
        while not feed.done:
            response: Optional[httpx.Response] = None
            try:
                response = self._http.open(feed.request(), retry=not begun)
                splitter = _protocol.Lines()
                last: Optional[JSON] = None
                for data in self._http.chunks(response):
                    for line in splitter.feed(data):
                        event = feed.accept(line)
                        if event is None:
                            continue
                        backoff = None
                        if feed.done:
                            last = event  # after the body's end, so that the connection is used again
                        else:
                            yield event
                if feed.done and last is not None:
                    yield last
                elif not feed.late and response.status_code != 204:
                    raise APIConnectionError("the stream ended before its result")
            except (APIConnectionError, RateLimitError, UnavailableError) as error:
                self._http.locate(error)
                if feed.done:
                    if (kept := feed.last) is not None:
                        yield kept
                    return
                begun = begun or feed.seq >= 0 or (isinstance(error, APIConnectionError) and error.sent)
                if not self._resume or not begun:
                    raise
                backoff = backoff or Backoff(None, time.monotonic() + _protocol.RECONNECT_TIME)
                seconds = backoff.wait(_protocol.asked_wait(error))
                if seconds is None:
                    raise
            except GeneratorExit:
                if response is not None:
                    self._http.leave(response)
                    response = None
                raise
            else:
                return
            finally:
                if response is not None:
                    self._http.done(response)
            _io.sleep(seconds)  # the backoff before the next try

    def _chunk_of(self, raw: JSON) -> ChunkT:
        raise NotImplementedError

    def _react(self, chunk: ChunkT) -> None:
        raise NotImplementedError

    def _give_up(self) -> None:
        """Ends what runs, as well as that can be done now."""
        try:
            if self._feed.run is None:  # it may have begun; the key finds it, or it is begun and ended
                response = self._http.open(self._feed.first, retry=False)
                try:
                    splitter = _protocol.Lines()
                    for data in _io.chunks(response):
                        for line in splitter.feed(data):
                            raw = self._feed.accept(line)
                            if raw is not None:
                                self._seen(raw)
                        if self._feed.run is not None:
                            break
                finally:
                    _io.close(response)
            self._end_it()
        except SandalError:
            pass  # it has ended, or the daemon is not to be reached

    def _seen(self, raw: JSON) -> None:
        """Notes what ending it needs."""

    def _end_it(self) -> None:
        raise NotImplementedError

    def _call(self, name: str, *args: Any) -> Any:
        function = self._callbacks.get(name)
        return _io.call(function, *args) if function is not None else None


class RunStream(EventStream[RunChunk, Execution]):
    """Chunks of a run of code; `execution` is there after the last."""

    @property
    def execution(self) -> Optional[Execution]:
        return self._end

    def _chunk_of(self, raw: JSON) -> RunChunk:
        return run_chunk(raw)

    def _react(self, chunk: RunChunk) -> None:
        if isinstance(chunk, ResultChunk):
            chunk.told_by(self._callbacks)
            self._end = chunk
        if not self._callbacks:
            return
        self._call("on_event", chunk)
        kind = chunk.type
        if kind == "stdout" or kind == "stderr":
            self._call("on_" + kind, cast(Any, chunk).text)
        elif kind == "display" or kind == "update":
            self._call("on_result", cast(Any, chunk).result)
        elif kind == "error":
            self._call("on_error", cast(Any, chunk).error)
        elif isinstance(chunk, InputChunk) and "on_input" in self._callbacks:
            answer = self._call("on_input", chunk)
            self.input(str(answer))

    def input(self, value: str) -> None:
        """Answers input()."""
        path = path_of("sandboxes", self._sandbox, "runs", str(self.id), "input")
        self._http.fetch(Request("POST", path, json_body={"value": value}))

    def interrupt(self) -> None:
        """Stops the code; its state is kept, and the stream ends with a result."""
        self._http.fetch(Request("DELETE", path_of("sandboxes", self._sandbox, "runs", str(self.id))))

    def _end_it(self) -> None:
        path = path_of("sandboxes", self._sandbox, "runs", str(self._feed.run))
        self._http.fetch(Request("DELETE", path), _protocol.INTERRUPT_TIME)


class CommandControl:
    """What a command that runs can be told."""

    _http: Transport

    def _path(self, *more: str) -> str:
        raise NotImplementedError

    def input(self, data: Union[str, bytes], eof: bool = False) -> None:
        """To its stdin."""
        import base64

        body: JSON = {"eof": True} if eof else {}
        if isinstance(data, bytes):
            body.update(data=base64.b64encode(data).decode(), encoding="base64")
        elif data:
            body["data"] = data
        self._http.fetch(Request("POST", self._path("input"), json_body=body))

    def close_stdin(self) -> None:
        self.input("", True)

    def signal(self, name: str) -> None:
        """By name: "SIGTERM"."""
        self._http.fetch(Request("POST", self._path("signal"), json_body={"signal": name}))

    def resize(self, cols: int, rows: int) -> None:
        self._http.fetch(Request("POST", self._path("resize"), json_body={"cols": cols, "rows": rows}))

    def kill(self) -> None:
        """Kills it and all that came of it; of one that has ended the record goes."""
        self._http.fetch(Request("DELETE", self._path()))


class CommandStream(EventStream[CommandChunk, CommandResult], CommandControl):
    """Chunks of a command; `result` is there after the last, `pid` after the first."""

    pid: Optional[int] = None

    @property
    def result(self) -> Optional[CommandResult]:
        return self._end

    def _chunk_of(self, raw: JSON) -> CommandChunk:
        return command_chunk(raw)

    def _react(self, chunk: CommandChunk) -> None:
        if isinstance(chunk, StartedChunk):
            self.pid = chunk.pid
        elif isinstance(chunk, CommandEnd):
            self._end = chunk
        if self._callbacks:
            self._call("on_event", chunk)
            if chunk.type == "stdout" or chunk.type == "stderr":
                self._call("on_" + chunk.type, cast(Any, chunk).text)

    def _path(self, *more: str) -> str:
        if self.pid is None:
            raise SandalError("the command has not started")
        return path_of("sandboxes", self._sandbox, "processes", str(self.pid), *more)

    def _seen(self, raw: JSON) -> None:
        self.pid = raw.get("pid", self.pid)

    def _end_it(self) -> None:
        if self.pid is not None:
            self._http.fetch(Request("DELETE", self._path()), _protocol.INTERRUPT_TIME)
