"""What comes of code and commands: results, Executions, and the chunks of a stream."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable, Optional, Union

from ._errors import ArgumentError, CommandError, ExecutionError
from ._models import JSON, Model

if TYPE_CHECKING:
    import os

    import pandas
    from typing_extensions import Literal

DATAFRAME = "application/vnd.dataframe+json"

_SUFFIXES = {
    "text/plain": ".txt", "text/html": ".html", "text/markdown": ".md", "text/latex": ".tex", "image/png": ".png",
    "image/jpeg": ".jpg", "image/svg+xml": ".svg", "image/gif": ".gif", "image/webp": ".webp", "application/pdf": ".pdf",
    "application/json": ".json", "application/javascript": ".js", "application/vnd.plotly.v1+json": ".plotly.json",
    DATAFRAME: ".dataframe.json",
}
_OTHER_SUFFIXES = {".jpeg": "image/jpeg", ".htm": "text/html"}


def _types_of(name: str) -> Optional[list[str]]:
    """The media types that a file of that name may hold, the likeliest first; None: its suffix is not known."""
    known = [(suffix, kind) for kind, suffix in _SUFFIXES.items()] + list(_OTHER_SUFFIXES.items())
    found = sorted((pair for pair in known if name.lower().endswith(pair[0])), key=lambda pair: -len(pair[0]))
    if not found:
        return None
    return [kind for _, kind in found] + ([kind for kind in _SUFFIXES if kind.endswith("+json")] if found[-1][0] == ".json" else [])


def is_binary(media_type: str) -> bool:
    """Whether the value of that type is base64."""
    return (media_type.startswith(("image/", "audio/", "video/")) and media_type != "image/svg+xml") or media_type in (
        "application/pdf", "application/octet-stream")


class Result(Model):
    """One thing that the interpreter rendered. `type` is the richest of `formats`, `data` its value: base64 of binary types,
    a JSON value of JSON types, else text. `main` is the value of the last expression."""

    type: str
    data: Any
    text: str
    formats: JSON
    metadata: JSON
    main: bool
    display_id: Optional[str]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[JSON, JSON]:
        """Jupyter shows it as the kernel that made it would."""
        return self.mimebundle(include, exclude)

    def mimebundle(self, include: Any = None, exclude: Any = None) -> tuple[JSON, JSON]:
        """(data, metadata) of the formats, those in `include` without those in `exclude`."""
        data = {k: v for k, v in self.formats.items() if (not include or k in include) and (not exclude or k not in exclude)}
        return data, {k: v for k, v in self.metadata.items() if k in data or k not in self.formats}

    def to_bytes(self, media_type: Optional[str] = None) -> bytes:
        """The value of that type (the richest by default), decoded. ArgumentError if it is not among the formats."""
        name = media_type or self.type
        if name not in self.formats:
            raise ArgumentError(f"this result has no {name}, but {', '.join(self.formats)}")
        value = self.formats[name]
        if is_binary(name) and isinstance(value, str):
            return base64.b64decode(value)
        return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()

    def save(self, path: Union[str, os.PathLike[str]] = ".", media_type: Optional[str] = None) -> Path:
        """Writes it to a file and returns where. A directory gets a file named for `type`; the suffix of a file's name
        chooses among the formats that are there (`save("plot.svg")`), ArgumentError if they have none for it. A suffix that
        no format has, and none, get `type`."""
        target = Path(path)
        if target.is_dir():
            kind = media_type or self.type
            suffix = _SUFFIXES.get(kind, ".bin")
            stem, number = "result", 1
            while (found := target / f"{stem}{suffix}").exists():
                number += 1
                stem = f"result-{number}"
            target = found
        else:
            wanted = _types_of(target.name) or [self.type]
            kind = media_type or next((one for one in wanted if one in self.formats), wanted[0])
        target.write_bytes(self.to_bytes(kind))
        return target

    @property
    def dataframe(self) -> Optional[JSON]:
        """The table with its types, if it is one: {columns, index, shape, rows}."""
        found: Optional[JSON] = self.formats.get(DATAFRAME)
        return found

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame, dtypes restored but for what has no form in JSON: of tuples, dicts and other objects, of
        intervals, and of categories of dates or intervals the text is there. The daemon sends the first rows (`dataframe["rows"]` of
        `dataframe["shape"][0]`); `attrs["sandal"]` has both, and as `nan_or_inf` the names of the columns with floats that came as
        null, which NaN and infinities do. ValueError if it is no table."""
        from ._frames import to_pandas

        return to_pandas(self._table())

    def to_arrow(self) -> Any:
        """The same as a pyarrow.Table (needs pandas and pyarrow)."""
        import pyarrow

        arrow: Any = pyarrow
        return arrow.Table.from_pandas(self.to_pandas())

    def _table(self) -> JSON:
        table = self.dataframe
        if table is None:
            raise ValueError(f"a result of type {self.type} is no table")
        return table


