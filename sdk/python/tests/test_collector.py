"""The garbage collector may run anywhere, also while a thread has the lock of its own connection pool."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
from httpcore._sync.connection_pool import ConnectionPool

from sandal import Sandbox


def test_a_dropped_stream_does_not_lock_the_pool(bare_box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ConnectionPool._assign_requests_to_connections

    def collecting(self: ConnectionPool) -> Any:
        gc.collect()
        return plain(self)

    def drop_one() -> None:
        process = bare_box.exec("echo ready; cat", background=True)
        gc.collect()
        gc.disable()
        for chunk in process.events():
            if chunk.type == "stdout":
                break
        del chunk
        monkeypatch.setattr(ConnectionPool, "_assign_requests_to_connections", collecting)
        process.input("x\n")
        over.set()

    over = threading.Event()
    try:
        threading.Thread(target=drop_one, daemon=True).start()
        assert over.wait(30), "a request waits for the lock that its own thread has"
    finally:
        gc.enable()
