"""Whole notebooks by nbclient and papermill, through jupyter_server's GatewayKernelManager. Its WebSocket sends no header: the key is in
the URL that it is given (GA-19)."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from harness.daemon import ROOT, TEMPLATE, Daemon, slack, wait_for
from harness.jupyter import Jupyter
from harness.jupyter_server import VENV, environment, why_not

pytestmark = [pytest.mark.skipif("python" not in TEMPLATE, reason="asks python questions"),
              pytest.mark.skipif(bool(why_not("current")), reason=why_not("current"))]

WHOLE = ["n = 1", "import sys\nprint(n)\nprint('err', file=sys.stderr)\nn + 1", "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
         "print('x' * 300_000)", "await __import__('asyncio').sleep(0)\nn"]
FAILS = ["1", "1/0", "print('never')"]
DIES = ["1", "print('before', flush=True)\n__import__('os')._exit(1)", "print('never')"]
# Ends by the timeout alone.
ENDLESS = ["import time\nwhile True: time.sleep(0.05)", "print('goes on')"]
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


@pytest.fixture(scope="module")
def done(daemon: Daemon) -> dict[str, Any]:
    """What became of each job: one process runs them all, for most of its time goes into its start. Their kernels have gone by then."""
    jupyter = Jupyter(daemon.url, daemon.key)
    before = jupyter.kernel_ids()
    jobs = {name: {"program": "nbclient", "kernel": TEMPLATE, "options": {}, **job} for name, job in JOBS.items()}
    with tempfile.TemporaryDirectory(prefix="sandal-jupyter-", dir="/tmp") as home:
        env = {**environment(Path(home)), "JUPYTER_GATEWAY_URL": daemon.url, "JUPYTER_GATEWAY_AUTH_TOKEN": daemon.key or "",
               "JUPYTER_GATEWAY_WS_URL": f"{daemon.url.replace('http', 'ws', 1)}?token={daemon.key}"}
        # -P: the modules of the harness have names that others have too.
        ended = subprocess.run([VENV / "bin" / "python", "-P", ROOT / "tests" / "e2e" / "harness" / "notebook.py"], input=json.dumps(jobs),
                               text=True, capture_output=True, cwd=home, env=env, timeout=110)
    assert ended.returncode == 0, ended.stderr
    wait_for(lambda: jupyter.kernel_ids() == before)
    return dict(json.loads(ended.stdout))


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
