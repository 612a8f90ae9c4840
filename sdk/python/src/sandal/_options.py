"""Options that several calls share, as types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Awaitable, Callable, Mapping, Optional, Sequence, TypedDict, Union

from ._models import JSON
from ._results import InputChunk, Result, RunError

if TYPE_CHECKING:
    from typing_extensions import Literal

TextCallback = Callable[[str], Union[None, Awaitable[None]]]
ResultCallback = Callable[[Result], Union[None, Awaitable[None]]]
ErrorCallback = Callable[[RunError], Union[None, Awaitable[None]]]
InputCallback = Callable[[InputChunk], Union[str, Awaitable[str]]]
EventCallback = Callable[[Any], Union[None, Awaitable[None]]]


class SandboxOptions(TypedDict, total=False):
    name: str
    metadata: Mapping[str, str]
    env: Mapping[str, str]
    timeout: float
    on_timeout: Literal["pause", "kill"]
    limits: JSON
    network: Union[str, JSON]
    isolation: str
    checkpointable: bool


class RunOptions(TypedDict, total=False):
    """Options of run_code.

    language: that language's default context, where no `context` is named.
    timeout: seconds of the run, 300 by default, 0 for none; the daemon holds it, and the Execution says `timeout`.
    env, cwd: of this run only. stdin: lines for input(). limits: output_bytes, result_bytes, events, on_exceed.
    on_input: a function from InputChunk to the answer; "wait" (streams wait for `stream.input()`) or "error".
    on_disconnect: "detach" by default, so that a broken connection is made up for; with another one it ends the run.
    on_stdout, on_stderr: take text; on_result a Result (again when it is updated); on_error a RunError; on_event each chunk.
    key: an idempotency key of your own: the same key runs once in a sandbox.
    """

    language: str
    timeout: float
    env: Mapping[str, str]
    cwd: str
    stdin: Union[str, Sequence[str]]
    on_input: Union[InputCallback, Literal["wait", "error"]]
    silent: bool
    on_disconnect: Literal["detach", "interrupt", "kill"]
    ansi: bool
    limits: JSON
    retain: float
    key: str
    on_stdout: TextCallback
    on_stderr: TextCallback
    on_result: ResultCallback
    on_error: ErrorCallback
    on_event: EventCallback


class ExecOptions(TypedDict, total=False):
    """Options of exec. timeout: seconds, none by default; past it all of the command is killed."""

    user: Literal["user", "root"]
    cwd: str
    env: Mapping[str, str]
    timeout: float
    stdin: Union[str, bytes]
    stdin_open: bool
    encoding: Literal["text", "base64"]
    keep_alive: bool
    pty: Union[bool, tuple[int, int]]
    on_disconnect: Literal["detach", "interrupt", "kill"]
    limits: JSON
    retain: float
    key: str
    on_stdout: TextCallback
    on_stderr: TextCallback
    on_event: EventCallback


class ToolOptions(TypedDict, total=False):
    """sandbox or session: where it runs. max_tokens: of the text of the answer. timeout: seconds that code may take.
    images: False for an answer without pictures."""

    sandbox: str
    session: str
    max_tokens: int
    timeout: float
    images: bool


CALLBACKS = ("on_stdout", "on_stderr", "on_result", "on_error", "on_event")


def callbacks_of(options: JSON) -> dict[str, Callable[..., Any]]:
    """The functions among them, taken out."""
    found = {name: options.pop(name) for name in CALLBACKS if options.get(name) is not None}
    if callable(options.get("on_input")):
        found["on_input"] = options["on_input"]
        options["on_input"] = "wait"
    return {k: v for k, v in found.items() if v is not None}


def run_body(code: str, context: Optional[str], stream: bool, options: JSON, waits: bool) -> JSON:
    """Always asked for as a stream, which can go on where it broke; `on_input` is what the caller would get without that."""
    body: JSON = {"code": code, "stream": True, **{k: v for k, v in options.items() if v is not None}}
    if context is not None:
        body["context"] = context
    body.setdefault("on_disconnect", "detach")
    if not stream and not waits:
        body.setdefault("on_input", "error")
    return body


def exec_body(cmd: Union[str, Sequence[str]], options: JSON) -> JSON:
    import base64

    body: JSON = {"cmd": cmd if isinstance(cmd, str) else list(cmd), **{k: v for k, v in options.items() if v is not None}}
    pty = body.pop("pty", None)
    if pty:
        cols, rows = (80, 24) if pty is True else pty
        body["pty"] = {"cols": cols, "rows": rows}
    if isinstance(body.get("stdin"), bytes):
        body["stdin"], body["stdin_encoding"] = base64.b64encode(body["stdin"]).decode(), "base64"
    return body
