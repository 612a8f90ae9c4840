"""Connections that break under live runs, many runs at once, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator, Optional
from urllib.parse import urlsplit

import pytest
from conftest import SDK, own_daemon
from harness.daemon import Daemon, wait_for

from sandal import APIConnectionError, AsyncSandal, Sandal, SandalError, Sandbox


class Proxy:
    """Passes connections on to a daemon. The first answer on a connection that asks for `path` is cut after `cut` bytes; each
    connection is, once `up` bytes of requests or `down` bytes of answers went over it."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        self.target = (str(parts.hostname), int(parts.port or 80))
        self.path = b""
        self.cut: Optional[int] = None
        self.passed = 0  # bytes of the answer that was, or would have been, cut
        self.cuts = 0
        self.up: Optional[int] = None
        self.down: Optional[int] = None
        self.broken = 0  # connections that those two have cut
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, path: str, cut: Optional[int]) -> None:
        self.path, self.cut, self.passed = path.encode(), cut, 0

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(here,), daemon=True).start()

    def _serve(self, here: socket.socket) -> None:
        with here, socket.create_connection(self.target) as there:
            for one in (here, there):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            marked = threading.Event()
            threading.Thread(target=self._forward, args=(here, there, marked), daemon=True).start()
            answered = 0
            try:
                while data := there.recv(65536):
                    answered += len(data)
                    if self.down is not None and answered > self.down:
                        self.broken += 1
                        break
                    if marked.is_set():
                        left = None if self.cut is None else self.cut - self.passed
                        self.passed += len(data)
                        if left is not None and len(data) >= left:
                            here.sendall(data[:left])
                            self.cut, self.cuts = None, self.cuts + 1
                            break
                    here.sendall(data)
            except OSError:
                pass
            for one in (here, there):
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _forward(self, here: socket.socket, there: socket.socket, marked: threading.Event) -> None:
        asked = 0
        try:
            while data := here.recv(65536):
                asked += len(data)
                if self.up is not None and asked > self.up:
                    self.broken += 1
                    there.shutdown(socket.SHUT_RDWR)
                    here.shutdown(socket.SHUT_RDWR)
                    return
                if self.path and self.path in data.split(b"\r\n", 1)[0]:
                    self.path = b""
                    marked.set()
                there.sendall(data)
            there.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self.server.close()


@pytest.fixture
def proxy(daemon: Daemon) -> Iterator[Proxy]:
    made = Proxy(daemon.url)
    yield made
    made.close()


CODE = "import sys\nprint('é1')\nprint('err', file=sys.stderr)\ndisplay('end')"


