"""JupyterLab, and a browser for it."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from .daemon import ROOT, Daemon, clean_environment
from .jupyter_server import LocalServer

SCRIPTS = ROOT / "tests/e2e/web"
PACKAGES = SCRIPTS / "node_modules"
CHROMIUM = Path("/usr/bin/chromium")


@functools.cache
def node() -> str | None:
    """A Node.js that playwright-core and @jupyterlab/services run on: that of the template, or the system's."""
    for program in ("/opt/sandal/node/bin/node", shutil.which("node")):
        if program and Path(program).exists():
            version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if (found := re.match(r"v(\d+)\.", version)) and int(found[1]) >= 20:
                return program
    return None


def missing(*wanted: Path) -> str:
    """Reason to pass a test over, or ""."""
    # os.path: a user may not be allowed to look
    absent = [str(path) for path in (PACKAGES, *wanted) if not os.path.exists(path)] + ([] if node() else ["Node.js 20 or newer"])
    return f"{', '.join(absent)} missing: scripts/setup --test --templates node installs it" if absent else ""


# Neither news nor packages: it asks nobody but the gateway, which it gives the time to start again.
OPTIONS = ["--LabApp.news_url=None", "--LabApp.extension_manager=readonly", "--GatewayClient.gateway_retry_max=12",
           "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate"]
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    # After a second (its default) a busy machine's completions would be dropped: the kernel loads its completer at the first one.
    "completer-extension/manager": {"providerTimeout": 60_000},
}


class Lab(LocalServer):
    """`with Lab(daemon) as lab:` a JupyterLab whose kernels are the daemon's; lab.page is its address for a browser."""

    def __init__(self, daemon: Daemon):
        self.settings = Path(tempfile.mkdtemp(prefix="sandal-lab-", dir="/tmp"))
        for name, value in SETTINGS.items():
            file = self.settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps(value))
        super().__init__("lab", daemon.url, daemon.key, *OPTIONS, env={
            "JUPYTERLAB_SETTINGS_DIR": str(self.settings), "JUPYTERLAB_WORKSPACES_DIR": str(self.settings / "workspaces")})

    @property
    def page(self) -> str:
        """A workspace of its own: nothing is open there."""
        return f"{self.url}/lab/workspaces/{uuid.uuid4().hex}?token={self.token}"

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.settings, ignore_errors=True)


class Browser:
    """A person at a JupyterLab: `browser("run", code="1 + 1")`; the commands are those of web/lab.js."""

    def __init__(self, shots: Path):
        shots.mkdir(parents=True, exist_ok=True)
        self.proc = subprocess.Popen([str(node()), SCRIPTS / "lab.js", CHROMIUM, shots], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     text=True, env=clean_environment())

    def __call__(self, verb: str, **fields: Any) -> Any:
        assert self.proc.stdin and self.proc.stdout
        self.proc.stdin.write(json.dumps({"do": verb, **fields}) + "\n")
        self.proc.stdin.flush()
        line = self.proc.stdout.readline()
        assert line, f"the browser has ended, at {verb}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.proc.stdin
        self.proc.stdin.close()
        try:
            self.proc.wait(30)
        finally:
            self.proc.kill()
