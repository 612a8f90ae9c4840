"""The TypeScript SDK as it is installed: built, packed, unpacked beside a program, and run on every platform that is there."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Callable, Iterator

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from harness.daemon import ROOT, Daemon, clean_environment, processes_left, wait_for  # noqa: E402

SDK = Path(os.environ.get("SANDAL_SDK_TYPESCRIPT", ROOT / "sdk" / "typescript"))
TOOLS = SDK / "node_modules"
RUNTIMES = SDK / "test" / "runtimes" / "node_modules"
JOBS = 3  # suites at once: they mostly wait for kernels


def first(*paths: Path) -> str | None:
    return next((str(path) for path in paths if path.exists()), None)


PLATFORMS = {
    "node24": first(Path("/opt/sandal/node/bin/node"), Path.home() / ".local/share/sandal/node/bin/node"),
    "node20": first(*(RUNTIMES / f"node-20-{cpu}/bin/node" for cpu in ("x64", "arm64"))),
    "node18": first(*(RUNTIMES / f"node-18-{cpu}/bin/node" for cpu in ("x64", "arm64"))),
    "bun": first(RUNTIMES / "@oven/bun-linux-x64-baseline/bin/bun", RUNTIMES / "@oven/bun-linux-aarch64/bin/bun"),
    "deno": first(RUNTIMES / "@deno/linux-x64-glibc/deno", RUNTIMES / "@deno/linux-arm64-glibc/deno"),
}


def platform(name: str) -> str:
    path = PLATFORMS[name]
    if not path:
        pytest.skip(f"{name} is not installed: scripts/setup --test --templates node")
    return path


def any_node() -> str:
    for name in ("node24", "node20"):
        if PLATFORMS[name]:
            return str(PLATFORMS[name])
    pytest.skip("no Node is installed: scripts/setup --test")


def check(argv: list[str], timeout: float = 120, stderr: int = subprocess.PIPE, **options: object) -> str:
    """What it printed, on stderr too where `stderr` says so; its whole output where it failed, or had no end within `timeout`."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=stderr, text=True, stdin=subprocess.DEVNULL, start_new_session=True,
                          **options) as process:  # type: ignore[call-overload]
        try:
            said, faults = process.communicate(timeout=timeout)
            how = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the programs that it has started
            said, faults = process.communicate()
            how = f"was not over after {timeout:g} s"
    assert process.returncode == 0, f"{' '.join(argv)} {how}\n{said[-6000:]}\n{(faults or '')[-6000:]}"
    return str(said)


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    wait_for(lambda: not processes_left(), 30)


@pytest.fixture(scope="session")
def built() -> Path:
    if not (TOOLS / "typescript").exists():
        pytest.skip("the SDK's compiler is not installed: scripts/setup --test")
    check([any_node(), str(SDK / "scripts/build.mjs")])
    return SDK


@pytest.fixture(scope="session")
def package(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pack")
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    check(["npm", "pack", "--ignore-scripts", "--pack-destination", str(folder)], cwd=built)
    return next(folder.glob("*.tgz"))


@pytest.fixture(scope="session")
def project(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of somebody who has installed the package."""
    folder = tmp_path_factory.mktemp("project")
    scope = folder / "node_modules" / "@sandal"
    scope.mkdir(parents=True)
    with tarfile.open(package) as tar:
        tar.extractall(scope)  # of our own making
    (scope / "package").rename(scope / "sdk")
    (folder / "package.json").write_text('{"type": "module", "private": true, "dependencies": {"@sandal/sdk": "*"}}\n')
    for name, place in {"@anthropic-ai": RUNTIMES, "@types": TOOLS, "undici-types": TOOLS}.items():
        if (place / name).exists():
            (folder / "node_modules" / name).symlink_to(place / name)
    return folder


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    with Daemon("--limits-queue", "2000") as d:  # for a thousand runs in one context
        yield d


@pytest.fixture(scope="session")
def environment(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = str(tmp_path_factory.mktemp("home"))
    return {**clean_environment(), "SANDAL_URL": daemon.url, "SANDAL_API_KEY": daemon.key or "", "HOME": home, "NO_COLOR": "1",
            "DENO_NO_UPDATE_CHECK": "1"}


class Suites:
    """Runs of test files, some at once: all that were selected start with the first that is asked for."""

    def __init__(self, selected: list[tuple[str, str]], start: Callable[[str, str], str]):
        self.pool = concurrent.futures.ThreadPoolExecutor(JOBS)
        self.jobs = {job: self.pool.submit(start, *job) for job in selected}

    def result(self, name: str, file: str) -> str:
        return self.jobs[name, file].result()


@pytest.fixture(scope="session")
def suites(request: pytest.FixtureRequest, project: Path, environment: dict[str, str]) -> Iterator[Suites]:
    tests = SDK / "test"

    def start(name: str, file: str) -> str:
        path = f"{tests}/{file}.test.mjs"
        argv = {
            "bun": ["test", "--timeout", "120000", path],
            "deno": ["test", "-A", "--no-check", "--no-config", path],
        }.get(name, ["--test", "--test-reporter=tap", path])
        entry = project / "node_modules/@sandal/sdk/dist/esm/index.js"
        return check([str(PLATFORMS[name]), *argv], timeout=280, stderr=subprocess.STDOUT, cwd=tests,
                     env={**environment, "SANDAL_TEST_ENTRY": str(entry)})

    selected = [item.callspec.params["suite"] for item in request.session.items
                if getattr(item, "callspec", None) and "suite" in item.callspec.params]
    made = Suites([job for job in selected if PLATFORMS[job[0]]], start)
    yield made
    made.pool.shutdown(cancel_futures=True)