class RunError(Model):
    """Why a run did not end well. `started`: the code began to run; `state`: kept or lost, the context's variables."""

    name: str
    message: str
    traceback: list[str]
    started: bool
    state: str


class Usage(Model):
    queued_ms: float
    wall_ms: float
    cpu_ms: Optional[float]
    peak_memory: Optional[int]


class Execution(Model):
    """What a run came to. A run that goes on, or whose outputs are no longer kept, has the members that are known."""

    run: str
    context: str
    status: str
    execution_count: Optional[int] = None
    text: str = ""
    output: str = ""
    results: list[Result]
    stdout: str = ""
    stderr: str = ""
    error: Optional[RunError] = None
    truncated: Optional[JSON] = None
    late: bool = False
    usage: Optional[Usage] = None
    expired: bool = False
    _told: frozenset[str] = frozenset()  # callbacks that have had their part of it already

    def __init__(self, raw: JSON):
        super().__init__(raw)
        self.results = [Result(r) for r in raw.get("results") or ()]
        error, usage = raw.get("error"), raw.get("usage")
        self.error = RunError(error) if error else None
        self.usage = Usage(usage) if usage else None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def main(self) -> Optional[Result]:
        """The value of the last expression."""
        return next((r for r in self.results if r.main), None)

    def raise_(self) -> Execution:
        """Itself, or ExecutionError if the run did not end well."""
        if self.error is not None:
            raise ExecutionError(self)
        return self

    def to_pandas(self) -> pandas.DataFrame:
        """The last table among the results."""
        return self._last_table().to_pandas()

    def _last_table(self) -> Result:
        for result in reversed(self.results):
            if result.dataframe is not None:
                return result
        raise ValueError("no result is a table")

    def to_arrow(self) -> Any:
        """The same as a pyarrow.Table (needs pandas and pyarrow)."""
        return self._last_table().to_arrow()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[JSON, JSON]:
        """For what shows one thing of it: the value of the last expression, or the last result where that is no more than text."""
        shown = self.main
        if self.results and (shown is None or shown.type == "text/plain"):
            shown = next((r for r in reversed(self.results) if r.type != "text/plain"), shown or self.results[-1])
        if shown is None or self.error is not None:
            return {"text/plain": self.output or self.text}, {}
        return shown.mimebundle(include, exclude)

    def told_by(self, callbacks: Iterable[str]) -> None:
        """Those that the run had."""
        self._told = frozenset(callbacks)

    def _ipython_display_(self) -> None:
        """Jupyter shows all of it, but for what callbacks of the run were told."""
        from importlib import import_module

        display: Any = import_module("IPython.display").display
        if "on_stdout" not in self._told:
            sys.stdout.write(self.stdout)
        if "on_stderr" not in self._told:
            sys.stderr.write(self.stderr)
        for result in () if "on_result" in self._told else self.results:
            data, metadata = result.mimebundle()
            display(data, metadata=metadata, raw=True)
        if self.error is not None and "on_error" not in self._told:
            sys.stderr.write("\n".join(self.error.traceback or [f"{self.error.name}: {self.error.message}"]) + "\n")


