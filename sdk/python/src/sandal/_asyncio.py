"""HTTP/1.1 over plain connections of asyncio, as a transport of httpx.

A short run is two reads and a write. httpx's own transport makes eleven turns of the loop and fourteen cancel scopes of that, this
one three turns and none. TLS, and trio, have httpx's own.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import Any, Callable, Optional, Union, cast

import h11
import httpx

HEAD_MOST = 100 << 10  # bytes of the head of an answer
READ_MOST = 256 << 10  # bytes that wait for who reads, until the socket is let be
ONE_WRITE = 64 << 10  # bytes: a request up to that size goes out in one piece
IDLE_MOST = 64
IDLE_TIME = 30.0  # seconds
EYEBALLS_DELAY = 0.25  # seconds until the next of a name's addresses is tried beside the first (RFC 8305)


def _expire(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


def _readable(fd: int) -> bool:
    """Of a connection that is idle: the daemon has closed it, though the loop may not know yet."""
    if not hasattr(select, "poll"):
        return bool(select.select([fd], [], [], 0)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


class Connection(asyncio.Protocol):
    """One connection; one task at a time uses it."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self.idle_since = 0.0
        self._wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MOST)
        self._transport: Any = None
        self._waiter: Optional[asyncio.Future[bool]] = None
        self._parts: list[bytes] = []
        self._size = 0
        self._held = False  # reading is paused
        self._full = False  # writing is
        self._ended = False
        self._lost: Optional[Exception] = None

    # --- What asyncio calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > READ_MOST and not self._held:
            self._held = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._ended = True
        self._wake()
        return True  # who uses it closes it

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._ended, self._full = True, False
        self._lost = exc or ConnectionError("the connection is closed")
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    async def _wait(self, seconds: Optional[float], late: type[httpx.TimeoutException]) -> None:
        """Until something happens to the connection."""
        waiter = self._waiter = self.loop.create_future()
        timer = self.loop.call_later(seconds, _expire, waiter) if seconds is not None else None
        try:
            if not await waiter:
                raise late(f"nothing moved for {seconds or 0:.2f} s")
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    # --- A request and its answer ---

    async def send(self, request: httpx.Request, seconds: Optional[float]) -> None:
        """What cannot be written is no error yet: the daemon may have answered before it closed."""
        target = request.url.raw_path
        try:
            head = self._wire.send(h11.Request(method=request.method, target=target, headers=request.headers.raw)) or b""
            if isinstance(request.stream, httpx.ByteStream):
                await self._write([head, *self._pieces(b"".join(request.stream)), *self._pieces(None)], seconds)
                return
            await self._write([head], seconds)
            async for data in cast(httpx.AsyncByteStream, request.stream):
                if not await self._write(self._pieces(data), seconds):
                    return
            await self._write(self._pieces(None), seconds)
        except h11.LocalProtocolError as error:
            raise httpx.LocalProtocolError(str(error)) from error

    def _pieces(self, data: Optional[bytes]) -> list[bytes]:
        event: Union[h11.Data, h11.EndOfMessage] = h11.EndOfMessage() if data is None else h11.Data(data=data)
        return self._wire.send_with_data_passthrough(event) or []

    async def _write(self, pieces: list[bytes], seconds: Optional[float]) -> bool:
        """Whether it may go on."""
        small = sum(map(len, pieces)) <= ONE_WRITE
        for piece in [b"".join(pieces)] if small else pieces:
            if self._lost is not None:
                return False
            self._transport.write(piece)
            while self._full:
                await self._wait(seconds, httpx.WriteTimeout)
        return self._lost is None

    async def head(self, seconds: Optional[float]) -> h11.Response:
        while True:
            event = await self.next(seconds)
            if isinstance(event, h11.Response):
                return event

    async def next(self, seconds: Optional[float]) -> Any:
        """The next event of the answer."""
        while True:
            try:
                event = self._wire.next_event()
            except h11.RemoteProtocolError as error:
                raise httpx.RemoteProtocolError(str(error)) from error
            if event is not h11.NEED_DATA:
                return event
            if self._parts:
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts, self._size = [], 0
                self._wire.receive_data(data)
                if self._held and not self._ended:
                    self._held = False
                    self._transport.resume_reading()
            elif self._lost is not None:
                raise httpx.ReadError(str(self._lost)) from self._lost
            elif not self._ended:
                await self._wait(seconds, httpx.ReadTimeout)
            elif self._wire.their_state is h11.SEND_RESPONSE:
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
            else:
                self._wire.receive_data(b"")

    # --- Between requests ---

    def again(self) -> bool:
        """Whether it can carry another request after this one."""
        if self._wire.our_state is not h11.DONE or self._wire.their_state is not h11.DONE:
            return False
        if self._ended or self._parts or self._wire.trailing_data[0]:  # bytes that no request asked for
            return False
        self._wire.start_next_cycle()
        return True

    def usable(self) -> bool:
        return not self._ended and not self._parts and not _readable(self._transport.get_extra_info("socket").fileno())

    def close(self) -> None:
        """At once; what was not sent is dropped. Of a loop that is closed the socket goes with its last reference."""
        if self.loop is asyncio.get_running_loop():
            self._transport.abort()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._transport.abort)


