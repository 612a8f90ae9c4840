"""Where the daemon is, and the key for it."""

from __future__ import annotations

import os
from typing import Optional
from urllib.parse import urlsplit

from ._errors import ConfigError

DEFAULT_URL = "http://127.0.0.1:8717"
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


class Address:
    """`url` is what requests go to; with `socket` (a path) it is spoken over that."""

    def __init__(self, text: Optional[str] = None):
        self.text = text or os.environ.get("SANDAL_URL") or DEFAULT_URL
        self.socket: Optional[str] = None
        if self.text.startswith("unix:"):
            path = self.text[5:]
            self.socket = path[2:] if path.startswith("//") else path
            if not self.socket.startswith("/"):
                raise ConfigError(f"{self.text}: a unix socket is named by its whole path, as unix:/run/sandal/api.sock")
            self.url, self.local = "http://localhost", True
            return
        parts = urlsplit(self.text)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ConfigError(f"{self.text}: the address of a daemon begins with http://, https:// or unix:/")
        self.url = self.text.rstrip("/")
        self.local = parts.hostname in _LOCAL_HOSTS


def local_key_files() -> list[str]:
    """Where a daemon on this machine has left its first key: that of this user, then the system's."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    own = os.path.join(state, "sandal", "key")
    return ["/var/lib/sandal/key"] if hasattr(os, "geteuid") and os.geteuid() == 0 else [own, "/var/lib/sandal/key"]


def find_key(given: Optional[str], address: Address) -> Optional[str]:
    """What was given, else SANDAL_API_KEY, else the key file of this machine's daemon, which goes to no other machine."""
    key = given or os.environ.get("SANDAL_API_KEY")
    if key or not address.local:
        return key or None
    for path in local_key_files():
        try:
            with open(path, encoding="ascii") as file:
                return file.read().strip() or None
        except (OSError, UnicodeError):
            continue
    return None
