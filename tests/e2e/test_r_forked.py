"""Kernels of R that a zygote forked (docs/zygotes.md): all that test_r.py knows of R's, and what makes them kernels of their own."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
from harness.client import Client, Sandbox
from harness.daemon import ISOLATION
from test_r import (  # noqa: F401  # they take r and own from here
    test_comms_are_listed,
    test_complete_and_inspect,
    test_env_and_cwd_of_one_run,
    test_interrupt_keeps_state_and_output,
    test_kq_05_case,
    test_output_streams_while_a_loop_runs,
    test_quit_and_kill_are_told,
    test_variables_disturb_nothing,
)
from test_zygote import client, daemon  # noqa: F401

pytestmark = pytest.mark.skipif(ISOLATION != "namespace", reason=f"isolation {ISOLATION}: there are no zygotes")
TEMPLATE = "code-interpreter-r"


def forked(client: Client, **fields: Any) -> Sandbox:  # noqa: F811
    made = client.sandbox(template=TEMPLATE, checkpointable=False, **fields)
    assert made.record["start"] == "zygote", made.record
    return made


@pytest.fixture(scope="module")
def r(client: Client) -> Iterator[Sandbox]:  # noqa: F811
    with forked(client) as sb:
        yield sb


@pytest.fixture
def own(client: Client) -> Iterator[Sandbox]:  # noqa: F811
    with forked(client) as sb:
        yield sb


def lines(sandbox: Sandbox, code: str) -> list[str]:
    got = sandbox.run(code)
    assert got["status"] == "ok", got
    return got["stdout"].splitlines()


def test_children_share_nothing_that_shows(client: Client) -> None:  # noqa: F811
    code = ("cat(runif(1), sample.int(1e9, 1), tempdir(), basename(tempfile()), uuid::UUIDgenerate(), Sys.info()[['nodename']], "
            "Sys.getenv('MINE'), sep = '\\n')")
    with forked(client, env={"MINE": "one"}) as one, forked(client, env={"MINE": "two"}) as two:
        rows = [lines(sb, code) for sb in (one, two)]
        assert all(a != b for a, b in zip(*rows, strict=True)), rows
        assert [row[-2:] for row in rows] == [[one.id, "one"], [two.id, "two"]]
        for sb in (one, two):
            assert lines(sb, "cat(dir.exists(tempdir()), list.files('/tmp') == basename(tempdir()), cli:::clienv$pid == Sys.getpid())") \
                == ["TRUE TRUE TRUE"]
        one.run("mine <- 1; options(of.one = 1); Sys.setenv(LATER = 'x'); library(dplyr); writeLines('x', '/tmp/of-one')")
        assert lines(two, "cat(exists('mine'), is.null(getOption('of.one')), Sys.getenv('LATER', 'none'), 'package:dplyr' %in% search(), "
                          "file.exists('/tmp/of-one'))") == ["FALSE TRUE none FALSE FALSE"]


def test_it_looks_like_one_that_was_spawned(client: Client) -> None:  # noqa: F811
    """But for what packages leave when they are loaded, of which TZDIR is lubridate's."""
    code = ("e <- Sys.getenv(); e <- e[!names(e) %in% c('R_SESSION_TMPDIR', 'TZDIR')]; cat(paste0(names(e), '=', e), sep = '\\n')\n"
            "cat(sub('/run/sandal/.*', '', commandArgs()), setdiff(search(), 'jupyter:irkernel'), .libPaths(), getwd(), path.expand('~'), sep = '\\n')\n"
            "cat(Sys.getlocale(), dev.cur(), Cstack_info()[['size']], ls(globalenv(), all.names = TRUE), sep = '\\n')\n"
            "cat(readLines('/proc/self/limits'), grep('Sig(Blk|Ign)|NoNewPrivs|Cap|Uid', readLines('/proc/self/status'), value = TRUE), sep = '\\n')\n"
            "for (name in c('width', 'device', 'keep.source', 'jupyter.plot_mimetypes', 'repos', 'editor')) print(deparse(getOption(name)))\n"
            "cat(data.table::getDTthreads(), proc.time()[['elapsed']] < 60)")
    with client.sandbox(template=TEMPLATE) as spawned, forked(client) as sb:
        assert spawned.record["start"] == "spawn"
        seen = [[line.replace(box.id, "ID") for line in lines(box, code)] for box in (spawned, sb)]
        assert seen[0] == seen[1]
        assert lines(sb, "cat(isNamespaceLoaded('ggplot2'), isNamespaceLoaded('data.table'))") == ["TRUE TRUE"]


@pytest.mark.parametrize("cause", [
    "writeLines('options(of.mine = 7)', '~/.Rprofile')",
    "writeLines('OF_MINE=7', '.Renviron')",
    "file.copy(find.package('stringr'), strsplit(Sys.getenv('R_LIBS_USER'), ':')[[1]][1], recursive = TRUE)",
])
def test_its_users_start_files_and_packages_come_first(own: Sandbox, cause: str) -> None:
    """So the next kernel of the sandbox, though it was forked, has loaded nothing before them."""
    about = "cat(isNamespaceLoaded('dplyr'), getOption('of.mine', Sys.getenv('OF_MINE', 'none')), find.package('stringr'))"
    assert lines(own, about) == ["TRUE none /usr/lib/R/site-library/stringr"]
    own.run(f"invisible({cause})")
    context = own.context(name="next")["id"]
    loaded, mine, place = own.run(about, context=context)["stdout"].split(" ")
    assert loaded == "FALSE" and (mine == "7") != place.startswith("/home/"), (loaded, mine, place)
    assert own.run("plot(1); 1 + 1", context=context)["text"] == "[1] 2"


def test_ends_are_told_truly(own: Sandbox) -> None:
    got = own.run("cat('before\\n'); tools::pskill(Sys.getpid(), 11)")
    assert (got["status"], got["stdout"]) == ("killed", "before\n") and "SIGSEGV" in got["error"]["message"], got
    assert own.run("2")["text"] == "[1] 2"


def test_want_of_memory_is_told_truly(client: Client) -> None:  # noqa: F811
    with forked(client, limits={"memory_mib": 400}) as sb:
        assert sb.run("x <- numeric(2e8); x[] <- 1")["status"] == "oom"
        assert sb.run("2")["text"] == "[1] 2"
