"""Runs notebooks on kernels of a gateway with nbclient or papermill. It is run by the Python of build/venv-jupyter or by Debian's: the source
of the class Manager and jobs by name come on stdin, and what became of each goes to stdout, both as JSON. Where the gateway is the
environment says, as users say it (JUPYTER_GATEWAY_*)."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def manager(source: str) -> Any:
    names: dict[str, Any] = {}
    exec(source, names)  # ours: docs/jupyter.md has it
    return names["Manager"]


def notebook(cells: list[str], kernel: str) -> Any:
    import nbformat
    from nbformat import v4
    made = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    return nbformat.from_dict(made)


def by_nbclient(nb: Any, job: dict[str, Any]) -> Any:
    from nbclient import NotebookClient
    NotebookClient(nb, kernel_name=job["kernel"], kernel_manager_class=MANAGER, **job["options"]).execute()
    return nb


def by_papermill(nb: Any, job: dict[str, Any]) -> Any:
    import nbformat
    import papermill
    nb.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(nb, "in.ipynb")
    papermill.execute_notebook("in.ipynb", "out.ipynb", parameters=job.get("parameters"), kernel_name=job["kernel"], progress_bar=False,
                               kernel_manager_class=MANAGER, **job["options"])
    return nbformat.read("out.ipynb", 4)


def outcome(job: dict[str, Any]) -> dict[str, Any]:
    nb, error = notebook(job["cells"], job["kernel"]), None
    begin = time.monotonic()
    try:
        nb = (by_papermill if job["program"] == "papermill" else by_nbclient)(nb, job)
    except Exception as failure:
        error = {"type": type(failure).__name__, "ename": getattr(failure, "ename", None), "text": str(failure)}
    return {"error": error, "seconds": time.monotonic() - begin, "cells": [cell.get("outputs") for cell in nb.cells],
            "widgets": nb.metadata.get("widgets")}


asked = json.load(sys.stdin)
MANAGER = manager(asked["manager"])
json.dump({name: outcome(job) for name, job in asked["jobs"].items()}, sys.stdout)
