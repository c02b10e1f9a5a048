"""How much memory this process may still take: of the machine, of a container's limit, of the limit of the process.
It is less than nothing where a limit was lowered below what is in use.

Linux only: /proc/meminfo, the control groups of the process and of all around it (versions 1 and 2), and RLIMIT_AS.
Pages of files that were not used lately can be taken back, and count as free.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# For each version of control groups, the files of limit and use, and the name of pages that can be taken back.
VERSIONS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ("memory.high", "memory.current", "inactive_file"),
)


class FreeMemory(NamedTuple):
    """Bytes, and whose they are."""

    nbytes: int
    whose: str


def free_memory() -> FreeMemory | None:
    """The least that any limit leaves now; None where the system does not say."""
    found = [*_of_machine(), *_of_groups(), *_of_process()]
    return min(found, default=None)


def memory_pressure() -> float:
    """Percent of the last ten seconds in which a task of this process's control group (version 2) waited for memory; 0
    where the system does not say."""
    for root, name in _own_groups():
        if root == GROUPS:
            some = _text(root / name / "memory.pressure").partition("avg10=")[2]
            return float(some.split()[0]) if some else 0.0
    return 0.0


def process_limit(name: str) -> int | None:
    """Bytes of the limit RLIMIT_`name` of this process, such as "STACK"; None if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit: int = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _of_machine() -> Iterator[FreeMemory]:
    if (available := _fields(PROC / "meminfo").get("MemAvailable")) is not None:
        yield FreeMemory(1024 * available, "free memory of this machine")


def _own_groups() -> Iterator[tuple[Path, str]]:
    """The root and the name of the control groups of the process; the root of version 2 is GROUPS."""
    for line in _text(PROC / "self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers in ("", "memory"):
            yield GROUPS / controllers, name.strip("/")


def _of_groups() -> Iterator[FreeMemory]:
    """The bytes that each control group leaves, from that of the process up to the root that it sees."""
    for root, name in _own_groups():
        for folder in (root / name, *(root / name).parents):
            yield from _of_group(folder)
            if folder == root:
                break


def _of_group(folder: Path) -> Iterator[FreeMemory]:
    for limit_file, use_file, reclaimable in VERSIONS:
        limit, use = _text(folder / limit_file).strip(), _text(folder / use_file).strip()
        if limit.isdecimal() and use.isdecimal():
            unused = _fields(folder / "memory.stat").get(reclaimable, 0)
            yield FreeMemory(int(limit) - int(use) + unused, "what the memory limit of this container leaves")


def _of_process() -> Iterator[FreeMemory]:
    limit, used = process_limit("AS"), _fields(PROC / "self/status").get("VmSize")
    if limit is not None and used is not None:
        yield FreeMemory(limit - 1024 * used, "what the limit of this process leaves (ulimit -v)")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _fields(path: Path) -> dict[str, int]:
    """The numbers of a file of lines "name number" or "name: number kB"."""
    words = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdecimal()}
