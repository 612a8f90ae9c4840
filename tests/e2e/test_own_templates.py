"""Templates of one's own, installed kernelspecs as they are, and `base`, which has no kernel until one is asked for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import BUILD, ROOT, Daemon, clean_environment

EXAMPLES = ROOT / "docs/examples/templates"


def template(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUILD / "sandald", "template", *argv], capture_output=True, text=True, env=clean_environment(), timeout=300)


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="sandal-e2e-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def put(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


# ---- validate ----

WHOLE = {"name": "own", "description": "d", "main_language": "x", "languages": {"x": {"kernel": "kernel.json"}}}
KERNEL = {"argv": ["sh", "{connection_file}"], "display_name": "X", "language": "x"}


@pytest.mark.parametrize("change, kernel, says", [
    ({}, {}, "it will do"),
    ({"colour": 1}, {}, "wrong: unknown key /colour"),
    ({"limits": {"cpus": "2"}}, {}, "wrong: /limits/cpus must be a number above 0"),
    ({"languages": {"x": {"kernel": "no.json"}}}, {}, "wrong: /languages/x/kernel: no.json: {dir}/no.json: No such file or directory"),
    ({"languages": {"x": {"kernel": "kernel.json", "aliases": "y"}}}, {}, "wrong: /languages/x/aliases must be an array of strings"),
    ({"main_language": "y"}, {}, "wrong: /main_language: y is none of /languages"),
    ({}, {"argv": ["sh", 1]}, "wrong: /languages/x/kernel: kernel.json /argv/1: must be a string"),
    ({}, {"argv": ["sh"]}, "wrong: /languages/x: /argv of its kernel.json has no {{connection_file}}"),
    ({}, {"argv": ["/no/such", "{connection_file}"]}, "wrong: /languages/x: template own: its kernel /no/such is not there"),
    ({}, {"interrupt_mode": "shout"}, 'wrong: /languages/x/kernel: kernel.json /interrupt_mode: interrupt_mode must be "signal" or "message"'),
], ids=["fine", "key", "type", "file", "list", "main", "argv", "connection", "program", "mode"])
def test_validate_names_file_and_key(folder: Path, change: dict, kernel: dict, says: str) -> None:
    put(folder / "own/template.json", WHOLE | change)
    put(folder / "own/kernel.json", KERNEL | kernel)
    got = template("validate", folder / "own")
    assert says.format(dir=folder / "own") in got.stdout, got
    assert got.returncode == (0 if says == "it will do" else 1)


def test_what_ships_validates() -> None:
    got = template("validate", *sorted(p.parent for p in [*ROOT.glob("kernelspecs/*/template.json"), *EXAMPLES.glob("*/template.json")]))
    assert got.returncode == 0 and "wrong" not in got.stdout, got.stdout


# ---- a template of one's own ----

@pytest.fixture(scope="module")
def bash() -> Iterator[Sandbox]:
    """The example, built by the command where it isn't yet."""
    built = template("build", "bash", "--template-dirs", EXAMPLES)
    if built.returncode != 0 and "No matching distribution" in built.stderr:
        pytest.skip("this host reaches no package index: " + built.stderr[-300:])
    assert built.returncode == 0, built.stderr
    with Daemon(template_dirs=[EXAMPLES]) as daemon:
        client = Client(daemon.url, daemon.key)
        assert "bash" in [t["name"] for t in client.get("/v1/templates")["items"]]
        with client.sandbox(template="bash") as sb:
            yield sb
        client.close()


def test_any_jupyter_kernel_makes_a_template(bash: Sandbox) -> None:
    got = bash.run("x=5; cd /tmp; echo out; echo err >&2")
    assert (got["status"], got["stdout"], got["text"]) == ("ok", "out\nerr\n", "out\nerr")
    assert bash.run("echo $x $PWD 你好", language="sh")["stdout"] == "5 /tmp 你好\n"
    failed = bash.run("echo before; (exit 3)")
    assert (failed["status"], failed["error"]["message"], failed["stdout"]) == ("error", "3", "before\n")


def test_its_runs_are_interrupted_and_keep_their_state(bash: Sandbox) -> None:
    bash.run("kept=41")
    got = bash.run("echo before; sleep 100", timeout=1)
    assert (got["status"], got["error"]["state"]) == ("timeout", "kept"), got
    assert bash.run("echo $((kept + 1))")["stdout"] == "42\n"


def test_what_its_kernel_cannot_do_is_told(bash: Sandbox) -> None:
    error = bash.client.error("POST", f"{bash.path}/run_code", 501, "not_supported", json={"code": "1", "env": {"A": "b"}})
    assert "bash" in error["message"] and error["hint"]


# ---- kernelspecs as they are installed ----

@pytest.fixture(scope="module")
def specs() -> Iterator[Client]:
    path = Path(tempfile.mkdtemp(prefix="sandal-e2e-", dir="/tmp"))
    path.chmod(0o755)
    put(path / "jupyter/kernels/Own_Python.3/kernel.json",
        {"argv": ["/usr/bin/python3", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--HistoryManager.enabled=False"],
         "display_name": "Somebody's Python", "language": "python", "env": {"OWN": "yes"}})
    put(path / "more/gone/kernel.json", {"argv": ["/no/such/kernel", "{connection_file}"], "display_name": "Gone", "language": "cobol"})
    with Daemon("--kernelspec-dirs", "jupyter", "--kernelspec-dirs", str(path / "more"), env={"JUPYTER_PATH": str(path / "jupyter")}) as daemon:
        client = Client(daemon.url, daemon.key)
        yield client
        client.close()
    shutil.rmtree(path)


def test_kernelspecs_are_templates(specs: Client) -> None:
    items = {t["name"]: t for t in specs.get("/v1/templates")["items"]}
    own = items["own-python-3"]
    assert (own["description"], own["main_language"], own["available"]) == ("Somebody's Python", "python", True)
    assert items["gone"]["available"] is False and "/no/such/kernel is not there" in items["gone"]["reason"]
    assert "code-interpreter-python" in items
    with specs.sandbox(template="own-python-3") as sb:
        got = sb.run("import os, sys; [os.environ['OWN'], sys.executable]")
        assert got["text"] == "['yes', '/usr/bin/python3']", got
    error = specs.error("POST", "/v1/sandboxes", 502, "kernel_start_failed", json={"template": "gone"})
    assert "/no/such/kernel" in error["message"]


def test_base_has_no_kernel_until_one_is_asked_for(specs: Client) -> None:
    with specs.sandbox(template="base") as sb:
        assert sb.get("/contexts")["items"] == []
        assert sb.post("/exec", {"cmd": "echo no kernel is needed"})["exit_code"] == 0
        assert sb.get("/contexts")["items"] == []
        assert sb.run("import sandal_frames; 1 + 1")["text"] == "2"  # the shipped one first
        assert sb.run("import os; os.environ['OWN']", language="Own_Python.3")["text"] == "'yes'"
        assert [c["language"] for c in sb.get("/contexts")["items"]] == ["python", "python"]
        made = sb.context(language="javascript")
        assert sb.run("[1].map((x) => x + 1)[0]", context=made["id"])["text"] == "2"
        assert sb.run("const x: number = 3; x", language="ts")["text"] == "3"
        assert sb.run("1 + 1", language="R")["text"] == "[1] 2"
        error = specs.error("POST", f"{sb.path}/run_code", 400, "language_not_found", json={"code": "1", "language": "klingon"})
        assert {"python", "javascript", "typescript", "r"} <= set(re.findall(r"\w+", error["hint"]))
