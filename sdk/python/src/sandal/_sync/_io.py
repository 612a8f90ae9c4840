"""What differs between the two clients: this one blocks. `_async/_io.py` has the same names."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional

from .._errors import APIConnectionError, APITimeoutError
from .._protocol import CONNECT_TIMEOUT, release

if TYPE_CHECKING:
    import ssl

    import httpx

    from .._config import Address


def make_transport(address: Address, verify: "ssl.SSLContext | bool") -> httpx.BaseTransport:
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=30)
    return httpx.HTTPTransport(verify=context_of(address, verify), uds=address.socket, limits=limits)


def context_of(address: Address, verify: "ssl.SSLContext | bool") -> "ssl.SSLContext | bool":
    """Loading the certificates of authorities takes tens of milliseconds, which plain HTTP need not wait for."""
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if address.url.startswith("http:") else verify


@lru_cache(maxsize=256)
def url_of(text: str) -> httpx.URL:
    """Of a request. To read an address costs a third of what sending it does, and most runs have the same."""
    import httpx

    return httpx.URL(text)


def send(transport: httpx.BaseTransport, request: httpx.Request) -> httpx.Response:
    """The head of the answer. APIConnectionError.sent tells whether the daemon may have got the request."""
    import httpx

    try:
        return transport.handle_request(request)
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


def chunks(response: httpx.Response) -> Iterator[bytes]:
    """The body as it comes."""
    import httpx

    assert isinstance(response.stream, httpx.SyncByteStream)
    try:
        yield from response.stream
    except httpx.TransportError as error:
        raise lost(error, sent=True) from error


def body_stream(make: Callable[[], Iterator[bytes]]) -> httpx.SyncByteStream:
    import httpx

    class Body(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from make()

    return Body()


def each(source: Any) -> Iterator[Any]:
    yield from source


def close(response: httpx.Response) -> None:
    release(response.extensions)
    response.close()


def close_transport(transport: httpx.BaseTransport) -> None:
    transport.close()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def cancellations() -> tuple[type[BaseException], ...]:
    return (KeyboardInterrupt, SystemExit)


def shielded(function: Callable[[], None], seconds: float) -> None:
    """Runs it; what it asks for has a time of its own."""
    function()


def within(seconds: Optional[float], function: Callable[[], Any]) -> Any:
    """Reads have that time each; who reads looks at the clock between them."""
    return function()


def lost_in_time(seconds: float) -> APITimeoutError:
    return APITimeoutError(f"no answer within {round(seconds, 2):g} s")


def timeouts(read: Optional[float]) -> dict[str, Optional[float]]:
    connect = CONNECT_TIMEOUT if read is None else min(CONNECT_TIMEOUT, read)
    return {"connect": connect, "read": read, "write": read, "pool": read}
