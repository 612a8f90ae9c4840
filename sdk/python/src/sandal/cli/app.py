"""The commands."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Generator, List, NoReturn, Optional, cast, get_type_hints

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from .._errors import APIConnectionError, APIError, AuthenticationError, ConfigError, NotFoundError, PermissionDeniedError, SandalError
from .._options import ExecOptions, RunOptions
from .._results import CommandResult, Execution
from .._sync.client import Sandal
from .._sync.sandbox import Sandbox
from .._version import __version__
from . import copy as copying
from .repl import answer, repl
from .show import Shower, ago, as_json, end_of, err, raws, table, tell_cut
from .terminal import execute

app = typer.Typer(name="sandal", no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
                  help="Run code and commands in sandboxes of a Sandal daemon.")

TEMPLATE = {"python": "code-interpreter-python", "javascript": "code-interpreter-node", "typescript": "code-interpreter-node",
            "r": "code-interpreter-r"}
ALIASES = {"py": "python", "js": "javascript", "node": "javascript", "ts": "typescript"}
# Code that may read what stdin has. Other code runs at once, though the pipe on stdin stay open.
ASKS = re.compile(r"\b(?:input|getpass|stdin|readline|readLine|readlines|scan)\b")
SUFFIXES = {".py": "python", ".js": "javascript", ".mjs": "javascript", ".ts": "typescript", ".r": "r", ".R": "r"}


class Settings:
    """Of one call; the client is made when it is needed."""

    url: Optional[str] = None
    key: Optional[str] = None
    json: bool = False
    _made: Optional[Sandal] = None

    def client(self) -> Sandal:
        if self._made is None:
            self._made = Sandal(self.key, self.url)
        return self._made


SETTINGS = Settings()


JSON_HELP = "JSON on stdout, and faults as JSON on stderr, for scripts."


def command(name: Optional[str] = None, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Of the program; each takes --json behind its name, too."""

    def made(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def called(*arguments: Any, json_too: bool, **options: Any) -> None:
            SETTINGS.json = SETTINGS.json or json_too
            function(*arguments, **options)

        hints = {**get_type_hints(function), "json_too": bool}
        more = inspect.Parameter("json_too", inspect.Parameter.KEYWORD_ONLY, default=typer.Option(False, "--json", help=JSON_HELP))
        whole = [*inspect.signature(function).parameters.values(), more]
        called.__annotations__ = hints
        cast(Any, called).__signature__ = inspect.Signature([one.replace(annotation=hints[one.name]) for one in whole])
        app.command(name, **settings)(called)
        return function

    return made


def version(wanted: bool) -> None:
    if wanted:
        print(f"sandal {__version__}")
        raise typer.Exit


@app.callback()
def options(url: Optional[str] = typer.Option(None, "--url", envvar="SANDAL_URL", help="Address of the daemon."),
            key: Optional[str] = typer.Option(None, "--key", envvar="SANDAL_API_KEY", help="API key.", show_envvar=True),
            as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
            _version: bool = typer.Option(False, "--version", callback=version, is_eager=True, help="Print the version.")) -> None:
    SETTINGS.url, SETTINGS.key, SETTINGS.json = url, key, as_json


def sandboxes(incomplete: str) -> List[str]:
    """For completion: names and ids. Nothing, where the daemon does not answer at once."""
    try:
        with Sandal(timeout=1, max_retries=0) as client:
            return [word for one in client.sandboxes.list() for word in (one.name, one.id) if word and word.startswith(incomplete)]
    except (SandalError, OSError):
        return []


SANDBOX = typer.Argument(..., autocompletion=sandboxes, metavar="SANDBOX", help="Id or name.")
TEMPLATE_OPTION = typer.Option(None, "--template", "-t", help="Template of the sandbox; by default that of the language.")
SANDBOX_OPTION = typer.Option(None, "--sandbox", "-s", autocompletion=sandboxes, help="A sandbox that is there, instead of a new one.")
LANGUAGE = typer.Option(None, "--language", "-l", help="python, javascript, typescript, r, …")
KEEP = typer.Option(False, "--keep", help="Leave the new sandbox, and say its id.")


# Exit statuses: of the fault, where the code's own does not count. 1 is code that failed.
USAGE, REFUSED, NOT_FOUND, UNAUTHORIZED, NOT_REACHED = 2, 3, 4, 5, 6


def tell(code: str, message: str, hint: Optional[str] = None, text: Optional[str] = None) -> None:
    """A fault, on stderr: for people, or as the daemon's JSON has it."""
    if SETTINGS.json:
        json.dump({"error": {"code": code, "message": message, "hint": hint}}, sys.stderr, ensure_ascii=False)
        sys.stderr.write("\n")
    else:
        print(f"sandal: {text or message}", file=sys.stderr)


def fail(text: str, status: int = USAGE, code: str = "usage") -> NoReturn:
    tell(code, text)
    raise typer.Exit(status)


@contextmanager
def place(sandbox: Optional[str], template: Optional[str], language: Optional[str], keep: bool) -> Generator[Sandbox, None, None]:
    """The named sandbox, or a new one that ends with the block."""
    client = SETTINGS.client()
    if sandbox:
        yield client.sandboxes.get(sandbox)
        return
    name = ALIASES.get(language or "", language or "python")
    made = client.sandboxes.create(template or TEMPLATE.get(name, "base"))
    if keep:
        err.print(f"sandbox {made.id}", markup=False)
        yield made
        return
    with made:
        yield made


@command()
def run(file: Optional[str] = typer.Argument(None, help="File with the code; - for stdin."),
        arguments: Optional[List[str]] = typer.Argument(None, metavar="[ARG]...", help="sys.argv of a Python file; after -- what begins with -."),
        code: Optional[str] = typer.Option(None, "-c", "--code", help="The code itself."),
        sandbox: Optional[str] = SANDBOX_OPTION, template: Optional[str] = TEMPLATE_OPTION, language: Optional[str] = LANGUAGE,
        context: Optional[str] = typer.Option(None, "--context", help="Context in the sandbox: its id or name."),
        timeout: Optional[float] = typer.Option(None, "--timeout", min=0, help="Seconds; 0 for none."),
        images: Path = typer.Option(Path(), "--images", help="Where pictures go that the terminal does not show."),
        keep: bool = KEEP) -> None:
    """Run code: output as it comes, pictures shown where the terminal can, else saved. Exits with 1 when the code failed."""
    if file is not None and code is not None:
        fail("either a FILE or -c CODE")
    text, from_stdin = code or "", code is None and file in (None, "-")
    if from_stdin:
        text = "" if file is None and sys.stdin.isatty() else sys.stdin.read()
        if file is None and not text.strip():
            fail("either a FILE or -c CODE, or the code on stdin")
    elif file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            fail(f"{file} is no text in UTF-8: {error.reason} at byte {error.start}", REFUSED, "failed")
        language = language or (None if context else SUFFIXES.get(Path(file).suffix))
    with place(sandbox, template, language, keep) as box:
        shower = Shower(images)
        options: dict[str, Any] = {"language": None if context else language, "timeout": timeout}
        if file is not None and ALIASES.get(language or "", language) == "python":
            as_script = f"__import__('sys').argv = {[file, *(arguments or [])]!r}"
            if not from_stdin:  # as Python has it: whole, by the directory that the code is in
                as_script += "; __file__ = __import__('os').path.abspath(__import__('sys').argv[0])"
            box.run_code(as_script, context=context, language=options["language"], silent=True)
        elif arguments:
            fail("arguments are for a FILE of Python")
        if not sys.stdin.isatty() and not from_stdin and ASKS.search(text):
            options["stdin"] = sys.stdin.read()
        if not SETTINGS.json:
            options.update(on_stdout=shower.text, on_stderr=shower.error_text, on_result=shower.result, on_error=shower.error)
            if sys.stdin.isatty():
                options["on_input"] = answer
        execution = box.run_code(text, context=context, **cast(RunOptions, options))
        if SETTINGS.json:
            as_json(shaped(execution))
        raise typer.Exit(end_of(execution, tell=not SETTINGS.json))


def shaped(execution: Execution) -> dict[str, Any]:
    """The Execution as `GET …/runs/{run}` has it."""
    return {k: v for k, v in execution.raw.items() if k not in ("type", "seq")}


@command("repl")
def repl_command(language: Optional[str] = LANGUAGE, sandbox: Optional[str] = SANDBOX_OPTION, template: Optional[str] = TEMPLATE_OPTION,
                 context: Optional[str] = typer.Option(None, "--context", help="Context in the sandbox: its id or name."),
                 images: Path = typer.Option(Path(), "--images", help="Where pictures go that the terminal does not show."),
                 keep: bool = KEEP) -> None:
    """A prompt. Ctrl-C interrupts, Ctrl-D leaves."""
    with place(sandbox, template, language, keep) as box:
        if context:
            found = box.contexts.get(context)
        elif sandbox or language is None:
            found = box.contexts.create(language) if language else box.contexts.get(str(box.info.default_context))
        else:
            wanted = ALIASES.get(language, language)
            default = box.contexts.get(str(box.info.default_context)) if box.info.default_context else None
            found = default if default is not None and default.language == wanted else box.contexts.create(language)
        repl(found, Shower(images))


@command()
def ps(sandbox: Optional[str] = typer.Argument(None, autocompletion=sandboxes, help="Show its processes instead.")) -> None:
    """Sandboxes, or the processes of one."""
    client = SETTINGS.client()
    if sandbox:
        processes = client.sandboxes.get(sandbox).processes.list()
        if SETTINGS.json:
            return as_json(raws(processes))
        return table(["PID", "STATE", "STATUS", "STARTED", "COMMAND"],
                     [(one.pid, one.state, one.info.status, ago(one.info.started_at), one.info.cmd) for one in processes])
    found = client.sandboxes.list()
    if SETTINGS.json:
        return as_json(raws(found))
    return table(["SANDBOX", "NAME", "TEMPLATE", "STATE", "CREATED", "EXPIRES"],
                 [(one.id, one.name, one.template, one.state, ago(one.info.created_at), ago(one.info.expires_at)) for one in found])


@command()
def create(template: Optional[str] = typer.Argument(None, help="Template; the daemon's default, if none is named."),
           name: Optional[str] = typer.Option(None, "--name", help="Unique name, usable as id."),
           timeout: Optional[float] = typer.Option(None, "--timeout", min=0, help="Idle seconds until it is paused or ended; 0 for never.")) -> None:
    """Make a sandbox and print its id."""
    wanted: dict[str, Any] = {"name": name, "timeout": timeout}
    made = SETTINGS.client().sandboxes.create(template, **wanted)
    as_json(made.info.raw) if SETTINGS.json else print(made.id)


@command()
def kill(names: List[str] = typer.Argument(..., autocompletion=sandboxes, metavar="SANDBOX...")) -> None:
    """End sandboxes and all in them."""
    missing = 0
    for name in names:
        try:
            SETTINGS.client().sandboxes.kill(name)
        except NotFoundError as error:  # the others end all the same
            missing += 1
            tell(error.code, error.message, error.hint)
    if missing:
        raise typer.Exit(NOT_FOUND)


@command()
def pause(sandbox: str = SANDBOX) -> None:
    """Freeze a sandbox; the next call that needs it wakes it."""
    SETTINGS.client().sandboxes.get(sandbox).pause()


@command()
def resume(sandbox: str = SANDBOX) -> None:
    """Wake a sandbox."""
    SETTINGS.client().sandboxes.get(sandbox).resume()


@command()
def templates() -> None:
    """Templates of the daemon."""
    found = SETTINGS.client().templates.list()
    if SETTINGS.json:
        return as_json(raws(found))
    return table(["TEMPLATE", "LANGUAGE", "DESCRIPTION"],
                 [(one.name, one.main_language, one.description if one.available else f"not available: {one.reason}") for one in found])


@command("exec", context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
def exec_command(sandbox: str = SANDBOX, command: List[str] = typer.Argument(..., help="The command and its arguments."),
                 stdin: bool = typer.Option(False, "-i", "--interactive", help="Pass stdin on."),
                 tty: bool = typer.Option(False, "-t", "--tty", help="Give it a terminal."),
                 text: bool = typer.Option(False, "--text", help="Output is text that comes at once, for a dialogue through pipes."),
                 user: Optional[str] = typer.Option(None, "--user", "-u", help="user or root of the sandbox."),
                 cwd: Optional[str] = typer.Option(None, "--cwd", "-w", help="Directory."),
                 env: List[str] = typer.Option([], "--env", "-e", help="NAME=VALUE, more than once.")) -> None:
    """Run a command in a sandbox; exits as it does."""
    box = SETTINGS.client().sandboxes.get(sandbox)
    command = command[command[0] == "--":]
    bad = [pair for pair in env if "=" not in pair]
    if bad:
        fail(f"--env {bad[0]}: NAME=VALUE")
    options: dict[str, Any] = {"user": user, "cwd": cwd, "env": dict(pair.split("=", 1) for pair in env) or None}
    done: CommandResult
    if SETTINGS.json:
        done = box.exec(command, **cast(ExecOptions, options))
        as_json({k: v for k, v in done.raw.items() if k not in ("type", "seq")})
    else:
        done = execute(box, command, stdin, tty, text, options)
    if done.exit_code is not None:
        raise typer.Exit(done.exit_code)
    err.print(f"sandal: ended by {done.signal}", markup=False)
    raise typer.Exit(128 + int(getattr(signal, done.signal or "", 9)))  # as shells have it


@command()
def cp(source: str = typer.Argument(..., help="PATH, or SANDBOX:PATH, or - for stdin"),
       target: str = typer.Argument(..., help="PATH, or SANDBOX:PATH, or - for stdout"),
       recursive: bool = typer.Option(False, "-r", "--recursive", help="Directories, too.")) -> None:
    """Copy files between this machine and a sandbox."""
    here, there = copying.Place.of(source), copying.Place.of(target)
    if here.sandbox is not None and target == "-":
        for piece in SETTINGS.client().sandboxes.get(here.sandbox).fs.read(here.path, stream=True):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    if there.sandbox is not None and source == "-":
        SETTINGS.client().sandboxes.get(there.sandbox).fs.write(there.path, sys.stdin.buffer)
        return
    if (here.sandbox is None) == (there.sandbox is None):
        fail("exactly one of the two must be SANDBOX:PATH")
    upload = there.sandbox is not None
    box = SETTINGS.client().sandboxes.get(str(there.sandbox or here.sandbox))
    find = copying.to_sandbox if upload else copying.from_sandbox
    done: list[dict[str, Any]] = []
    failed = 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err, disable=SETTINGS.json or not err.is_terminal) as progress:
        for job in find(box, here.path, there.path, recursive):
            source_name, target_name = copying.shown(job.source), copying.shown(job.target)
            task = progress.add_task(source_name, total=job.size)

            def told(count: int, whole: Optional[int], task: TaskID = task) -> None:
                progress.update(task, completed=count, total=whole)

            try:
                copying.copy(box, job, upload, told)
            except (APIError, OSError) as error:
                if not recursive or isinstance(error, AuthenticationError):
                    raise
                failed += 1
                tell(error.code if isinstance(error, APIError) else "failed", f"{source_name}: {error.message if isinstance(error, APIError) else error.strerror or error}")
                continue
            done.append({"source": source_name, "target": target_name, "size": job.size})
    if SETTINGS.json:
        as_json(done)
    if failed:
        raise typer.Exit(REFUSED)


@command()
def runs(sandbox: str = SANDBOX) -> None:
    """Runs of a sandbox, the newest first."""
    found = SETTINGS.client().sandboxes.get(sandbox).runs.list()
    if SETTINGS.json:
        return as_json(raws(found))
    return table(["RUN", "STATUS", "CONTEXT", "COUNT", "MS"],
                 [(one.run, one.status, one.context, one.execution_count, one.usage and one.usage.wall_ms) for one in found])


@command()
def logs(sandbox: str = SANDBOX, run: Optional[str] = typer.Argument(None, help="Its id; by default the newest."),
         follow: bool = typer.Option(False, "-f", "--follow", help="Also what comes after its end."),
         images: Path = typer.Option(Path(), "--images", help="Where pictures go that the terminal does not show.")) -> None:
    """What a run has put out, and goes on to put out."""
    box = SETTINGS.client().sandboxes.get(sandbox)
    if run is None:
        found = box.runs.list()
        if not found:
            fail(f"{sandbox} has had no run", NOT_FOUND, "not_found")
        run = found[0].run
    shower = Shower(images)
    for chunk in box.runs.attach(run, late=follow):
        if SETTINGS.json:
            as_json(chunk.raw)
        elif chunk.type == "stdout":
            shower.text(chunk.text)
        elif chunk.type == "stderr":
            shower.error_text(chunk.text)
        elif chunk.type == "display" or chunk.type == "update":
            shower.result(chunk.result)
        elif chunk.type == "error":
            shower.error(chunk.error)
        elif chunk.type == "result":
            how = next((f", {name} {chunk.raw[name]}" for name in ("signal", "exit_code") if chunk.raw.get(name) is not None), "")
            tell_cut(chunk.truncated)
            print(f"sandal: {run} has ended: {chunk.status}{how}", file=sys.stderr)


@command()
def attach(sandbox: str = SANDBOX, context: Optional[str] = typer.Argument(None, help="Its id or name; by default the default one.")) -> None:
    """Print the line that opens JupyterLab on the sandbox's contexts."""
    client = SETTINGS.client()
    box = client.sandboxes.get(sandbox)
    found = box.contexts.get(context or str(box.info.default_context))
    key = client.api_key
    line = f"jupyter lab --gateway-url={client.base_url} --GatewayClient.auth_token={key}" if key else f"jupyter lab --gateway-url={client.base_url}"
    if SETTINGS.json:
        return as_json({"sandbox": box.id, "context": found.id, "kernel": found.id, "url": client.base_url, "command": line})
    print(line)
    err.print(f"The context is kernel {found.id} there.", markup=False)


@command()
def snapshot(sandbox: str = SANDBOX, name: Optional[str] = typer.Option(None, "--name")) -> None:
    """Keep files and memory of a sandbox, and print the snapshot's id."""
    made = SETTINGS.client().sandboxes.get(sandbox).snapshot(name)
    as_json(made.raw) if SETTINGS.json else print(made.id)


@command()
def usage() -> None:
    """Seconds active and paused, of all sandboxes."""
    found = SETTINGS.client().usage()
    if SETTINGS.json:
        return as_json(raws(found))
    return table(["SANDBOX", "TEMPLATE", "ACTIVE", "PAUSED", "ENDED"],
                 [(one.sandbox, one.template, f"{one.active_seconds:.0f} s", f"{one.paused_seconds:.0f} s", ago(one.ended_at) if one.ended_at else "")
                  for one in found])


def leave(number: int, _frame: Any) -> NoReturn:
    """As Ctrl-C does: what runs is interrupted, a sandbox of this call's own ends, the terminal is set back."""
    raise SystemExit(128 + number)


def words_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, (str, bytes)):
        return f"{copying.shown(os.fsdecode(error.filename))}: {error.strerror}"
    return str(error)


