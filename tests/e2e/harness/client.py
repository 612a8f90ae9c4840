"""A thin client over HTTP and WebSocket: enough for tests, no SDK."""

from __future__ import annotations

import itertools
import json
from typing import Any, Iterator

import httpx
from websockets.sync.client import ClientConnection, connect, unix_connect


class Client:
    def __init__(self, url: str, key: str | None, verify: Any = True):
        self.url, self.key, self.verify = url, key, verify
        transport = None
        if url.startswith("unix:"):
            transport = httpx.HTTPTransport(uds=url[5:])
        base = "http://localhost" if transport else url
        self.http = httpx.Client(base_url=base, headers=self.headers(), timeout=120, transport=transport, verify=verify)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def call(self, method: str, path: str, *, expect: int | None = None, **kwargs: Any) -> httpx.Response:
        answer = self.http.request(method, path, **kwargs)
        if expect is not None:
            assert answer.status_code == expect, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def get(self, path: str, expect: int = 200, **kwargs: Any) -> Any:
        return self.call("GET", path, expect=expect, **kwargs).json()

    def post(self, path: str, body: Any = None, expect: int = 200, **kwargs: Any) -> Any:
        return self.call("POST", path, expect=expect, json={} if body is None else body, **kwargs).json()

    def delete(self, path: str, expect: int = 204) -> httpx.Response:
        return self.call("DELETE", path, expect=expect)

    def error(self, method: str, path: str, status: int, code: str, **kwargs: Any) -> dict[str, Any]:
        answer = self.call(method, path, **kwargs)
        assert answer.status_code == status, f"{answer.status_code} {answer.text}"
        assert answer.headers["content-type"].startswith("application/json"), answer.headers
        error = answer.json()["error"]
        assert error["code"] == code, error
        assert error["message"], error
        return error

    def sandbox(self, **fields: Any) -> "Sandbox":
        return Sandbox(self, self.post("/v1/sandboxes", fields, expect=201))

    def socket(self, path: str = "/v1/ws", **kwargs: Any) -> "Socket":
        if self.url.startswith("unix:"):
            ws = unix_connect(self.url[5:], f"ws://localhost{path}", additional_headers=self.headers(),
                              subprotocols=["sandal.v1"], max_size=None, compression=None, legacy=True, **kwargs)
        else:
            ws = connect(self.url.replace("http", "ws", 1) + path, additional_headers=self.headers(),
                         subprotocols=["sandal.v1"], max_size=None, compression=None, legacy=True, **kwargs)
        return Socket(ws)

    def close(self) -> None:
        self.http.close()


class Sandbox:
    def __init__(self, client: Client, record: dict[str, Any]):
        self.client, self.record, self.id = client, record, record["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """The Execution."""
        return self.client.post(f"{self.path}/run_code", {"code": code, **fields})

    def stream(self, code: str, **fields: Any) -> Iterator[dict[str, Any]]:
        """Events, as they come over NDJSON."""
        with self.client.http.stream("POST", f"{self.path}/run_code", json={"code": code, "stream": True, **fields}) as r:
            if r.status_code != 200:
                r.read()
                raise AssertionError(f"{r.status_code} {r.text}")
            for line in r.iter_lines():
                if line.strip():
                    yield json.loads(line)

    def events(self, run: str, **params: Any) -> list[dict[str, Any]]:
        text = self.client.call("GET", f"{self.path}/runs/{run}/events", expect=200, params=params).text
        return [json.loads(line) for line in text.split("\n") if line.strip()]

    def get(self, path: str = "", **kwargs: Any) -> Any:
        return self.client.get(self.path + path, **kwargs)

    def post(self, path: str, body: Any = None, **kwargs: Any) -> Any:
        return self.client.post(self.path + path, body, **kwargs)

    def context(self, **fields: Any) -> dict[str, Any]:
        return self.post("/contexts", fields, expect=201)

    def delete(self) -> None:
        self.client.delete(self.path)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *exc: object) -> None:
        self.client.call("DELETE", self.path)


class Socket:
    """sandal.v1: frames by the id that they answer."""

    def __init__(self, ws: ClientConnection):
        self.ws = ws
        self.ids = itertools.count(1)

    def send(self, op: str, **fields: Any) -> str:
        ident = f"c{next(self.ids)}"
        self.ws.send(json.dumps({"id": ident, "op": op, **fields}))
        return ident

    def receive(self, timeout: float = 60) -> dict[str, Any]:
        return json.loads(self.ws.recv(timeout))

    def call(self, op: str, **fields: Any) -> dict[str, Any]:
        """Data of the response; frames of other ids must not come meanwhile."""
        ident = self.send(op, **fields)
        frame = self.receive()
        assert frame["id"] == ident and frame["type"] == "response", frame
        return frame["data"]

    def run(self, **fields: Any) -> list[dict[str, Any]]:
        """All events of a run_code, up to its result."""
        ident = self.send("run_code", **fields)
        events = []
        while True:
            frame = self.receive()
            assert frame["id"] == ident, frame
            assert frame["type"] != "failure", frame
            events.append(frame)
            if frame["type"] == "result":
                return events

    def close(self) -> None:
        self.ws.close()

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