class Body(httpx.AsyncByteStream):
    """Of an answer. Read to its end it leaves its connection to the next request."""

    def __init__(self, connection: Connection, seconds: Optional[float], release: Callable[[Connection], None]):
        self._connection: Optional[Connection] = connection
        self._seconds = seconds
        self._release = release

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is not None:
            event = await self._connection.next(self._seconds)
            if isinstance(event, h11.Data):
                return bytes(event.data)
            await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._release(connection)


class Transport(httpx.AsyncBaseTransport):
    """Connections to one address, that of each request's URL or a unix socket."""

    def __init__(self, uds: Optional[str]):
        self._uds = uds
        self._open: set[Connection] = set()
        self._idle: deque[Connection] = deque()  # the one that was used last is the last

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        times = request.extensions["timeout"]
        connection = self._take() or await self._connect(request.url, times["connect"])
        try:
            await connection.send(request, times["write"])
            head = await connection.head(times["read"])
        except BaseException:
            self._drop(connection)
            raise
        return httpx.Response(head.status_code, headers=head.headers.raw_items(), stream=Body(connection, times["read"], self._release))

    def _take(self) -> Optional[Connection]:
        """One that is idle."""
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0].idle_since + IDLE_TIME < loop.time():
            self._drop(self._idle.popleft())
        while self._idle:
            connection = self._idle.pop()
            if connection.loop is loop and connection.usable():
                return connection
            self._drop(connection)  # its loop has ended, or the daemon closed it
        return None

    async def _connect(self, url: httpx.URL, seconds: Optional[float]) -> Connection:
        import anyio

        loop = asyncio.get_running_loop()
        made = Connection(loop)
        both: Any = {"happy_eyeballs_delay": EYEBALLS_DELAY} if isinstance(loop, asyncio.BaseEventLoop) else {}  # uvloop has it not
        try:
            with anyio.fail_after(seconds):
                if self._uds is not None:
                    await loop.create_unix_connection(lambda: made, self._uds)
                else:
                    await loop.create_connection(lambda: made, url.raw_host.decode(), url.port or 80, **both)
        except TimeoutError as error:  # also the system's own
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        self._open.add(made)
        return made

    def _release(self, connection: Connection) -> None:
        if connection.again() and len(self._idle) < IDLE_MOST and connection in self._open:
            connection.idle_since = connection.loop.time()
            self._idle.append(connection)
        else:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.close()

    async def aclose(self) -> None:
        self._idle.clear()
        for connection in list(self._open):
            self._drop(connection)
        await asyncio.sleep(0)  # in the next turn of the loop the sockets are closed
