"""Whole notebooks by nbclient and papermill, through jupyter_server's GatewayKernelManager. Its WebSocket sends no header: the key is in
the URL that it is given (GA-19)."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
from harness.client import Client
from harness.daemon import ROOT, TEMPLATE, Daemon, slack, wait_for
from harness.jupyter import Jupyter, kernel_of
from harness.jupyter_server import VENV, environment, why_not

pytestmark = [pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions"),
              pytest.mark.skipif(bool(why_not("current")), reason=why_not("current"))]

WHOLE = ["n = 1", "import sys\nprint(n)\nprint('err', file=sys.stderr)\nn + 1", "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
         "print('x' * 300_000)", "await __import__('asyncio').sleep(0)\nn"]
FAILS = ["1", "1/0", "print('never')"]
DIES = ["1", "print('before', flush=True)\n__import__('os')._exit(1)", "print('never')"]
# Ends by the timeout alone.
ENDLESS = ["import time\nwhile True: time.sleep(0.05)", "print('goes on')"]
# -P: the modules of the harness have names that others have too.
PYTHON: dict[str, list[str | Path]] = {"current": [VENV / "bin" / "python", "-P"], "debian": ["/usr/bin/python3", "-P"]}
# As docs/jupyter.md has it.
RECIPE: dict[str, Any] = {"kernel": "python3", "options": {"timeout": 60, "iopub_timeout": 60}}
JOBS: dict[str, dict[str, Any]] = {
    "nbclient": {"cells": WHOLE, **RECIPE},
    "papermill": {"cells": WHOLE, "program": "papermill", "parameters": {"n": 41}, **RECIPE},
    "nbclient fails": {"cells": FAILS},
    "papermill fails": {"cells": FAILS, "program": "papermill"},
    "nbclient dies": {"cells": DIES},
    "papermill dies": {"cells": DIES, "program": "papermill"},
    "timeout": {"cells": ENDLESS, "options": {"timeout": 1}},
    "interrupt": {"cells": ENDLESS, "options": {"timeout": 1, "interrupt_on_timeout": True, "allow_errors": True}},
}


def recipe() -> str:
    """The class Manager of docs/jupyter.md, word for word."""
    found = re.search(r"^    from jupyter_server\.gateway\.managers import .*?(?=^    nbclient\.)", (ROOT / "docs" / "jupyter.md").read_text(), re.M | re.S)
    assert found
    return textwrap.dedent(found[0])


def execute(daemon: Daemon, jobs: dict[str, dict[str, Any]], python: list[str | Path]) -> dict[str, Any]:
    """What became of each job: one process runs them all, for most of its time goes into its start."""
    with tempfile.TemporaryDirectory(prefix="sandal-jupyter-", dir="/tmp") as home:
        env = {**environment(Path(home)), "JUPYTER_GATEWAY_URL": daemon.url, "JUPYTER_GATEWAY_AUTH_TOKEN": daemon.key or "",
               "JUPYTER_GATEWAY_WS_URL": f"{daemon.url.replace('http', 'ws', 1)}?token={daemon.key}"}
        ended = subprocess.run([*python, ROOT / "tests" / "e2e" / "harness" / "notebook.py"],
                               input=json.dumps({"manager": recipe(), "jobs": jobs}), text=True, capture_output=True, cwd=home, env=env, timeout=110)
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.fixture(scope="module")
def done(daemon: Daemon) -> dict[str, Any]:
    jupyter = Jupyter(daemon.url, daemon.key)
    before = jupyter.kernel_ids()
    jobs = {name: {"program": "nbclient", "kernel": TEMPLATE, "options": {}, **job} for name, job in JOBS.items()}
    became = execute(daemon, jobs, PYTHON["current"])
    wait_for(lambda: jupyter.kernel_ids() == before)
    return became


def test_ga_19_nbclient_runs_a_notebook(done: dict[str, Any]) -> None:
    job = done["nbclient"]
    assert job["error"] is None, job["error"]
    cells = job["cells"]
    assert {o["name"]: o["text"] for o in cells[1] if o["output_type"] == "stream"} == {"stdout": "1\n", "stderr": "err\n"}
    assert cells[1][-1]["data"]["text/plain"] == "2" and cells[1][-1]["execution_count"] == 2
    assert len(cells[2][0]["data"]["image/png"]) > 1000
    assert sum(len(o["text"]) for o in cells[3]) == 300_001
    assert cells[4][0]["data"]["text/plain"] == "1"


def test_ga_19_papermill_runs_a_notebook_with_parameters(done: dict[str, Any]) -> None:
    job = done["papermill"]
    assert job["error"] is None, job["error"]
    assert job["cells"][2][-1]["data"]["text/plain"] == "42"  # behind the cell that it puts in


def test_an_error_ends_the_notebook(done: dict[str, Any]) -> None:
    assert done["nbclient fails"]["error"]["ename"] == done["papermill fails"]["error"]["ename"] == "ZeroDivisionError"
    cells = done["nbclient fails"]["cells"]
    assert cells[1][-1]["output_type"] == "error" and not cells[2]


def test_a_cell_over_its_timeout(done: dict[str, Any]) -> None:
    assert done["timeout"]["error"]["type"] == "CellTimeoutError", done["timeout"]["error"]


def test_a_cell_over_its_timeout_is_interrupted(done: dict[str, Any]) -> None:
    job = done["interrupt"]
    assert job["error"] is None, job["error"]
    assert job["cells"][0][-1]["ename"] == "KeyboardInterrupt" and job["cells"][1][0]["text"] == "goes on\n"


def test_a_kernel_that_dies(done: dict[str, Any]) -> None:
    """papermill#511: without a timeout, it is told of the end and does not wait for what never comes."""
    for program in ("nbclient", "papermill"):
        job = done[f"{program} dies"]
        assert job["error"]["ename"] == "exited", job["error"]
        assert job["seconds"] < 15 * slack()  # start and end of the sandbox among it
    cells = done["nbclient dies"]["cells"]
    assert cells[1][0]["text"] == "before\n" and cells[1][-1]["ename"] == "exited" and not cells[2]


@pytest.mark.parametrize("which,program", [("current", "nbclient"), ("current", "papermill"), ("debian", "nbclient")])
def test_the_kernel_that_is_named_is_the_one_that_runs(daemon: Daemon, client: Client, which: str, program: str) -> None:
    """A context that lives, another language, and a name that is not there."""
    if why_not(which):
        pytest.skip(why_not(which))
    jupyter = Jupyter(daemon.url, daemon.key)
    before = jupyter.kernel_ids()
    with client.sandbox() as sb:
        assert sb.run("kept = 'an agent'")["status"] == "ok"
        jobs = {kernel: {"program": program, "kernel": kernel, "cells": cells, "options": {"timeout": 60, "iopub_timeout": 60}}
                for kernel, cells in {f"ctx-{kernel_of(sb)}": ["kept += ' and a notebook'\nkept"], "code-interpreter-r": ["R.version$language"],
                                      "no-such-kernel": ["1"]}.items()}
        became = execute(daemon, jobs, PYTHON[which])
        live, other, none = became.values()
        assert live["error"] is None and live["cells"][0][-1]["data"]["text/plain"] == "'an agent and a notebook'", live
        assert other["error"] is None and other["cells"][0][-1]["data"]["text/plain"] == '[1] "R"', other
        assert none["error"] is not None and "404" in none["error"]["text"], none
        assert sb.run("kept")["text"] == "'an agent and a notebook'"  # goes on afterwards
    wait_for(lambda: jupyter.kernel_ids() == before)
