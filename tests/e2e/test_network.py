"""Networks of sandboxes with egress, of a daemon that root runs and of one that an ordinary user runs, against servers in a
network namespace that the test makes. Nothing leaves the machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
from harness.client import Client
from harness.daemon import BUILD, ISOLATION, Daemon, slack, wait_for
from harness.outside import ALLOWED, CLOSED, HOST, HOST_PUBLIC, NUMBER, SERVER, TAG, ask, connects, ip, refused, serving_on_the_host, world
from harness.processes import inits, named
from harness.user import UserDaemon

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or ISOLATION not in ("namespace", "bubblewrap", "runc"),
                                reason="egress by veth needs root and a launcher with a network namespace; root makes the world of an "
                                       "ordinary user's too")
OPTIONS = ("--network-allow", f"10.{NUMBER}.1.0/24")
IP_FREEBIND = 15  # ip(7); Python's socket module has no name for it


@pytest.fixture(scope="module")
def outside() -> Iterator[None]:
    yield from world()


def no_user_networks() -> str:
    """Why an ordinary user's networks can't be tried here."""
    if not shutil.which("slirp4netns") or not shutil.which("bwrap"):
        return "slirp4netns or bwrap is not installed"
    return "" if Path("/dev/net").is_dir() and Path("/sys/class/misc/tun").exists() else "this host has no tun device"


@pytest.fixture(scope="module", params=["root", "user"])
def own(outside: None, request: pytest.FixtureRequest) -> Iterator[Daemon]:
    if request.param == "user" and no_user_networks():
        pytest.skip(no_user_networks())
    with UserDaemon(*OPTIONS, names=ALLOWED) if request.param == "user" else Daemon(*OPTIONS) as d:
        yield d


only_user = pytest.mark.parametrize("own", ["user"], indirect=True)


@pytest.fixture(scope="module")
def client(own: Daemon) -> Iterator[Client]:
    c = Client(own.url, own.key)
    yield c
    c.close()


@pytest.mark.smoke
def test_egress_is_the_default_and_closed_to_what_is_not_public(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        assert sb.record["network"]["mode"] == "egress" and client.get(sb.path)["isolation"]["network"] == "egress"
        assert ask(sb, ALLOWED) == "hello"
        assert ask(sb, CLOSED) == "Connection refused"
        for address in ("169.254.169.254", "100.100.100.200", HOST):
            assert ask(sb, address, 80) == "Connection refused"
        row = wait_for(lambda: refused(sb, CLOSED, 8000) and refused(sb, "169.254.169.254", 80), 10)
        assert (row["reason"], row["rule"]) == ("not_public", None)
        assert not refused(sb, ALLOWED, 8000)


def test_the_daemon_is_not_reached(client: Client) -> None:
    port = int(client.url.rpartition(":")[2])
    with client.sandbox(template="base") as sb:
        gateway = sb.post("/exec", {"cmd": "ip route show default | cut -d' ' -f3"})["stdout"].strip()
        for address in ("127.0.0.1", gateway, HOST, HOST_PUBLIC, "10.0.2.2"):
            assert ask(sb, address, port) == "Connection refused", address


CLOSED_WAYS = ("Connection refused", "Network is unreachable")  # the latter where an ordinary user's network has no IPv6


def test_no_form_of_the_hosts_addresses_is_open(client: Client) -> None:
    """Its public ones of both families and v4-mapped ones too; each of them answers the host itself."""
    public6 = f"2001:470:{NUMBER}::1"
    ip("-6", "addr", "add", f"{public6}/128", "dev", TAG, "nodad")
    try:
        with client.sandbox(template="base") as sb, serving_on_the_host() as port:
            for address in (HOST, HOST_PUBLIC, f"::ffff:{HOST_PUBLIC}", public6):
                assert connects(address, port), address
                assert ask(sb, address, port) in CLOSED_WAYS, address
            for address in ("127.0.0.1", "::ffff:127.0.0.1", "::1", "0.0.0.0"):  # are its own
                assert ask(sb, address, port) == "Connection refused", address
            assert wait_for(lambda: refused(sb, HOST_PUBLIC, port), 10)["reason"] == "host"
    finally:
        ip("-6", "addr", "del", f"{public6}/128", "dev", TAG)


def test_forms_of_addresses_are_judged_by_where_they_lead(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        assert ask(sb, f"::ffff:{ALLOWED}") == "hello"
        for address in (f"::ffff:{CLOSED}", f"64:ff9b::{CLOSED}", f"2002:0a{NUMBER:02x}:0201::1", "::ffff:169.254.169.254", "fd00:ec2::254",
                        "169.254.170.2", "fe80::1%eth0", "192.168.0.1", "172.16.0.1", "198.18.255.1"):
            assert ask(sb, address) in (*CLOSED_WAYS, "Invalid argument", "No such device"), address
        with client.sandbox(template="base", network={"deny": [{"cidr": ALLOWED}]}) as other:
            assert ask(other, f"::ffff:{ALLOWED}") == "Connection refused"


ASK_NAME = """
import socket, struct, sys
kind, address = sys.argv[1:]
query = b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1a\\4open\\4test\\0\\0\\1\\0\\1"
try:
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    s.settimeout(5)
    s.connect((address, 53))
    s.sendall(query if kind == "udp" else struct.pack(">H", len(query)) + query)
    print("answered" if s.recv(600) else "closed")
