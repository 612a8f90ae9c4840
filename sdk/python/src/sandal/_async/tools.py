"""The middle of an agent's loop: definitions for the model, and its calls to answers. The daemon knows the vendors' shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Union, cast

from .. import _protocol
from .._errors import SandalError
from .._models import JSON, ToolResult
from .._options import ToolOptions
from .._protocol import Request, path_of
from .transport import AsyncTransport

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack

    Format = Literal["anthropic", "openai", "openai-chat", "gemini", "mcp"]


class AsyncTools:
    """`sandbox.tools` runs what the model wants in that sandbox; `client.tools` needs `session` (a name of yours: a sandbox is
    made for it at first use) or `sandbox`."""

    def __init__(self, http: AsyncTransport, sandbox: Optional[str] = None):
        self._http = http
        self._sandbox = sandbox

    async def definitions(self, format: Format = "anthropic") -> List[JSON]:
        """What the vendor's `tools` field takes."""
        answer: Any = await self._http.json(Request("GET", path_of("tools"), params={"format": format}))
        return cast("List[JSON]", answer)

    async def run_tool_call(self, block: Any, *, format: Optional[Format] = None, **options: Unpack[ToolOptions]) -> JSON:
        """Takes the model's tool call as it came, an object of the vendor's SDK or a dict, and answers the block to send
        back. What is wrong with the code is no exception: the block tells the model of it."""
        call = _protocol.plain(block)
        return await self._run(call, format or _protocol.format_of(call), options)

    async def call(self, name: str, args: Union[str, Mapping[str, Any]], **options: Unpack[ToolOptions]) -> ToolResult:
        """For any other framework: the tool's name and its arguments, an object or its JSON text as the model wrote it, to what
        the model is to read."""
        block: JSON = {"name": name, "arguments": args if isinstance(args, str) else dict(args)}
        return ToolResult(await self._run(block, "mcp", options))

    async def _run(self, call: JSON, format: str, options: ToolOptions) -> JSON:
        params: JSON = {"format": format, **options}
        if not params.get("sandbox") and not params.get("session"):
            if self._sandbox is None:
                raise SandalError("where to run it? name a sandbox or a session, or use sandbox.tools")
            params["sandbox"] = self._sandbox
        return await self._http.json(Request("POST", path_of("tools", "run_code"), params=params, json_body=call), float("inf"))
