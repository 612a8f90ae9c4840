"""The asyncio client's own transport, against servers that answer as they like. It needs no daemon."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, AsyncIterator, Awaitable, Callable, Optional

import anyio
import httpx
import pytest

from sandal import APIConnectionError, APITimeoutError, AsyncSandal, Sandal, _asyncio

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n4\r\ncde\n\r\n0\r\n\r\n"
TIMES = {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": None}

Answer = Callable[["Server", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[Any]]


class Server:
    """Hands each connection to `answer`, and counts them."""

    def __init__(self, answer: Answer):
        self.answer = answer
        self.connections = 0
        self.heads: list[bytes] = []
        self.tasks: set[Any] = set()

    async def __aenter__(self) -> Server:
        self.ended = asyncio.Semaphore(0)  # here, for before Python 3.10 it belongs to the loop that runs when it is made
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks.add(asyncio.current_task())
        try:
            await self.answer(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        return self.heads[-1]


def always(data: bytes) -> Answer:
    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await server.head(reader)
            writer.write(data)

    return answer


def request(url: str, method: str = "GET", content: Any = None, **times: Optional[float]) -> httpx.Request:
    return httpx.Request(method, url + "/x", content=content, extensions={"timeout": {**TIMES, **times}})


async def read(transport: httpx.AsyncBaseTransport, made: httpx.Request) -> bytes:
    response = await transport.handle_async_request(made)
    try:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return b"".join([piece async for piece in response.stream])
    finally:
        await response.aclose()


def with_server(answer: Answer, work: Callable[[Server, _asyncio.Transport], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with Server(answer) as server:
            transport = _asyncio.Transport(None)
            try:
                return await asyncio.wait_for(work(server, transport), 30)
            finally:
                await transport.aclose()

    return asyncio.run(main())


def test_a_connection_is_used_again() -> None:
    async def work(server: Server, transport: _asyncio.Transport) -> None:
        for _ in range(5):
            assert await read(transport, request(server.url)) == b"{}"
        assert server.connections == 1
        assert await asyncio.gather(*(read(transport, request(server.url)) for _ in range(10))) == [b"{}"] * 10
        assert server.connections == 10

    with_server(always(OK), work)


def test_no_more_idle_connections_than_the_limit_and_none_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: Server, transport: _asyncio.Transport) -> None:
        await asyncio.gather(*(read(transport, request(server.url)) for _ in range(4)))
        assert len(transport._idle) == len(transport._open) == 3
        monkeypatch.setattr(_asyncio, "IDLE_TIME", -1.0)
        assert await read(transport, request(server.url)) == b"{}"
        assert server.connections == 5 and len(transport._open) == 1

    monkeypatch.setattr(_asyncio, "IDLE_MOST", 3)
    with_server(always(OK), work)


@pytest.mark.parametrize("data", [OK, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK])
def test_answers_in_pieces(data: bytes) -> None:
    """Cut in two at every byte, and byte by byte."""
    cuts: list[list[bytes]] = [[data[:cut], data[cut:]] for cut in range(len(data))] + [[data[i:i + 1] for i in range(len(data))]]

    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for parts in cuts:
            await server.head(reader)
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0)  # a turn of the loop in which the client may read this part alone

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        for _ in cuts:
            assert await read(transport, request(server.url)) == (b"ab\ncde\n" if data is CHUNKED else b"{}")
        assert server.connections == 1

    with_server(answer, work)


@pytest.mark.parametrize("method, data", [
    ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"), ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
    ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n")])
def test_answers_without_a_body(method: str, data: bytes) -> None:
    async def work(server: Server, transport: _asyncio.Transport) -> None:
        for _ in range(2):
            assert await read(transport, request(server.url, method)) == b""
        assert server.connections == 1

    with_server(always(data), work)


@pytest.mark.parametrize("data", [
    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\n{}", OK + b"more"])
def test_what_ends_its_connection(data: bytes) -> None:
    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(data)
        await writer.drain()
        if not data.endswith(b"more"):
            return
        await reader.read()

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        for count in (1, 2):
            assert await read(transport, request(server.url)) == b"{}" and server.connections == count

    with_server(answer, work)


def test_an_idle_connection_that_the_server_closed() -> None:
    """While the loop stood still, so that it does not know yet: the request goes out on a new one."""
    listener = socket.create_server(("127.0.0.1", 0))
    now, closed = threading.Event(), threading.Event()

    def serve() -> None:
        for last in (False, True):
            with listener.accept()[0] as one:
                one.recv(65536)
                one.sendall(OK)
                if not last:
                    now.wait(10)
            closed.set()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    async def main() -> None:
        transport = _asyncio.Transport(None)
        made = request(f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert await read(transport, made) == b"{}"
        now.set()
        assert closed.wait(10)  # in the loop's own thread
        assert await read(transport, made) == b"{}"
        await transport.aclose()

    asyncio.run(main())
    thread.join(10)
    listener.close()


@pytest.mark.parametrize("data, error", [
    (b"", httpx.RemoteProtocolError), (b"HTTP/1.1 200", httpx.RemoteProtocolError), (OK[:-1], httpx.RemoteProtocolError),
    (CHUNKED[:-8], httpx.RemoteProtocolError), (b"what is this\r\n\r\n", httpx.RemoteProtocolError),
    (b"HTTP/1.1 200 OK\r\nA: " + b"a" * (_asyncio.HEAD_MOST + 1000), httpx.RemoteProtocolError)])
def test_answers_that_are_none(data: bytes, error: type[Exception]) -> None:
    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(data)
        await writer.drain()

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        with pytest.raises(error):
            await read(transport, request(server.url))
        assert not transport._open

    with_server(answer, work)


def test_times() -> None:
    """Each is of what it is named for, and held."""
    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await server.head(reader) and b"Content-Length" not in server.heads[-1]:
            writer.write(OK[:-1])  # the head comes, not all of the body
        await asyncio.Event().wait()

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        for made, kind in ((request(server.url, read=0.2), httpx.ReadTimeout),
                           (request(server.url, "PUT", b"x", read=0.2), httpx.ReadTimeout),
                           (request(server.url, "PUT", b"x" * (64 << 20), write=0.2), httpx.WriteTimeout)):
            begun = time.monotonic()
            with pytest.raises(kind):
                await read(transport, made)
            assert 0.19 < time.monotonic() - begun < 3 and not transport._open

    with_server(answer, work)


def test_who_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
        with pytest.raises(httpx.ConnectError):
            await read(_asyncio.Transport(None), request(f"http://127.0.0.1:{port}"))
        with pytest.raises(httpx.ConnectError):
            await read(_asyncio.Transport(str(tmp_path / "none")), request("http://localhost"))
        with pytest.raises(httpx.ConnectError):
            await read(_asyncio.Transport(None), request("http://sandal.invalid"))

        async def never(*_: Any, **__: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        with pytest.raises(httpx.ConnectTimeout):
            await read(_asyncio.Transport(None), request("http://127.0.0.1", connect=0.1))

    asyncio.run(main())


def test_a_unix_socket(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_unix_server(serve, str(tmp_path / "s"))
        transport = _asyncio.Transport(str(tmp_path / "s"))
        assert await read(transport, request("http://localhost")) == b"{}"
        await transport.aclose()
        server.close()

    asyncio.run(main())


def test_much_in_both_directions() -> None:
    """A body in pieces comes whole; of what comes back no more is held than the limit, until it is read."""
    data = bytes(range(256)) * (16 << 12)

    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while b"Content-Length: %d" % len(data) in await server.head(reader):
            got = await reader.readexactly(len(data))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(got))
            writer.write(got)

    async def pieces() -> AsyncIterator[bytes]:
        for i in range(0, len(data), 1 << 20):
            yield data[i:i + (1 << 20)]

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        headers = {"Host": "x", "Content-Length": str(len(data))}
        for content in (data, pieces()):
            made = httpx.Request("PUT", server.url, headers=headers, content=content, extensions={"timeout": TIMES})
            response = await transport.handle_async_request(made)
            connection, = transport._open
            with anyio.fail_after(10):
                while not connection._held:
                    await asyncio.sleep(0)  # the loop that the test waits for is its own: it has to be given turns
            assert _asyncio.READ_MOST < connection._size < 3 * _asyncio.READ_MOST
            assert isinstance(response.stream, httpx.AsyncByteStream)
            assert b"".join([piece async for piece in response.stream]) == data
        assert server.connections == 1

    with_server(answer, work)


def test_an_answer_before_all_was_sent() -> None:
    """A refusal is read, though the server takes no more."""
    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        while await reader.read(65536):
            pass

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 1000

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        made = httpx.Request("PUT", server.url, headers={"Host": "x", "Content-Length": "3000"}, content=pieces(), extensions={"timeout": TIMES})
        response = await transport.handle_async_request(made)
        assert response.status_code == 413
        await response.aclose()

    with_server(answer, work)


def test_what_cannot_be_sent() -> None:
    """Nothing is left open after it."""
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise KeyError("the caller's")

    async def short() -> AsyncIterator[bytes]:
        yield b"x"

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        headers = {"Host": "x", "Content-Length": "9"}
        for content, error in ((broken(), KeyError), (short(), httpx.LocalProtocolError)):
            made = httpx.Request("PUT", server.url, headers=headers, content=content, extensions={"timeout": TIMES})
            with pytest.raises(error):
                await transport.handle_async_request(made)
        made = request(server.url)
        made.headers["X-Bad"] = "a\r\nb: c"
        with pytest.raises(httpx.LocalProtocolError):
            await transport.handle_async_request(made)
        assert not transport._open

    with_server(always(OK), work)


def test_cancelled_and_closed() -> None:
    """The server sees the end of the connection at once."""
    async def answer(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.head(reader)
        writer.write(OK[:-1] if server.connections > 1 else b"")
        try:
            assert await reader.read() == b""
        except ConnectionResetError:  # with bytes that were not read
            pass
        server.ended.release()

    async def work(server: Server, transport: _asyncio.Transport) -> None:
        waits = asyncio.ensure_future(read(transport, request(server.url)))
        while not server.heads:
            await asyncio.sleep(0)  # turns of the loop, until the request is there
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await server.ended.acquire()
        left = await transport.handle_async_request(request(server.url))
        await left.aclose()  # before its end
        await server.ended.acquire()
        reads = asyncio.ensure_future(read(transport, request(server.url)))
        while len(server.heads) < 3:
            await asyncio.sleep(0)  # likewise
        await transport.aclose()
        with pytest.raises(httpx.ReadError):
            await reads
        await server.ended.acquire()

    with_server(answer, work)


def test_tls(tmp_path: Path) -> None:
    """Of both clients; the certificate is looked at."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    mine = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    mine.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline() != b"\r\n":
            pass
        writer.write(OK)
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "localhost", 0, ssl=mine)
        url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
        async with AsyncSandal("key", url, verify=trusting) as client:
            assert await client.health() == {}
        with Sandal("key", url, verify=trusting) as blocking:
            assert await asyncio.get_running_loop().run_in_executor(None, blocking.health) == {}
        async with AsyncSandal("key", url, max_retries=0) as client:
            with pytest.raises(APIConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await client.health()
        server.close()

    asyncio.run(main())


def test_a_silent_daemon_is_told_in_time() -> None:
    """The time of a request is that of all its attempts."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        async def main() -> None:
            async with AsyncSandal("key", f"http://127.0.0.1:{one.getsockname()[1]}", timeout=0.3) as client:
                begun = time.monotonic()
                with pytest.raises(APITimeoutError, match="within 0.3 s"):
                    await client.health()
                assert 0.29 < time.monotonic() - begun < 3

        asyncio.run(main())


def test_one_client_in_several_loops() -> None:
    """As of a program that calls asyncio.run() more than once."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(3):
            one = listener.accept()[0]
            one.recv(65536)
            one.sendall(OK)
            kept.append(one)

    kept: list[socket.socket] = []
    threading.Thread(target=serve, daemon=True).start()
    client = AsyncSandal("key", f"http://127.0.0.1:{listener.getsockname()[1]}", max_retries=0)
    for _ in range(3):
        assert asyncio.run(client.health()) == {}
    asyncio.run(client.aclose())
    for one in [*kept, listener]:
        one.close()


def test_the_client_uses_it_where_it_can() -> None:
    """Without TLS, and where asyncio runs the loop."""
    async def main(url: str) -> bool:
        client = AsyncSandal("key", url, max_retries=0)
        with pytest.raises(APIConnectionError):
            await client.health()
        return isinstance(client._http._pools[0].transport, _asyncio.Transport)

    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    assert asyncio.run(main(f"http://127.0.0.1:{port}")) and asyncio.run(main("unix:/run/sandal-none.sock"))
    assert not asyncio.run(main(f"https://127.0.0.1:{port}"))
    # The suite has trio; who runs these tests with other packages need not.
    trio: Any = pytest.importorskip("trio", reason="trio is not installed: scripts/setup --test brings it")
    assert not trio.run(main, f"http://127.0.0.1:{port}")