except OSError as e:
    print(e.strerror or e)
"""


def test_names_are_asked_of_the_forwarder_alone(client: Client) -> None:
    """By UDP and TCP; a server that the operator's ranges open answers everybody else."""
    def asked(sb: Any, kind: str, address: str) -> str:
        return str(sb.post("/exec", {"cmd": ["python3", "-c", ASK_NAME, kind, address]})["stdout"]).strip()

    assert subprocess.run(["python3", "-c", ASK_NAME, "udp", ALLOWED], capture_output=True, text=True).stdout == "answered\n"
    with client.sandbox(template="base") as sb:
        own = str(sb.post("/exec", {"cmd": "grep -m 1 nameserver /etc/resolv.conf"})["stdout"]).split()[1]
        assert asked(sb, "udp", own) == asked(sb, "tcp", own) == "answered"
        for address in (ALLOWED, f"::ffff:{ALLOWED}", "198.41.0.4", "2001:503:ba3e::2:30"):
            for kind in ("udp", "tcp"):
                assert asked(sb, kind, address) not in ("answered", ""), (kind, address)
        assert ask(sb, ALLOWED, 853) == "Connection refused"
        for port in (53, 853):
            assert wait_for(lambda port=port: refused(sb, ALLOWED, port), 10)["reason"] == "dns"


def test_none_has_no_way_out(client: Client) -> None:
    with client.sandbox(template="base", network="none") as sb:
        assert ask(sb, ALLOWED) == "Network is unreachable"
        error = client.error("PATCH", sb.path, 501, "not_supported", json={"network": "egress"})
        assert error["pointer"] == "/network" and "has no interface" in error["message"], error
        assert sb.get("/network/log") == {"items": [], "cursor": 0, "lost": 0}


def test_rules_and_their_change(client: Client) -> None:
    def change(network: Any) -> None:
        client.call("PATCH", sb.path, json={"network": network}, expect=200)

    with client.sandbox(template="base", network={"deny": [{"cidr": ALLOWED}]}) as sb:
        assert ask(sb, ALLOWED) == "Connection refused"
        row = wait_for(lambda: refused(sb, ALLOWED, 8000), 10)
        assert (row["reason"], row["rule"]) == ("rule", {"cidr": f"{ALLOWED}/32"})
        change({"allow": [{"cidr": f"{ALLOWED}/32", "ports": [8000], "protocol": "tcp"}]})
        assert ask(sb, ALLOWED) == "hello" and ask(sb, ALLOWED, 8001) == "Connection refused"
        assert wait_for(lambda: refused(sb, ALLOWED, 8001), 10)["reason"] == "default"
        assert refused(sb, ALLOWED, 8000)["rule"] is None  # of rules that are no more
        change({"allow": [{"cidr": f"{CLOSED}/32"}]})  # chooses among what is open, opens nothing
        assert ask(sb, CLOSED) == "Connection refused" and ask(sb, ALLOWED) == "Connection refused"
        change("none")
        assert refused(sb, ALLOWED, 8001), "what was refused before it"
        assert ask(sb, ALLOWED) == "Connection refused"
        change("egress")
        assert ask(sb, ALLOWED) == "hello"


def address_of(sb: Any) -> str:
    found = sb.post("/exec", {"cmd": "hostname -I || ip -4 -o addr show eth0"})["stdout"].split()
    return str(next(a.partition("/")[0] for a in found if a.startswith(("198.", "100.", "10."))))


