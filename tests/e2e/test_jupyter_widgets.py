"""ipywidgets: a slider and a picture, there and back, over v1 and through Jupyter servers that are clients of the gateway. The templates do
not hold the package (docs/jupyter.md says why): it comes as a file, as a person's `pip install` would bring it."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import contextmanager
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon
from harness.jupyter import Channels, Message, kernel_of
from harness.jupyter_server import VENV, LocalServer, why_not

pytestmark = [pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions"),
              pytest.mark.skipif(bool(why_not("current")), reason=why_not("current"))]
VIEW = "application/vnd.jupyter.widget-view+json"
SLIDER = """s, seen = w.IntSlider(value=3), []
s.observe(lambda change: seen.append(change['new']), 'value')
s"""


@pytest.fixture(scope="module")
def widgets(client: Client) -> Iterator[Sandbox]:
    packages = next((VENV / "lib").glob("python3*/site-packages"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for path in sorted((packages / "ipywidgets").rglob("*.py")):
            made.write(path, path.relative_to(packages))
    with client.sandbox(template=TEMPLATE) as sandbox:
        client.call("PUT", f"{sandbox.path}/fs/file?path=widgets.zip", content=archive.getvalue(),
                    headers={"Content-Type": "application/octet-stream"}).raise_for_status()
        done = sandbox.run("import os, sys\nsys.path.insert(0, os.path.abspath('widgets.zip'))\nimport ipywidgets as w\nw.__version__")
        assert done["status"] == "ok", done["error"]
        yield sandbox


@contextmanager
def by(way: str, daemon: Daemon, sandbox: Sandbox) -> Iterator[Channels]:
    if way in ("v1", "legacy"):
        browser = {**sandbox.client.headers(), "Origin": sandbox.client.url}
        with Channels(sandbox.client, kernel_of(sandbox), v1=way == "v1", headers=browser) as ws:
            yield ws
        return
    if why_not(way):
        pytest.skip(why_not(way))
    with LocalServer(way, daemon.url, daemon.key) as server:
        server.session({"name": f"ctx-{kernel_of(sandbox)}"})
        with Channels(server, kernel_of(sandbox), v1=False) as ws:
            ws.receive()  # the gateway's greeting: what comes before it may be lost
            yield ws


def opened(ws: Channels, code: str) -> tuple[str, list[Message]]:
    """The id of the model that the cell shows, and what came for it."""
    reply, published = ws.execute(code)
    assert reply["content"]["status"] == "ok", reply
    views = [m["content"]["data"][VIEW] for m in published if VIEW in m["content"].get("data", {})]
    return views[0]["model_id"], published


def update(ws: Channels, model: str, state: dict[str, Any], buffers: list[bytes] = [], paths: list[list[str]] = []) -> str:
    return ws.send("comm_msg", {"comm_id": model, "data": {"method": "update", "state": state, "buffer_paths": paths}}, buffers=buffers)


def value(ws: Channels, code: str) -> str:
    _, published = ws.execute(code)
    return str([m["content"]["data"]["text/plain"] for m in published if m["header"]["msg_type"] == "execute_result"][0])


@pytest.mark.parametrize("way", ["v1", "legacy", "current", "debian"])
def test_a_sliders_round_trip(way: str, daemon: Daemon, widgets: Sandbox) -> None:
    with by(way, daemon, widgets) as ws:
        model, published = opened(ws, SLIDER)
        states = {m["content"]["comm_id"]: m["content"]["data"]["state"] for m in published if m["header"]["msg_type"] == "comm_open"}
        assert states[model]["_model_name"] == "IntSliderModel" and states[model]["value"] == 3
        assert states[model]["layout"].removeprefix("IPY_MODEL_") in states
        msg_id = update(ws, model, {"value": 7})  # a person moves it
        echo = ws.until(lambda m: m["header"]["msg_type"] == "comm_msg" and m["parent_header"].get("msg_id") == msg_id)
        assert echo["content"]["data"]["method"] == "echo_update" and echo["content"]["data"]["state"] == {"value": 7}
        assert value(ws, "s.value, seen") == "(7, [7])"
        _, published = ws.execute("s.value = 9")  # code moves it
        moved = [m["content"] for m in published if m["header"]["msg_type"] == "comm_msg"]
        assert [(m["comm_id"], m["data"]["state"]) for m in moved] == [(model, {"value": 9})]
        assert model in ws.ask("comm_info_request", {"target_name": "jupyter.widget"})[0]["content"]["comms"]
    assert widgets.run("s.value")["text"] == "9"  # and an agent sees it


@pytest.mark.parametrize("way", ["v1", "legacy"])
def test_a_pictures_bytes_both_ways(way: str, daemon: Daemon, widgets: Sandbox) -> None:
    with by(way, daemon, widgets) as ws:
        model, published = opened(ws, "i = w.Image(value=b'\\x89PNG\\xff')\ni")
        made = [m for m in published if m["header"]["msg_type"] == "comm_open" and m["content"]["comm_id"] == model][0]
        assert made["content"]["data"]["buffer_paths"] == [["value"]] and made["buffers"] == [b"\x89PNG\xff"]
        update(ws, model, {}, [b"\0\xfe new"], [["value"]])
        assert value(ws, "bytes(i.value)") == repr(b"\0\xfe new")


@pytest.mark.parametrize("way", ["current", "debian"])
def test_a_pictures_bytes_through_a_server(way: str, daemon: Daemon, widgets: Sandbox) -> None:
    """GA-16: none come, for they would end the server's reading; those that a browser sends arrive, though the current one
    sends them as if they were text."""
    with by(way, daemon, widgets) as ws:
        model, published = opened(ws, "i = w.Image(value=b'\\x89PNG\\xff')\ni")
        assert model not in json.dumps([m["content"] for m in published if m["header"]["msg_type"] == "comm_open"])
        update(ws, model, {}, [b"\0\xfe new"], [["value"]])
        assert value(ws, "bytes(i.value)") == repr(b"\0\xfe new")
