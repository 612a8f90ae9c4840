"""Processes and files of a sandbox as the host sees them, whatever launcher started it."""

from __future__ import annotations

from pathlib import Path

from harness.daemon import Daemon


def inits(sandbox_id: str) -> list[int]:
    """Processes that are the sandbox's sandal-init (or minders of it), by its own command line."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = proc.joinpath("cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sandal-init") and sandbox_id.encode() in words:
            found.append(int(proc.name))
    return found


def first_init(sandbox_id: str) -> int:
    """The oldest of them."""
    return min(inits(sandbox_id), key=lambda pid: int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]))


def of_sandbox(sandbox_id: str) -> dict[int, int]:
    """Its processes below its sandal-init: the pid on the host, and the number in the innermost pid namespace."""
    parents, numbers = {}, {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            rows = dict(line.split(":", 1) for line in proc.joinpath("status").read_text().splitlines() if ":" in line)
        except OSError:
            continue
        parents[int(proc.name)], numbers[int(proc.name)] = int(rows["PPid"]), int(rows["NSpid"].split()[-1])
    roots = set(inits(sandbox_id))

    def is_below(pid: int) -> bool:
        above = parents[pid]
        while above and above not in roots:
            above = parents.get(above, 0)
        return above != 0

    return {pid: number for pid, number in numbers.items() if is_below(pid)}


def host_pid(sandbox_id: str, inner: int) -> int:
    """The process that sees itself as `inner`."""
    (found,) = (pid for pid, number in of_sandbox(sandbox_id).items() if number == inner)
    return found


def files_kept(daemon: Daemon, sandbox_id: str) -> list[Path]:
    """The directories that hold a sandbox's files: on a volume, in the keeper's mount namespace, or a plain one."""
    seen_by_keeper = Path(f"/proc/{daemon.pid}/root{daemon.state}")
    places = [daemon.state / "sandboxes", seen_by_keeper / "sandboxes", seen_by_keeper / "volumes"]
    return [place / sandbox_id for place in places if (place / sandbox_id).is_dir()]


def named(daemon: Daemon) -> dict[int, str]:
    """The live processes of the daemon that name its directory, its helpers among them: pid and name."""
    found = {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if str(daemon.state).encode() in proc.joinpath("cmdline").read_bytes():
                found[int(proc.name)] = proc.joinpath("comm").read_text().strip()
        except OSError:
            continue
    return found
