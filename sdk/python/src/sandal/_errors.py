"""What goes wrong, as types. All of them are a SandalError."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping, Optional

if TYPE_CHECKING:
    from ._results import CommandResult, Execution


class SandalError(Exception):
    """The root of all errors of this package."""


class ConfigError(SandalError):
    """The client cannot be made of what it was given: a bad address, say."""


class ArgumentError(SandalError, ValueError):
    """An argument that no daemon could do anything with; nothing was sent."""


class APIConnectionError(SandalError):
    """The daemon cannot be reached, or the connection broke and could not be made again in time; its message begins with
    the address. `sent`: the daemon may have got the request."""

    sent: bool = True

    def at(self, address: str) -> None:
        """Names the address that was asked, once."""
        words = str(self)
        if words.startswith(address):
            return
        if address.startswith("https:") and "SSL" in words and "CERTIFICATE" not in words:
            words += "; if it speaks plain HTTP there, its address begins with http://"
        self.args = (f"{address}{': ' if self.sent else ' does not answer: '}{words}",)


class APITimeoutError(APIConnectionError):
    """No answer within the time of the request. What was asked for may have been done."""


class APIError(SandalError):
    """The daemon's refusal.

    code: stable (docs/errors.md); status: of HTTP; hint: what to do; pointer: JSON pointer of the field at fault;
    retry_after: seconds, where the daemon named them.
    """

    def __init__(self, status: int, code: str, message: str, hint: Optional[str] = None, pointer: Optional[str] = None,
                 retry_after: Optional[float] = None):
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.pointer = pointer
        self.retry_after = retry_after
        super().__init__(f"{message} [{code}]" + (f" {hint}" if hint else ""))

    def __reduce__(self) -> Any:  # exceptions are pickled between processes
        return type(self), (self.status, self.code, self.message, self.hint, self.pointer, self.retry_after)


class InvalidRequestError(APIError):
    """400 and other 4xx without a type of their own: what was asked for is not well formed."""


class AuthenticationError(APIError):
    """401: no key, or a wrong one."""


class PermissionDeniedError(APIError):
    """403: a good key without the right."""


class NotFoundError(APIError):
    """404: no such sandbox, context, run, file…"""


class ConflictError(APIError):
    """409 and 412: not now, or not in this state."""


class ExpiredError(APIError):
    """410: it was there, and is no longer kept."""


class TooLargeError(APIError):
    """413: over a limit of size."""


class RateLimitError(APIError):
    """429: over quota, or a queue is full."""


class ServerError(APIError):
    """5xx: it was the daemon's fault, or its host's."""


class NotSupportedError(ServerError):
    """501: this build or this host lacks it; the message says what is missing."""


class UnavailableError(ServerError):
    """503: starting, draining or out of memory."""


class ExecutionError(SandalError):
    """The code did not end well; raised by Execution.raise_() alone. `execution` has everything."""

    def __init__(self, execution: Execution):
        self.execution = execution
        self.error = execution.error
        self.name = self.error.name if self.error else execution.status
        self.traceback = list(self.error.traceback) if self.error else []
        super().__init__(f"{self.name}: {self.error.message}" if self.error else self.name)

    def __reduce__(self) -> Any:
        return type(self), (self.execution,)


class CommandError(SandalError):
    """A command did not end with 0; raised by CommandResult.raise_() alone."""

    def __init__(self, result: CommandResult):
        self.result = result
        end = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        tail = result.stderr.strip()[-500:]
        super().__init__(f"{end}" + (": " + tail if tail else ""))

    def __reduce__(self) -> Any:
        return type(self), (self.result,)


_BY_STATUS: dict[int, type[APIError]] = {
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    412: ConflictError,
    413: TooLargeError,
    429: RateLimitError,
    501: NotSupportedError,
    503: UnavailableError,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> APIError:
    """The typed error of an answer that is none of success."""
    code, message, hint, pointer = f"http_{status}", "", None, None
    try:
        error: Any = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
        hint, pointer = error.get("hint"), error.get("pointer")
    except (ValueError, KeyError, TypeError, AttributeError):  # something between here and the daemon answered
        message = body[:500].decode("utf-8", "replace").strip() or f"HTTP status {status}"
    retry_after: Optional[float] = None
    try:
        retry_after = max(0.0, float(headers["retry-after"]))
    except (KeyError, ValueError):
        pass
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else InvalidRequestError)
    return kind(status, code, message, hint, pointer, retry_after)
