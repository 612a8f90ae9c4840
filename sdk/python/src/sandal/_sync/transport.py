# Made from src/sandal/_async/transport.py by scripts/unasync: edit that one.
"""Requests over the wire: headers, deadlines, attempts, errors as types."""

from __future__ import annotations

import json
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Iterator, Optional, cast

from .. import _protocol
from .._config import Address
from .._errors import APIConnectionError, NotFoundError, SandalError, error_of
from .._models import JSON
from .._protocol import POOL, Backoff, Pool, Request
from . import _io

if TYPE_CHECKING:
    import httpx

ERROR_MOST = 1 << 20  # of an error's body; the daemon's are short


class Transport:
    """Connections to one daemon, made at first use, so that they belong to the loop that uses them."""

    def __init__(self, address: Address, headers: dict[str, str], timeout: Optional[float], max_retries: int, verify: Any,
                 transport: Any):
        self.address = address
        self.headers = headers
        self.timeout = timeout
        self.max_retries = max_retries
        self._verify = verify
        self._given = transport
        self._pools: list[Pool] = []
        self._held: dict[int, tuple[httpx.Response, Any]] = {}
        self._left: deque[httpx.Response] = deque()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        pools, self._pools = self._pools, []
        for pool in pools:
            _io.close_transport(cast("httpx.BaseTransport", pool.transport))

    def _pool(self) -> Pool:
        """The first that has room: with few requests at once all connections are in one."""
        if self._closed:
            raise SandalError("the client is closed")
        for pool in self._pools:
            if pool.busy < Pool.MOST or self._given:
                return pool
        self._pools.append(Pool(self._given or _io.make_transport(self.address, self._verify)))
        return self._pools[-1]

    def json(self, request: Request, timeout: Optional[float] = None) -> JSON:
        text = self.fetch(request, timeout)
        return cast(JSON, json.loads(text)) if text else {}

    def items(self, path: str, params: Optional[JSON] = None) -> list[JSON]:
        """Of a list, its pages followed."""
        found: list[JSON] = []
        more: JSON = dict(params or {})
        while True:
            page = self.json(Request("GET", path, params=more))
            found += page["items"]
            if not page.get("next"):
                return found
            more["after"] = page["next"]

    def fetch(self, request: Request, timeout: Optional[float] = None) -> bytes:
        """The whole body of a good answer. The time (seconds, all attempts and waits) is the client's `timeout` by default."""
        seconds = self.timeout if timeout is None else timeout
        until = time.monotonic() + seconds if seconds is not None else float("inf")

        def attempt(left: Optional[float]) -> bytes:
            response = self._once(request, left)
            try:
                parts: list[bytes] = []
                for chunk in _io.chunks(response):
                    parts.append(chunk)
                    if time.monotonic() > until:
                        raise _io.lost_in_time(cast(float, seconds))
                return b"".join(parts)
            finally:
                _io.close(response)

        return cast(bytes, self._repeat(request, until, attempt))

    # A stream that is dropped may be finalised by the garbage collector while this thread has the pool's lock, where closing
    # its connection would wait for itself. So what reads the connection is held here, and closed before the next request.

    def chunks(self, response: httpx.Response) -> Iterator[bytes]:
        """Of its body; ended by `done` or `leave`."""
        pieces = _io.chunks(response)
        self._held[id(response)] = (response, pieces)
        return pieces

    def done(self, response: httpx.Response) -> None:
        _io.close(response)
        self._held.pop(id(response), None)

    def leave(self, response: httpx.Response) -> None:
        """Nobody reads on."""
        self._left.append(response)

    def close_left(self) -> None:
        while True:
            try:
                response = self._left.popleft()
            except IndexError:  # or another thread was quicker
                return
            self.done(response)

    def open(self, request: Request, retry: bool = True) -> httpx.Response:
        """The head of a good answer; the caller reads its chunks and closes it. The daemon may be silent for the request's
        `silence` between them."""

        def attempt(left: Optional[float]) -> httpx.Response:
            return self._once(request, request.silence)

        until = time.monotonic() + (self.timeout if self.timeout is not None else float("inf"))
        return cast("httpx.Response", self._repeat(request, until, attempt, retry))

    def locate(self, error: SandalError) -> None:
        """Which daemon it was that could not be reached."""
        if isinstance(error, APIConnectionError):
            error.at(self.address.text)

    def _repeat(self, request: Request, until: float, attempt: Any, retry: bool = True) -> Any:
        self.close_left()
        backoff = Backoff(self.max_retries if retry else 0, until)
        maybe_done = False
        while True:
            left = None if until == float("inf") else max(0.001, until - time.monotonic())
            try:
                return _io.within(left, lambda: attempt(left))
            except NotFoundError:
                if request.method == "DELETE" and maybe_done:  # by the attempt whose answer was lost
                    return b""
                raise
            except SandalError as error:
                self.locate(error)
                sent = error.sent if isinstance(error, APIConnectionError) else False
                maybe_done = maybe_done or sent
                seconds = backoff.wait(_protocol.asked_wait(error)) if _protocol.may_repeat(request, error, sent) else None
                if seconds is None:
                    raise
            _io.sleep(seconds)  # the backoff before the next try

    def _once(self, request: Request, read_timeout: Optional[float]) -> httpx.Response:
        import httpx

        headers = {**self.headers, **request.headers}
        content: Any = request.content
        extensions = {"timeout": _io.timeouts(read_timeout)}
        url = _io.url_of(self.address.url + request.path)
        if callable(content):
            stream = _io.body_stream(cast(Any, content))
            made = httpx.Request(request.method, url, headers=headers, stream=stream, extensions=extensions)
        else:
            if content is None and request.method in ("POST", "PUT", "PATCH"):
                headers["Content-Length"] = "0"
            made = httpx.Request(request.method, url, headers=headers, content=content, extensions=extensions)
        pool = self._pool()
        pool.busy += 1
        try:
            response = _io.send(cast("httpx.BaseTransport", pool.transport), made)
        except BaseException:
            pool.busy -= 1
            raise
        response.extensions[POOL] = pool  # until it is closed
        if response.status_code < 300 or response.status_code == 304:
            return response
        body = b""
        try:
            for chunk in _io.chunks(response):
                body += chunk
                if len(body) > ERROR_MOST:
                    break
        finally:
            _io.close(response)
        raise error_of(response.status_code, response.headers, body)