def test_a_stream_that_is_cut_at_every_byte(proxy: Proxy, daemon: Daemon, python_box: Sandbox,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the head of the answer, between events and after the last. Each time the code runs once, and the caller sees
    every event once, in order."""
    monkeypatch.setattr("sandal._protocol.BACKOFF_FIRST", 0.001)
    python_box.run_code("count = 0")
    with Sandal(daemon.key, proxy.url) as through:
        box = through.sandboxes.get(python_box.id)
        proxy.arm("/run_code", None)
        want = {chunk.type for chunk in box.run_code("count += 1\n" + CODE, stream=True)}
        whole = proxy.passed
        assert want == {"started", "stdout", "stderr", "display", "result"} and 300 < whole < 2000
        for cut in range(whole + 1):
            proxy.arm("/run_code", cut)
            stream = box.run_code("count += 1\n" + CODE, stream=True)
            chunks = list(stream)
            assert {chunk.type for chunk in chunks} == want and chunks[-1].type == "result", cut
            assert [chunk.seq for chunk in chunks] == list(range(len(chunks))), cut
            assert "".join(chunk.text for chunk in chunks if chunk.type == "stdout") == "é1\n", cut
            end = stream.execution
            assert end is not None and (end.results[0].text, end.stdout, end.stderr) == ("'end'", "é1\n", "err\n"), cut
        assert proxy.cuts > whole - 100  # others may be shorter: text comes in one event or two
    assert python_box.run_code("count").text == str(whole + 2)


def test_an_asynchronous_stream_that_is_cut(proxy: Proxy, daemon: Daemon, python_box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with that client's own transport."""
    monkeypatch.setattr("sandal._protocol.BACKOFF_FIRST", 0.001)
    python_box.run_code("count = 0")

    async def main() -> int:
        async with AsyncSandal(daemon.key, proxy.url) as through:
            box = await through.sandboxes.get(python_box.id)
            proxy.arm("/run_code", None)
            await box.run_code("count += 1\n" + CODE)
            whole = proxy.passed
            for cut in range(0, whole + 1, 3):
                proxy.arm("/run_code", cut)
                chunks = [chunk async for chunk in box.run_code("count += 1\n" + CODE, stream=True)]
                assert [chunk.seq for chunk in chunks] == list(range(len(chunks))), cut
                end = chunks[-1]
                assert end.type == "result" and (end.results[0].text, end.stdout, end.stderr) == ("'end'", "é1\n", "err\n"), cut
            assert proxy.cuts > whole // 3 - 40
            return len(range(0, whole + 1, 3))

    rounds = asyncio.run(main())
    assert python_box.run_code("count").text == str(rounds + 1)


async def _cut_commands(proxy: Proxy, daemon: Daemon, box_id: str) -> int:
    async with AsyncSandal(daemon.key, proxy.url) as through:
        box = await through.sandboxes.get(box_id)
        proxy.arm("/exec", None)
        assert (await box.exec("echo a; echo b >&2")).stdout == "a\n"
        whole = proxy.passed
        for cut in range(0, whole, 7):
            proxy.arm("/exec", cut)
            got = await box.exec("echo x >> count; echo a; echo b >&2")
            assert (got.stdout, got.stderr, got.exit_code) == ("a\n", "b\n", 0), cut
        return len(range(0, whole, 7))


def test_a_command_that_is_cut(proxy: Proxy, daemon: Daemon, bare_box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandal._protocol.BACKOFF_FIRST", 0.001)
    bare_box.exec("rm -f count")
    rounds = asyncio.run(_cut_commands(proxy, daemon, bare_box.id))
    assert bare_box.fs.read_text("count") == "x\n" * rounds


def test_transfers_that_are_cut(proxy: Proxy, daemon: Daemon, bare_box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandal._protocol.BACKOFF_FIRST", 0.001)
    data = bytes(range(256)) * 4096
    bare_box.fs.write("cut.bin", data)
    # Its tag is strong once it is a second old: then a read can go on.
    wait_for(lambda: not bare_box._http.open(_get(bare_box)).headers["etag"].startswith("W/"), 10)
    with Sandal(daemon.key, proxy.url) as through:
        box = through.sandboxes.get(bare_box.id)
        for cut in (0, 100, 300, 1000, 70_000, len(data)):
            proxy.arm("/fs/file", cut)
            assert box.fs.read("cut.bin") == data, cut
        for cut in (0, 50):
            proxy.arm("/fs/file", cut)
            box.fs.write("cut2.bin", data[:1000])
            assert bare_box.fs.read("cut2.bin") == data[:1000]
            proxy.arm("/fs/uploads/", cut)
            box.fs.write("cut3.bin", iter([data[:5000], data[5000:]]))
            assert bare_box.fs.read("cut3.bin") == data


def test_uploads_go_on_where_they_broke(proxy: Proxy, daemon: Daemon, bare_box: Sandbox, monkeypatch: pytest.MonkeyPatch,
                                        tmp_path: Path) -> None:
    """No connection lasts for half of the file: sent anew from its start it would never arrive."""
    monkeypatch.setattr("sandal._protocol.BACKOFF_FIRST", 0.001)
    data = os.urandom(6 << 20)
    (tmp_path / "local.bin").write_bytes(data)
    with Sandal(daemon.key, proxy.url) as through:
        box = through.sandboxes.get(bare_box.id)
        for size in (len(data), 3 << 20):  # by tus from the first; by a PUT, then by tus
            proxy.up, proxy.broken = size // 3, 0
            told: list[tuple[int, Optional[int]]] = []
            box.fs.write("up.bin", data[:size], mode="0600", on_progress=lambda done, whole: told.append((done, whole)))
            assert proxy.broken >= 3 and told[-1] == (size, size)
            assert bare_box.fs.read("up.bin") == data[:size] and bare_box.fs.stat("up.bin").mode == "0600"
        proxy.up, proxy.broken = 2 << 20, 0
        box.fs.upload(tmp_path / "local.bin", "up2.bin")
        assert proxy.broken >= 2 and bare_box.fs.read("up2.bin") == data
        with pytest.raises(APIConnectionError):  # the promise of `exclusive` is kept by one request
            box.fs.write("up3.bin", data, exclusive=True)
        assert not bare_box.fs.exists("up3.bin")


def test_downloads_of_new_files(proxy: Proxy, daemon: Daemon, bare_box: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Their tag is weak for a second: what was handed to nobody starts over, a stream waits for the strong one."""
    monkeypatch.setattr("sandal._protocol.BACKOFF_FIRST", 0.001)
    data = os.urandom(3 << 20)

    def fresh() -> None:
        bare_box.fs.write("new.bin", data)
        proxy.broken = 0

    with Sandal(daemon.key, proxy.url) as through:
        box = through.sandboxes.get(bare_box.id)
        # Each needs several connections: a break that is not the proxy's (who waits gives up when the machine stood still) leaves
        # more than one of them carries.
        proxy.down = len(data) // 4
        fresh()
        assert box.fs.read("new.bin") == data and proxy.broken
        fresh()
        assert box.fs.download("new.bin", tmp_path / "new.bin").read_bytes() == data and proxy.broken
        fresh()
        assert b"".join(box.fs.read("new.bin", stream=True)) == data and proxy.broken
        fresh()
        with pytest.raises(SandalError, match="changed while it was read"):
            for number, _ in enumerate(box.fs.read("new.bin", stream=True)):
                if number == 0:
                    bare_box.fs.write("new.bin", data[::-1])


def _get(box: Sandbox) -> Any:
    from sandal._protocol import Request, path_of

    return Request("GET", path_of("sandboxes", box.id, "fs", "file"), params={"path": "cut.bin"}, headers={"Range": "bytes=0-0"})


def test_a_thousand_runs_at_once(daemon: Daemon, python_box: Sandbox) -> None:
    """From one process, in four contexts; each gets its own answer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))

    async def main() -> list[str]:
        async with AsyncSandal(daemon.key, daemon.url) as client:
            box = await client.sandboxes.get(python_box.id)
            contexts = [await box.contexts.create("python") for _ in range(4)]
            got = await asyncio.gather(*(box.run_code(f"{i} * 2", context=contexts[i % 4]) for i in range(1000)))
            for context in contexts:
                await context.remove()
            return [one.text for one in got]

    try:
        assert asyncio.run(main()) == [str(i * 2) for i in range(1000)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_cancelled_task_interrupts_its_run(daemon: Daemon, python_box: Sandbox, bare_box: Sandbox) -> None:
    async def main() -> tuple[str, str]:
        async with AsyncSandal(daemon.key, daemon.url) as client:
            box = await client.sandboxes.get(python_box.id)
            begun = asyncio.Event()
            task = asyncio.ensure_future(box.run_code("print(1, flush=True)\nimport time\ntime.sleep(60)", on_stdout=lambda _: begun.set()))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            run = (await box.runs.list())[0].run
            await box.runs.attach(run).wait()
            bare = await client.sandboxes.get(bare_box.id)
            started = asyncio.Event()
            command = asyncio.ensure_future(bare.exec("echo 1; sleep 60", on_stdout=lambda _: started.set()))
            await started.wait()
            log = (await bare.processes.list())[-1].info.run
            command.cancel()
            with pytest.raises(asyncio.CancelledError):
                await command
            with pytest.raises(asyncio.TimeoutError):  # a time of asyncio's own cancels, too
                await asyncio.wait_for(asyncio.ensure_future(box.run_code("import time; time.sleep(60)")), 0.5)
            timed = (await box.runs.list())[0].run
            assert (await box.runs.attach(timed).wait()).status == "interrupted"
            return (await box.runs.get(run)).status, (await bare.runs.get(log)).status

    assert asyncio.run(main()) == ("interrupted", "killed")


def test_a_cancelled_run_under_trio(daemon: Daemon, python_box: Sandbox) -> None:
    # The suite has trio; who runs these tests with other packages need not.
    trio: Any = pytest.importorskip("trio", reason="trio is not installed: scripts/setup --test brings it")

    async def main() -> str:
        async with AsyncSandal(daemon.key, daemon.url) as client:
            box = await client.sandboxes.get(python_box.id)
            assert (await box.run_code("1 + 1")).text == "2"
            with trio.CancelScope() as scope:
                await box.run_code("print(1, flush=True)\nimport time\ntime.sleep(60)", on_stdout=lambda _: scope.cancel())  # it is cut off at once
            assert scope.cancelled_caught
            return (await box.runs.attach((await box.runs.list())[0].run).wait()).status

    assert trio.run(main) == "interrupted"


BLOCKING = """
box = Sandal(*sys.argv[1:3]).sandboxes.get(sys.argv[3])
box.run_code(CODE, on_stdout=lambda text: print(text, flush=True))
"""
WAITING = """
async def main():
    async with AsyncSandal(*sys.argv[1:3]) as client:
        box = await client.sandboxes.get(sys.argv[3])
        await box.run_code(CODE, on_stdout=lambda text: print(text, flush=True))
asyncio.run(main())
"""


@pytest.mark.parametrize("code", [BLOCKING, WAITING], ids=["blocking", "waiting"])
def test_ctrl_c_interrupts_its_run(code: str, daemon: Daemon, python_box: Sandbox) -> None:
    """Of a program of its own, in its midst."""
    head = f"import asyncio, sys\nsys.path.insert(0, {str(SDK / 'src')!r})\nfrom sandal import AsyncSandal, Sandal\n"
    # Longer than the test waits: the signal ends it.
    head += "CODE = \"print('here', flush=True)\\nimport time\\ntime.sleep(60)\"\n"
    arguments = [head + code, str(daemon.key), daemon.url, python_box.id]
    program = subprocess.Popen([sys.executable, "-c", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout and program.stdout.readline() == "here\n"
    run = python_box.runs.list()[0].run
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=30)
    assert "KeyboardInterrupt" in err and program.returncode != 0
    assert python_box.runs.attach(run).wait().status == "interrupted"


@own_daemon
def test_a_gateway_that_crashes_under_a_run() -> None:
    """The stream goes on with the next gateway, and ends with what that says of the run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The next gateway listens where this one did.
    with Daemon(listen=f"127.0.0.1:{port}") as daemon, Sandal(daemon.key, daemon.url) as client, client.sandboxes.create("code-interpreter-python") as box:
        box.run_code("x = 1")
        stream = box.run_code("print('here', flush=True)\nimport time\ntime.sleep(60)", stream=True)
        begun = time.monotonic()
        for chunk in stream:
            if chunk.type == "stdout":
                os.kill(daemon.gateway_pid(), signal.SIGKILL)
        end = stream.execution
        assert end is not None and end.status == "gateway_restart" and end.error is not None and end.error.state == "kept"
        assert time.monotonic() - begun < 40
        box.contexts.interrupt(str(box.info.default_context))
        assert box.run_code("x").text == "1"
