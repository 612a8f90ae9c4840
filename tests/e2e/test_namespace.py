"""The launcher `namespace` as clients get it: what hostile code can't do, packages, settings of the
operator, restarts, and that nothing is left. Needs root."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, Iterator
from urllib.parse import urlsplit

import pytest
from harness.client import Client, Sandbox
from harness.daemon import TEMPLATE, Daemon, wait_for
from harness.roots import make_root, make_template

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the launcher namespace needs root")

MARK = f"sandal-planted-{secrets.token_hex(6)}"
# Directories of the host that no sandbox shows. What isn't there is made for the test.
HIDDEN = ["/root", "/home", "/srv", "/mnt", "/media", "/opt", "/boot", "/etc", "/etc/ssh", "/etc/default", "/etc/cron.d",
          "/etc/apt/apt.conf.d", "/etc/apt/auth.conf.d", "/etc/ssl/private", "/etc/profile.d", "/usr/local/etc", "/var",
          "/var/lib", "/var/log", "/var/tmp", "/var/spool", "/var/cache", "/run", "/tmp", "/dev/shm", "/"]


def plant(places: list[Path], made: list[Path]) -> Iterator[None]:
    """A file in each, added to `made` as it is written. The content is a comment to apt, to shells and to cron: their
    settings are among the places, and other tests and programs go on reading them meanwhile."""
    with contextlib.ExitStack() as undo:
        for place in places:
            if not place.is_dir():
                place.mkdir()
                undo.callback(place.rmdir)
            file = place / MARK
            undo.callback(file.unlink, missing_ok=True)
            file.write_text(f"# {MARK}\n")
            file.chmod(0o644)
            made.append(file)
        yield


@pytest.fixture(scope="module")
def planted() -> Iterator[list[Path]]:
    """A file with the mark in its name and content in each hidden place."""
    made: list[Path] = []
    with contextlib.contextmanager(plant)([Path(place) for place in HIDDEN], made):
        yield made


def test_planted_files_disturb_nobody(planted: list[Path]) -> None:
    """A file of apt's settings that apt cannot read would end every apt of the machine, in sandboxes that are shown them too."""
    assert Path("/etc/apt/apt.conf.d", MARK) in planted
    said = subprocess.run(["apt-config", "dump"], capture_output=True, text=True)
    assert said.returncode == 0 and not said.stderr, said.stderr


