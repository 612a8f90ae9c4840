"""`process` under an ordinary user on a kernel whose Landlock has no scopes: sandboxes of that user are not kept from each other, and
whoever looks is told. This kernel may be newer, so a shim tells the keeper of an older ABI, and the keeper asks for no more than that."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from typing import Iterator

import pytest
from harness.client import Client
from harness.daemon import BUILD, Daemon, clean_environment, let_in
from harness.user import UserDaemon

OLD = 5  # the last without scopes
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or ctypes.CDLL(None).syscall(444, None, 0, 1) < OLD,
                                reason="root makes the ordinary user, and the kernel has a Landlock of ABI 5 or later")

SHIM = """
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Every caller passes six words or fewer, which is what the C library's own forwards too. */
long syscall(long number, ...)
{
    va_list list;
    long a[6];
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_landlock_create_ruleset && a[0] == 0) {
        return %d;
    }
    long r;
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall" : "=a"(r) : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    extern int *__errno_location(void);
    if (r < 0 && r > -4096) {
        *__errno_location() = (int)-r;
        return -1;
    }
    return r;
}
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    if os.uname().machine != "x86_64":
        pytest.skip("the shim has x86-64's way into the kernel alone")
    folder = let_in(tmp_path_factory.mktemp("shim"))
    (folder / "shim.c").write_text(SHIM % OLD)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "shim.so", folder / "shim.c"], check=True)
    (folder / "shim.so").chmod(0o755)
    with UserDaemon("--isolation", "process", env={"LD_PRELOAD": str(folder / "shim.so")}) as d:
        yield d


def test_doctor_says_it_with_what_to_change(daemon: UserDaemon) -> None:
    argv = daemon.as_user(str(BUILD / "sandald"), "doctor", "--json", "--state-dir", str(daemon.state / "doctor"))
    said = subprocess.run(argv, capture_output=True, text=True, env={**clean_environment(), **daemon.env}).stdout
    row = next(row for row in json.loads(said)["checks"] if row["name"] == "process")
    assert row["state"] == "limited" and f"ABI {OLD}" in row["detail"] and "sandboxes reach each other" in row["detail"], row
    assert "6.12" in row["remedy"] and "root" in row["remedy"], row


def test_an_answer_says_it_and_it_is_so(daemon: Daemon) -> None:
    client = Client(daemon.url, daemon.key)
    with client.sandbox(template="base") as one, client.sandbox(template="base") as other:
        assert "sandboxes reach each other" in one.record["isolation"]["reason"], one.record["isolation"]
        pid = other.post("/exec", {"cmd": ["sleep", "1000"], "background": True}, expect=201)["pid"]
        assert one.post("/exec", {"cmd": f"kill -9 {pid}"})["exit_code"] == 0, "the ABI that was told has no scopes"
