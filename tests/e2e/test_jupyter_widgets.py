"""ipywidgets: a slider and a picture, there and back, over v1 and through Jupyter servers that are clients of the gateway. The templates do
not hold the package (docs/jupyter.md says why): it comes as a file, as a person's `pip install` would bring it."""

from __future__ import annotations

import io
import zipfile
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
        for package in ("ipywidgets", "comm"):  # the latter older kernels do not have
            for path in sorted((packages / package).rglob("*.py")):
                made.write(path, path.relative_to(packages))
    with client.sandbox(template=TEMPLATE) as sandbox:
        client.call("PUT", f"{sandbox.path}/fs/file?path=widgets.zip", content=archive.getvalue(),
                    headers={"Content-Type": "application/octet-stream"}).raise_for_status()
        done = sandbox.run("import os, sys\nsys.path.insert(0, os.path.abspath('widgets.zip'))\nimport ipywidgets as w\nw.__version__")
        assert done["status"] == "ok", done["error"]
        yield sandbox


@pytest.fixture(scope="module", params=["v1", "legacy", "current", "debian"])
def ws(request: pytest.FixtureRequest, daemon: Daemon, widgets: Sandbox) -> Iterator[Channels]:
    """A browser, straight at the gateway or at a Jupyter server that is a client of it."""
    if request.param in ("v1", "legacy"):
        browser = {**widgets.client.headers(), "Origin": widgets.client.url}
        with Channels(widgets.client, kernel_of(widgets), v1=request.param == "v1", headers=browser) as channels:
            yield channels
        return
    if why_not(request.param):
        pytest.skip(why_not(request.param))
    with LocalServer(request.param, daemon.url, daemon.key) as server:
        server.session({"name": f"ctx-{kernel_of(widgets)}"})
        with Channels(server, kernel_of(widgets), v1=False) as channels:
            channels.receive()  # the gateway's greeting: what comes before it may be lost
            yield channels


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


def test_a_sliders_round_trip(ws: Channels, widgets: Sandbox) -> None:
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


def test_a_pictures_bytes_both_ways(ws: Channels) -> None:
    """GA-16: none come through a server, for they would end its reading. Those that a browser sends do, though servers send them on as
    if they were text."""
    model, published = opened(ws, "i = w.Image(value=b'\\x89PNG\\xff')\ni")
    made = [m for m in published if m["header"]["msg_type"] == "comm_open" and m["content"]["comm_id"] == model]
    through = isinstance(ws.client, LocalServer)
    assert [(m["content"]["data"]["buffer_paths"], m["buffers"]) for m in made] == ([] if through else [([["value"]], [b"\x89PNG\xff"])])
    update(ws, model, {}, [b"\0\xfe new"], [["value"]])
    assert value(ws, "bytes(i.value)") == repr(b"\0\xfe new")
