"""Records of the API. Each keeps what the daemon said in `raw`; members that a newer daemon adds are attributes too."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, ClassVar, Optional

JSON = dict[str, Any]


def time_of(text: str) -> datetime:
    """A time of RFC 3339, with its zone."""
    if text.endswith(("Z", "z")):  # Python 3.9 does not read it
        text = text[:-1] + "+00:00"
    head, dot, rest = text.partition(".")
    if dot:  # Python 3.9 wants three or six digits
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        text = f"{head}.{digits[:6]:0<6}{rest[len(digits):]}"
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


class Model:
    """Made of a JSON object; compares by it."""

    raw: JSON
    _times: ClassVar[tuple[str, ...]] = ()

    def __init__(self, raw: JSON):
        members = self.__dict__
        members.update(raw)
        members["raw"] = raw
        for name in self._times:
            text = raw.get(name)
            members[name] = time_of(text) if text else None

    def to_dict(self) -> JSON:
        """As the API has it, fit for json.dumps."""
        return self.raw

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Model) and self.raw == other.raw

    __hash__ = None  # type: ignore[assignment]  # it can be changed  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        text = ", ".join(f"{k}={v!r}" for k, v in self.raw.items() if v is not None)
        return f"{type(self).__name__}({text if len(text) < 400 else text[:400] + '…'})"


class ContextInfo(Model):
    """One live kernel."""

    _times = ("created_at",)
    id: str
    sandbox: str
    name: Optional[str]
    language: str
    kernel: str
    state: str
    execution_count: int
    cwd: Optional[str]
    queue: int
    incarnation: int
    last_exit: Optional[JSON]
    created_at: datetime
    default: bool


class SandboxInfo(Model):
    """The record of a sandbox."""

    _times = ("created_at", "last_active_at", "expires_at")
    id: str
    name: Optional[str]
    template: str
    state: str
    created_at: datetime
    last_active_at: datetime
    expires_at: Optional[datetime]
    timeout: int
    on_timeout: str
    metadata: dict[str, str]
    network: JSON
    limits: JSON
    isolation: JSON
    checkpointable: bool
    start: str
    default_context: Optional[str]
    node: str
    memory_stays: Optional[str] = None


class Snapshot(Model):
    """A frozen sandbox."""

    _times = ("created_at",)
    id: str
    created_at: datetime


class Template(Model):
    name: str
    description: str
    main_language: str
    languages: list[JSON]
    available: bool
    reason: Optional[str]
    limits: JSON
    start: str


class Completions(Model):
    """matches fit the code from start to end, counted in code points."""

    matches: list[str]
    start: int
    end: int


class Inspection(Model):
    """What the kernel knows of a name, by media type."""

    found: bool
    formats: JSON

    @property
    def text(self) -> str:
        return str(self.formats.get("text/plain", ""))


class Variable(Model):
    name: str
    type: str
    shape: Any
    length: Optional[int]
    bytes: Optional[int]
    preview: Optional[str]


class Entry(Model):
    """A file, directory or link. `mode` is octal text. What is no UTF-8 in a name is U+FFFD in it; `name_base64` and
    `path_base64` have the bytes then, and calls of `fs` take the Entry itself."""

    _times = ("modified_at",)
    name: str
    path: str
    type: str
    size: int
    mode: str
    uid: int
    gid: int
    modified_at: Optional[datetime]
    target: Optional[str]
    name_base64: Optional[str] = None
    path_base64: Optional[str] = None
    target_base64: Optional[str] = None

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"


class FileEvent(Model):
    """type: created, modified, deleted, moved (then `from_path` is the old place), or overflow: list anew, for some
    changes were not seen."""

    type: str
    path: Optional[str] = None
    from_path: Optional[str] = None
    path_base64: Optional[str] = None
    from_base64: Optional[str] = None

    def __init__(self, raw: JSON):
        super().__init__(raw)
        self.from_path = raw.get("from")


class SandboxMetrics(Model):
    """What it uses now; None is what the host does not count."""

    _times = ("at",)
    sandbox: str
    at: datetime
    cpu_seconds: Optional[float]
    memory_bytes: Optional[int]
    memory_peak_bytes: Optional[int]
    disk_bytes: Optional[int]
    pids: Optional[int]
    oom_kills: Optional[int]
    limits: JSON


class SandboxUsage(Model):
    _times = ("created_at", "ended_at")
    sandbox: str
    template: str
    created_at: datetime
    ended_at: Optional[datetime]
    active_seconds: float
    paused_seconds: float


class NetworkLog(Model):
    """Refused connections; `cursor` asks for what comes after."""

    items: list[JSON]
    cursor: int
    lost: int


class Key(Model):
    """An API key; `key` itself is there in what create answers only."""

    _times = ("created_at", "last_used_at", "expires_at")
    id: str
    owner: str
    name: str
    scopes: list[str]
    created_at: datetime
    last_used_at: Optional[datetime]
    expires_at: Optional[datetime]
    key: Optional[str] = None


class ProcessInfo(Model):
    _times = ("started_at", "ended_at")
    pid: int
    cmd: Any
    cwd: str
    user: str
    state: str
    status: str
    background: bool
    pty: bool
    run: str
    started_at: datetime
    ended_at: Optional[datetime]
    exit_code: Optional[int]
    signal: Optional[str]
    timed_out: bool


class ToolResult(Model):
    """What a tool call came to, for a model to read: text and images, as MCP has them."""

    content: list[JSON]

    @property
    def text(self) -> str:
        return "\n".join(str(part["text"]) for part in self.content if part.get("type") == "text")

    @property
    def is_error(self) -> bool:
        return bool(self.raw.get("isError"))


class ExposedURL(str):
    """The address of an exposed port: text, with what else is known of it."""

    port: int
    token: Optional[str]
    path_url: str
    host_url: str

    @classmethod
    def of(cls, raw: JSON) -> ExposedURL:
        token = raw.get("token")
        made = cls(raw["url"] + (f"?sandal_token={token}" if token else ""))
        made.port, made.token = raw["port"], token
        made.path_url, made.host_url = raw["path_url"], raw["host_url"]
        return made
