"""The daemon's own doors, and sockets of the host: config.ports and config.addresses of TCP, config.unix_sockets and
config.daemon_sockets, config.abstract of the host, config.init_name of sandal-init."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from .tries import attempt, first

MAGIC, HELLO, SPAWN, REPORT = 0x4B494731, 1, 2, 6
KEEPER, GATEWAY = 1, 2


@attempt("ports of the daemon and the host", control=True)
def ports(c: Any) -> str | None:
    def reach(address: str, port: int) -> str:
        with socket.create_connection((address, port), 1):
            return f"{address} {port}"

    return first(*[lambda a=a, p=p: reach(a, p) for a in c.addresses for p in c.ports])


def _connect(paths: list[str]) -> str | None:
    def reach(path: str) -> str | None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.settimeout(1)
                try:
                    s.connect(path)
                except OSError:
                    continue
                return path
        return None

    return first(*[lambda p=p: reach(p) for p in paths])


@attempt("sockets of the host in the file system", control=True)
def unix(c: Any) -> str | None:
    return _connect(c.unix_sockets)


@attempt("sockets of the daemon", control=True)
def of_daemon(c: Any) -> str | None:
    return _connect(c.daemon_sockets)


@attempt("abstract sockets of the host", control=True)
def abstract(c: Any) -> str | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(1)
        s.connect("\0" + c.abstract)
        return c.abstract


@attempt("names of the host's abstract sockets", control=True)
def abstract_names(c: Any) -> str | None:
    with open("/proc/net/unix") as file:
        return next((line for line in file if c.abstract in line), None)


@attempt("what only the keeper may ask of sandal-init")
def ask_init(c: Any) -> str | None:
    """Of its own and of a sibling's, as keeper and as gateway: says hello, asks for a report and for a process as root. Any answer is one too many."""
    def ask(role: int, name: str) -> str | None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.settimeout(5)
            s.connect(name)
            for frame in (_frame(c, HELLO, struct.pack("<II", role, 0)), _frame(c, REPORT, b""), _spawn(c)):
                try:
                    s.send(frame)
                except OSError:
                    break
            got = s.recv(65536)
            return f"{len(got)} bytes of an answer as role {role}" if got else None

    names = ["\0" + c.init_name, *[s.replace("@", "\0", 1) if s[0] == "@" else s for s in c.init_sockets]]
    return first(*[lambda r=r, n=n: ask(r, n) for r in (KEEPER, GATEWAY) for n in names])


def _frame(c: Any, verb: int, body: bytes) -> bytes:
    return struct.pack("<IHHII", MAGIC, c.init_version, verb, 16 + len(body), 1) + body


def _spawn(c: Any) -> bytes:
    words = b"/bin/sh\0-c\0id > /tmp/by-a-forged-keeper\0/\0"
    return _frame(c, SPAWN, struct.pack("<QQIIIIHHI", 99, 1024, 8, 0o22, 3, 0, 0, 0, 0) + words)


@attempt("the name of sandal-init")
def name_of_init(c: Any) -> str | None:
    """Whoever listens there could answer the keeper. Where sandal-init listens elsewhere, the name means nothing."""
    if not c.init_abstract:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind("\0" + c.init_name)
        return "bound"


@attempt("the daemon's key and state in environments")
def environments(c: Any) -> str | None:
    for proc in [p for p in os.listdir("/proc") if p.isdigit()]:
        for what in ("environ", "cmdline"):
            try:
                with open(f"/proc/{proc}/{what}", "rb") as file:
                    text = file.read()
            except OSError:
                continue
            if c.state_dirs[0].encode() in text and b"sandald" in text:
                return f"{proc}: {text!r}"
    return None
