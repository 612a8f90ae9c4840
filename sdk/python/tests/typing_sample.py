"""What type checkers must see; mypy --strict and pyright read this, nothing runs it."""

from __future__ import annotations

import sys
from typing import Awaitable

from sandal import (
    AsyncRunStream,
    AsyncSandal,
    AsyncSandbox,
    CommandResult,
    Execution,
    Process,
    ResultChunk,
    RunStream,
    Sandal,
    Sandbox,
    StdoutChunk,
)

if sys.version_info >= (3, 11):
    from typing import assert_type
else:
    from typing_extensions import assert_type


def blocking(sandal: Sandal) -> None:
    sb = sandal.sandboxes.create(template="code-interpreter-python", metadata={"a": "b"})
    assert_type(sb, Sandbox)
    assert_type(sb.run_code("1"), Execution)
    assert_type(sb.run_code("1", stream=True), RunStream)
    for chunk in sb.run_code("1", stream=True, on_stdout=print):
        if chunk.type == "stdout":
            assert_type(chunk, StdoutChunk)
            assert_type(chunk.text, str)
        elif chunk.type == "result":
            assert_type(chunk, ResultChunk)
    assert_type(sb.exec("ls"), CommandResult)
    assert_type(sb.exec("ls", background=True), Process)
    assert_type(sb.fs.read("f"), bytes)


async def waiting(sandal: AsyncSandal) -> None:
    sb = await sandal.sandboxes.create("base")
    assert_type(sb, AsyncSandbox)
    assert_type(sb.run_code("1"), Awaitable[Execution])
    assert_type(await sb.run_code("1"), Execution)
    assert_type(sb.run_code("1", stream=True), AsyncRunStream)
    assert_type(await sb.fs.read("f"), bytes)
    async for piece in sb.fs.read("f", stream=True):
        assert_type(piece, bytes)