def test_sandboxes_do_not_see_each_other(client: Client) -> None:
    with client.sandbox(template="base") as one, client.sandbox(template="base") as two:
        two.post("/exec", {"cmd": ["python3", "-c", SERVER], "background": True}, expect=201)
        address = address_of(two)
        wait_for(lambda: ask(two, address) == "hello", 20)
        assert ask(one, address) == "Connection refused"
        wait_for(lambda: refused(one, address, 8000), 10)


@pytest.mark.parametrize("own", ["root"], indirect=True)
def test_two_daemons_on_one_machine_keep_apart(client: Client) -> None:
    """Their sandboxes have other addresses and do not see each other, in whichever order they came; what one does, its end among
    it, is nothing to the other."""
    with Daemon(*OPTIONS) as second, client.sandbox(template="base") as here:
        other = Client(second.url, second.key)
        there = other.sandbox(template="base")
        for sb in (here, there):
            sb.post("/exec", {"cmd": ["python3", "-c", SERVER], "background": True}, expect=201)
            wait_for(lambda sb=sb: ask(sb, address_of(sb)) == "hello", 20)
        for sb, to in ((here, there), (there, here)):
            assert address_of(sb) != address_of(to)
            assert ask(sb, address_of(to)) == "Connection refused"
            assert wait_for(lambda sb=sb, to=to: refused(sb, address_of(to), 8000), 10)["reason"] == "not_public"
            assert ask(sb, ALLOWED) == "hello" and ask(sb, CLOSED) == "Connection refused"
        second.kill()
        assert ask(here, ALLOWED) == "hello"
        second.start()
        there.client = Client(second.url, second.key)
        assert ask(there, ALLOWED) == "hello" and ask(there, address_of(here)) == "Connection refused"
        second.stop()
        assert ask(here, ALLOWED) == "hello" and ask(here, CLOSED) == "Connection refused"


def beside(daemon: Daemon) -> Daemon:
    """Another one of its range of user ids, with directories of its own."""
    other = Daemon(*OPTIONS)
    other.uid_base = daemon.uid_base
    return other


def test_what_a_killed_daemon_without_sandboxes_left_makes_room(outside: None) -> None:
    killed = Daemon(*OPTIONS)
    with killed:
        killed.kill()
        assert any(name == "sandal-net" for name in named(killed).values())
        with beside(killed) as second:
            assert "net.helper_left" in second.log(), second.log()
            wait_for(lambda: not named(killed))
            with Client(second.url, second.key).sandbox(template="base") as sb:
                assert ask(sb, ALLOWED) == "hello" and ask(sb, CLOSED) == "Connection refused"


def test_networks_of_sandboxes_that_outlive_a_killed_daemon_stay(outside: None) -> None:
    """Another one of that range has none, and says why."""
    with Daemon(*OPTIONS) as killed, Client(killed.url, killed.key).sandbox(template="base") as sb:
        killed.kill()
        helpers = {pid for pid, name in named(killed).items() if name == "sandal-net"}
        with beside(killed) as second:
            line = next(line for line in second.lines if "keeper.networks" in line)
            found = re.search(r' warn .*egress=0 .*:53 is held by process (\d+) .*--uid-base.*timeouts.orphan', line)
            assert found and int(found[1]) in helpers, line
        assert helpers <= named(killed).keys()
        killed.start()
        sb.client = Client(killed.url, killed.key)
        assert ask(sb, ALLOWED) == "hello" and ask(sb, CLOSED) == "Connection refused"


def test_a_start_that_fails_leaves_the_networks_of_sandboxes_that_live(outside: None) -> None:
    """What it opened before it failed is theirs."""
    with Daemon(*OPTIONS) as killed, Client(killed.url, killed.key).sandbox(template="base") as sb:
        table = f"sandal_{killed.uid_base // 65536 & 0xffff:04x}"
        killed.kill()
        options = killed.options
        killed.options = [*options, "--volumes-backend", "tmpfs" if (killed.state / "volumes.img").exists() else "btrfs"]
        with pytest.raises(RuntimeError, match="volumes"):
            killed.start()
        assert inits(sb.id) and "sandal-net" in named(killed).values(), named(killed)
        subprocess.run(["nft", "list", "table", "inet", table], check=True, stdout=subprocess.DEVNULL)
        killed.options = options
        killed.start()
        sb.client = Client(killed.url, killed.key)
        assert ask(sb, ALLOWED) == "hello" and ask(sb, CLOSED) == "Connection refused"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "mapped"])
