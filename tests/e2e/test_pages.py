"""The pages for newcomers and operators: their shell snippets run as they stand and print what the page shows, and links lead somewhere.
Snippets in Python and for the command line run in the tests of the Python SDK, those in TypeScript in the tests of that one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from harness.client import Client
from harness.daemon import BUILD, ROOT, Daemon, clean_environment, let_in
from harness.pages import agrees, blocks, snippets

DOCS = ROOT / "docs"
MARK = "-- the next block --"


def run_shell(parts: list[str], daemon: Daemon, folder: Path) -> list[str]:
    """Blocks as one program; what each printed."""
    program = f"\necho '{MARK}'\n".join(parts)
    done = subprocess.run(["sh", "-eu", "-c", program], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**clean_environment(), "SANDAL_URL": daemon.url, "SANDAL_API_KEY": daemon.key or "",
                               "SANDAL_STATE_DIR": str(daemon.state), "PATH": f"{BUILD.resolve()}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.strip("\n") for part in done.stdout.split(MARK + "\n")]


@pytest.mark.parametrize("name", ["quick-start", "concepts", "operations"])
def test_shell_snippets(name: str, daemon: Daemon, tmp_path: Path) -> None:
    page = blocks(DOCS / f"{name}.md")
    start = [] if name != "concepts" else snippets(DOCS / "quick-start.md", "sh")[:1]  # where `api` is made
    shell = [i for i, (kind, _, _) in enumerate(page) if kind == "sh"]
    said = run_shell([*start, *(page[i][1] for i in shell)], daemon, tmp_path)[len(start):]
    shown = [page[i + 1][1] if page[i + 1: i + 2] and page[i + 1][0] == "text" else "" for i in shell]
    assert len([text for text in shown if text]) == len([kind for kind, _, _ in page if kind == "text"])
    for i, want, have in zip(shell, shown, said):
        assert agrees(want, have), f"{name}.md:{page[i][2]} printed\n{have}\nand shows\n{want}"


def heads(page: Path) -> set[str]:
    """Anchors as GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]), ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if re.match(r"https?:", link):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in heads(target)):
            broken.append(link)
    assert not broken


def test_index_has_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    assert not [page.name for page in DOCS.glob("*.md") if page.name != "README.md" and f"]({page.name})" not in index]


def host_lines() -> list[tuple[str, str]]:
    return [(page.name, line) for page in sorted(DOCS.glob("*.md")) for text in snippets(page, "sh host") for line in text.splitlines() if line]


def test_host_snippets_name_what_is_there() -> None:
    """They set machines up, which other stages do (demo, release, the SDKs'); here: programs of the tree exist, and sandald knows their options."""
    lines = host_lines()
    assert lines
    for page, line in lines:
        words = line.split("#")[0].split()
        for word in words:
            if re.match(r"(\./)?(scripts|sdk|deploy)/", word.strip("'")):
                assert (ROOT / re.sub(r"\[.*", "", word.strip("'"))).exists(), f"{page}: {line}"
        if words and Path(words[0]).name == "sandald":
            command = " ".join(words[1:3]) if words[1] in ("keys", "template") else words[1]
            said = subprocess.run([BUILD / "sandald", *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
            assert not [word for word in words if word.startswith("--") and word.split("=")[0] not in said], f"{page}: {line}"


def test_configuration_files_are_valid(tmp_path: Path) -> None:
    found = [text for page in DOCS.glob("*.md") for text in snippets(page, "json config")]
    assert found
    for text in found:
        file = tmp_path / "sandal.json"
        file.write_text(text)
        done = subprocess.run([BUILD / "sandald", "check-config", "--state-dir", str(let_in(tmp_path) / "state"), "--config", str(file)],
                              env=clean_environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_operations_name_each_metric(client: Client) -> None:
    given = set(re.findall(r"^# TYPE (\S+)", client.call("GET", "/metrics").text, re.M))
    pages = "".join((DOCS / f"{name}.md").read_text() for name in ("operations", "pools"))
    named = set(re.findall(r"\bsandal_[a-z_]+", pages))
    assert not given - named
    assert all(name.startswith("sandal_pool_") for name in named - given)  # there where pools are


@pytest.mark.parametrize("name", ["concepts", "operations", "security"])
def test_keys_of_the_configuration_are_there(name: str) -> None:
    known = set(re.findall(r"^\*([a-z_.]+)\* \(", (DOCS / "man/sandald-config.5.scd").read_text(), re.M))
    groups = {key.split(".")[0] for key in known if "." in key}
    named = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", (DOCS / f"{name}.md").read_text()))
    assert not {key for key in named if key.split(".")[0] in groups} - known - {"volumes.img"}  # a file
