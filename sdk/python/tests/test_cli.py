"""The command `sandal`, as a program of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

import pytest
from conftest import ROOT, SDK
from harness.daemon import ISOLATION, Daemon, wait_for

from sandal import Entry, Sandal, Sandbox
from sandal.cli import repl, show
from sandal.cli.copy import Place, from_sandbox, own_name

COMMAND = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SDK / 'src')!r}); from sandal.cli import main; main()"]


@pytest.fixture
def cli(daemon: Daemon, tmp_path: Path) -> Any:
    env = {**os.environ, "SANDAL_URL": daemon.url, "SANDAL_API_KEY": str(daemon.key), "COLUMNS": "200", "TERM": "dumb"}

    def call(*argv: Any, status: int = 0, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run([*COMMAND, *map(str, argv)], cwd=tmp_path, env={**env, **more}, input=stdin, capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == status, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    call.env = env  # type: ignore[attr-defined]
    return call


def test_run(cli: Any, python_box: Sandbox, tmp_path: Path) -> None:
    got = cli("run", "-s", python_box.id, "-c", "import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (got.stdout, got.stderr) == ("out\n42\n", "err\n")
    (tmp_path / "a.py").write_text("x_of_cli = 1\nprint('from a file')")
    assert cli("run", "a.py", "-s", python_box.id).stdout == "from a file\n"
    assert cli("run", "-", "-s", python_box.id, stdin="x_of_cli + 1").stdout == "2\n"
    failed = cli("run", "-s", python_box.id, "-c", "1/0", status=1)
    assert "ZeroDivisionError: division by zero" in failed.stderr and failed.stdout == ""
    assert "bytes of stdout did not come" in cli("run", "-s", python_box.id, "-c", "print('x' * (17 << 20))").stderr
    assert "timeout" in cli("run", "-s", python_box.id, "--timeout", "0.3", "-c", "while True: pass", status=124).stderr
    told = json.loads(cli("--json", "run", "-s", python_box.id, "-c", "'é'").stdout)
    assert told["text"] == "'é'" and told["status"] == "ok" and told["results"][0]["type"] == "text/plain" and "seq" not in told
    assert json.loads(cli("--json", "run", "-s", python_box.id, "-c", "1/0", status=1).stdout)["error"]["name"] == "ZeroDivisionError"
    assert "either a FILE or -c CODE, or the code on stdin" in cli("run", status=2).stderr
    assert cli("run", "none.py", "-s", python_box.id, status=4).stderr == "sandal: none.py: No such file or directory\n"
    assert cli("run", tmp_path, "-s", python_box.id, status=3).stderr == f"sandal: {tmp_path}: Is a directory\n"
    (tmp_path / "binary.py").write_bytes(b"x = 1\n\xff")
    assert "sandal: binary.py is no text in UTF-8" in cli("run", "binary.py", "-s", python_box.id, status=3).stderr


def test_run_and_stdin(cli: Any, python_box: Sandbox, tmp_path: Path) -> None:
    """It is the code, or what input() reads; code that reads nothing does not wait for it."""
    assert cli("run", "-s", python_box.id, stdin="6 * 7").stdout == "42\n"
    code = "while True:\n    try: print('got', input())\n    except EOFError: break"
    (tmp_path / "asks.py").write_text(code)
    for argv in (("asks.py",), ("-c", code)):
        assert cli("run", *argv, "-s", python_box.id, stdin="one\ntwo\n").stdout == "got one\ngot two\n"
    assert json.loads(cli("--json", "run", "asks.py", "-s", python_box.id, stdin="x\n").stdout)["stdout"] == "got x\n"
    reads, writes = os.pipe()  # nobody ends it
    try:
        done = subprocess.run([*COMMAND, "run", "-s", python_box.id, "-c", "1 + 1"], env=cli.env, stdin=reads, capture_output=True, text=True,
                              timeout=30)
        assert done.stdout == "2\n"
    finally:
        os.close(reads)
        os.close(writes)


def test_arguments_of_a_file(cli: Any, python_box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "args.py").write_text("import sys; print(sys.argv)")
    got = cli("run", "-s", python_box.id, "args.py", "a b", "--", "-v")
    assert got.stdout == "['args.py', 'a b', '-v']\n"
    assert cli("run", "args.py", "-s", python_box.id).stdout == "['args.py']\n"
    (tmp_path / "file.py").write_text("print(__file__)")
    for name, whole in (("file.py", "/file.py"), (str(tmp_path / "file.py"), str(tmp_path / "file.py"))):
        said = cli("run", name, "-s", python_box.id).stdout.strip()
        assert said.endswith(whole) and said.startswith("/")  # below the directory that the code is in
    assert "NameError" in cli("run", "-", stdin="print(__file__)", status=1).stderr
    assert "arguments are for" in cli("run", "-s", python_box.id, "-", "x", stdin="1", status=2).stderr


def test_tables_are_whole_where_no_terminal_is(cli: Any, bare_box: Sandbox) -> None:
    """One record a line, whatever the width."""
    process = bare_box.exec("sleep 60; : " + "long " * 60 + "\n:", background=True)
    try:
        head, *lines = cli("ps", bare_box.id, COLUMNS="40").stdout.splitlines()
        assert head.split() == ["PID", "STATE", "STATUS", "STARTED", "COMMAND"]
        assert [line for line in lines if line.startswith(f"{process.pid} ") and line.endswith("long \\n:")]
        assert [line for line in cli("ps", COLUMNS="20").stdout.splitlines() if line.startswith(bare_box.id) and "running" in line]
    finally:
        process.kill()


def test_faults_as_json(cli: Any, bare_box: Sandbox) -> None:
    for argv, env, status, code in ((("exec", "none-such", "ls"), {}, 4, "sandbox_not_found"), (("ps",), {"SANDAL_API_KEY": "wrong"}, 5, "unauthorized"),
                                    (("ps",), {"SANDAL_URL": "http://127.0.0.1:1"}, 6, "connection"), (("ps",), {"SANDAL_URL": "x"}, 2, "usage"),
                                    (("create", "none-such"), {}, None, None), (("nonsense",), {}, 2, "usage"),
                                    (("run", "-c", "1", "--timeout", "x"), {}, 2, "usage"), (("cp", "a", "b"), {}, 2, "usage"),
                                    (("cp", "mine:a", "mine:b"), {}, 2, "usage"), (("run", "none.py"), {}, 4, "not_found"),
                                    (("cp", "none", f"{bare_box.id}:x"), {}, 4, "not_found"), (("cp", f"{bare_box.id}:none", "x"), {}, 4, "not_found")):
        done = subprocess.run([*COMMAND, "--json", *argv], env={**cli.env, **env}, capture_output=True, text=True, timeout=60)
        told = json.loads(done.stderr)["error"]
        assert done.stdout == "" and sorted(told) == ["code", "hint", "message"] and told["message"], argv
        assert status is None or (done.returncode, told["code"]) == (status, code), (argv, done.returncode, told)
        assert done.returncode > 1
    assert cli("--json", "run", "-s", bare_box.id, "-l", "python", "-c", "while True: pass", "--timeout", "0.3", status=124).stderr == ""


def test_json_behind_the_command(cli: Any, bare_box: Sandbox) -> None:
    """It is taken there, too, but what is of the command in the sandbox stays that one's."""
    assert bare_box.id in [one["id"] for one in json.loads(cli("ps", "--json").stdout)]
    assert json.loads(cli("exec", "--json", bare_box.id, "echo", "x").stdout)["stdout"] == "x\n"
    assert cli("exec", bare_box.id, "echo", "--json").stdout == "--json\n"
    assert json.loads(cli("run", "none.py", "--json", status=4).stderr)["error"]["code"] == "not_found"
    assert json.loads(cli("ps", "--none", "--json", status=2).stderr)["error"]["message"].startswith("No such option: --none")
    assert "--json" in cli("ps", "--help").stdout


