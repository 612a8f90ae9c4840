"""Streams of events that outlive their connections: what broke goes on from the last seq, unseen by who reads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Generic, Optional, TypeVar, Union, cast

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
from .transport import AsyncTransport

if TYPE_CHECKING:
    from types import TracebackType

    import httpx
    from typing_extensions import Self

ChunkT = TypeVar("ChunkT")
EndT = TypeVar("EndT")


class AsyncReader(Generic[ChunkT]):
    """What is iterated once, over connections that may change under it. As a context manager it is closed with the block."""

    def __init__(self, http: AsyncTransport):
        self._http = http
        self._iterator: Optional[AsyncIterator[ChunkT]] = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChunkT:
        if self._iterator is None:
            self._iterator = self._follow()
        return await self._iterator.__anext__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Lets go of the connection. What runs goes on."""
        iterator: Any = self._iterator
        if iterator is not None:
            await iterator.aclose()
            await self._http.close_left()

    def _follow(self) -> AsyncIterator[ChunkT]:
        raise NotImplementedError


class AsyncEventStream(AsyncReader[ChunkT], Generic[ChunkT, EndT]):
    """Chunks of one run or command, to be iterated once.

    Stopping early leaves it running on the daemon (`runs.attach` finds it again); as a context manager it is interrupted when
    the block is left before its end. Cancellation of the task that reads it, and KeyboardInterrupt, interrupt it.
    """

    def __init__(self, http: AsyncTransport, sandbox: str, feed: Feed, owner: bool, resume: bool,
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

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.aclose()
        if not isinstance(error, APIConnectionError):
            await self._stop()

    async def wait(self) -> EndT:
        """Reads what is left, and returns what it came to."""
        async for _ in self:
            pass
        if self._end is None:
            raise SandalError("the stream ended without a result")
        return self._end

    async def _follow(self) -> AsyncIterator[ChunkT]:
        try:
            async for raw in self._events():
                chunk = self._chunk_of(raw)
                try:
                    await self._react(chunk)
                except SandalError:  # of a callback: as any other error of one
                    await self._stop()
                    raise
                yield chunk
        except (GeneratorExit, SandalError):
            raise
        except BaseException:  # cancelled, or a callback failed: nobody waits for what the code still does
            await self._stop()
            raise

    async def _stop(self) -> None:
        if self._owner and not self._feed.done:
            await _io.shielded(self._give_up, _protocol.INTERRUPT_TIME)

    async def _events(self) -> AsyncIterator[JSON]:
        feed, backoff = self._feed, cast("Optional[Backoff]", None)
        begun = False  # or it may have: then it is looked for until RECONNECT_TIME is over
        while not feed.done:
            response: Optional[httpx.Response] = None
            try:
                response = await self._http.open(feed.request(), retry=not begun)
                splitter = _protocol.Lines()
                last: Optional[JSON] = None
                async for data in self._http.chunks(response):
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
                    await self._http.done(response)
            await _io.sleep(seconds)  # the backoff before the next try

    def _chunk_of(self, raw: JSON) -> ChunkT:
        raise NotImplementedError

    async def _react(self, chunk: ChunkT) -> None:
        raise NotImplementedError

    async def _give_up(self) -> None:
        """Ends what runs, as well as that can be done now."""
        try:
            if self._feed.run is None:  # it may have begun; the key finds it, or it is begun and ended
                response = await self._http.open(self._feed.first, retry=False)
                try:
                    splitter = _protocol.Lines()
                    async for data in _io.chunks(response):
                        for line in splitter.feed(data):
                            raw = self._feed.accept(line)
                            if raw is not None:
                                self._seen(raw)
                        if self._feed.run is not None:
                            break
                finally:
                    await _io.close(response)
            await self._end_it()
        except SandalError:
            pass  # it has ended, or the daemon is not to be reached

    def _seen(self, raw: JSON) -> None:
        """Notes what ending it needs."""

    async def _end_it(self) -> None:
        raise NotImplementedError

    async def _call(self, name: str, *args: Any) -> Any:
        function = self._callbacks.get(name)
        return await _io.call(function, *args) if function is not None else None


class AsyncRunStream(AsyncEventStream[RunChunk, Execution]):
    """Chunks of a run of code; `execution` is there after the last."""

    @property
    def execution(self) -> Optional[Execution]:
        return self._end

    def _chunk_of(self, raw: JSON) -> RunChunk:
        return run_chunk(raw)

    async def _react(self, chunk: RunChunk) -> None:
        if isinstance(chunk, ResultChunk):
            chunk.told_by(self._callbacks)
            self._end = chunk
        if not self._callbacks:
            return
        await self._call("on_event", chunk)
        kind = chunk.type
        if kind == "stdout" or kind == "stderr":
            await self._call("on_" + kind, cast(Any, chunk).text)
        elif kind == "display" or kind == "update":
            await self._call("on_result", cast(Any, chunk).result)
        elif kind == "error":
            await self._call("on_error", cast(Any, chunk).error)
        elif isinstance(chunk, InputChunk) and "on_input" in self._callbacks:
            answer = await self._call("on_input", chunk)
            await self.input(str(answer))

    async def input(self, value: str) -> None:
        """Answers input()."""
        path = path_of("sandboxes", self._sandbox, "runs", str(self.id), "input")
        await self._http.fetch(Request("POST", path, json_body={"value": value}))

    async def interrupt(self) -> None:
        """Stops the code; its state is kept, and the stream ends with a result."""
        await self._http.fetch(Request("DELETE", path_of("sandboxes", self._sandbox, "runs", str(self.id))))

    async def _end_it(self) -> None:
        path = path_of("sandboxes", self._sandbox, "runs", str(self._feed.run))
        await self._http.fetch(Request("DELETE", path), _protocol.INTERRUPT_TIME)


class AsyncCommandControl:
    """What a command that runs can be told."""

    _http: AsyncTransport

    def _path(self, *more: str) -> str:
        raise NotImplementedError

    async def input(self, data: Union[str, bytes], eof: bool = False) -> None:
        """To its stdin."""
        import base64

        body: JSON = {"eof": True} if eof else {}
        if isinstance(data, bytes):
            body.update(data=base64.b64encode(data).decode(), encoding="base64")
        elif data:
            body["data"] = data
        await self._http.fetch(Request("POST", self._path("input"), json_body=body))

    async def close_stdin(self) -> None:
        await self.input("", True)

    async def signal(self, name: str) -> None:
        """By name: "SIGTERM"."""
        await self._http.fetch(Request("POST", self._path("signal"), json_body={"signal": name}))

    async def resize(self, cols: int, rows: int) -> None:
        await self._http.fetch(Request("POST", self._path("resize"), json_body={"cols": cols, "rows": rows}))

    async def kill(self) -> None:
        """Kills it and all that came of it; of one that has ended the record goes."""
        await self._http.fetch(Request("DELETE", self._path()))


class AsyncCommandStream(AsyncEventStream[CommandChunk, CommandResult], AsyncCommandControl):
    """Chunks of a command; `result` is there after the last, `pid` after the first."""

    pid: Optional[int] = None

    @property
    def result(self) -> Optional[CommandResult]:
        return self._end

    def _chunk_of(self, raw: JSON) -> CommandChunk:
        return command_chunk(raw)

    async def _react(self, chunk: CommandChunk) -> None:
        if isinstance(chunk, StartedChunk):
            self.pid = chunk.pid
        elif isinstance(chunk, CommandEnd):
            self._end = chunk
        if self._callbacks:
            await self._call("on_event", chunk)
            if chunk.type == "stdout" or chunk.type == "stderr":
                await self._call("on_" + chunk.type, cast(Any, chunk).text)

    def _path(self, *more: str) -> str:
        if self.pid is None:
            raise SandalError("the command has not started")
        return path_of("sandboxes", self._sandbox, "processes", str(self.pid), *more)

    def _seen(self, raw: JSON) -> None:
        self.pid = raw.get("pid", self.pid)

    async def _end_it(self) -> None:
        if self.pid is not None:
            await self._http.fetch(Request("DELETE", self._path()), _protocol.INTERRUPT_TIME)
