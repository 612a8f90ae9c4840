"""Packages that `user` installs from files, under every launcher: live kernels see them, and so does what starts later. Where
the template's own tree can't be written to they lie in HOME."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION
from harness.packages import NAME, make_cran, make_npm, wheel

pytestmark = [pytest.mark.smoke, pytest.mark.skipif(ISOLATION == "none", reason="isolation none: it would install into the host's own trees")]


def ok(sandbox: Sandbox, cmd: Any, **fields: Any) -> str:
    answer = sandbox.post("/exec", {"cmd": cmd, "timeout": 120, **fields})
    assert answer["exit_code"] == 0, f"{answer['exit_code']}\n{answer['stdout']}\n{answer['stderr']}"
    return str(answer["stdout"])


def text(sandbox: Sandbox, code: str, **fields: Any) -> str:
    got = sandbox.run(code, timeout=120, **fields)
    assert got["status"] == "ok", got
    return str(got["text"])


def put(sandbox: Sandbox, file: Path) -> str:
    sandbox.client.call("PUT", f"{sandbox.path}/fs/file", params={"path": file.name}, content=file.read_bytes(), expect=201,
                        headers={"Content-Type": "application/octet-stream"})
    return file.name


@pytest.fixture(scope="module")
def python(client: Client) -> Iterator[Sandbox]:
    if not Path("/opt/sandal/python/lib").exists():
        pytest.skip("the python template is not installed")
    with client.sandbox(template="code-interpreter-python", network="none") as sb:
        assert sb.run(f"import {NAME}")["error"]["name"] == "ModuleNotFoundError"
        yield sb


def test_pip_installs_for_the_live_kernel_and_what_comes_after(python: Sandbox, tmp_path: Path) -> None:
    file = put(python, wheel(tmp_path, value="one"))
    ok(python, f"pip install --no-index ./{file}")
    assert text(python, f"import {NAME}; {NAME}.where") == "'one'"
    assert ok(python, f"{NAME}; python -c 'import {NAME} as n; print(n.where)'") == f"ran {NAME}\none\n"
    other = python.context()["id"]
    assert text(python, f"import {NAME}; {NAME}.where", context=other) == "'one'"


def test_a_start_of_python_is_quiet_and_looks_in_each_place_once(python: Sandbox) -> None:
    """Where packages of the user's lie over the tree, too, from the second start on."""
    for _ in range(2):
        got = python.post("/exec", {"cmd": ["python3", "-c", "import sys; print(len(sys.path) - len(set(sys.path)))"]})
        assert (got["stdout"], got["stderr"]) == ("0\n", ""), got
    assert text(python, "import sys; len(sys.path) - len(set(sys.path))") == "0"


def test_percent_pip_upgrades_and_says_when_a_restart_is_needed(python: Sandbox, tmp_path: Path) -> None:
    got = python.run(f"import {NAME}\n%pip install --no-index ./{put(python, wheel(tmp_path, version='2.0', value='two'))}", timeout=120)
    assert got["status"] == "ok" and f"it has imported {NAME} already" in got["stdout"], got
    assert ok(python, ["python", "-c", f"import {NAME} as n; print(n.where)"]) == "two\n"
    assert ok(python, ["pip", "list", "--format", "freeze"]).count(f"{NAME}==") == 1
    ok(python, f"python -m pip uninstall -y {NAME}")
    assert python.post("/exec", {"cmd": ["python", "-c", f"import {NAME}"]})["exit_code"] == 1


def test_what_the_template_brought_can_be_replaced(python: Sandbox, tmp_path: Path) -> None:
    file = put(python, wheel(tmp_path, "six", "99.0", "ours"))
    ok(python, f"pip install --no-index --upgrade ./{file}")
    assert ok(python, ["python", "-c", "import six, importlib.metadata as m; print(six.where, m.version('six'))"]) == "ours 99.0\n"
    assert ok(python, ["python", "-c", "import numpy, pandas; print(1)"]) == "1\n"


def test_a_virtual_environment_of_ones_own_is_left_alone(python: Sandbox, tmp_path: Path) -> None:
    file = put(python, wheel(tmp_path, "sandalown", "1.0", "own"))
    ok(python, f"python -m venv v && v/bin/pip install --no-index ./{file}")
    assert ok(python, "v/bin/python -c 'import sandalown; print(sandalown.where)'") == "own\n"
    assert python.post("/exec", {"cmd": ["python", "-c", "import sandalown"]})["exit_code"] == 1


def test_npm(client: Client, tmp_path: Path) -> None:
    if not Path("/opt/sandal/node/bin/npm").exists():
        pytest.skip("the node template is not installed")
    make_npm(tmp_path)
    with client.sandbox(template="code-interpreter-node", network="none") as sb:
        assert sb.run(f"require('{NAME}')")["status"] == "error"
        local, everywhere = (put(sb, tmp_path / "npm" / f"{name}-1.0.0.tgz") for name in (NAME, f"{NAME}-global"))
        ok(sb, f"npm install --offline --no-audit --no-fund --silent ./{local} && npm install -g --offline --no-audit --no-fund --silent ./{everywhere}")
        assert text(sb, f"require('{NAME}')") == f"'from npm: {NAME}'"
        assert text(sb, f"require('{NAME}-global')") == f"'from npm: {NAME}-global'"
        assert ok(sb, f"npx --offline {NAME}; {NAME}-global") == f"ran {NAME}\nran {NAME}-global\n"


def test_r(client: Client, tmp_path: Path) -> None:
    if not Path("/opt/sandal/r").exists():
        pytest.skip("the R template is not installed")
    make_cran(tmp_path)
    with client.sandbox(template="code-interpreter-r", network="none") as sb:
        file = put(sb, tmp_path / "cran" / "src" / "contrib" / f"{NAME}_1.0.tar.gz")
        got = sb.run(f"install.packages('{file}', repos = NULL, quiet = TRUE)", timeout=120)
        assert got["status"] == "ok", got
        assert "from R" in text(sb, f"{NAME}::where()")
        assert "from R" in ok(sb, f"Rscript -e '{NAME}::where()'")
