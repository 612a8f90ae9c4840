"""What sandboxes with egress reach: servers in a network namespace that the test makes. Nothing leaves the machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Iterator

from harness.client import Sandbox
from harness.daemon import UID_RANGES, UID_SHARES, own_uid_ranges, wait_for

TAG = f"sdt{os.getpid() % 100000}"


def free_number() -> int:
    """Of the networks here: one that nothing on this machine knows of."""
    known = subprocess.run(["ip", "-4", "route", "show", "table", "all"], capture_output=True, text=True).stdout if shutil.which("ip") else ""
    # Another test run may be about to take one too: each has some to itself.
    share = UID_RANGES.index(own_uid_ranges()[0][0]) if os.geteuid() == 0 else os.getpid() % UID_SHARES
    numbers = [20 + 12 * share + (os.getpid() + i) % 12 for i in range(12)]
    return next(n for n in numbers if not re.search(rf"\b(10|192\.31)\.{n}\.", known))


NUMBER = free_number()
HOST, NEIGHBOUR = f"10.{NUMBER}.0.1", f"10.{NUMBER}.0.2"
ALLOWED, CLOSED = f"10.{NUMBER}.1.1", f"10.{NUMBER}.2.1"
HOST_PUBLIC = f"192.31.{NUMBER}.1"  # of the host itself: looks like any public one

SERVER = """
import socket
s = socket.create_server(("", 8000), backlog=64)
while True:
    c, _ = s.accept()
    c.sendall(b"hello")
    c.close()
"""

# One answer to every question: its first label says which address.
NAMES = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("{ALLOWED}", 53))
while True:
    query, client = s.recvfrom(1024)
    end = query.index(0, 12) + 5
    address = "{CLOSED}" if query[13:19] == b"closed" else "{ALLOWED}"
    is_a = query[end - 4:end - 2] == b"\\0\\1"
    answer = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\x3c\\0\\4" + socket.inet_aton(address) if is_a else b""
    s.sendto(query[:2] + b"\\x81\\x80\\0\\1\\0" + bytes([is_a]) + b"\\0\\0\\0\\0" + query[12:end] + answer, client)
"""

# Not `-m http.server`: that asks for its own name first, and here is nobody to answer.
FILES = """
import functools, http.server, socketserver, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[3])
socketserver.ThreadingTCPServer((sys.argv[1], int(sys.argv[2])), handler).serve_forever()
"""

ASK = """
import socket, sys
try:
    print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(99).decode())
except OSError as e:
    print(e.strerror or e)
"""


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True)


def world() -> Iterator[None]:
    """Addresses behind the host: one that the operator opens, one private as any other; and one of the host."""
    ip("netns", "add", TAG)
    servers: list[subprocess.Popen[bytes]] = []
    try:
        ip("link", "add", TAG, "type", "veth", "peer", "name", "wan", "netns", TAG)
        ip("addr", "add", f"{HOST}/24", "dev", TAG)
        ip("addr", "add", f"{HOST_PUBLIC}/32", "dev", TAG)
        ip("link", "set", TAG, "up")
        for command in (("link", "set", "lo", "up"), ("addr", "add", f"{NEIGHBOUR}/24", "dev", "wan"), ("link", "set", "wan", "up"),
                        ("route", "add", "default", "via", HOST), ("addr", "add", f"{ALLOWED}/32", "dev", "lo"),
                        ("addr", "add", f"{CLOSED}/32", "dev", "lo")):
            ip("-n", TAG, *command)
        ip("route", "add", f"10.{NUMBER}.0.0/16", "via", NEIGHBOUR)
        servers += [subprocess.Popen(["ip", "netns", "exec", TAG, "python3", "-c", program]) for program in (SERVER, NAMES)]
        for address in (ALLOWED, CLOSED):
            wait_for(lambda: subprocess.run(["python3", "-c", ASK, address, "8000"], capture_output=True, text=True).stdout == "hello\n", 20)
        yield
    finally:
        for server in servers:
            server.send_signal(signal.SIGKILL)
            server.wait()
        subprocess.run(["ip", "link", "del", TAG], stderr=subprocess.DEVNULL)  # else it goes at some time after its namespace
        ip("netns", "del", TAG)


def connects(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
        return True
    return False


@contextlib.contextmanager
def serve_files(folder: Path, port: int) -> Iterator[None]:
    """By HTTP, at ALLOWED."""
    server = subprocess.Popen(["ip", "netns", "exec", TAG, "python3", "-c", FILES, ALLOWED, str(port), str(folder)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: connects(ALLOWED, port), 20)
        yield
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def serving_on_the_host() -> Iterator[int]:
    """A port that greets who connects, at all of the host's addresses of both families."""
    def greet() -> None:
        with contextlib.suppress(OSError):  # of its end
            while True:
                with server.accept()[0] as connection:
                    connection.sendall(b"hello")

    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    thread = threading.Thread(target=greet)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        server.close()


def ask(sb: Sandbox, address: str, port: int = 8000) -> str:
    answer = sb.post("/exec", {"cmd": ["python3", "-c", ASK, address, str(port)]})
    assert answer["exit_code"] == 0, answer
    return str(answer["stdout"]).strip()


def refused(sb: Sandbox, address: str, port: int) -> dict[str, Any] | None:
    """The last such row of its log."""
    rows = [row for row in sb.get("/network/log")["items"] if row["address"] == address and row["port"] == port]
    return rows[-1] if rows else None