def test_pictures(cli: Any, python_box: Sandbox, tmp_path: Path) -> None:
    got = cli("run", "-s", python_box.id, "--images", "pics", "-c", "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()")
    assert got.stderr == "saved pics/result.png\n" and (tmp_path / "pics/result.png").read_bytes().startswith(b"\x89PNG")
    assert show.picture_protocol({"TERM": "xterm-kitty"}, True) == "kitty" and show.picture_protocol({"TERM_PROGRAM": "iTerm.app"}, True) == "iterm"
    assert show.picture_protocol({"TERM": "xterm-kitty"}, False) is None and show.picture_protocol({"TERM": "xterm"}, True) is None
    text = show.picture(b"x" * 5000, "kitty")
    assert text.startswith("\x1b_Ga=T,f=100,m=1;") and text.count("\x1b_G") == 2 and "\x1b_Gm=0;" in text
    assert show.picture(b"abc", "iterm") == "\x1b]1337;File=inline=1;size=3:YWJj\a\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_it_began(cli: Any, client: Sandal, python_box: Sandbox, number: signal.Signals) -> None:
    """Its own sandbox, and its run in another's."""
    code = "print('up', flush=True)\nimport time\ntime.sleep(60)"  # longer than the test waits: the signal ends it
    before = {one.id for one in client.sandboxes.list()}
    for argv in ((), ("-s", python_box.id)):
        # As in a terminal, also where the tests run below nohup.
        with subprocess.Popen([*COMMAND, "run", *argv, "-c", code], env=cli.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              preexec_fn=lambda: signal.signal(number, signal.SIG_DFL)) as one:
            assert one.stdout and one.stdout.readline() == "up\n"
            assert argv or {one.id for one in client.sandboxes.list()} != before
            one.send_signal(number)
            assert one.wait(30) == 128 + number
    assert {one.id for one in client.sandboxes.list()} == before
    assert python_box.runs.attach(python_box.runs.list()[0].run).wait().status == "interrupted"


