# Made from src/sandal/_async/sandbox.py by scripts/unasync: edit that one.
"""One sandbox and what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Union, cast, overload

from .. import _protocol
from .._errors import NotFoundError, error_of
from .._models import (
    JSON,
    Completions,
    ContextInfo,
    ExposedURL,
    Inspection,
    NetworkLog,
    ProcessInfo,
    SandboxInfo,
    SandboxMetrics,
    SandboxUsage,
    Snapshot,
    Variable,
)
from .._options import ExecOptions, RunOptions, callbacks_of, exec_body, run_body
from .._protocol import Feed, Request, body_of, new_key, path_of
from .._results import CommandResult, Execution
from .fs import Files
from .streams import CommandControl, CommandStream, RunStream
from .tools import Tools
from .transport import Transport

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Literal, Self, Unpack

ContextLike = Union[str, "Context"]


def id_of(context: Optional[ContextLike]) -> Optional[str]:
    return context.id if isinstance(context, Context) else context


class Sandbox:
    """A sandbox. As a context manager it ends with the block."""

    def __init__(self, http: Transport, info: SandboxInfo):
        self._http = http
        self.info = info
        self.id = info.id
        self.contexts = Contexts(self)
        self.fs = Files(http, info.id)
        self.runs = Runs(http, info.id)
        self.processes = Processes(http, info.id)
        self.tools = Tools(http, info.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.info.template}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        try:
            self.kill()
        except NotFoundError:  # it has ended
            pass

    @property
    def name(self) -> Optional[str]:
        return self.info.name

    @property
    def template(self) -> str:
        return self.info.template

    @property
    def state(self) -> str:
        """As of the last answer; `refresh()` asks anew."""
        return self.info.state

    @property
    def metadata(self) -> dict[str, str]:
        return self.info.metadata

    def _path(self, *parts: str) -> str:
        return path_of("sandboxes", self.id, *parts)

    def _post(self, *parts: str, body: Optional[JSON] = None) -> JSON:
        return self._http.json(Request("POST", self._path(*parts), json_body=body or {}))

    # --- Code ---

    @overload
    def run_code(self, code: str, *, context: Optional[ContextLike] = None, stream: Literal[False] = False,
                 **options: Unpack[RunOptions]) -> Execution: ...

    @overload
    def run_code(self, code: str, *, context: Optional[ContextLike] = None, stream: Literal[True],
                 **options: Unpack[RunOptions]) -> RunStream: ...

    @overload
    def run_code(self, code: str, *, context: Optional[ContextLike] = None, stream: bool,
                 **options: Unpack[RunOptions]) -> Union[Execution, RunStream]: ...

    def run_code(self, code: str, *, context: Optional[ContextLike] = None, stream: bool = False,
                 **options: Unpack[RunOptions]) -> Union[Execution, RunStream]:
        """Runs code in a context (the default one, if none is named): its Execution, or with `stream=True` the chunks as they
        come. An error of the code is no exception here: `execution.error` has it, and `raise_()` makes one of it."""
        fields = cast(JSON, dict(options))
        callbacks = callbacks_of(fields)
        body = run_body(code, id_of(context), stream, fields, "on_input" in callbacks)
        made = RunStream(self._http, self.id, self._feed("run_code", body), True, body["on_disconnect"] == "detach", callbacks)
        return made if stream else made.wait()

    def _feed(self, operation: str, body: JSON) -> Feed:
        headers = {"Idempotency-Key": body.pop("key", None) or new_key()}
        first = Request("POST", self._path(operation), json_body=body, headers=headers, silence=_protocol.SILENCE_TIMEOUT)
        return Feed(first, lambda run: self._path("runs", run, "events"))

    # --- Commands ---

    @overload
    def exec(self, cmd: Union[str, Sequence[str]], *, stream: Literal[False] = False, background: Literal[False] = False,
             **options: Unpack[ExecOptions]) -> CommandResult: ...

    @overload
    def exec(self, cmd: Union[str, Sequence[str]], *, stream: Literal[True], background: Literal[False] = False,
             **options: Unpack[ExecOptions]) -> CommandStream: ...

    @overload
    def exec(self, cmd: Union[str, Sequence[str]], *, stream: Literal[False] = False, background: Literal[True],
             **options: Unpack[ExecOptions]) -> Process: ...

    def exec(self, cmd: Union[str, Sequence[str]], *, stream: bool = False, background: bool = False,
             **options: Unpack[ExecOptions]) -> Union[CommandResult, CommandStream, Process]:
        """Runs a command: a string goes to `sh -c`, a list is an argv. Answers its CommandResult; with `stream=True` its
        chunks; with `background=True` a process that goes on by itself. `pty=True` or `pty=(cols, rows)` gives it a terminal."""
        fields = cast(JSON, dict(options))
        callbacks = callbacks_of(fields)
        body = exec_body(cmd, fields)
        if background:
            return self._background(body)
        body["stream"] = True
        body.setdefault("on_disconnect", "detach")
        made = CommandStream(self._http, self.id, self._feed("exec", body), True, body["on_disconnect"] == "detach", callbacks)
        return made if stream else made.wait()

    def _background(self, body: JSON) -> Process:
        return Process(self._http, self.id, ProcessInfo(self._post("exec", body={**body, "background": True})))

    # --- Itself ---

    def refresh(self) -> Self:
        """Reads its record anew."""
        self.info = SandboxInfo(self._http.json(Request("GET", self._path())))
        return self

    def update(self, *, name: Optional[str] = None, metadata: Optional[Mapping[str, str]] = None,
                     timeout: Optional[float] = None, on_timeout: Optional[str] = None,
                     network: Optional[Union[str, JSON]] = None) -> Self:
        """Changes what is given. metadata replaces the whole; name "" takes it away."""
        body = body_of(name=name, metadata=metadata, timeout=timeout, on_timeout=on_timeout, network=network)
        self.info = SandboxInfo(self._http.json(Request("PATCH", self._path(), json_body=body)))
        return self

    def kill(self) -> None:
        """Ends it and all in it."""
        self._http.fetch(Request("DELETE", self._path()))

    def pause(self) -> Self:
        """Freezes it with all its state; the next call that needs it wakes it."""
        self.info = SandboxInfo(self._post("pause"))
        return self

    def resume(self) -> Self:
        self.info = SandboxInfo(self._post("resume"))
        return self

    def fork(self, count: int = 1, wait: Optional[float] = None) -> list[Sandbox]:
        """Live copies, each with every context's state. An error of one is raised when the others are ended again."""
        answer: Any = self._post("fork", body=body_of(count=count, wait=wait))
        items = cast("list[JSON]", answer["items"] if isinstance(answer, dict) else answer)
        made = [Sandbox(self._http, SandboxInfo(item["sandbox"])) for item in items if item.get("sandbox")]
        failed = [item["error"] for item in items if item.get("error")]
        if failed:
            for sandbox in made:
                sandbox.kill()
            raise error_of(int(failed[0].get("status", 500)), {}, _protocol.error_body(failed[0]))
        return made

    def snapshot(self, name: Optional[str] = None, wait: Optional[float] = None) -> Snapshot:
        """Keeps files and memory of every process; `sandboxes.create(snapshot=…)` makes a sandbox of it."""
        return Snapshot(self._post("snapshots", body=body_of(name=name, wait=wait)))

    def restore(self, snapshot: Union[str, Snapshot]) -> Self:
        """Rolls the sandbox itself back."""
        name = snapshot if isinstance(snapshot, str) else snapshot.id
        self.info = SandboxInfo(self._post("restore", body={"snapshot": name}))
        return self

    def expose(self, port: int, token: bool = False) -> ExposedURL:
        """The address at which the port of a server in the sandbox is reached. With `token` only who has the address, which
        carries it, gets in."""
        return ExposedURL.of(self._post("expose", body={"port": port, "token": token}))

    def unexpose(self, port: int) -> None:
        self._http.fetch(Request("DELETE", self._path("expose", str(port))))

    def metrics(self) -> SandboxMetrics:
        return SandboxMetrics(self._http.json(Request("GET", self._path("metrics"))))

    def usage(self) -> SandboxUsage:
        return SandboxUsage(self._http.json(Request("GET", self._path("usage"))))

    def network_log(self, cursor: int = 0) -> NetworkLog:
        """Connections that were refused."""
        return NetworkLog(self._http.json(Request("GET", self._path("network", "log"), params={"cursor": cursor})))