def test_planted_files_go_when_a_place_fails(tmp_path: Path) -> None:
    made: list[Path] = []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError), contextlib.contextmanager(plant)([tmp_path, tmp_path / "new", tmp_path / "file" / "x"], made):
        pass
    assert made == [tmp_path / MARK, tmp_path / "new" / MARK] and [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.fixture(scope="module")
def host(planted: list[Path]) -> Iterator[Daemon]:
    settings = Path(f"/etc/{MARK}-settings")
    settings.mkdir()
    (settings / "client.conf").write_text("index = here\n")
    (settings / "client.conf").chmod(0o600)
    try:
        with Daemon("--isolation", "namespace", "--sandbox-files", str(settings), "--sandbox-env", "FROM_OPERATOR=yes",
                    "--sandbox-env", "PASSED_ON", "--sandbox-env", "NOT_THERE", env={"PASSED_ON": "too"}) as daemon:
            yield daemon
    finally:
        (settings / "client.conf").unlink()
        settings.rmdir()


@pytest.fixture(scope="module")
def api(host: Daemon) -> Iterator[Client]:
    client = Client(host.url, host.key)
    yield client
    client.close()


@pytest.fixture(scope="module")
def box(api: Client) -> Iterator[Sandbox]:
    with api.sandbox(template=TEMPLATE, network="none") as sandbox:
        yield sandbox


def sh(sandbox: Sandbox, cmd: str | list[str], **fields: Any) -> dict[str, Any]:
    return sandbox.post("/exec", {"cmd": cmd, **fields})


def ok(sandbox: Sandbox, cmd: str | list[str], **fields: Any) -> str:
    answer = sh(sandbox, cmd, **fields)
    assert answer["exit_code"] == 0, f"{answer['exit_code']}\n{answer['stdout']}\n{answer['stderr']}"
    return str(answer["stdout"])


def python(sandbox: Sandbox, code: str, **fields: Any) -> dict[str, Any]:
    return sh(sandbox, ["python3", "-c", textwrap.dedent(code)], **fields)


@pytest.mark.smoke
def test_record_says_what_it_got(box: Sandbox) -> None:
    got = box.record["isolation"]
    assert got["kind"] == "namespace" and got["userns"] == "own" and got["seccomp"] == "filter" and got["network"] == "none"
    assert got["disk"] in ("btrfs", "loop", "tmpfs", "prjquota", "none") and got["cgroup"] in ("v1", "v2", "mixed", "none")


@pytest.mark.smoke
def test_kernel_runs_in_it(box: Sandbox) -> None:
    result = box.run("import os; (os.getuid(), os.getcwd(), os.environ['HOME'], open('/proc/1/comm').read().strip())")
    assert result["text"] == "(1000, '/workspace', '/home/user', 'sandal-init')"
    assert box.run("open('/workspace/there', 'w').write('x')")["status"] == "ok"
    assert ok(box, "cat there") == "x"


@pytest.mark.parametrize("user", ["user", "root"])
def test_planted_files_are_not_seen(box: Sandbox, planted: list[Path], user: str) -> None:
    seen = [str(path) for path in planted if sh(box, ["test", "-e", str(path)], user=user)["exit_code"] == 0]
    assert seen == []
    found = ok(box, f"find / -xdev -name '{MARK}' 2>/dev/null; find /run /tmp /dev -name '{MARK}' 2>/dev/null; true", user=user)
    assert found == ""


def test_state_of_the_daemon_is_not_seen(box: Sandbox, host: Daemon) -> None:
    assert sh(box, ["test", "-e", str(host.state)], user="root")["exit_code"] == 1
    assert host.key is not None
    assert host.key not in ok(box, "env; cat /proc/self/environ /proc/1/cmdline | tr '\\0' '\\n'", user="root")


# (what, as whom, program, what counts as failure of the try): each must exit non-zero.
TRIES = {
    "the daemon's port": ("user", "import socket; socket.create_connection(('127.0.0.1', PORT), 2)"),
    "the network": ("root", "import socket; socket.create_connection(('192.0.2.1', 80), 2)"),
    "signals to all": ("user", "import os; os.kill(1, 9)"),
    "a namespace": ("user", "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000) != 0)"),
    "a namespace as root": ("root", "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x20000) != 0)"),
    "a mount": ("root", "import ctypes, sys; sys.exit(ctypes.CDLL(None).mount(b'x', b'/mnt', b'tmpfs', 0, 0) != 0)"),
    "a chroot": ("user", "import os; os.chroot('/tmp')"),
    "a raw socket": ("root", "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
    "a packet socket": ("root", "import socket; socket.socket(17, 3, 3)"),
    "a vsock": ("user", "import socket; socket.socket(40, 1)"),
    "a device": ("root", "import os; os.mknod('/tmp/mem', 0o20666, os.makedev(1, 1))"),
    "a block device": ("root", "import os; os.mknod('/tmp/sda', 0o60666, os.makedev(8, 0))"),
    "ptrace of pid 1": ("user", "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)"),
    "memory of pid 1": ("root", "open('/proc/1/mem', 'rb').read(1)"),
    "root of pid 1": ("user", "import os; os.listdir('/proc/1/root')"),
    "a sysctl": ("root", "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh')"),
    "another sysctl": ("root", "open('/proc/sys/vm/drop_caches', 'w').write('3')"),
    "sysrq": ("root", "open('/proc/sysrq-trigger', 'w').write('b')"),
    "the kernel's memory": ("root", "import sys; sys.exit(not open('/proc/kcore', 'rb').read(1))"),
    "the kernel's log": ("root", "import ctypes, sys; b = ctypes.create_string_buffer(99); sys.exit(ctypes.CDLL(None).klogctl(3, b, 99) < 0)"),
    "kmsg": ("root", "open('/proc/kmsg').read(1)"),
    "sysfs": ("root", "import os; os.listdir('/sys/kernel')"),
    "cgroups": ("root", "import os; os.listdir('/sys/fs/cgroup')"),
    "a setuid program": ("user", "import os, shutil, subprocess, sys\n"
                                 "sys.exit('uid=0' not in subprocess.run(['su', '-c', 'id'], stdin=-3, capture_output=True, text=True).stdout)"),
    "another user": ("user", "import os; os.setuid(0)"),
    "the system's files": ("user", "open('/usr/bin/planted', 'w')"),
    "shadow": ("user", "open('/etc/shadow').read()"),
    "the time": ("root", "import time; time.clock_settime(time.CLOCK_REALTIME, 0)"),
    "the host's name": ("root", "import socket; socket.sethostname('other')"),
    "priority": ("user", "import os; os.nice(-5)"),
    "a module": ("root", "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(175, 0, 0, 0) != 0)"),
    "a file handle": ("root", "import ctypes, sys; sys.exit(ctypes.CDLL(None).syscall(304, -100, 0, 0) < 0)"),
}


@pytest.mark.parametrize("what", TRIES)
def test_hostile_code_fails(box: Sandbox, host: Daemon, what: str) -> None:
    user, code = TRIES[what]
    answer = python(box, code.replace("PORT", host.url.rsplit(":", 1)[1]), user=user)
    assert answer["exit_code"] != 0, answer
    assert ok(box, "echo alive") == "alive\n"


def test_abstract_sockets_are_its_own(box: Sandbox) -> None:
    def names(text: str) -> set[str]:
        return {line.split()[-1] for line in text.splitlines()[1:] if "@" in line}

    inside = names(ok(box, "cat /proc/net/unix", user="root"))
    assert "@sandal-init" in inside
    assert not inside & names(Path("/proc/net/unix").read_text())


def test_processes_are_its_own(box: Sandbox) -> None:
    listed = ok(box, "cat /proc/[0-9]*/comm", user="root").split()
    assert "sandal-init" in listed and "sandald" not in listed and "sandal-keeper" not in listed


def test_siblings_share_nothing(api: Client, box: Sandbox) -> None:
    with api.sandbox(template="base", network="none") as other:
        ok(other, "echo secret > /workspace/mine; echo secret > /tmp/mine; echo secret > /dev/shm/mine; sleep 1000 & ")
        assert sh(box, "cat /workspace/mine /tmp/mine /dev/shm/mine", user="root")["stdout"] == ""
        assert "sleep" not in ok(box, "cat /proc/[0-9]*/comm", user="root").split()
        assert ok(other, "cat /proc/self/uid_map") != ok(box, "cat /proc/self/uid_map")


def test_capabilities_are_read_back(box: Sandbox) -> None:
    rows = "grep -E '^Cap|^NoNewPrivs|^Seccomp:' /proc/self/status"
    assert {line.split()[1] for line in ok(box, rows).splitlines()} == {"0000000000000000", "1", "2"}
    root = dict(line.split(":\t") for line in ok(box, rows, user="root").splitlines())
    assert root["CapEff"] == root["CapBnd"] == "00000000800405fb" and root["Seccomp"] == "2"  # the engines' default set
    kernel = box.run("[line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'Seccomp:'))]")
    assert kernel["text"] == "['0000000000000000', '2']"


def test_limits_are_shown(api: Client) -> None:
    with api.sandbox(template="base", network="none", limits={"memory_mib": 300, "cpus": 0.5, "disk_mib": 64}) as small:
        assert ok(small, "nproc").strip() == "1"
        assert "MemTotal: 307200 kB" in ok(small, "tr -s ' ' < /proc/meminfo")
        assert python(small, "import os; print(os.cpu_count())")["stdout"] == "1\n"
        full = sh(small, "head -c 200M /dev/zero > /workspace/big")
        assert full["exit_code"] != 0 and ("No space" in full["stderr"] or "quota" in full["stderr"])
        assert ok(small, "rm /workspace/big; echo x > /workspace/y; cat /workspace/y") == "x\n"


def test_operators_settings(box: Sandbox) -> None:
    assert ok(box, f"cat /etc/{MARK}-settings/client.conf") == "index = here\n"
    assert ok(box, "echo $FROM_OPERATOR $PASSED_ON ${NOT_THERE-unset}") == "yes too unset\n"
    assert box.run("import os; os.environ['PASSED_ON']")["text"] == "'too'"


def make_wheel(sandbox: Sandbox, name: str, version: str, value: str) -> str:
    """A wheel in the sandbox, made of nothing but a zip file."""
    code = f"""
        import zipfile
        path = "/tmp/{name}-{version}-py3-none-any.whl"
        info = "{name}-{version}.dist-info/"
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("{name}.py", "value = {value!r}\\n")
            z.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
            z.writestr(info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            z.writestr(info + "RECORD", "")
        print(path)
        """
    answer = python(sandbox, code)
    assert answer["exit_code"] == 0, answer
    return str(answer["stdout"]).strip()


def test_pip_install_is_seen_by_the_live_kernel(api: Client) -> None:
    with api.sandbox(template="code-interpreter-python", network="none") as sandbox:
        missing = sandbox.run("import sandal_test_package")
        assert missing["error"]["name"] == "ModuleNotFoundError"
        ok(sandbox, f"pip install --no-index {make_wheel(sandbox, 'sandal_test_package', '1.0', 'one')}", timeout=120)
        assert sandbox.run("import sandal_test_package; sandal_test_package.value")["text"] == "'one'"
        # What the template brought can be replaced and taken away too.
        wheel = make_wheel(sandbox, "six", "99.0", "ours")
        ok(sandbox, f"pip install --no-index --force-reinstall {wheel} && pip uninstall -y sandal_test_package", timeout=120)
        assert ok(sandbox, ["python", "-c", "import six; print(six.value)"]) == "ours\n"
    # The host's tree is as it was.
    prefix = Path("/opt/sandal/python/lib")
    assert not list(prefix.glob("python*/site-packages/sandal_test_package*"))


def test_deb_install_is_seen_by_the_live_kernel(api: Client) -> None:
    with api.sandbox(template=TEMPLATE, network="none") as sandbox:
        ok(sandbox, """
            mkdir -p /tmp/p/DEBIAN /tmp/p/usr/bin /tmp/p/etc && cd /tmp/p
            printf 'Package: sandal-test\\nVersion: 1\\nArchitecture: all\\nMaintainer: t\\nDescription: t\\n' > DEBIAN/control
            printf '#!/bin/sh\\nset -e\\nuseradd --system sandal-test\\nchown sandal-test /etc/sandal-test\\n' > DEBIAN/postinst
            printf '#!/bin/sh\\necho installed\\n' > usr/bin/sandal-test; touch etc/sandal-test
            chmod 755 DEBIAN/postinst usr/bin/sandal-test && dpkg-deb --build --root-owner-group /tmp/p /tmp/t.deb""", user="root")
        ok(sandbox, "DEBIAN_FRONTEND=noninteractive apt-get install -y /tmp/t.deb", user="root", timeout=120)
        result = sandbox.run("import subprocess; subprocess.run('sandal-test', capture_output=True, text=True).stdout")
        assert result["text"] == "'installed\\n'"
        assert ok(sandbox, "stat -c %U /etc/sandal-test") == "sandal-test\n"
        ok(sandbox, "dpkg -r sandal-test && ! command -v sandal-test", user="root")
    assert not Path("/usr/bin/sandal-test").exists()


def test_npm_install_is_seen(api: Client) -> None:
    if not Path("/opt/sandal/node/bin/npm").exists():
        pytest.skip("the node template is not built")
    with api.sandbox(template="code-interpreter-node", network="none") as sandbox:
        ok(sandbox, """
            mkdir -p /tmp/dep && cd /tmp/dep && echo '{"name":"dep","version":"1.0.0"}' > package.json
            echo 'module.exports = "from npm"' > index.js && npm pack --offline --silent
            cd /workspace && npm install --offline --no-audit --no-fund --silent /tmp/dep/dep-1.0.0.tgz""", timeout=120)
        assert ok(sandbox, ["node", "-p", "require('dep')"]) == "from npm\n"


def test_files_survive_a_restart() -> None:
    with Daemon("--isolation", "namespace") as daemon:
        client = Client(daemon.url, daemon.key)
        sandbox = client.sandbox(template="base", network="none", name="kept")
        ok(sandbox, "echo mine > /workspace/file; echo too > /home/user/file")
        ok(sandbox, "mv /usr/share/doc /usr/share/moved; echo x > /etc/by-root; mkdir -p /etc/ssh", user="root")
        client.close()
        daemon.stop()
        daemon.start()
        client = Client(daemon.url, daemon.key)
        again = Sandbox(client, client.get("/v1/sandboxes/kept"))
        assert sh(again, "ls -d /usr/share/doc")["exit_code"] != 0
        assert ok(again, "cat /workspace/file /home/user/file /etc/by-root").split() == ["mine", "too", "x"]
        assert int(ok(again, "ls /usr/share/moved | wc -l")) > 0
        again.delete()
        client.close()


def test_root_of_a_template() -> None:
    root = Path(tempfile.mkdtemp(prefix="sandal-root-", dir="/var/lib"))
    root.chmod(0o755)
    templates = Path(tempfile.mkdtemp(prefix="sandal-e2e-templates-", dir="/tmp"))
    templates.chmod(0o755)
    make_template(templates, "tiny", str(root))
    try:
        make_root(root, ["sh", "cat", "ls", "id", "touch"])
        with Daemon("--isolation", "namespace", template_dirs=[templates]) as daemon:
            client = Client(daemon.url, daemon.key)
            with client.sandbox(template="tiny", network="none") as sandbox:
                assert ok(sandbox, "cat /etc/of-the-template; id -un; pwd") == "thereuser\n/workspace\n"
                assert set(ok(sandbox, "ls /").split()) <= {"bin", "dev", "etc", "home", "lib", "lib64", "proc", "root", "run", "srv",
                                                            "sys", "tmp", "usr", "var", "workspace"}
                assert sh(sandbox, "ls -d /usr/share /opt")["exit_code"] != 0
                assert "alice" not in ok(sandbox, "cat /etc/passwd")
                ok(sandbox, "touch /etc/x /usr/x", user="root")
            assert not (root / "etc/x").exists()
            client.close()
    finally:
        shutil.rmtree(root)
        shutil.rmtree(templates)


def groups() -> list[str]:
    return [os.path.join(root, d) for root, dirs, _files in os.walk("/sys/fs/cgroup") for d in dirs if "sbx-" in d]


def left_behind(daemon: Daemon, ids: set[str]) -> list[str]:
    left = [g for g in groups() if any(i in g for i in ids)]
    for place in (daemon.state / "volumes", daemon.state / "sandboxes", daemon.state / "run"):
        with contextlib.suppress(FileNotFoundError):
            left += [str(p) for p in place.iterdir() if any(i in p.name for i in ids)]
    left += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if any(i in line for i in ids)]
    return left


def rounds(api: Client, host: Daemon, count: int) -> None:
    api.sandbox(template="base", network="none").delete()  # what is made once is there
    assert host.proc
    fds = Path(f"/proc/{host.proc.pid}/fd")  # serve has become the keeper
    before = len(list(fds.iterdir()))
    ids = set()
    for _ in range(count):
        sandbox = api.sandbox(template="base", network="none")
        ids.add(sandbox.id)
        sandbox.delete()
    wait_for(lambda: not left_behind(host, ids), 20)
    wait_for(lambda: len(list(fds.iterdir())) <= before, 20)


def test_nothing_is_left(api: Client, host: Daemon) -> None:
    rounds(api, host, 30)


@pytest.mark.long
def test_nothing_is_left_after_1000_rounds(api: Client, host: Daemon) -> None:
    rounds(api, host, 1000)


def addresses(urls: list[str]) -> list[str]:
    """What the hosts of these URLs resolve to, as the network rules want it."""
    found: set[str] = set()
    for host in {urlsplit(url).hostname for url in urls}:
        with contextlib.suppress(OSError):
            found |= {str(row[4][0]) for row in socket.getaddrinfo(host, None) if host}
    return sorted(f"{ip}/{128 if ':' in ip else 32}" for ip in found)


def apt_sources() -> list[str]:
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(f.read_text() for f in files if f.is_file() and f.suffix in (".list", ".sources"))
    return re.findall(r"https?://\S+", re.sub(r"(?m)^\s*#.*$", "", text))


def pip_sources() -> list[str]:
    """The index that pip is set to, and what pip takes without a setting, as pip itself says."""
    def say(*argv: str) -> str:
        return subprocess.run([sys.executable, *argv], capture_output=True, text=True).stdout

    standard = say("-c", "from pip._internal.models.index import PyPI as p; print(p.simple_url, p.url.split(':')[0] + '://' + p.file_storage_domain)")
    return [*standard.split(), *re.findall(r"https?://[^\s']+", say("-m", "pip", "config", "list"))]


NPM = Path("/opt/sandal/node/bin/npm")


def npm_sources() -> list[str]:
    """The registry that npm is set to."""
    if not NPM.exists():
        return []
    return re.findall(r"https?://\S+", subprocess.run([NPM, "config", "get", "registry"], capture_output=True, text=True).stdout)


def test_packages_of_the_hosts_own_index() -> None:
    """With the host's client settings, and its sources' addresses allowed, wherever they are."""
    urls = [*apt_sources(), *pip_sources(), *npm_sources()]
    options = ["--isolation", "namespace"]
    for cidr in addresses(urls):
        options += ["--network-allow", cidr]
    for file in filter(os.path.exists, ("/etc/pip.conf", "/etc/npmrc", "/etc/apt/apt.conf.d", "/etc/ssl/certs/ca-certificates.crt")):
        options += ["--sandbox-files", file]
    for name in os.environ:
        if re.match(r"PIP_(?!FIND_LINKS)|NPM_CONFIG_|SSL_CERT|REQUESTS_CA|NODE_EXTRA_CA_CERTS$|(HTTPS?|NO)_PROXY$", name, re.I):
            options += ["--sandbox-env", name]
    with Daemon(*options) as daemon:
        client = Client(daemon.url, daemon.key)
        with client.sandbox(template="code-interpreter-python", network="egress") as sandbox:
            if sandbox.record["network"]["mode"] != "egress":
                pytest.skip(f"no egress here: {sandbox.record['network']}")
            update = sh(sandbox, "apt-get -q update", user="root", timeout=300)
            if update["exit_code"] != 0 or "Failed to fetch" in update["stderr"]:
                pytest.skip(f"this host reaches no package index: {update['stderr'][-300:]}")
            ok(sandbox, "DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends hello", user="root", timeout=300)
            assert sandbox.run("import subprocess; subprocess.run('hello', capture_output=True, text=True).stdout")["text"] \
                == repr("Hello, world!\n")
            # One that wants the system's libgomp, into the kernel that runs since before.
            assert ok(sandbox, "pip install --quiet lightgbm 2>&1", timeout=300) == ""
            trained = sandbox.run("import lightgbm\nmodel = lightgbm.LGBMRegressor(n_estimators=2, min_child_samples=1, verbose=-1)\n"
                                  "len(model.fit([[1.0], [2.0], [3.0]], [1, 2, 3]).predict([[2.0]]))")
            assert (trained["text"], trained["status"]) == ("1", "ok"), trained
        if npm_sources() and subprocess.run(["timeout", "60", NPM, "view", "is-number", "version"], capture_output=True).returncode == 0:
            with client.sandbox(template="code-interpreter-node", network="egress") as sandbox:
                ok(sandbox, "npm install --no-audit --no-fund is-number@7.0.0", timeout=300)
                assert sandbox.run("require('is-number')('7')")["text"] == "true"
        client.close()
