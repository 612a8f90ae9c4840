# Made from src/sandal/_async/__init__.py by scripts/unasync: edit that one.
"""The blocking client, made from `_async`."""