def test_a_program_that_has_the_forwarders_address_is_named(outside: None, family: socket.AddressFamily) -> None:
    with Daemon(*OPTIONS) as first, Client(first.url, first.key).sandbox(template="base") as sb:
        asked = sb.post("/exec", {"cmd": ["sed", "-n", "s/^nameserver //p", "/etc/resolv.conf"]})["stdout"].strip()
    with socket.socket(family, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)  # no other daemon on the machine misses it
        if family == socket.AF_INET6:
            other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        other.bind((asked if family == socket.AF_INET else f"::ffff:{asked}", 53))
        with beside(first) as second:
            line = next(line for line in second.lines if "keeper.networks" in line)
            assert " warn " in line and f"{asked}:53 is held by process {os.getpid()} (" in line and "--uid-base" in line, line
            client = Client(second.url, second.key)
            for _ in range(2):
                with client.sandbox(template="base") as sb:
                    network = sb.get("")["network"]
                    assert network["mode"] == "none" and f"held by process {os.getpid()} (" in network["reason"], network
                    assert sb.get("")["limits"]["disk_mib"], "it is the network alone that gives way"
            assert second.log().count("sandbox.relaxed") == 1 and "create_failed" not in second.log(), second.log()


def test_a_dead_forwarder_is_replaced(client: Client, own: Daemon) -> None:
    def name(pid: str) -> str:
        with contextlib.suppress(OSError):  # a worker that has ended meanwhile
            return Path(f"/proc/{pid}/comm").read_text()
        return ""

    def forwarders() -> list[str]:
        return [c for c in Path(f"/proc/{own.pid}/task/{own.pid}/children").read_text().split() if name(c) == "sandal-net\n"]

    with client.sandbox(template="base"):
        # The list of children may miss one while another ends, and a helper that has just begun has its parent's name still.
        old = wait_for(lambda: len(found := forwarders()) == 1 and found)
        os.kill(int(old[0]), signal.SIGKILL)
        wait_for(lambda: forwarders() not in ([], old), 10 * slack())
        wait_for(lambda: "restarted=1" in own.log(), 5 * slack())


def flocked(file: Any) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def test_a_forwarder_that_could_not_be_replaced_is_at_the_next_create(client: Client, own: Daemon) -> None:
    with client.sandbox(template="base") as sb:
        lock = own.state / "run/net/helper"
        pid = int(wait_for(lock.read_text))
        os.kill(own.pid, signal.SIGSTOP)  # so that the lock is the test's before the keeper looks
        with lock.open("r+") as held:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: flocked(held))
            held.truncate(0)
            os.kill(own.pid, signal.SIGCONT)
            wait_for(lambda: "restarted=0" in own.log(), 20)
        before = own.log().count("restarted=1")
        with client.sandbox(template="base"):
            wait_for(lambda: own.log().count("restarted=1") > before, 10)
        assert ask(sb, ALLOWED) == "hello"


@only_user
def test_names_of_an_ordinary_user(client: Client) -> None:
    """By the forwarder alone, which opens what the names of rules lead to, and nothing that is closed to all."""
    with client.sandbox(template="base", network={"allow": [{"domain": "*.open.test"}]}) as sb:
        assert ask(sb, "a.open.test") == "hello"
        assert ask(sb, "closed.open.test") == "Connection refused"
        assert "Connection refused" != ask(sb, "a.other.test") != "hello"
        assert ask(sb, ALLOWED, 8001) == "Connection refused"
        assert ask(sb, ALLOWED, 53) == "Connection refused"
        wait_for(lambda: any(row.get("domain") == "a.other.test" for row in sb.get("/network/log")["items"]), 10)


@only_user
def test_rules_cannot_be_undone_from_inside(client: Client) -> None:
    with client.sandbox(template="base") as sb:
        for tried in ("nft flush ruleset", "ip link set eth0 down", "ip addr add 10.9.9.9/32 dev eth0", "unshare -rn true",
                      "unshare -r nft flush ruleset", "nsenter -t 1 -n true"):
            assert sb.post("/exec", {"cmd": f"PATH=$PATH:/usr/sbin; {tried}"})["exit_code"] != 0, tried
        assert ask(sb, CLOSED) == "Connection refused" and ask(sb, ALLOWED) == "hello"


