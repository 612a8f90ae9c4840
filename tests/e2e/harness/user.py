"""A daemon that an ordinary user runs, started by root in a mount namespace of its own."""

from __future__ import annotations

import os
from pathlib import Path

from harness.daemon import Daemon

# $1: 1 = /dev/net/tun is open to all, as it is on most systems; 0 = it is not there. $2: who is asked for names; "" = as the host does.
PREPARE = """
set -e
mount -t tmpfs none /dev/net
[ "$1" = 0 ] || { mknod /dev/net/tun c 10 200 && chmod 666 /dev/net/tun; }
[ -z "$2" ] || { echo "nameserver $2" >/dev/net/resolv.conf; mount --bind /dev/net/resolv.conf "$(readlink -f /etc/resolv.conf)"; }
user=$3
shift 3
exec setpriv --reuid "$user" --regid "$user" --clear-groups env HOME=/nonexistent "$@"
"""


class UserDaemon(Daemon):
    """With what slirp4netns needs (`tun`), and another resolver than the host's (`names`)."""

    def __init__(self, *options: str, tun: bool = True, names: str = "", **kwargs: object):
        super().__init__("--isolation", "bubblewrap", *options, **kwargs)  # type: ignore[arg-type]
        self.tun, self.names = tun, names
        self.uid = 65_600 + os.getpid() % 10_000 * 10 + self.number % 10  # nobody's
        os.chown(self.state, self.uid, self.uid)

    def as_user(self, *argv: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-c", PREPARE, "sh", str(int(self.tun)), self.names, str(self.uid), *argv]

    def command(self) -> list[str]:
        argv = super().command()
        at = argv.index("--uid-base")
        del argv[at:at + 4]  # and --uid-count: it has no ids but its own
        return self.as_user(*argv)

    def processes(self) -> dict[int, str]:
        """All of its user's, by pid."""
        found = {}
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                if proc.stat().st_uid == self.uid and "\nState:\tZ" not in (proc / "status").read_text():
                    found[int(proc.name)] = (proc / "comm").read_text().strip()
            except OSError:
                continue
        return found