def start() -> None:
    plain = "--json" not in sys.argv
    for number in (getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)):
        if signal.getsignal(number) == signal.SIG_DFL:  # else nohup has it ignored
            signal.signal(number, leave)
    try:
        sys.exit(app(prog_name="sandal", standalone_mode=plain))
    except APIConnectionError as error:
        tell("connection", str(error))
        sys.exit(NOT_REACHED)
    except APIError as error:
        tell(error.code, error.message, error.hint, error.message if isinstance(error, NotFoundError) else str(error))
        sys.exit(NOT_FOUND if isinstance(error, NotFoundError) else
                 UNAUTHORIZED if isinstance(error, (AuthenticationError, PermissionDeniedError)) else REFUSED)
    except ConfigError as error:
        tell("usage", str(error))
        sys.exit(USAGE)
    except FileNotFoundError as error:
        tell("not_found", words_of(error))
        sys.exit(NOT_FOUND)
    except (SandalError, OSError, ValueError) as error:
        tell("failed", words_of(error))
        sys.exit(REFUSED)
    except Exception as error:
        message: Any = getattr(error, "format_message", None)  # of click, which tells it itself but in its own way
        if plain or message is None:
            raise
        SETTINGS.json = True
        tell("usage", message())
        sys.exit(USAGE)
