"""A page in Debian's chromium that runs code and shows a plot, from an origin of its own."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from pathlib import Path
from typing import Iterator

import pytest
from conftest import any_node, check
from harness.client import Client
from harness.daemon import Daemon, clean_environment
from harness.lab import CHROMIUM, PACKAGES, missing

PAGE = Path(__file__).resolve().parent / "page"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The origin of a server that has the page and the installed SDK beside it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(PAGE / "page.html", folder)
    shutil.copytree(project / "node_modules/@sandal/sdk/dist/esm", folder / "sdk")
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def gateway(site: str) -> Iterator[Daemon]:
    with Daemon("--cors-origins", site) as daemon:
        yield daemon


@pytest.mark.parametrize("transport", ["auto", "http"])
def test_page(site: str, gateway: Daemon, tmp_path: Path, transport: str) -> None:
    if reason := missing(CHROMIUM, PACKAGES / "playwright-core"):
        pytest.skip(reason)
    client = Client(gateway.url, gateway.key)
    with client.sandbox(template="code-interpreter-python") as sandbox:
        # A page gets a key for its sandbox alone.
        key = client.post("/v1/keys", {"scopes": [f"attach:{sandbox.id}"]}, expect=201)["key"]
        address = f"{site}/page.html#url={gateway.url}&key={key}&sandbox={sandbox.id}&transport={transport}"
        said = json.loads(check([any_node(), str(PAGE / "browser.cjs"), str(CHROMIUM), address], cwd=tmp_path,
                                env={**clean_environment(), "NODE_PATH": str(PACKAGES), "HOME": str(tmp_path)}))
    client.close()
    assert said == {"output": "0\n1\n2\n", "streamed": True, "plot": [True, True], "sent": 5_000_000, "read": 10,
                    "error": ["PermissionDeniedError", "forbidden", True], "sockets": 0 if transport == "http" else 1}