class Context:
    """One live kernel: its variables live as long as it does."""

    def __init__(self, sandbox: Sandbox, info: ContextInfo):
        self._sandbox = sandbox
        self.info = info
        self.id = info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.language}>"

    @property
    def name(self) -> Optional[str]:
        return self.info.name

    @property
    def language(self) -> str:
        return self.info.language

    @property
    def state(self) -> str:
        """As of the last answer; `refresh()` asks anew."""
        return self.info.state

    @overload
    def run_code(self, code: str, *, stream: Literal[False] = False, **options: Unpack[RunOptions]) -> Execution: ...

    @overload
    def run_code(self, code: str, *, stream: Literal[True], **options: Unpack[RunOptions]) -> RunStream: ...

    def run_code(self, code: str, *, stream: bool = False,
                 **options: Unpack[RunOptions]) -> Union[Execution, RunStream]:
        """`sandbox.run_code` in this context."""
        return self._sandbox.run_code(code, context=self, stream=stream, **options)

    def refresh(self) -> Self:
        self.info = (self._sandbox.contexts.get(self.id)).info
        return self

    def rename(self, name: str) -> Self:
        self.info = self._sandbox.contexts.rename(self.id, name)
        return self

    def reset(self) -> Self:
        self.info = (self._sandbox.contexts.reset(self.id)).info
        return self

    def interrupt(self) -> bool:
        return self._sandbox.contexts.interrupt(self.id)

    def remove(self) -> None:
        self._sandbox.contexts.remove(self.id)

    def complete(self, code: str, cursor: Optional[int] = None, wait: float = 0) -> Completions:
        return self._sandbox.contexts.complete(self.id, code, cursor, wait)

    def inspect(self, code: str, cursor: Optional[int] = None, detail: int = 0, wait: float = 0) -> Inspection:
        return self._sandbox.contexts.inspect(self.id, code, cursor, detail, wait)

    def variables(self, wait: float = 0) -> List[Variable]:
        return self._sandbox.contexts.variables(self.id, wait)


