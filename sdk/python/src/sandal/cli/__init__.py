"""The command `sandal`."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        import rich  # noqa: F401  # pyright: ignore[reportUnusedImport]
        import typer  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        sys.exit(f"sandal: the command line needs {error.name}: pip install 'sandal[cli]' from where sandal was installed")
    from .app import start

    start()
