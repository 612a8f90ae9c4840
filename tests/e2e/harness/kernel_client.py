"""What Datalayer's jupyter-kernel-client does with a gateway: run by the Python of build/venv-jupyter with the gateway's URL, its key, the
id of a live kernel. Prints what it saw as JSON."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from jupyter_kernel_client import JupyterKernelClient  # type: ignore[import-not-found]


def interrupted(kernel: Any) -> Any:
    """The cell says when it runs, and ends by the interrupt alone."""
    timer = threading.Event()

    def ask(_: Any) -> None:
        kernel._manager.client.input("")  # to the input() that the cell begins with
        timer.set()
    threading.Thread(target=lambda: (timer.wait(), kernel.interrupt()), daemon=True).start()
    return kernel.execute("input()\nimport time\nwhile True: time.sleep(0.05)", allow_stdin=True, stdin_hook=ask)["status"]


def main(url: str, key: str, live: str) -> dict[str, Any]:
    saw: dict[str, Any] = {}
    with JupyterKernelClient(server_url=url, token=key) as kernel:
        saw["id"] = kernel.id
        saw["listed"] = [k["id"] for k in kernel.list_kernels()]
        saw["run"] = kernel.execute("print('out')\n40 + 2")
        saw["error"] = kernel.execute("1/0")["status"]
        kernel.execute("x = 5")
        saw["variables"] = [v["name"] for v in kernel.list_variables()]
        saw["interrupted"] = interrupted(kernel)
        saw["kept"] = kernel.execute("x")["outputs"][0]["data"]["text/plain"]
        kernel.restart()
        saw["after restart"] = kernel.execute("'x' in globals()")["outputs"][0]["data"]["text/plain"]
    with JupyterKernelClient(server_url=url, token=key, kernel_id=live) as kernel:
        saw["live"] = kernel.execute("kept")["outputs"][0]["data"]["text/plain"]
    return saw


json.dump(main(*sys.argv[1:]), sys.stdout)
