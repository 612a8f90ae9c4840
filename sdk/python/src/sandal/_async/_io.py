"""What differs between the two clients: this one waits with anyio. `_sync/_io.py` has the same names."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Iterable, Optional

from .._errors import APIConnectionError, APITimeoutError
from .._protocol import CONNECT_TIMEOUT, release

if TYPE_CHECKING:
    import ssl

    import httpx

    from .._config import Address


def make_transport(address: Address, verify: "ssl.SSLContext | bool") -> httpx.AsyncBaseTransport:
    import httpx

    if address.url.startswith("http:") and under_asyncio():
        from .._asyncio import Transport

        return Transport(address.socket)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30)
    return httpx.AsyncHTTPTransport(verify=context_of(address, verify), uds=address.socket, limits=limits)


def under_asyncio() -> bool:
    """Where nobody can say who runs the loop, it is asyncio: httpx does the same."""
    try:
        import sniffio
    except ImportError:
        return True
    return sniffio.current_async_library() == "asyncio"


def context_of(address: Address, verify: "ssl.SSLContext | bool") -> "ssl.SSLContext | bool":
    """Loading the certificates of authorities takes tens of milliseconds, which plain HTTP need not wait for."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.url.startswith("http:") else verify


@lru_cache(maxsize=256)
def url_of(text: str) -> httpx.URL:
    """Of a request. To read an address costs a third of what sending it does, and most runs have the same."""
    import httpx

    return httpx.URL(text)


async def send(transport: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    """The head of the answer. APIConnectionError.sent tells whether the daemon may have got the request."""
    import httpx

    try:
        return await transport.handle_async_request(request)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
        raise lost(error, sent=False) from error
    except httpx.TransportError as error:
        raise lost(error, sent=True) from error


def lost(error: Exception, sent: bool) -> APIConnectionError:
    import httpx

    kind = APITimeoutError if isinstance(error, httpx.TimeoutException) else APIConnectionError
    made = kind(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    made.sent = sent
    return made


async def chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body as it comes."""
    import httpx

    assert isinstance(response.stream, httpx.AsyncByteStream)
    try:
        async for chunk in response.stream:
            yield chunk
    except httpx.TransportError as error:
        raise lost(error, sent=True) from error


def body_stream(make: Callable[[], AsyncIterator[bytes]]) -> httpx.AsyncByteStream:
    import httpx

    class Body(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in make():
                yield chunk

    return Body()


async def each(source: Any) -> AsyncIterator[Any]:
    """Items of an iterable of either kind."""
    if hasattr(source, "__aiter__"):
        async for item in source:
            yield item
    else:
        items: Iterable[Any] = source
        for item in items:
            yield item


async def close(response: httpx.Response) -> None:
    import anyio

    release(response.extensions)
    with anyio.CancelScope(shield=True):
        await response.aclose()


async def close_transport(transport: httpx.AsyncBaseTransport) -> None:
    await transport.aclose()


async def sleep(seconds: float) -> None:
    import anyio

    await anyio.sleep(seconds)


async def call(function: Callable[..., Any], *args: Any) -> Any:
    """A function of the caller's, of either kind."""
    answer = function(*args)
    return await answer if hasattr(answer, "__await__") else answer


def cancellations() -> tuple[type[BaseException], ...]:
    import anyio

    return (KeyboardInterrupt, SystemExit, anyio.get_cancelled_exc_class())


async def shielded(function: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Runs it though the task is cancelled, for so long at most."""
    import anyio

    with anyio.move_on_after(seconds, shield=True):
        await function()


async def within(seconds: Optional[float], function: Callable[[], Awaitable[Any]]) -> Any:
    import anyio

    if seconds is None or math.isinf(seconds):
        return await function()
    try:
        with anyio.fail_after(max(0.0, seconds)):
            return await function()
    except TimeoutError as error:
        raise lost_in_time(seconds) from error


def lost_in_time(seconds: float) -> APITimeoutError:
    return APITimeoutError(f"no answer within {round(seconds, 2):g} s")


def timeouts(read: Optional[float]) -> dict[str, Optional[float]]:
    connect = CONNECT_TIMEOUT if read is None else min(CONNECT_TIMEOUT, read)
    return {"connect": connect, "read": read, "write": read, "pool": read}
