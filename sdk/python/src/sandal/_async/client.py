"""The client: where the daemon is, and what it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional, Sequence, Union, cast

from .._config import Address, find_key
from .._models import JSON, ContextInfo, Key, SandboxInfo, SandboxUsage, Snapshot, Template
from .._options import SandboxOptions
from .._protocol import MAX_RETRIES, REQUEST_TIMEOUT, Request, base_headers, body_of, path_of
from .._version import __version__
from .sandbox import AsyncSandbox
from .tools import AsyncTools
from .transport import AsyncTransport

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import List

    import httpx
    from typing_extensions import Self, Unpack


class AsyncSandal:
    """A client of one daemon. Close it, or use it as a context manager.

    api_key: else SANDAL_API_KEY, else the key file that a daemon on this machine has left (for a local address only).
    base_url: else SANDAL_URL, else http://127.0.0.1:8717; `unix:/path` for a unix socket.
    timeout: seconds of one request, its attempts and waits together; None for no end. Runs have their own, and so have
    files, whose reads and writes go on as long as bytes move.
    max_retries: of what may be sent again.
    verify: of httpx, for https. transport: one of httpx's of your own, for a proxy, say.
    """

    def __init__(self, api_key: Optional[str] = None, base_url: Optional[str] = None, *, timeout: Optional[float] = REQUEST_TIMEOUT,
                 max_retries: int = MAX_RETRIES, verify: "ssl.SSLContext | bool" = True,
                 transport: Optional[httpx.AsyncBaseTransport] = None):
        address = Address(base_url)
        self.base_url = address.text
        self.api_key = find_key(api_key, address)
        headers = base_headers(address, self.api_key, __version__)
        self._http = AsyncTransport(address, headers, timeout, max_retries, verify, transport)
        self.sandboxes = AsyncSandboxes(self._http)
        self.snapshots = AsyncSnapshots(self._http)
        self.templates = AsyncTemplates(self._http)
        self.keys = AsyncKeys(self._http)
        self.tools = AsyncTools(self._http)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes its connections. Sandboxes live on."""
        await self._http.close()

    async def usage(self) -> List[SandboxUsage]:
        """Of all sandboxes, also of those that have ended, oldest first."""
        return [SandboxUsage(item) for item in await self._http.items(path_of("usage"))]

    async def context(self, context: str) -> ContextInfo:
        """Finds a context by its id, whatever sandbox it is in."""
        return ContextInfo(await self._http.json(Request("GET", path_of("contexts", context))))

    async def health(self) -> JSON:
        """{status, version} of the daemon."""
        return await self._http.json(Request("GET", "/healthz"))


class AsyncSandboxes:
    def __init__(self, http: AsyncTransport):
        self._http = http

    async def create(self, template: Optional[str] = None, *, snapshot: Optional[Union[str, Snapshot]] = None,
                     **options: Unpack[SandboxOptions]) -> AsyncSandbox:
        """A sandbox of a template (the daemon's default, if none is named) or of a snapshot; its default context is ready.

        name: unique, usable as id. metadata: names and values of yours. env: of every process in it. timeout: idle seconds
        until on_timeout (pause or kill), 0 for never. limits: memory_mib, cpus, pids, disk_mib, open_files. network: "none", "egress"
        or rules. isolation: the least that will do. checkpointable: whether it can be snapshotted.
        """
        body = body_of(template=template, snapshot=snapshot.id if isinstance(snapshot, Snapshot) else snapshot,
                       **cast(JSON, dict(options)))
        return AsyncSandbox(self._http, SandboxInfo(await self._http.json(Request("POST", path_of("sandboxes"), json_body=body))))

    async def get(self, sandbox: str) -> AsyncSandbox:
        """By id or name."""
        return AsyncSandbox(self._http, SandboxInfo(await self._http.json(Request("GET", path_of("sandboxes", sandbox)))))

    async def kill(self, sandbox: str) -> None:
        await self._http.fetch(Request("DELETE", path_of("sandboxes", sandbox)))

    async def list(self, *, state: Optional[str] = None, metadata: Optional[Mapping[str, str]] = None) -> List[AsyncSandbox]:
        """Those in this state, with these metadata."""
        params = body_of(state=state, **{f"metadata.{name}": value for name, value in (metadata or {}).items()})
        return [AsyncSandbox(self._http, SandboxInfo(item)) for item in await self._http.items(path_of("sandboxes"), params)]


class AsyncSnapshots:
    def __init__(self, http: AsyncTransport):
        self._http = http

    async def get(self, snapshot: str) -> Snapshot:
        return Snapshot(await self._http.json(Request("GET", path_of("snapshots", snapshot))))

    async def delete(self, snapshot: str) -> None:
        """Sandboxes that were made of it live on."""
        await self._http.fetch(Request("DELETE", path_of("snapshots", snapshot)))

    async def list(self) -> List[Snapshot]:
        return [Snapshot(item) for item in await self._http.items(path_of("snapshots"))]


class AsyncTemplates:
    def __init__(self, http: AsyncTransport):
        self._http = http

    async def get(self, template: str) -> Template:
        return Template(await self._http.json(Request("GET", path_of("templates", template))))

    async def list(self) -> List[Template]:
        return [Template(item) for item in await self._http.items(path_of("templates"))]


class AsyncKeys:
    """API keys; they need the scope `admin`."""

    def __init__(self, http: AsyncTransport):
        self._http = http

    async def create(self, *, owner: Optional[str] = None, name: Optional[str] = None, scopes: Optional[Sequence[str]] = None,
                     expires_in: Optional[float] = None) -> Key:
        """The answer alone has the key itself, as `key`."""
        body = body_of(owner=owner, name=name, scopes=list(scopes) if scopes is not None else None, expires_in=expires_in)
        made: Any = await self._http.json(Request("POST", path_of("keys"), json_body=body))
        return Key(made)

    async def delete(self, key: str) -> None:
        await self._http.fetch(Request("DELETE", path_of("keys", key)))

    async def list(self) -> List[Key]:
        return [Key(item) for item in await self._http.items(path_of("keys"))]
