"""Real Jupyter servers as clients of a gateway: the current one, of build/venv-jupyter, and Debian's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from .daemon import ROOT, clean_environment, wait_for
from .jupyter import Jupyter

TOOLS = Path(os.environ.get("SANDAL_TEST_TOOLS", ROOT / "build"))  # of the tree itself, where this is a copy
VENV = TOOLS / "venv-jupyter"
PROGRAMS = {"lab": VENV / "bin" / "jupyter-lab", "current": VENV / "bin" / "jupyter-server", "debian": Path("/usr/bin/jupyter-server")}


def why_not(which: str) -> str:
    """Reason to pass a test over, or ""."""
    if PROGRAMS[which].exists():
        return ""
    wanted = "Debian's package jupyter-server" if which == "debian" else f"{PROGRAMS[which]}"
    return f"{wanted} is missing: scripts/setup --test installs it"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def environment(home: Path) -> dict[str, str]:
    """Of a client of Jupyter's that keeps all it writes below home."""
    kept = {k: v for k, v in clean_environment().items() if not k.startswith(("JUPYTER", "KERNEL_"))}
    return {**kept, "HOME": str(home), "JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data"),
            "JUPYTER_RUNTIME_DIR": str(home / "runtime"), "JUPYTER_PLATFORM_DIRS": "0"}


class LocalServer(Jupyter):
    """`with LocalServer("debian", gateway.url, gateway.key) as server:` it is a client of the gateway, and a Jupyter server to its own."""

    def __init__(self, which: str, url: str, key: str | None, *options: str, env: dict[str, str] | None = None):
        self.which, self.token = which, uuid.uuid4().hex
        self.home = Path(tempfile.mkdtemp(prefix="sandal-jupyter-", dir="/tmp"))
        port = free_port()  # another one is taken where it is lost meanwhile: the file says which
        self.log_file = self.home / "log"
        auth = {"JUPYTER_GATEWAY_AUTH_TOKEN": key} if key else {}
        with self.log_file.open("wb") as log:
            self.proc = subprocess.Popen(
                [str(PROGRAMS[which]), "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}", f"--gateway-url={url}",
                 f"--ServerApp.root_dir={self.home}", "--GatewayClient.gateway_retry_interval=0.2", *options],
                env={**environment(self.home), "JUPYTER_TOKEN": self.token, **auth, **(env or {})}, cwd=self.home, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log)
        try:
            self.url = str(wait_for(self._address, 60)).rstrip("/")
        except BaseException:
            self.close()
            raise
        super().__init__(self.url, self.token)

    def _address(self) -> Any:
        """Of its file, which it writes when it listens."""
        assert self.proc.poll() is None, self.log()
        for path in (self.home / "runtime").glob("jpserver-*.json"):
            try:
                return json.loads(path.read_text())["url"]
            except ValueError:
                return None  # half written
        return None

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.token}"}

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def session(self, kernel: dict[str, str], expect: int = 201) -> Any:
        """A notebook is opened."""
        return self.post("/api/sessions", {"path": f"{uuid.uuid4().hex}.ipynb", "type": "notebook", "name": "n", "kernel": kernel}, expect)

    def stop(self, timeout: float = 30) -> None:
        """As Ctrl-C and yes: it shuts down the kernels that it knows."""
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
        self.proc.wait(timeout)

    def close(self) -> None:
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> "LocalServer":
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.stop()
        finally:
            self.close()
