"""The client on the oldest Python that it is for and on a newer one than the tree's: those of other Debian releases, in roots that
`scripts/setup --test` makes. These tests run there once more, against a daemon that runs here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, own_daemon
from harness.daemon import ISOLATION, Daemon

TOOLS = Path(os.environ.get("SANDAL_TEST_TOOLS", ROOT / "build"))  # of the tree itself, where this is a copy
SITE = TOOLS / "site-roots"

# Every call, and what depends on the interpreter: its event loop, its signals, its standard library.
TESTS = ("units.py", "transport.py", "sync.py", "async.py", "cli.py::test_run", "cli.py::test_exec", "faults.py::test_a_cancelled_task_interrupts_its_run",
         "faults.py::test_ctrl_c_interrupts_its_run")

# In namespaces of its own: mounts and processes are gone with it, whatever happens. The network is the machine's.
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
ENTER = """
root=$1 tree=$2 site=$3
shift 3
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/mnt"
mkdir "$root/mnt/sdk" "$root/mnt/tests" "$root/mnt/site"
mount --bind "$tree/sdk" "$root/mnt/sdk"
mount --bind "$tree/tests" "$root/mnt/tests"
mount --bind "$site" "$root/mnt/site"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot "$root" /usr/bin/python3 -m pytest -p no:cacheprovider -ra -W error::pytest.PytestUnraisableExceptionWarning --timeout=120 --durations=5 --rootdir=/mnt "$@"
"""


def root_of(suite: str) -> Path:
    root = TOOLS / f"root-{suite}"
    if not (root / "stamp").exists() or not (SITE / "stamp").exists():
        pytest.skip(f"no root of Debian {suite} here, or no packages for it: scripts/setup --test, as root, says why")
    if subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode != 0:
        pytest.skip("no mounts of one's own are allowed here")
    return root


@own_daemon
@pytest.mark.parametrize("suite, version", [("bullseye", "3.9"), ("trixie", "3.13")])
def test_on_another_python(suite: str, version: str, daemon: Daemon) -> None:
    root = root_of(suite)
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8", "PYTHONPATH": "/mnt/site", "PYTHONDONTWRITEBYTECODE": "1",
           "SANDAL_TEST_URL": daemon.url, "SANDAL_TEST_KEY": str(daemon.key), "SANDAL_TEST_ISOLATION": ISOLATION}
    tests = [f"/mnt/sdk/python/tests/test_{name}" for name in TESTS]
    done = subprocess.run([*NAMESPACES, "sh", "-eu", "-c", ENTER, "sh", str(root), str(ROOT), str(SITE), *tests],
                          env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-20_000:]
    assert re.search(rf"^platform linux -- Python {re.escape(version)}\.\d", done.stdout, re.M), done.stdout[:500]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) > 100, done.stdout[-2000:]
