"""JupyterLab behind --gateway-url, as a person in a browser uses it, and its own client library at the gateway as at an existing
server. What the browser does is in web/lab.js, the library's tests are in web/services.js."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from typing import Any, Callable, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, clean_environment, wait_for
from harness.jupyter_server import PROGRAMS, TOOLS, free_port
from harness.lab import CHROMIUM, SCRIPTS, Browser, Lab, missing, node

WHY_NO_LAB, WHY_NO_SERVICES = missing(PROGRAMS["lab"], CHROMIUM), missing()
# Without smoke, but for one of the library: what clients see of it is the same under each launcher.
in_browser = pytest.mark.skipif(bool(WHY_NO_LAB), reason=WHY_NO_LAB)
by_library = pytest.mark.skipif(bool(WHY_NO_SERVICES), reason=WHY_NO_SERVICES)

PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()\nprint('plotted')"
WAITS = "import time\nprint('up', flush=True)\nwhile True: time.sleep(0.02)"  # it waits to be interrupted
HELD = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\nz = x"  # until the file is there


class World:
    """A gateway, a JupyterLab at it, and a browser at that."""

    def __init__(self, daemon: Daemon, lab: Lab, browser: Browser):
        self.daemon, self.lab, self.browser = daemon, lab, browser
        self.client = Client(daemon.url, daemon.key)
        self.kernel = self.client.get(f"/api/kernelspecs/{TEMPLATE}")["spec"]["display_name"]

    def open(self) -> None:
        self.browser("open", url=self.lab.page)

    def notebook(self) -> None:
        """A new one, from the launcher."""
        self.browser("create", kernel=self.kernel)
        self.idle(self.kernel)

    def idle(self, name: str) -> None:
        wait_for(lambda: self.browser("kernel") == {"name": name, "status": "idle", "bar": f"{name} | Idle"}, 60)

    def run(self, code: str, shows: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
        """Runs a cell; what it shows when it has ended, or when it shows what is waited for."""
        cell = self.browser("run", code=code)
        ended = shows or (lambda o: re.fullmatch(r"\[\d+\]:", o["prompt"]))
        return dict(wait_for(lambda: (o := self.browser("output", cell=cell)) and ended(o) and {**o, "cell": cell}, 60))

    def shot(self, name: str) -> None:
        self.browser("shot", name=f"jupyterlab-{name}")

    def own_kernels(self) -> list[str]:
        """Sandboxes that notebooks have started."""
        return [s["id"] for s in self.client.get("/v1/sandboxes")["items"] if "jupyter.kernelspec" in s["metadata"]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    shots = TOOLS / "artefacts"
    if not os.access(shots if shots.exists() else TOOLS, os.W_OK):
        shots = tmp_path_factory.mktemp("shots")
    # It comes back at the same address after it was killed.
    with Daemon(listen=f"127.0.0.1:{free_port()}") as daemon, Lab(daemon) as lab, Browser(shots) as browser:
        yield World(daemon, lab, browser)


@in_browser
def test_a_notebook(world: World) -> None:
    """Plot, streams, error, completion, tooltip."""
    world.open()
    world.notebook()
    shown = world.run(PLOT)
    assert "plotted" in shown["text"]
    [plot] = shown["images"]
    assert plot["shown"] and plot["width"] > 300 and plot["height"] > 200
    world.shot("plot")
    shown = world.run("import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\n6 * 7")
    assert shown["prompt"] == "[2]:" and "to stdout" in shown["text"] and "42" in shown["text"]
    assert "to stderr" in shown["stderr"] and "to stdout" not in shown["stderr"]
    shown = world.run("1 / 0")
    assert "ZeroDivisionError: division by zero" in shown["text"]
    world.run("wonderful = 'x'")
    world.browser("type", code="wonderful.isal")
    world.browser("press", key="Tab")
    wait_for(lambda: world.browser("completions") == ["isalnum", "isalpha"], 60)
    world.shot("completion")
    world.browser("press", key="Escape")
    world.browser("type", code="len")
    world.browser("press", key="Shift+Tab")
    wait_for(lambda: "number of items" in "".join(world.browser("tooltip")), 60)
    world.shot("tooltip")
    world.browser("press", key="Escape")


@in_browser
def test_input_interrupt_and_restart(world: World) -> None:
    world.open()
    world.notebook()
    shown = world.run("name = input('who? ')\nprint('hello', name)", lambda o: o["asks"])
    assert shown["asks"] == ["who? "] and not shown["password"]
    world.shot("input")
    world.browser("reply", text="Ada")
    wait_for(lambda: "hello Ada" in world.browser("output", cell=shown["cell"])["text"], 60)
    world.idle(world.kernel)
    shown = world.run(WAITS, lambda o: "up" in o["text"])
    wait_for(lambda: world.browser("kernel")["status"] == "busy", 60)
    world.shot("busy")
    world.browser("toolbar", command="notebook:interrupt-kernel")
    wait_for(lambda: "KeyboardInterrupt" in world.browser("output", cell=shown["cell"])["text"], 60)
    assert "Ada" in world.run("name")["text"]
    world.browser("toolbar", command="notebook:restart-kernel")
    world.browser("dialog", button="Restart")
    world.idle(world.kernel)
    shown = world.run("name")
    assert shown["prompt"] == "[1]:" and "NameError" in shown["text"]
    assert world.browser("dialogs") == []  # of no kernel that died
    world.shot("restarted")


@in_browser
def test_the_gateway_is_killed_under_it(world: World) -> None:
    world.open()
    world.notebook()
    world.run("kept = 41")
    with world.client.sandbox(template=TEMPLATE) as sandbox:
        assert sandbox.run("agents = 1")["status"] == "ok"
        world.daemon.kill()
        world.daemon.start(60)  # with the same state and the same address
        assert sandbox.run("agents")["text"] == "1"
        wait_for(lambda: world.client.get("/api/status")["connections"] > 0, 60)  # the Lab has come back
        assert "42" in world.run("kept + 1")["text"]
        world.shot("gateway-killed")
        assert world.browser("dialogs") == []


@in_browser
def test_a_person_at_an_agents_context(world: World) -> None:
    with world.client.sandbox(template=TEMPLATE, name="agents") as sandbox:
        assert sandbox.run("x = 41")["status"] == "ok"
        world.open()
        world.notebook()
        offered = [name for group in world.browser("choices") for name in group["names"]]
        [name] = [name for name in offered if sandbox.id in name]
        assert re.fullmatch(rf"Sandal: agents/\S+ \({sandbox.id}\)", name)
        world.browser("choose", name=name)
        world.shot("picker")
        world.browser("dialog", button="Select")
        world.idle(name)
        assert "41" in world.run("x")["text"]
        see_the_agent_work(world, sandbox, name)
        assert "42" in world.run("x += 1\nx")["text"]
        assert sandbox.run("x")["text"] == "42"
        world.shot("attached")
        world.browser("close")
        assert sandbox.run("x")["text"] == "42"
        leave(world, sandbox)


def see_the_agent_work(world: World, sandbox: Sandbox, name: str) -> None:
    """What it runs shows as busy in the notebook, whose next cell waits for it."""
    agent = threading.Thread(target=sandbox.run, args=(HELD,))
    agent.start()
    wait_for(lambda: world.browser("kernel")["status"] == "busy", 60)
    world.shot("agent-busy")
    cell = world.browser("run", code="z")
    wait_for(lambda: world.browser("output", cell=cell)["prompt"] == "[*]:", 60)
    world.client.call("PUT", f"{sandbox.path}/fs/file", params={"path": "go"}, content=b"", expect=201)
    agent.join()
    wait_for(lambda: "41" in world.browser("output", cell=cell)["text"], 60)
    world.idle(name)


def leave(world: World, sandbox: Sandbox) -> None:
    """The Lab ends: its own kernels go with it, that of the agent stays."""
    world.notebook()
    assert "7" in world.run("own = 3 + 4; own")["text"]
    assert world.own_kernels()
    world.lab.stop()
    wait_for(lambda: not world.own_kernels(), 30)
    assert sandbox.run("x")["text"] == "42"


# --- @jupyterlab/services ---------------------------------------------------------------------------

SERVICES = re.findall(r'^    async "(.+)"\(tab\)', (SCRIPTS / "services.js").read_text(), re.M)


def services(name: str, daemon: Daemon) -> subprocess.Popen[str]:
    environment = {**clean_environment(), "SANDAL_URL": daemon.url, "SANDAL_KEY": str(daemon.key), "KERNEL": TEMPLATE}
    return subprocess.Popen([str(node()), SCRIPTS / "services.js", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment)


@by_library
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.smoke if name == SERVICES[0] else [])
                                  for name in SERVICES if name != "a gateway that is killed"])
def test_services(daemon: Daemon, name: str) -> None:
    process = services(name, daemon)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors


@by_library
def test_services_while_the_gateway_is_killed() -> None:
    """SV-20: what it lists is whole, or it lists nothing; the library tries again, and finds its kernel as it was."""
    with Daemon(listen=f"127.0.0.1:{free_port()}") as daemon:
        process = services("a gateway that is killed", daemon)
        assert process.stdin and process.stdout and process.stdout.readline() == "up\n"
        daemon.kill()
        daemon.start(60)
        _, errors = process.communicate("over\n", timeout=120)
        assert process.returncode == 0, errors