def test_addresses_that_the_host_gets_later_are_closed_too(client: Client) -> None:
    """To a sandbox that was there before, without a change of its rules: the host's own are not public, whatever they look like."""
    later = HOST_PUBLIC[:-1] + "2"
    with client.sandbox(template="base") as sb, serving_on_the_host() as port:
        ip("addr", "add", f"{later}/32", "dev", TAG)
        try:
            wait_for(lambda: ask(sb, later, port) == "Connection refused", 20 * slack())
            assert wait_for(lambda: refused(sb, later, port), 10 * slack())["reason"] == "host"
        finally:
            ip("addr", "del", f"{later}/32", "dev", TAG)


@only_user
def test_the_forwarder_of_an_ordinary_user_has_little_left(client: Client, own: UserDaemon) -> None:
    with client.sandbox(template="base"):
        served = [pid for pid, name in own.processes().items() if name == "sandal-net"]
        kept = [(Path(f"/proc/{pid}/status").read_text(), pid) for pid in served]
        assert [pid for status, pid in kept if "\nSeccomp:\t2\n" in status and "\nNoNewPrivs:\t1\n" in status], served


def router(daemon: UserDaemon) -> int:
    return next(pid for pid, name in daemon.processes().items() if name == "sandal-router")


def test_an_ordinary_users_router_lives_as_long_as_its_sandboxes(outside: None) -> None:
    if no_user_networks():
        pytest.skip(no_user_networks())
    daemon = UserDaemon(*OPTIONS)
    with daemon:
        client = Client(daemon.url, daemon.key)
        sb = client.sandbox(template="base")
        assert ask(sb, ALLOWED) == "hello"
        first = router(daemon)
        client.close()
        daemon.kill()
        daemon.start()  # the next keeper finds it
        client = Client(daemon.url, daemon.key)
        sb.client = client
        assert router(daemon) == first and ask(sb, ALLOWED) == "hello"
        client.call("PATCH", sb.path, json={"network": {"deny": [{"cidr": ALLOWED}]}}, expect=200)
        assert ask(sb, ALLOWED) == "Connection refused"

        def kill(name: str) -> None:
            pids = [pid for pid, comm in daemon.processes().items() if comm == name]
            assert len(pids) == 1, (pids, daemon.log())
            os.kill(pids[0], signal.SIGKILL)
            wait_for(lambda: pids[0] not in daemon.processes(), 20)

        kill("slirp4netns")  # comes again
        client.call("PATCH", sb.path, json={"network": "egress"}, expect=200)
        wait_for(lambda: ask(sb, ALLOWED) == "hello", 20)
        kill("sandal-router")  # with all below it; not the keeper's child, it is missed when the next network is made
        with client.sandbox(template="base") as other:
            second = router(daemon)
            assert second != first and ask(other, ALLOWED) == "hello" and ask(sb, ALLOWED) == "hello"
            kill("sandal-router")  # a child: missed at once
            wait_for(lambda: daemon.log().count("net.router_restarted") >= 2, 20)
            assert router(daemon) != second and daemon.log().count("net.router_restarted") == 2, daemon.log()
            assert ask(sb, ALLOWED) == "hello" and ask(sb, CLOSED) == "Connection refused"
        sb.delete()
        client.close()
    wait_for(lambda: not daemon.processes(), 20)


def test_without_a_tun_device_an_ordinary_user_has_no_egress(outside: None) -> None:
    if no_user_networks():
        pytest.skip(no_user_networks())
    with UserDaemon(tun=False) as daemon:
        client = Client(daemon.url, daemon.key)
        with client.sandbox(template="base") as sb:
            assert sb.record["network"]["mode"] == "none" and "/dev/net/tun" in sb.record["network"]["reason"]
            assert ask(sb, ALLOWED) == "Network is unreachable"
        error = client.error("POST", "/v1/sandboxes", 501, "not_supported", json={"template": "base", "network": "egress"})
        assert "/dev/net/tun" in error["message"] and error["hint"]
        client.close()
        said = subprocess.run(daemon.as_user(str(BUILD / "sandald"), "doctor", "--state-dir", str(daemon.state / "doctor")),
                              capture_output=True, text=True).stdout
        assert "egress           cannot open /dev/net/tun" in said and "chmod 666 /dev/net/tun" in said