class CommandResult(Model):
    """What a command came to. Ended by a signal, `exit_code` is None and `signal` its name."""

    run: str
    status: str
    exit_code: Optional[int] = None
    signal: Optional[str] = None
    timed_out: bool = False
    stdout: str = ""
    stderr: str = ""
    truncated: Optional[JSON] = None
    duration_ms: Optional[int] = None
    encoding: Optional[str] = None
    message: Optional[str] = None
    late: bool = False
    usage: Optional[JSON] = None

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def raise_(self) -> CommandResult:
        """Itself, or CommandError if it did not end with 0."""
        if not self.ok:
            raise CommandError(self)
        return self


# --- Chunks ---


class Chunk(Model):
    """One event. `seq` counts from 0 without gaps."""

    run: str
    seq: int


class QueuedChunk(Chunk):
    type: Literal["queued"]
    position: int


class StartedChunk(Chunk):
    type: Literal["started"]
    context: Optional[str] = None
    execution_count: Optional[int] = None
    pid: Optional[int] = None


class StdoutChunk(Chunk):
    type: Literal["stdout"]
    text: str
    late: bool = False
    tail: bool = False


class StderrChunk(Chunk):
    type: Literal["stderr"]
    text: str
    late: bool = False
    tail: bool = False


class DisplayChunk(Chunk):
    type: Literal["display"]
    result: Result

    def __init__(self, raw: JSON):
        super().__init__(raw)
        self.result = Result(raw["result"])


class UpdateChunk(Chunk):
    type: Literal["update"]
    display_id: str
    result: Result

    def __init__(self, raw: JSON):
        super().__init__(raw)
        self.result = Result(raw["result"])


class ClearChunk(Chunk):
    type: Literal["clear"]
    wait: bool


class InputChunk(Chunk):
    """The run waits for an answer."""

    type: Literal["input"]
    prompt: str
    password: bool


class ErrorChunk(Chunk):
    type: Literal["error"]
    error: RunError

    def __init__(self, raw: JSON):
        super().__init__(raw)
        self.error = RunError(raw["error"])


class TruncatedChunk(Chunk):
    type: Literal["truncated"]
    what: str
    reason: Optional[str] = None


class ResultChunk(Execution):
    """The end of a run, with all members of the Execution."""

    type: Literal["result"]
    seq: int


class CommandEnd(CommandResult):
    """The end of a command, with all members of the CommandResult."""

    type: Literal["result"]
    seq: int


RunChunk = Union[QueuedChunk, StartedChunk, StdoutChunk, StderrChunk, DisplayChunk, UpdateChunk, ClearChunk, InputChunk,
                 ErrorChunk, TruncatedChunk, ResultChunk]
CommandChunk = Union[QueuedChunk, StartedChunk, StdoutChunk, StderrChunk, TruncatedChunk, CommandEnd]

_CHUNKS: dict[str, Callable[[JSON], Any]] = {
    "queued": QueuedChunk, "started": StartedChunk, "stdout": StdoutChunk, "stderr": StderrChunk, "display": DisplayChunk,
    "update": UpdateChunk, "clear": ClearChunk, "input": InputChunk, "error": ErrorChunk, "truncated": TruncatedChunk,
    "result": ResultChunk,
}
_COMMAND_CHUNKS: dict[str, Callable[[JSON], Any]] = {**_CHUNKS, "result": CommandEnd}


def run_chunk(raw: JSON) -> RunChunk:
    made: RunChunk = _CHUNKS.get(raw["type"], Chunk)(raw)
    return made


def command_chunk(raw: JSON) -> CommandChunk:
    made: CommandChunk = _COMMAND_CHUNKS.get(raw["type"], Chunk)(raw)
    return made