class Contexts:
    """Contexts of a sandbox. Where one is named, its id, its name or the object will do."""

    def __init__(self, sandbox: Sandbox):
        self._sandbox = sandbox
        self._http = sandbox._http  # pyright: ignore[reportPrivateUsage]

    def _path(self, context: ContextLike, *more: str) -> str:
        return path_of("sandboxes", self._sandbox.id, "contexts", id_of(context), *more)

    def create(self, language: Optional[str] = None, *, name: Optional[str] = None, cwd: Optional[str] = None,
                     env: Optional[Mapping[str, str]] = None) -> Context:
        """A fresh kernel, of the template's main language if none is named."""
        path = path_of("sandboxes", self._sandbox.id, "contexts")
        body = body_of(language=language, name=name, cwd=cwd, env=env)
        return Context(self._sandbox, ContextInfo(self._http.json(Request("POST", path, json_body=body))))

    def list(self) -> List[Context]:
        found = self._http.items(path_of("sandboxes", self._sandbox.id, "contexts"))
        return [Context(self._sandbox, ContextInfo(item)) for item in found]

    def get(self, context: ContextLike) -> Context:
        return Context(self._sandbox, ContextInfo(self._http.json(Request("GET", self._path(context)))))

    def rename(self, context: ContextLike, name: str) -> ContextInfo:
        return ContextInfo(self._http.json(Request("PATCH", self._path(context), json_body={"name": name})))

    def remove(self, context: ContextLike) -> None:
        self._http.fetch(Request("DELETE", self._path(context)))

    def reset(self, context: ContextLike) -> Context:
        """A fresh kernel under the same id."""
        answer = self._http.json(Request("POST", self._path(context, "reset"), json_body={}))
        return Context(self._sandbox, ContextInfo(answer))

    def interrupt(self, context: ContextLike) -> bool:
        """Stops the running code and keeps state; False if nothing ran."""
        answer = self._http.json(Request("POST", self._path(context, "interrupt"), json_body={}))
        return bool(answer["interrupted"])

    def complete(self, context: ContextLike, code: str, cursor: Optional[int] = None, wait: float = 0) -> Completions:
        """What could stand at the cursor (code points; the end by default)."""
        body = body_of(code=code, cursor=cursor, wait=wait)
        return Completions(self._http.json(Request("POST", self._path(context, "complete"), json_body=body)))

    def inspect(self, context: ContextLike, code: str, cursor: Optional[int] = None, detail: int = 0,
                      wait: float = 0) -> Inspection:
        """The kernel's help on what is at the cursor."""
        body = body_of(code=code, cursor=cursor, detail=detail, wait=wait)
        return Inspection(self._http.json(Request("POST", self._path(context, "inspect"), json_body=body)))

    def variables(self, context: ContextLike, wait: float = 0) -> List[Variable]:
        """Of an idle context; a busy one is waited for `wait` seconds, else ConflictError `busy`."""
        answer = self._http.json(Request("GET", self._path(context, "variables"), params={"wait": wait} if wait else None))
        return [Variable(item) for item in answer["items"]]


