"""Sandal: run code in sandboxes, get typed results, streamed.

    from sandal import Sandal

    with Sandal() as sandal, sandal.sandboxes.create("code-interpreter-python") as sb:
        print(sb.run_code("1 + 1").text)

`AsyncSandal` is the same with `await`.
"""

from ._async.client import AsyncSandal
from ._async.fs import AsyncByteStream, AsyncWatch
from ._async.sandbox import AsyncContext, AsyncProcess, AsyncSandbox
from ._async.streams import AsyncCommandStream, AsyncRunStream
from ._errors import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    ArgumentError,
    AuthenticationError,
    CommandError,
    ConfigError,
    ConflictError,
    ExecutionError,
    ExpiredError,
    InvalidRequestError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    RateLimitError,
    SandalError,
    ServerError,
    TooLargeError,
    UnavailableError,
)
from ._models import (
    Completions,
    ContextInfo,
    Entry,
    ExposedURL,
    FileEvent,
    Inspection,
    Key,
    NetworkLog,
    ProcessInfo,
    SandboxInfo,
    SandboxMetrics,
    SandboxUsage,
    Snapshot,
    Template,
    ToolResult,
    Variable,
)
from ._results import (
    ClearChunk,
    CommandChunk,
    CommandEnd,
    CommandResult,
    DisplayChunk,
    ErrorChunk,
    Execution,
    InputChunk,
    QueuedChunk,
    Result,
    ResultChunk,
    RunChunk,
    RunError,
    StartedChunk,
    StderrChunk,
    StdoutChunk,
    TruncatedChunk,
    UpdateChunk,
    Usage,
)
from ._sync.client import Sandal
from ._sync.fs import ByteStream, Watch
from ._sync.sandbox import Context, Process, Sandbox
from ._sync.streams import CommandStream, RunStream
from ._version import __version__

__all__ = [
    "APIConnectionError", "APIError", "APITimeoutError", "ArgumentError", "AsyncByteStream", "AsyncCommandStream", "AsyncContext", "AsyncProcess",
    "AsyncRunStream", "AsyncSandal", "AsyncSandbox", "AsyncWatch", "AuthenticationError", "ByteStream", "ClearChunk",
    "CommandChunk", "CommandEnd", "CommandError", "CommandResult", "CommandStream", "Completions", "ConfigError", "ConflictError",
    "Context", "ContextInfo", "DisplayChunk", "Entry", "ErrorChunk", "Execution", "ExecutionError", "ExpiredError", "ExposedURL",
    "FileEvent", "InputChunk", "Inspection", "InvalidRequestError", "Key", "NetworkLog", "NotFoundError", "NotSupportedError",
    "PermissionDeniedError", "Process", "ProcessInfo", "QueuedChunk", "RateLimitError", "Result", "ResultChunk", "RunChunk",
    "RunError", "RunStream", "Sandal", "SandalError", "Sandbox", "SandboxInfo", "SandboxMetrics", "SandboxUsage", "ServerError",
    "Snapshot", "StartedChunk", "StderrChunk", "StdoutChunk", "Template", "TooLargeError", "ToolResult", "TruncatedChunk", "UnavailableError",
    "UpdateChunk", "Usage", "Variable", "Watch", "__version__",
]