def test_a_sandbox_of_its_own(cli: Any) -> None:
    before = {one["id"] for one in json.loads(cli("--json", "ps").stdout)}
    assert cli("run", "-c", "'mine'").stdout == "'mine'\n"
    assert {one["id"] for one in json.loads(cli("--json", "ps").stdout)} == before
    kept = cli("run", "--keep", "-c", "'mine'").stderr.split()[1]
    assert kept in cli("ps").stdout
    gone = cli("kill", "none-such", kept, "nor-this", status=4).stderr.splitlines()
    assert gone == ["sandal: No sandbox none-such.", "sandal: No sandbox nor-this."] and kept not in cli("ps").stdout
    assert "No sandbox" in cli("kill", kept, status=4).stderr


def test_lives(cli: Any, python_box: Sandbox) -> None:
    name = f"cli-{os.getpid()}"
    made = cli("create", "base", "--name", name).stdout.strip()
    try:
        line = next(line for line in cli("ps").stdout.splitlines() if made in line)
        assert name in line and "base" in line and "running" in line
        if ISOLATION != "none":
            cli("pause", name)
            assert next(one for one in json.loads(cli("--json", "ps").stdout) if one["id"] == made)["state"] == "paused"
            cli("resume", name)
        assert "not_supported" in cli("snapshot", name, status=3).stderr
        assert "code-interpreter-python" in cli("templates").stdout and made in cli("usage").stdout
    finally:
        cli("kill", name)


def test_exec(cli: Any, bare_box: Sandbox) -> None:
    got = cli("exec", "-e", "A=1", "-w", "/tmp", bare_box.id, "sh", "-c", "echo $A; pwd; echo err >&2; exit 3", status=3)
    assert got.stdout.startswith("1\n") and got.stderr == "err\n"
    assert cli("exec", "-i", bare_box.id, "--", "cat", stdin="typed\n").stdout == "typed\n"
    for name, status in (("TERM", 143), ("KILL", 137)):  # as a shell has it
        assert f"ended by SIG{name}" in cli("exec", bare_box.id, "sh", "-c", f"kill -{name} $$", status=status).stderr
    assert json.loads(cli("--json", "exec", bare_box.id, "--", "echo", "hi").stdout)["stdout"] == "hi\n"
    cut = cli("exec", bare_box.id, "head", "-c", "13000000", "/dev/zero")
    assert len(cut.stdout) == 12 << 20 and "the output is cut: about 41709" in cut.stderr  # base64 is counted in groups
    process = bare_box.exec("sleep 60", background=True)
    assert "sleep 60" in cli("ps", bare_box.id).stdout
    process.kill()


