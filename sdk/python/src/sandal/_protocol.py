"""What both clients know of the protocol, without any I/O: what is sent, what may be sent again and when, how the lines of a
stream are put together, and from where a broken one goes on."""

from __future__ import annotations

import json
import math
import os
import time
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Union, cast
from urllib.parse import quote, urlencode

from ._errors import APIConnectionError, APIError, ArgumentError, ConfigError, RateLimitError, UnavailableError
from ._models import JSON, Entry

if TYPE_CHECKING:
    from ._config import Address

Params = Mapping[str, Any]

# Seconds. The daemon says something at least every 15 s of a stream's silence.
CONNECT_TIMEOUT = 5.0
REQUEST_TIMEOUT = 120.0
SILENCE_TIMEOUT = 40.0
RECONNECT_TIME = 30.0
INTERRUPT_TIME = 5.0
BACKOFF_FIRST = 0.05
BACKOFF_MOST = 2.0
MAX_RETRIES = 3
# A line of a stream is one event; a result has up to 32 MiB by default, and 256 MiB where asked for.
LINE_MOST = 1 << 30

# May be done twice: reading, and what sets or removes something. POST is, with an idempotency key.
_IDEMPOTENT = ("GET", "HEAD", "PUT", "PATCH", "DELETE")


def new_key() -> str:
    """An idempotency key: who asks again with it is answered, and nothing is done twice."""
    return "py-" + os.urandom(12).hex()


def path_of(*parts: Optional[str]) -> str:
    for part in parts:
        if part is None or part == "":
            raise ArgumentError(f"an id or a name is text that is not empty, not {part!r}")
    return "/v1/" + "/".join(quote(str(part), safe="~") for part in parts)


def query_of(params: Params) -> str:
    def text(value: Any) -> str:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)

    pairs = [(k, text(v)) for k, v in params.items() if v is not None]
    return "?" + urlencode(pairs, quote_via=quote) if pairs else ""


def json_text(body: JSON) -> bytes:
    """No daemon reads NaN and infinities, which JSON has not."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "surrogatepass")
    except ValueError as error:
        numbers = [name for name, value in body.items() if isinstance(value, float) and not math.isfinite(value)]
        raise ArgumentError(f"{numbers[0] if numbers else 'the body'}: {error}") from error


def body_of(**members: Any) -> JSON:
    """Without what was not given."""
    return {k: v for k, v in members.items() if v is not None}


class Request:
    """One request, which may be sent again. content: bytes, or a function that gives them anew."""

    __slots__ = ("method", "path", "headers", "content", "repeatable", "silence")

    def __init__(self, method: str, path: str, *, params: Optional[Params] = None, json_body: Optional[JSON] = None,
                 headers: Optional[Mapping[str, str]] = None, content: Any = None, repeatable: Optional[bool] = None,
                 silence: Optional[float] = None):
        self.method = method
        self.path = path + query_of(params) if params else path
        self.headers = dict(headers) if headers else {}
        self.content = content
        self.silence = silence
        if json_body is not None:
            self.content = json_text(json_body)
            self.headers["Content-Type"] = "application/json"
        if method == "POST" and repeatable is None:
            self.headers.setdefault("Idempotency-Key", new_key())
            repeatable = True
        self.repeatable = method in _IDEMPOTENT if repeatable is None else repeatable


POOL = "sandal.pool"  # in the extensions of an open response


class Pool:
    """A transport and how many requests are under way in it. What a transport of httpx does for each request grows with their
    number: with a thousand at once several are quicker."""

    __slots__ = ("transport", "busy")
    MOST = 64

    def __init__(self, transport: Any):
        self.transport = transport
        self.busy = 0


def release(extensions: dict[str, Any]) -> None:
    """The response is closed; once."""
    pool: Optional[Pool] = extensions.pop(POOL, None)
    if pool is not None:
        pool.busy -= 1


class Backoff:
    """How long to wait before the next attempt. Waits double from BACKOFF_FIRST, with jitter; what the daemon asks for
    (Retry-After) counts where it is longer."""

    def __init__(self, attempts: Optional[int], until: float):
        self.attempts, self.until = attempts, until
        self.made = 0

    def wait(self, asked: Optional[float] = None) -> Optional[float]:
        """Seconds, or None: no more."""
        if self.attempts is not None and self.made >= self.attempts:
            return None
        jitter = 0.5 + os.urandom(1)[0] / 512
        seconds: float = min(BACKOFF_MOST, BACKOFF_FIRST * 2.0 ** min(self.made, 10)) * jitter
        seconds = max(seconds, asked or 0.0)
        if time.monotonic() + seconds >= self.until:
            return None
        self.made += 1
        return seconds


def may_repeat(request: Request, error: Exception, sent: bool) -> bool:
    """Whether the request may go out again after this. What was refused by 429 and 503, or never left, has done nothing."""
    if isinstance(error, APIError):
        return isinstance(error, (RateLimitError, UnavailableError)) and error.code != "quota_exceeded"
    return isinstance(error, APIConnectionError) and (request.repeatable or not sent)


def asked_wait(error: Exception) -> Optional[float]:
    return error.retry_after if isinstance(error, APIError) else None


class Lines:
    """Bytes as they come, to whole lines. Empty ones are the daemon's sign of life."""

    def __init__(self, most: int = LINE_MOST) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._most = most

    def feed(self, data: bytes) -> Iterator[bytes]:
        first, *rest = data.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        if self._size > self._most:
            raise APIConnectionError(f"a line of the stream is longer than {self._most} bytes")
        for part in rest:
            line = b"".join(self._parts)
            self._parts, self._size = [part], len(part)
            if line:
                yield line


