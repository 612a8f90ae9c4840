"""Packages installed in a sandbox, as `user` and as root of it, from an index that the test serves: what is live sees them at
once. The clients are set by what the operator lists."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION, Daemon
from harness.outside import ALLOWED, serve_files, world
from harness.packages import INDEX, NAME, make_apt, make_cran, make_npm, make_pip

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or ISOLATION not in ("namespace", "bubblewrap", "runc"),
                                reason="the index is in a network namespace that root makes, the sandboxes have their own root")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("index")
    make_pip(folder)
    make_npm(folder)
    make_cran(folder)
    if shutil.which("dpkg-deb"):
        make_apt(folder)
    for _ in world():
        with serve_files(folder, 8080):
            yield


@pytest.fixture(scope="module")
def client(index: None) -> Iterator[Client]:
    """Its operator says where clients find packages, in the clients' own words."""
    settings = {"PIP_INDEX_URL": f"{INDEX}/simple", "PIP_TRUSTED_HOST": ALLOWED, "PIP_FIND_LINKS": "", "NPM_CONFIG_REGISTRY": f"{INDEX}/npm/",
                "INDEX": INDEX}
    options = [word for name, value in settings.items() for word in ("--sandbox-env", f"{name}={value}")]
    with Daemon("--network-allow", f"{ALLOWED}/32", *options) as daemon:
        made = Client(daemon.url, daemon.key)
        yield made
        made.close()


def ok(sandbox: Sandbox, cmd: str, **fields: Any) -> str:
    answer = sandbox.post("/exec", {"cmd": cmd, "timeout": 120, **fields})
    assert answer["exit_code"] == 0, f"{answer['exit_code']}\n{answer['stdout']}\n{answer['stderr']}"
    return str(answer["stdout"])


def text(sandbox: Sandbox, code: str, **fields: Any) -> str:
    got = sandbox.run(code, timeout=120, **fields)
    assert got["status"] == "ok", got
    return str(got["text"])


def test_pip(client: Client) -> None:
    with client.sandbox(template="code-interpreter-python") as sb:
        assert sb.run(f"import {NAME}")["error"]["name"] == "ModuleNotFoundError"
        ok(sb, f"pip install --no-cache-dir {NAME}")
        assert text(sb, f"import {NAME}; {NAME}.where") == "'from pip'"


def test_r(client: Client) -> None:
    if not Path("/opt/sandal/r").exists():
        pytest.skip("the R template is not installed")
    with client.sandbox(template="code-interpreter-r") as sb:
        assert "FALSE" in text(sb, f"nzchar(system.file(package = '{NAME}'))")
        install = f"install.packages('{NAME}', repos = paste0(Sys.getenv('INDEX'), '/cran'), quiet = TRUE)"
        assert sb.run(install, timeout=120)["status"] == "ok"
        assert "from R" in text(sb, f"{NAME}::where()")
        assert "from R" in ok(sb, f"Rscript -e '{NAME}::where()'")  # and what starts later
        # In exec, and the kernel that was there before sees it.
        assert sb.run(f"unloadNamespace('{NAME}'); remove.packages('{NAME}')", timeout=120)["status"] == "ok"
        ok(sb, f'Rscript -e "{install}"')
        assert "from R" in text(sb, f"library({NAME}); where()")
        assert ok(sb, 'find "$HOME" -name DESCRIPTION').count("\n") == 1


def test_npm(client: Client) -> None:
    if not Path("/opt/sandal/node/bin/npm").exists():
        pytest.skip("the node template is not installed")
    with client.sandbox(template="code-interpreter-node") as sb:
        assert sb.run(f"require('{NAME}')")["status"] == "error"
        quiet = "--no-audit --no-fund --silent"
        ok(sb, f"npm install {quiet} {NAME}")
        assert text(sb, f"require('{NAME}')") == f"'from npm: {NAME}'"
        assert ok(sb, f"npx {NAME}") == f"ran {NAME}\n"
        ok(sb, f"npm install -g {quiet} {NAME}-global")
        assert text(sb, f"require('{NAME}-global')") == f"'from npm: {NAME}-global'"
        assert text(sb, f"(await import('{NAME}-global')).default") == f"'from npm: {NAME}-global'"
        assert text(sb, f"require('{NAME}-global')", language="javascript") == f"'from npm: {NAME}-global'"
        assert ok(sb, f"{NAME}-global; node -p \"require('{NAME}-global')\"") == f"ran {NAME}-global\nfrom npm: {NAME}-global\n"


@pytest.mark.skipif(ISOLATION == "bubblewrap", reason="isolation bubblewrap has no root of the sandbox")
@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="this host has no dpkg to make a package with")
def test_apt(client: Client) -> None:
    with client.sandbox(template="code-interpreter-python") as sb:
        run = f"import subprocess; subprocess.run('{NAME}', capture_output=True, text=True).stdout"
        assert sb.run(run)["error"]["name"] == "FileNotFoundError"
        ok(sb, f"rm -rf /etc/apt/sources.list.d/*; echo 'deb [trusted=yes] {INDEX}/apt ./' > /etc/apt/sources.list", user="root")
        ok(sb, f"apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y {NAME}", user="root")
        assert text(sb, run) == repr("from apt\n")
