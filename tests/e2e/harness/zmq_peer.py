"""A client of one connection file, by jupyter_client and pyzmq: run by build/venv-jupyter's Python, told what to do by lines of
JSON on its stdin ({"do": NAME, …}), answering each with one. harness/connection.py is the other side."""

from __future__ import annotations

import base64
import json
import queue
import sys
import time

import zmq
from jupyter_client import BlockingKernelClient

PORTS = {"shell": "shell_port", "control": "control_port", "stdin": "stdin_port", "iopub": "iopub_port", "hb": "hb_port"}


def plain(message: dict) -> dict:
    return {k: message[k] for k in ("header", "parent_header", "metadata", "content")} | {"buffers": len(message["buffers"])}


class Peer:
    def __init__(self, file: str):
        self.kc = BlockingKernelClient(connection_file=file)
        self.kc.load_connection_file()
        self.kc.start_channels()
        self.context = zmq.Context.instance()
        self.raw_sockets: dict[str, zmq.Socket] = {}

    # ---- by jupyter_client ----

    def ready(self, timeout: float = 30) -> float:
        begin = time.monotonic()
        self.kc.wait_for_ready(timeout=timeout)
        return time.monotonic() - begin

    def alive(self) -> bool:
        return bool(self.kc.is_alive())

    def execute(self, code: str, timeout: float = 60, answer: str | None = None, wait: float = 0, **options: object) -> dict:
        outputs: list = []

        def asked(message: dict) -> None:
            outputs.append(["input_request", message["content"]])
            time.sleep(wait)  # as a person who thinks
            self.kc.input(answer)
        reply = self.kc.execute_interactive(
            code, timeout=timeout, allow_stdin=answer is not None, stdin_hook=asked,
            output_hook=lambda m: outputs.append([m["msg_type"], m["content"]]), **options)
        return {"reply": reply["content"], "session": reply["header"]["session"], "outputs": outputs}

    def send(self, msg_type: str, content: dict, channel: str = "shell", msg_id: str | None = None) -> str:
        message = self.kc.session.msg(msg_type, content)
        if msg_id:
            message["header"]["msg_id"] = message["msg_id"] = msg_id
        getattr(self.kc, f"{channel}_channel").send(message)
        return message["header"]["msg_id"]

    def get(self, channel: str, timeout: float = 30) -> dict | None:
        try:
            return plain(getattr(self.kc, f"get_{channel}_msg")(timeout=timeout))
        except queue.Empty:
            return None

    def stop_reading(self, channel: str = "iopub") -> None:
        getattr(self.kc, f"{channel}_channel").stop()

    # ---- beside it ----

    def url(self, channel: str) -> str:
        return self.kc._make_url(channel)

    def open(self, name: str, channel: str, kind: str, rcvhwm: int = 1000, rcvbuf: int | None = None,
             topics: list[str] = [""]) -> None:
        s = self.context.socket(getattr(zmq, kind))
        s.linger = 0
        s.rcvhwm = rcvhwm
        if rcvbuf:
            s.rcvbuf = rcvbuf
        if kind == "SUB":
            for topic in topics:
                s.subscribe(topic)
        s.connect(self.url(channel))
        self.raw_sockets[name] = s

    def close(self, name: str) -> None:
        self.raw_sockets.pop(name).close()

    def raw(self, name: str, frames: list[str]) -> None:
        self.raw_sockets[name].send_multipart([base64.b64decode(f) for f in frames])

    def signed(self, name: str, parts: list[str], buffers: list[str] = [], times: int = 1) -> None:
        """Four parts that need not be JSON, under the right signature."""
        bodies = [base64.b64decode(p) for p in parts]
        frames = [b"<IDS|MSG>", self.kc.session.sign(bodies), *bodies, *[base64.b64decode(b) for b in buffers]]
        for _ in range(times):
            self.raw_sockets[name].send_multipart(frames)

    def large(self, name: str, size: int) -> None:
        self.raw_sockets[name].send_multipart([b"<IDS|MSG>", b"0" * 64, b"x" * size])

    def raw_get(self, name: str, timeout: float = 30) -> list | None:
        """The frames of one message; where it is one of the protocol, its parts after the signature was checked."""
        if not self.raw_sockets[name].poll(timeout * 1000):
            return None
        frames = self.raw_sockets[name].recv_multipart()
        if b"<IDS|MSG>" not in frames:
            return [f.decode("latin-1") for f in frames]
        identities, rest = self.kc.session.feed_identities(frames)
        message = plain(self.kc.session.deserialize(rest))
        return [[i.decode("latin-1") for i in identities], message]

    def drain(self, name: str, until: str, timeout: float = 60) -> dict:
        """Reads iopub until the idle of the request; what came, and how much."""
        seen, texts, end = 0, 0, time.monotonic() + timeout
        notes: list = []
        while time.monotonic() < end:
            got = self.raw_get(name, 1)
            if got is None:
                continue
            message = got[1]
            seen += 1
            content = message["content"]
            if message["header"]["msg_type"] == "stream":
                if "left out" in content["text"]:
                    notes.append(content["text"])
                else:
                    texts += len(content["text"])
            if content.get("execution_state") == "idle" and message["parent_header"].get("msg_id") == until:
                return {"messages": seen, "bytes": texts, "notes": notes, "idle": True}
        return {"messages": seen, "bytes": texts, "notes": notes, "idle": False}

    def beat(self, timeout: float = 2) -> bool:
        s = self.context.socket(zmq.REQ)
        s.linger = 0
        s.connect(self.url("hb"))
        s.send(b"ping")
        answered = bool(s.poll(timeout * 1000)) and s.recv() == b"ping"
        s.close()
        return answered


def main() -> None:
    peer = Peer(sys.argv[1])
    print(json.dumps({"ok": None}), flush=True)
    for line in sys.stdin:
        what = json.loads(line)
        try:
            answer = {"ok": getattr(peer, what.pop("do"))(**what)}
        except Exception as error:  # noqa: BLE001: the other side tells it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer, default=str), flush=True)  # dates


main()