def test_exec_keeps_bytes(cli: Any, bare_box: Sandbox, tmp_path: Path) -> None:
    """Of output that is no text, from a file and through pipes; a dialogue gets its lines as they come."""
    data = bytes(range(256)) * 1001
    (tmp_path / "data").write_bytes(data)
    bare_box.fs.write("data", data)
    for argv, given in ((("exec", bare_box.id, "cat", "data"), None), (("exec", "-i", bare_box.id, "cat"), data)):
        done = subprocess.run([*COMMAND, *argv], env=cli.env, input=given, capture_output=True, timeout=60)
        assert done.stdout == data and done.stderr == b""
    with open(tmp_path / "data", "rb") as file:
        assert subprocess.run([*COMMAND, "exec", "-i", bare_box.id, "cat"], env=cli.env, stdin=file, capture_output=True, timeout=60).stdout == data
    with subprocess.Popen([*COMMAND, "exec", "-i", "--text", bare_box.id, "cat"], env=cli.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdin and one.stdout
        for line in (b"a\n", "é\n".encode(), b"abcd\n"):
            one.stdin.write(line)
            one.stdin.flush()
            assert one.stdout.readline() == line
        one.stdin.close()
        assert one.wait(30) == 0


class Terminal:
    """A program that has a terminal."""

    def __init__(self, *argv: Any, env: dict[str, str]):
        self.fd, other = pty.openpty()
        self.program = subprocess.Popen(["setsid", "--ctty", *COMMAND, *map(str, argv)], stdin=other, stdout=other, stderr=other, env=env)
        os.close(other)
        self.text = ""

    def until(self, text: str, timeout: float = 30) -> str:
        end = time.monotonic() + timeout
        while text not in self.text:
            assert time.monotonic() < end, self.text
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.fd, 65536).decode()
                except OSError:  # its end
                    break
        assert text in self.text, self.text
        head, _, self.text = self.text.partition(text)
        return head

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        os.close(self.fd)
        return self.program.wait(30)