class Runs:
    """Runs of code: a run belongs to the daemon, not to who began it."""

    def __init__(self, http: Transport, sandbox: str):
        self._http = http
        self._sandbox = sandbox

    def _path(self, *parts: str) -> str:
        return path_of("sandboxes", self._sandbox, "runs", *parts)

    def list(self, context: Optional[ContextLike] = None) -> List[Execution]:
        """Without their outputs; `get` has those."""
        return [Execution(item) for item in self._http.items(self._path(), body_of(context=id_of(context)))]

    def get(self, run: str) -> Execution:
        return Execution(self._http.json(Request("GET", self._path(run))))

    def attach(self, run: str, *, after: int = -1, late: bool = False) -> RunStream:
        """Its chunks after that seq (all by default), then live ones. With `late` what comes after its end, too, until the
        daemon keeps it no longer. Leaving does not end the run."""
        params: JSON = {"after": after} if after >= 0 else {}
        if late:
            params["late"] = True
        first = Request("GET", self._path(run, "events"), params=params, silence=_protocol.SILENCE_TIMEOUT)
        feed = Feed(first, lambda name: self._path(name, "events"), run, after, late)
        return RunStream(self._http, self._sandbox, feed, False, True)

    def replay(self, run: str) -> RunStream:
        """All its chunks from the first."""
        return self.attach(run)

    def interrupt(self, run: str) -> None:
        self._http.fetch(Request("DELETE", self._path(run)))

    def input(self, run: str, value: str) -> None:
        """Answers input()."""
        self._http.fetch(Request("POST", self._path(run, "input"), json_body={"value": value}))


class Process(CommandControl):
    """A command in the background."""

    def __init__(self, http: Transport, sandbox: str, info: ProcessInfo):
        self._http = http
        self._sandbox = sandbox
        self.info = info
        self.pid = info.pid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pid} {self.info.state}: {self.info.cmd!r}>"

    @property
    def state(self) -> str:
        """As of the last answer; `refresh()` asks anew."""
        return self.info.state

    def _path(self, *more: str) -> str:
        return path_of("sandboxes", self._sandbox, "processes", str(self.pid), *more)

    def refresh(self) -> Self:
        self.info = ProcessInfo(self._http.json(Request("GET", self._path())))
        return self

    def events(self, *, after: int = -1, late: bool = False) -> CommandStream:
        """Its chunks, from the first on by default. Leaving does not end it."""
        params: JSON = {"after": after} if after >= 0 else {}
        if late:
            params["late"] = True
        first = Request("GET", self._path("events"), params=params, silence=_protocol.SILENCE_TIMEOUT)
        feed = Feed(first, lambda run: path_of("sandboxes", self._sandbox, "runs", run, "events"), self.info.run, after, late)
        made = CommandStream(self._http, self._sandbox, feed, False, True)
        made.pid = self.pid
        return made

    def wait(self) -> CommandResult:
        """Its end."""
        return self.events().wait()


class Processes:
    """Commands of a sandbox that run, and background ones that have ended."""

    def __init__(self, http: Transport, sandbox: str):
        self._http = http
        self._sandbox = sandbox

    def list(self) -> List[Process]:
        found = self._http.items(path_of("sandboxes", self._sandbox, "processes"))
        return [Process(self._http, self._sandbox, ProcessInfo(item)) for item in found]

    def get(self, pid: int) -> Process:
        path = path_of("sandboxes", self._sandbox, "processes", str(pid))
        return Process(self._http, self._sandbox, ProcessInfo(self._http.json(Request("GET", path))))
