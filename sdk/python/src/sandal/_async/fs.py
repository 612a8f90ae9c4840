"""Files of a sandbox."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    List,
    Optional,
    Union,
    cast,
    overload,
)

from .. import _protocol
from .._errors import APIConnectionError, APIError, NotFoundError, SandalError
from .._models import JSON, Entry, FileEvent
from .._protocol import AnyPath, Backoff, PathLike, Request, body_of, bytes_of, bytes_only, content_of, path_of, place_of, size_of
from . import _io
from .streams import AsyncReader
from .transport import AsyncTransport

if TYPE_CHECKING:
    from typing import BinaryIO

    import httpx
    from typing_extensions import Literal, Self

Progress = Callable[[int, Optional[int]], Any]
Content = Union[str, bytes, bytearray, memoryview, "BinaryIO", Iterable[bytes], AsyncIterable[bytes]]

PIECE = 256 * 1024
TUS_PIECE = 4 * 1024 * 1024
PUT_MOST = 4 * 1024 * 1024  # what is longer goes by tus from the first, so that a break costs what was under way alone
# Seconds. A tag becomes strong when the file is one second old.
SETTLE_TIME = 5.0
SETTLE_PAUSE = 0.2
_TUS = {"Tus-Resumable": "1.0.0"}


class AsyncFiles:
    """Paths are absolute or taken from /workspace: text, bytes, or an Entry. Progress callbacks get (bytes done, bytes in all or None)."""

    def __init__(self, http: AsyncTransport, sandbox: str):
        self._http = http
        self._sandbox = sandbox

    def _path(self, *parts: str) -> str:
        return path_of("sandboxes", self._sandbox, "fs", *parts)

    # --- Reading ---

    @overload
    def read(self, path: AnyPath, *, stream: Literal[False] = False, offset: int = 0, length: Optional[int] = None,
             on_progress: Optional[Progress] = None) -> Awaitable[bytes]: ...

    @overload
    def read(self, path: AnyPath, *, stream: Literal[True], offset: int = 0, length: Optional[int] = None,
             on_progress: Optional[Progress] = None) -> AsyncByteStream: ...

    def read(self, path: AnyPath, *, stream: bool = False, offset: int = 0, length: Optional[int] = None,
             on_progress: Optional[Progress] = None) -> Union[Awaitable[bytes], AsyncByteStream]:
        """Its bytes; with `stream=True` an iterator of pieces."""
        made = AsyncByteStream(self._http, self._path("file"), place_of(path), offset, length, on_progress)
        return made if stream else made.read()

    async def read_text(self, path: AnyPath, encoding: str = "utf-8", errors: str = "strict") -> str:
        return (await self.read(path)).decode(encoding, errors)

    async def download(self, path: AnyPath, local: PathLike, on_progress: Optional[Progress] = None) -> Path:
        """To a file of this machine, or into a directory of it. It appears when it is whole, behind a link where there is one. A
        device or a pipe is written to as it is."""
        place = Path(local)
        target = place / os.fsdecode(os.path.basename(bytes_of(path))) if place.is_dir() else place
        if target.exists() and not target.is_file():
            with open(target, "wb") as device:
                async for piece in self.read(path, stream=True, on_progress=on_progress):
                    device.write(piece)
            return target
        whole = Path(os.path.realpath(target))
        part = whole.with_name(f".{whole.name}.{os.urandom(4).hex()}.part")
        try:
            with open(part, "wb") as file:
                stream = self.read(path, stream=True, on_progress=on_progress)
                stream.anew = lambda: file.truncate(file.seek(0))
                async for piece in stream:
                    file.write(piece)
            os.replace(part, whole)
        finally:
            part.unlink(missing_ok=True)
        return target

    # --- Writing ---

    async def write(self, path: AnyPath, data: Content, *, mode: Optional[str] = None, exclusive: bool = False,
                    on_progress: Optional[Progress] = None) -> None:
        """Text (as UTF-8), bytes, a binary file, or an iterable of bytes whose length need not be known. Parents are made;
        who reads sees the old file or the whole new one. mode: octal text; by default that of the file that is there, else
        "0644". exclusive: ConflictError if the file is there; it is sent by one request, which does not go on after a break."""
        content = content_of(data)
        size = size_of(content)
        if size is None:
            if exclusive:
                raise ValueError("exclusive needs bytes, or a file that can be sought in")
            await self._upload(path, None, mode, lambda place: self._send_pieces(place, _pieces(content), on_progress))
            return
        body = _from(content, size, on_progress)
        if exclusive or size <= PUT_MOST:
            headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
            if exclusive:
                headers["If-None-Match"] = "*"
            request = Request("PUT", self._path("file"), params={**place_of(path), "mode": mode}, headers=headers, content=body(0),
                              repeatable=False)
            try:
                await self._http.fetch(request, float("inf"))
                return
            except APIConnectionError as error:
                if exclusive or not error.sent:
                    raise
        await self._upload(path, size, mode, lambda place: self._append(place, 0, size, body, None, float("inf")))

    async def upload(self, local: PathLike, path: AnyPath, *, mode: Optional[str] = None,
                     on_progress: Optional[Progress] = None) -> None:
        """A file of this machine."""
        with open(local, "rb") as file:
            await self.write(path, file, mode=mode, on_progress=on_progress)

    async def _upload(self, path: AnyPath, size: Optional[int], mode: Optional[str], send: Callable[[str], Awaitable[Any]]) -> None:
        """By tus, which needs no length beforehand and goes on where it broke."""
        names = {"path": bytes_of(path), **({"mode": mode.encode()} if mode else {})}
        metadata = ",".join(f"{name} {b64encode(value).decode()}" for name, value in names.items())
        length = {"Upload-Length": str(size)} if size else {"Upload-Defer-Length": "1"}
        response = await self._http.open(Request("POST", self._path("uploads"), headers={**_TUS, **length, "Upload-Metadata": metadata}))
        place = response.headers["location"]
        await _io.close(response)
        try:
            await send(place)
        except BaseException:
            await _io.shielded(lambda: self._drop(place), _protocol.INTERRUPT_TIME)
            raise

    async def _send_pieces(self, place: str, pieces: AsyncIterator[bytes], on_progress: Optional[Progress]) -> None:
        offset = 0
        buffer = bytearray()
        async for piece in pieces:
            buffer += piece
            while len(buffer) >= TUS_PIECE:
                offset = await self._append_bytes(place, offset, bytes(buffer[:TUS_PIECE]), None)
                del buffer[:TUS_PIECE]
                await _told(on_progress, offset, None)
        offset = await self._append_bytes(place, offset, bytes(buffer), offset + len(buffer))
        await _told(on_progress, offset, offset)

    async def _append_bytes(self, place: str, offset: int, data: bytes, length: Optional[int]) -> int:
        return await self._append(place, offset, offset + len(data), lambda here: data[here - offset:], length, None)

    async def _append(self, place: str, offset: int, end: int, body: Callable[[int], Any], length: Optional[int],
                      timeout: Optional[float]) -> int:
        """Sends what is between the offsets, after a break from where the daemon has it; body(here) is the content from there.
        It gives up where no byte got through for RECONNECT_TIME. The new offset."""
        backoff: Optional[Backoff] = None
        here = offset
        while True:
            headers = {**_TUS, "Upload-Offset": str(here), "Content-Type": "application/offset+octet-stream",
                       "Content-Length": str(end - here), **({"Upload-Length": str(length)} if length is not None else {})}
            request = Request("PATCH", place, headers=headers, content=body(here), repeatable=False)
            try:
                await self._http.fetch(request, timeout)
                return end
            except (APIConnectionError, APIError) as error:
                if isinstance(error, APIError) and error.code != "busy" and not (error.status == 409 and backoff is not None):
                    raise
                backoff = backoff or Backoff(None, time.monotonic() + _protocol.RECONNECT_TIME)
                seconds = backoff.wait()
                if seconds is None:
                    raise
            await _io.sleep(seconds)  # the backoff before the next try
            state = await self._state(place, backoff)
            before, here = here, int(state["offset"])
            if state["done"]:
                return end
            if not offset <= here <= end:
                raise SandalError(f"the upload is at {here}, which is not between {offset} and {end}")
            if here > before:
                backoff = Backoff(None, time.monotonic() + _protocol.RECONNECT_TIME)

    async def _state(self, place: str, backoff: Backoff) -> JSON:
        while True:
            try:
                return await self._http.json(Request("GET", place, headers=_TUS))
            except APIConnectionError:
                seconds = backoff.wait()
                if seconds is None:
                    raise
            await _io.sleep(seconds)  # the backoff before the next try

    async def _drop(self, place: str) -> None:
        try:
            await self._http.fetch(Request("DELETE", place, headers=_TUS), _protocol.INTERRUPT_TIME)
        except SandalError:
            pass  # it ends by itself within the hour

    # --- The rest ---

    async def list(self, path: AnyPath = ".", depth: int = 1) -> List[Entry]:
        """What is in a directory, `depth` levels deep, in the order of paths."""
        params: JSON = {**place_of(path), "depth": depth}
        return [Entry(item) for item in await self._http.items(self._path("dir"), params)]

    async def stat(self, path: AnyPath, follow: bool = False) -> Entry:
        """Of a link itself, unless `follow`."""
        params: JSON = {**place_of(path), "follow": follow}
        return Entry(await self._http.json(Request("GET", self._path("stat"), params=params)))

    async def exists(self, path: AnyPath) -> bool:
        try:
            await self.stat(path)
        except NotFoundError as error:
            if error.code != "not_found":  # the sandbox itself
                raise
            return False
        return True

    async def mkdir(self, path: AnyPath, *, mode: Optional[str] = None, parents: bool = True) -> Entry:
        body = body_of(**place_of(path), mode=mode, parents=parents)
        return Entry(await self._http.json(Request("POST", self._path("dir"), json_body=body)))

    async def move(self, source: AnyPath, target: AnyPath, *, overwrite: bool = False) -> Entry:
        body: JSON = {**place_of(source, "from"), **place_of(target, "to"), "overwrite": overwrite}
        return Entry(await self._http.json(Request("POST", self._path("move"), json_body=body)))

    async def remove(self, path: AnyPath, *, recursive: bool = False) -> None:
        """A directory that is not empty needs `recursive`."""
        await self._http.fetch(Request("DELETE", self._path("file"), params={**place_of(path), "recursive": recursive}))

    def watch(self, path: AnyPath = ".", *, recursive: bool = False) -> AsyncWatch:
        """Changes below a directory, or of a file, from when it is first read, or entered as a context manager."""
        return AsyncWatch(self._http, self._path("watch"), {**place_of(path), "recursive": recursive})


class AsyncByteStream(AsyncReader[bytes]):
    """Pieces of a file; `size` is the file's once the first came. A break is made up for where the file did not change.

    A file younger than a second has a weak tag, which no range can be asked by. `anew`, of who can forget the pieces it got,
    lets it start over then; else the strong tag that the same state of the file has a second later is waited for."""

    def __init__(self, http: AsyncTransport, url: str, place: JSON, offset: int, length: Optional[int],
                 on_progress: Optional[Progress]):
        super().__init__(http)
        self._url, self._place = url, place
        self._file = next(iter(place.values()))  # for messages
        self._from, self._length = offset, length
        self._progress = on_progress
        self._done = 0
        self._etag: Optional[str] = None
        self.size: Optional[int] = None
        self.anew: Optional[Callable[[], Any]] = None

    async def read(self) -> bytes:
        """All that is left."""
        parts: list[bytes] = []
        if self._iterator is None:
            self.anew = parts.clear
        async for piece in self:
            parts.append(piece)
        return b"".join(parts)

    def _request(self) -> Request:
        first = self._from + self._done
        headers: dict[str, str] = {}
        if first or self._length is not None:
            last = "" if self._length is None else str(self._from + self._length - 1)
            headers["Range"] = f"bytes={first}-{last}"
        if self._done and self._etag:
            headers["If-Range"] = self._etag
        return Request("GET", self._url, params=self._place, headers=headers, silence=_protocol.SILENCE_TIMEOUT)

    async def _follow(self) -> AsyncIterator[bytes]:
        if self._length == 0:
            return
        backoff: Optional[Backoff] = None
        farthest = 0
        while True:
            response: Optional[httpx.Response] = None
            try:
                if self._done and (self._etag is None or self._etag.startswith("W/")):
                    await self._settle()
                response = await self._http.open(self._request())
                self._look(response)
                async for piece in self._http.chunks(response):
                    self._done += len(piece)
                    if self._done > farthest:
                        farthest, backoff = self._done, None
                    await _told(self._progress, self._done, self._whole())
                    yield piece
                return
            except APIError as error:
                if error.status == 416 and self._from + self._done >= (self.size or 0) and self._done:
                    return
                raise
            except APIConnectionError as error:
                self._http.locate(error)
                if self._done and self._etag is None and self.anew is None:
                    raise  # nothing tells whether the rest is that of the same file
                backoff = backoff or Backoff(None, time.monotonic() + _protocol.RECONNECT_TIME)
                seconds = backoff.wait()
                if seconds is None or (not self._done and not error.sent):
                    raise
            except GeneratorExit:
                if response is not None:
                    self._http.leave(response)
                    response = None
                raise
            finally:
                if response is not None:
                    await self._http.done(response)
            await _io.sleep(seconds)  # the backoff before the next try

    async def _settle(self) -> None:
        """After a break, where no tag can be asked by."""
        if self.anew is not None:
            self.anew()
            self._done = 0
            return
        known = cast(str, self._etag)
        until = time.monotonic() + SETTLE_TIME
        while self._etag == known:
            if time.monotonic() > until:
                raise SandalError(f"{self._file} has no tag to go on by, and the connection broke")
            await _io.sleep(SETTLE_PAUSE)  # a tag gets strong by the passing of time alone
            response = await self._http.open(Request("HEAD", self._url, params=self._place))
            await _io.close(response)
            self._etag = response.headers.get("etag")
        if self._etag != known[2:]:
            raise SandalError(f"{self._file} changed while it was read, and the connection broke")

    def _look(self, response: httpx.Response) -> None:
        if self._done and response.status_code != 206:
            raise SandalError(f"{self._file} changed while it was read, and the connection broke")
        self._etag = response.headers.get("etag")
        span, length = response.headers.get("content-range"), response.headers.get("content-length")
        if span:
            self.size = int(span.rpartition("/")[2])
        elif length is not None:
            self.size = int(length)

    def _whole(self) -> Optional[int]:
        if self.size is None:
            return self._length
        left = max(0, self.size - self._from)
        return left if self._length is None else min(left, self._length)


class AsyncWatch(AsyncReader[FileEvent]):
    """Changes of files as they come. After a break it goes on with an event of type `overflow`: list anew."""

    def __init__(self, http: AsyncTransport, url: str, params: JSON):
        super().__init__(http)
        self._request = Request("GET", url, params=params, silence=_protocol.SILENCE_TIMEOUT)
        self._response: Optional[httpx.Response] = None

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def aclose(self) -> None:
        await super().aclose()
        response, self._response = self._response, None
        if response is not None:
            await _io.close(response)

    async def _open(self) -> httpx.Response:
        if self._response is None:
            self._response = await self._http.open(self._request)
        return self._response

    async def _follow(self) -> AsyncIterator[FileEvent]:
        backoff: Optional[Backoff] = None
        broke = False
        while True:
            try:
                response = await self._open()
                if broke:
                    broke, backoff = False, None
                    yield FileEvent({"type": "overflow"})
                splitter = _protocol.Lines()
                async for data in self._http.chunks(response):
                    for line in splitter.feed(data):
                        event = FileEvent(_protocol.object_of(line))
                        if event.type != "watching":
                            yield event
                return
            except APIConnectionError as error:
                self._http.locate(error)
                backoff = backoff or Backoff(None, time.monotonic() + _protocol.RECONNECT_TIME)
                seconds = backoff.wait()
                if seconds is None:
                    raise
                broke = True
            except GeneratorExit:
                if self._response is not None:
                    self._http.leave(self._response)
                    self._response = None
                raise
            finally:
                stale, self._response = self._response, None
                if stale is not None:
                    await self._http.done(stale)
            await _io.sleep(seconds)  # the backoff before the next try


async def _told(progress: Optional[Progress], done: int, whole: Optional[int]) -> None:
    if progress is not None:
        await _io.call(progress, done, whole)


def _from(content: Any, size: int, on_progress: Optional[Progress]) -> Callable[[int], Callable[[], AsyncIterator[bytes]]]:
    """The content from an offset on, as a body that can be asked for more than once."""
    source = content
    start: Optional[int] = None if isinstance(content, (bytes, bytearray, memoryview)) else source.tell()

    def body(offset: int) -> Callable[[], AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            done = offset
            if start is not None:
                source.seek(start + offset)
            while done < size:
                piece = bytes_only(source[done:done + PIECE] if start is None else source.read(min(PIECE, size - done)))
                if not piece:
                    raise SandalError("the file became shorter while it was sent")
                yield piece
                done += len(piece)
                await _told(on_progress, done, size)

        return pieces

    return body


async def _pieces(source: Any) -> AsyncIterator[bytes]:
    """Of a file that cannot be sought in, or of any iterable."""
    if hasattr(source, "read"):
        while True:
            piece = await _io.call(source.read, PIECE)
            if not piece:
                return
            yield bytes_only(piece)
    else:
        async for piece in _io.each(source):
            yield bytes_only(piece)