@pytest.mark.skipif(ISOLATION == "none", reason="isolation none has the host's terminals")
def test_a_terminal(cli: Any, bare_box: Sandbox) -> None:
    import fcntl
    import struct
    import termios

    terminal = Terminal("exec", "-it", bare_box.id, "--", "sh", env={**cli.env, "COLUMNS": "", "LINES": ""})
    terminal.until("$ ")
    fcntl.ioctl(terminal.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    terminal.type("while [ \"$(stty size)\" != '33 101' ]; do :; done; echo si''ze is right\r")
    terminal.until("size is right")
    terminal.type("sleep 60\r")
    terminal.until("sleep 60")
    terminal.type("\x03")  # goes to the command, not to the program
    terminal.until("^C")
    terminal.until("$ ")  # what is typed while the shell takes the interrupt is lost
    terminal.type("exit 7\r")
    assert terminal.end() == 7


def test_the_end_of_stdin_on_a_terminal(cli: Any, bare_box: Sandbox) -> None:
    """It lasts: for a program that leaves the terminal's line mode with the ^D unread, and for the second that reads."""
    late = "import os, select; select.select([0], [], []); os.execvp('bash', ['bash', '--norc', '-i'])"
    assert cli("exec", "-it", bare_box.id, "--", "python3", "-c", late).stdout.rstrip().endswith("exit")
    both = cli("exec", "-it", bare_box.id, "--", "sh", "-c", "cat; echo one; cat; echo two; exit 5", stdin="word\n", status=5).stdout.split()
    assert both[-3:] == ["word", "one", "two"]
    for _ in range(3):
        cli("exec", "-it", bare_box.id, "--", "bash", "--norc", "-i")


def test_the_prompt(cli: Any, python_box: Sandbox) -> None:
    terminal = Terminal("repl", "-s", python_box.id, "--language", "python", env=cli.env)
    terminal.until("python> ")
    terminal.type("y = 20\r")
    terminal.until("python> ")
    terminal.type("for i in range(2):\r    print('n', i + y)\r\r")
    terminal.until("n 20\r\nn 21")
    terminal.until("python> ")  # what is typed before may be lost, or be read as a line of its own
    terminal.type("input('who? ')\r")
    terminal.until("who? ", 30)
    terminal.until("who? ")
    terminal.type("me\r")
    terminal.until("'me'")
    terminal.until("python> ")
    terminal.type("1/0\r")
    terminal.until("ZeroDivisionError: division by zero")
    terminal.until("python> ")
    terminal.type("import time; print('be' + 'gun'); time.sleep(60)\r")
    terminal.until("begun")
    terminal.type("\x03")
    terminal.until("interrupted")
    terminal.until("python> ")
    terminal.type("y\r")
    terminal.until("20")
    terminal.until("python> ")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_completion_that_is_slow_or_fails(cli: Any, python_box: Sandbox) -> None:
    context = python_box.contexts.create("python")
    context.run_code("import time\nclass Slow:\n    def __dir__(self):\n        open('asked', 'w').close(); time.sleep(60)\nslow = Slow()").raise_()
    terminal = Terminal("repl", "-s", python_box.id, "--context", context.id, env=cli.env)
    terminal.until("python> ")
    terminal.type("slow.\t")
    wait_for(lambda: python_box.fs.exists("asked"), 30)
    begun = time.monotonic()
    terminal.type("\x03")
    terminal.type("\x15\x04")  # an empty line, and its end
    assert terminal.end() == 0 and time.monotonic() - begun < 30
    terminal = Terminal("repl", "-s", python_box.id, "--context", context.id, env=cli.env)
    terminal.until("python> ")
    context.remove()
    terminal.type("impo\t")
    terminal.until("sandal: Tab: ")
    terminal.until("python> impo")
    terminal.type("\t\x15'e' + 'nd'\r")
    terminal.until("sandal: ")  # of the run, which has no context either
    assert not terminal.until("python> ").startswith("Tab")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_what_the_prompt_waits_for() -> None:
    for code, language, more in (("for i in x:", "python", True), ("x = 1", "python", False), ("f(", "python", True), ("1 +", "python", False),
                                 ("%ls", "python", False), ("f <- function(x) {", "r", True), ("x <- '('", "r", False), ("})", "r", False),
                                 ("x <- 'one", "r", True), ("x <- 'one\ntwo'", "r", False), ("x # don't (", "r", False), ("f( # it's", "r", True),
                                 ("'it\\'s ('", "r", False), ("`one", "typescript", True), ("`one\n(two`", "typescript", False),
                                 ("f('\\'(')", "javascript", False), ("x // don't (", "javascript", False), ("/* one", "javascript", True),
                                 ("/* ( */ x", "javascript", False), ("'one", "javascript", False), ("f({", "javascript", True)):
        assert repl.unfinished(code, language) is more, code


def test_cp(cli: Any, bare_box: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "dir/sub").mkdir(parents=True)
    (tmp_path / "dir/a.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "dir/a.sh").chmod(0o755)
    (tmp_path / "dir/sub/b").write_bytes(b"\x00\xff")
    cli("cp", "dir/a.sh", f"{bare_box.id}:one.sh")
    assert bare_box.exec("./one.sh").stdout == "ran\n"
    assert "cp -r" in cli("cp", "dir", f"{bare_box.id}:copied", status=3).stderr
    cli("cp", "-r", "dir", f"{bare_box.id}:copied")
    assert bare_box.fs.read("copied/sub/b") == b"\x00\xff"
    told = json.loads(cli("--json", "cp", "-r", f"{bare_box.id}:copied", "back").stdout)
    assert (tmp_path / "back/sub/b").read_bytes() == b"\x00\xff" and {Path(one["target"]).name for one in told} == {"a.sh", "b"}
    cli("cp", f"{bare_box.id}:one.sh", ".")
    assert (tmp_path / "one.sh").stat().st_mode & 0o777 == (tmp_path / "back/a.sh").stat().st_mode & 0o777 == 0o755
    for pair in (("a", "b"), ("mine:a", "mine:b")):
        assert cli("cp", *pair, status=2).stderr == "sandal: exactly one of the two must be SANDBOX:PATH\n"
    assert "no" in cli("cp", f"{bare_box.id}:none", ".", status=4).stderr.lower()
    assert cli("cp", f"{bare_box.id}:one.sh", "-").stdout == "#!/bin/sh\necho ran\n"
    cli("cp", "-", f"{bare_box.id}:piped", stdin="by a pipe")
    assert bare_box.fs.read("piped") == b"by a pipe"
    assert Place.of("./a:b") == (None, "./a:b") and Place.of("sb:/x") == ("sb", "/x") and Place.of("sb:") == ("sb", ".")


def test_cp_shows_its_progress(cli: Any, bare_box: Sandbox, tmp_path: Path) -> None:
    """In a terminal alone, and on stderr."""
    (tmp_path / "large").write_bytes(bytes(20_000_000))
    for source, target in ((tmp_path / "large", f"{bare_box.id}:large"), (f"{bare_box.id}:large", tmp_path / "back")):
        terminal = Terminal("cp", source, target, env={**cli.env, "TERM": "xterm"})
        terminal.until("20.0/20.0 MB")
        assert terminal.end() == 0
    assert (tmp_path / "back").stat().st_size == 20_000_000
    quiet = cli("cp", f"{bare_box.id}:large", "back")
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_cp_copies_what_it_can(cli: Any, bare_box: Sandbox, tmp_path: Path) -> None:
    """And names the rest."""
    bare_box.exec("mkdir -p some/sub; echo 1 > \"$(printf 'some/a\\377')\"; ln -s none some/broken; mkfifo some/pipe; echo 2 > some/sub/z").raise_()
    got = cli("cp", "-r", f"{bare_box.id}:some", "some", status=3)
    assert (tmp_path / "some/sub/z").read_text() == "2\n" and (tmp_path / os.fsdecode(b"some/a\xff")).read_text() == "1\n"
    assert sorted(line.split(": ")[1].rpartition("/")[2] for line in got.stderr.splitlines()) == ["broken", "pipe"]
    (tmp_path / "some/broken").symlink_to("none")
    got = cli("cp", "-r", "some", f"{bare_box.id}:again", status=3)
    assert bare_box.fs.read(b"again/a\xff") == b"1\n" and bare_box.fs.read("again/sub/z") == b"2\n"
    assert len(got.stderr.splitlines()) == 1 and "some/broken" in got.stderr
    os.mkfifo(tmp_path / "some/pipe")  # which nobody writes to
    (tmp_path / "some/loop").symlink_to(".")
    got = cli("cp", "-r", "some", f"{bare_box.id}:more", status=3)
    assert [line.split(": ")[1].rpartition("/")[2] for line in got.stderr.splitlines()] == ["broken", "loop", "pipe"]
    assert bare_box.fs.read("more/sub/z") == b"2\n" and not bare_box.fs.exists("more/loop")
    with subprocess.Popen([*COMMAND, "cp", "some/pipe", f"{bare_box.id}:named"], cwd=tmp_path, env=cli.env) as one:
        (tmp_path / "some/pipe").write_text("as <(…) of a shell is")
        assert one.wait(30) == 0
    assert bare_box.fs.read_text("named") == "as <(…) of a shell is"


def test_cp_stays_where_it_was_told(bare_box: Sandbox, tmp_path: Path) -> None:
    """The root has no name that a directory of this machine could be asked for by."""
    bare_box.exec("mkdir -p names/sub; echo 1 > names/f").raise_()
    for path, name in (("/", ""), ("//", ""), ("/usr/..", ""), ("/..", ""), ("/a/b/..", "a"), ("/a/b", "b")):
        assert own_name(Entry({"path": path})) == name, path
    (tmp_path / "here").mkdir()
    jobs = list(from_sandbox(bare_box, "names/sub/..", str(tmp_path / "here"), True))
    assert [job.target for job in jobs] == [str(tmp_path / "here/names/f")]
    assert [one.name for one in tmp_path.iterdir()] == ["here"]


def test_cp_goes_as_deep_as_there_is_something(cli: Any, bare_box: Sandbox, tmp_path: Path) -> None:
    bare_box.exec("mkdir deep; cd deep; for i in $(seq 130); do echo $i > f; mkdir d; cd d; done; echo end > f").raise_()
    cli("cp", "-r", f"{bare_box.id}:deep", "deep")
    assert (tmp_path / "deep" / "/".join(["d"] * 130) / "f").read_text() == "end\n"
    assert sum(1 for one in (tmp_path / "deep").rglob("f")) == 131
    cli("cp", "-r", "deep", f"{bare_box.id}:again")
    assert bare_box.exec("find again -name f | wc -l").stdout == "131\n"


def test_logs_runs_and_attach(cli: Any, daemon: Daemon, python_box: Sandbox) -> None:
    run = python_box.run_code("print('logged'); 1/0")
    got = cli("logs", python_box.id)
    assert got.stdout == "logged\n" and "ZeroDivisionError" in got.stderr and got.stderr.endswith(f"{run.run} has ended: error\n")
    command = python_box.exec("exit 3")
    assert cli("logs", python_box.id, command.run).stderr == f"sandal: {command.run} has ended: error, exit_code 3\n"
    lines = [json.loads(line) for line in cli("--json", "logs", python_box.id, run.run).stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines))) and lines[-1]["type"] == "result"
    assert run.run in cli("runs", python_box.id).stdout
    got = cli("attach", python_box.id)
    assert got.stdout == f"jupyter lab --gateway-url={daemon.url} --GatewayClient.auth_token={daemon.key}\n"
    assert str(python_box.info.default_context) in got.stderr


