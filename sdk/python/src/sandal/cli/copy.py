"""`sandal cp`: files and folders between this machine and a sandbox."""

from __future__ import annotations

import os
import posixpath
import stat
from pathlib import Path
from typing import Callable, Iterator, NamedTuple, Optional

from .._errors import NotFoundError, SandalError
from .._models import Entry
from .._protocol import AnyPath, bytes_of
from .._sync.sandbox import Sandbox

LIST_DEPTH = 64  # levels of directories that the daemon lists at once, at the most


class Place(NamedTuple):
    """`SANDBOX:PATH`, or a path of this machine."""

    sandbox: Optional[str]
    path: str

    @classmethod
    def of(cls, text: str) -> Place:
        head, colon, tail = text.partition(":")
        if colon and head and "/" not in head and "\\" not in head and len(head) > 1:
            return cls(head, tail or ".")
        return cls(None, text)


class Job(NamedTuple):
    """source or target is of the sandbox, the other of this machine, with names as os.fsdecode() gives them. `found`: in a
    directory, and not named by who asked."""

    source: AnyPath
    target: str
    size: Optional[int]
    found: bool = False


def shown(path: AnyPath) -> str:
    """For people, and for JSON, which have no names that are no UTF-8."""
    return path.path if isinstance(path, Entry) else os.fsencode(path).decode("utf-8", "replace")


def to_sandbox(box: Sandbox, source: str, target: str, recursive: bool) -> Iterator[Job]:
    """What is to be copied; directories are made on the way."""
    local = Path(source)
    if is_dir(box, target) or target.endswith("/"):
        target = f"{target.rstrip('/')}/{local.resolve().name}"
    if not local.is_dir():
        yield Job(source, target, local.stat().st_size)
        return
    if not recursive:
        raise IsADirectoryError(f"{source} is a directory: cp -r")
    box.fs.mkdir(target)
    for folder, folders, files in os.walk(local):
        inside = f"{target}/{Path(folder).relative_to(local).as_posix()}"
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted(set(folders) - set(links)):
            box.fs.mkdir(f"{inside}/{name}")
        for name in sorted(files + links):
            path = Path(folder, name)
            yield Job(str(path), f"{inside}/{name}", path.stat().st_size if path.is_file() else None, True)


def from_sandbox(box: Sandbox, source: str, target: str, recursive: bool) -> Iterator[Job]:
    entry = box.fs.stat(source, follow=True)
    local = Path(target, own_name(entry)) if Path(target).is_dir() else Path(target)
    if not entry.is_dir:
        yield Job(source, str(local), entry.size)
        return
    if not recursive:
        raise IsADirectoryError(f"{source} is a directory: cp -r")
    local.mkdir(parents=True, exist_ok=True)
    for inner, name in below(box, entry):
        place = local / name
        if inner.is_dir:
            place.mkdir(parents=True, exist_ok=True)
        else:
            yield Job(inner, str(place), inner.size if inner.type == "file" else None)


def own_name(entry: Entry) -> str:
    """What it is called in a directory of this machine: never `..` or `/`, which would be outside of that. Of the root nothing."""
    return posixpath.basename(posixpath.normpath(os.fsdecode(bytes_of(entry))).lstrip("/"))


def below(box: Sandbox, top: Entry) -> Iterator[tuple[Entry, str]]:
    """All that is in a directory, however deep, with its path from there."""
    waiting = [top]
    while waiting:
        base = waiting.pop()
        for inner in box.fs.list(base, depth=LIST_DEPTH):
            name = os.fsdecode(posixpath.relpath(bytes_of(inner), bytes_of(top)))
            if ".." in name.split("/"):
                raise SandalError(f"{inner.path} is not below {top.path}")
            yield inner, name
            if inner.is_dir and posixpath.relpath(bytes_of(inner), bytes_of(base)).count(b"/") == LIST_DEPTH - 1:
                waiting.append(inner)


def is_dir(box: Sandbox, path: str) -> bool:
    try:
        return box.fs.stat(path, follow=True).is_dir
    except NotFoundError as error:
        if error.code != "not_found":
            raise
        return False


def copy(box: Sandbox, job: Job, upload: bool, told: Callable[[int, Optional[int]], object]) -> None:
    if upload:
        local = str(job.source)
        mode = os.stat(local).st_mode
        if job.found and not stat.S_ISREG(mode):  # a pipe would be waited for
            raise OSError("a link to a directory is not followed" if stat.S_ISDIR(mode) else "neither a file nor a directory")
        box.fs.upload(local, job.target, on_progress=told, mode=f"{mode & 0o777:04o}")
    else:
        entry = job.source if isinstance(job.source, Entry) and job.source.type == "file" else box.fs.stat(job.source, follow=True)
        box.fs.download(entry, job.target, on_progress=told)
        if os.path.isfile(job.target):  # and no device
            os.chmod(job.target, int(entry.mode, 8) & 0o777)
