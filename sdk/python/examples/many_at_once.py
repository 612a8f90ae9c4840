"""Runs in parallel, each in a context of its own, from one asynchronous program."""

import asyncio

from sandal import AsyncSandal, AsyncSandbox


async def square(sb: AsyncSandbox, number: int) -> str:
    context = await sb.contexts.create("python")
    try:
        return (await context.run_code(f"{number} ** 2")).raise_().text
    finally:
        await context.remove()


async def main() -> None:
    async with AsyncSandal() as sandal, await sandal.sandboxes.create("code-interpreter-python") as sb:
        print(await asyncio.gather(*(square(sb, number) for number in range(4))))


asyncio.run(main())