def test_faults_are_told_in_a_line(cli: Any) -> None:
    for env, words, status in (({"SANDAL_URL": "http://127.0.0.1:1"}, "does not answer", 6), ({"SANDAL_URL": "nonsense"}, "begins with", 2),
                               ({"SANDAL_API_KEY": "wrong"}, "unauthorized", 5)):
        got = cli("ps", status=status, **env)
        assert words in got.stderr and "Traceback" not in got.stderr and got.stdout == ""
    assert "sandal 0." in cli("--version").stdout and "JupyterLab" in cli("--help").stdout


def test_completion(cli: Any, python_box: Sandbox) -> None:
    # Which shell it is is looked up among its parents, where tests may have none that is known: then it is named.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    assert "complete" in cli("--show-completion", "bash", status=0, **named).stdout.lower()
    line = f"sandal pause {python_box.id[:6]}"
    for shell, more in (("bash", {"COMP_WORDS": line, "COMP_CWORD": "2"}), ("zsh", {"_TYPER_COMPLETE_ARGS": line}),
                        ("fish", {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"})):
        assert cli("--show-completion", shell, **named).stdout.strip()
        assert python_box.id in cli(_SANDAL_COMPLETE=f"complete_{shell}", **more).stdout, shell


def test_without_its_libraries(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['typer'] = None; sys.path.insert(0, {str(SDK / 'src')!r}); from sandal.cli import main; main()"
    done: Optional[Any] = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done is not None and done.returncode == 1 and "sandal[cli]" in done.stderr


def test_commands_of_the_documents(cli: Any, tmp_path: Path) -> None:
    """Those of docs/sdk-python.md, in their order; of those that need somebody at the keys the help alone."""
    (tmp_path / "analysis.py").write_text("print('analysed')")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/sales.csv").write_text("a,b")
    text = (ROOT / "docs" / "sdk-python.md").read_text()
    lines = [line.split("#")[0].split() for line in text.splitlines() if line.startswith("    sandal ")]
    assert len(lines) >= 10
    for line in lines:
        argv = [word.strip('"') for word in line[1:]]
        if argv[0] in ("repl", "exec"):
            cli(argv[0], "--help")
        elif argv[0] == "logs":
            assert "has had no run" in cli(*argv, status=4).stderr
        elif argv[0] == "run":
            argv = ["run", "-c", "1 + 1", "--language", "python"] if "-c" in argv else argv
            assert cli(*argv).stdout in ("2\n", "analysed\n")
        elif argv[0] == "snapshot":
            assert "not_supported" in cli(*argv, status=3).stderr
        elif argv[0] == "pause" and ISOLATION == "none":
            continue
        else:
            cli(*argv)