class Feed:
    """Where a stream of events is: what it was asked with, the run and the last seq, and the request that goes on from there."""

    def __init__(self, first: Request, events: Callable[[str], str], run: Optional[str] = None, after: int = -1,
                 late: bool = False):
        self.first = first
        self.run = run
        self.seq = after
        self.late = late
        self.done = False
        self.last: Optional[JSON] = None  # the result, once it came
        self._events = events
        self._begun = False

    def request(self) -> Request:
        """The first one until the run has a name; it has an idempotency key, so that nothing runs twice."""
        if self.run is None or not self._begun:
            return self.first
        params: JSON = {"after": self.seq}
        if self.late:
            params["late"] = True
        return Request("GET", self._events(self.run), params=params, silence=SILENCE_TIMEOUT)

    def accept(self, line: bytes) -> Optional[JSON]:
        """The event of a line; None for one that was there before."""
        try:
            event: Any = json.loads(line)
            seq, run, kind = int(event["seq"]), str(event["run"]), str(event["type"])
        except (ValueError, KeyError, TypeError) as error:
            raise APIConnectionError(f"the stream has a line that is no event: {line[:200]!r}") from error
        self.run, self._begun = run, True
        if seq <= self.seq:
            return None
        self.seq = seq
        if kind == "result" and not self.late:
            self.done, self.last = True, event
        return cast(JSON, event)


def base_headers(address: Address, key: Optional[str], version: str) -> dict[str, str]:
    given: Any = key
    if given is not None and not (isinstance(given, str) and given.isascii() and given.isprintable()):
        raise ConfigError("the API key has characters that no key has")
    headers = {"User-Agent": f"sandal-python/{version}", "Accept-Encoding": "identity",
               "Host": address.url.split("://", 1)[1].split("/", 1)[0]}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers


def content_of(data: Any) -> Any:
    """What is written: bytes for text, else itself, if it can be sent at all."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, memoryview):
        view = cast("memoryview[int]", data)
        return view.cast("B") if view.c_contiguous else view.tobytes()  # counted in bytes, whatever its items are
    if not any(hasattr(data, name) for name in ("read", "__iter__", "__aiter__")):
        raise TypeError(f"{type(data).__name__} cannot be written: text, bytes, a binary file or an iterable of bytes is wanted")
    return data


def bytes_only(piece: Any) -> bytes:
    """Of what is written; bytes() alone would make zeros of a number."""
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise TypeError(f"a piece of what is written is {type(piece).__name__}: bytes are wanted")
    return bytes(cast(bytes, piece))


def size_of(content: Any) -> Optional[int]:
    """Of bytes, or of a file that can be sought in."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        return len(cast(bytes, content))
    try:
        here = content.tell()
        end = content.seek(0, os.SEEK_END)
        content.seek(here)
        return int(end - here)
    except (AttributeError, OSError, ValueError):
        return None


PathLike = Union[str, "os.PathLike[str]"]
AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]", Entry]


def bytes_of(path: AnyPath) -> bytes:
    """Of a path in a sandbox. Text may be what os.fsdecode() made of a name that is no UTF-8."""
    if isinstance(path, Entry):
        return b64decode(path.path_base64) if path.path_base64 else path.path.encode()
    text = os.fspath(path)
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ArgumentError(f"path: {text!r} has half of a surrogate pair, which no name of a file has") from error


def place_of(path: AnyPath, name: str = "path") -> JSON:
    """The field of a path; what is no UTF-8 goes in base64."""
    data = bytes_of(path)
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}


def error_body(error: JSON) -> bytes:
    """As error_of reads it."""
    return json.dumps({"error": error}).encode()


def object_of(line: bytes) -> JSON:
    """The JSON object of a line."""
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise APIConnectionError(f"the stream has a line that is no JSON: {line[:200]!r}") from error
    return cast(JSON, found)


def plain(block: Any) -> JSON:
    """A tool call as a JSON object: vendors' SDKs give objects of pydantic or of their own."""
    if isinstance(block, Mapping):
        return dict(cast("Mapping[str, Any]", block))
    for name, arguments in (("model_dump", {"mode": "json", "exclude_none": True}), ("to_dict", {}), ("dict", {})):
        method = getattr(block, name, None)
        if callable(method):
            return cast(JSON, method(**arguments))
    raise TypeError(f"a tool call is a dict or an object of a vendor's SDK, not {type(block).__name__}")


def format_of(call: JSON) -> str:
    """Whose shape it is."""
    kind = call.get("type")
    if kind == "tool_use":
        return "anthropic"
    if kind == "function_call":
        return "openai"
    if isinstance(call.get("function"), Mapping):
        return "openai-chat"
    if "functionCall" in call or "function_call" in call or ("args" in call and "name" in call):
        return "gemini"
    if "arguments" in call and "name" in call:
        return "mcp"
    raise ValueError("no known shape of a tool call; name its format")
