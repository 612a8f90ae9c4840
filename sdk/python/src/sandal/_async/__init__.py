"""The asynchronous client. `_sync` is made from it by scripts/unasync; `_io.py` alone is written by hand in both."""
