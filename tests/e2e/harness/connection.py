"""Connection files, and stock Jupyter clients at them (zmq_peer.py in a process of its own)."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

from .client import Sandbox
from .daemon import ROOT
from .jupyter import kernel_of

JUPYTER = ROOT / "build/venv-jupyter/bin"
MISSING = "" if (JUPYTER / "python").exists() else "build/venv-jupyter is not there: scripts/setup --test makes it"


def connect(sandbox: Sandbox, context: str | None = None, expect: int = 201, **fields: Any) -> dict[str, Any]:
    return sandbox.post(f"/contexts/{context or kernel_of(sandbox)}/connect", fields, expect=expect)


def connections(sandbox: Sandbox, context: str | None = None) -> list[dict[str, Any]]:
    return sandbox.get(f"/contexts/{context or kernel_of(sandbox)}/connections")["items"]


def b64(parts: list[bytes]) -> list[str]:
    return [base64.b64encode(part).decode() for part in parts]


class Refused(Exception):
    pass


class Peer:
    def __init__(self, file: str | Path):
        self.proc = subprocess.Popen([str(JUPYTER / "python"), str(Path(__file__).with_name("zmq_peer.py")), str(file)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self) -> Any:
        assert self.proc.stdout
        line = self.proc.stdout.readline()
        assert line, "the client has ended"
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["ok"]

    def begin(self, do: str, **fields: Any) -> None:
        """Its answer() is to be taken later."""
        assert self.proc.stdin
        self.proc.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self.proc.stdin.flush()

    def __call__(self, do: str, **fields: Any) -> Any:
        self.begin(do, **fields)
        return self.answer()

    def ask(self, msg_type: str, content: dict[str, Any], channel: str = "shell", timeout: float = 30) -> dict[str, Any]:
        """The reply to it, and nothing else, on its channel."""
        msg_id = self("send", msg_type=msg_type, content=content, channel=channel)
        while True:
            message = self("get", channel=channel, timeout=timeout)
            assert message, f"no reply to {msg_type}"
            if message["parent_header"].get("msg_id") == msg_id:
                return message

    def until(self, found: Any, channel: str = "iopub", timeout: float = 30) -> dict[str, Any]:
        while True:
            message = self("get", channel=channel, timeout=timeout)
            assert message, "it did not come"
            if found(message):
                return message

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.proc.kill()
        self.proc.wait()
