"""The spill file as planning sees it: a folder, its file system, and that file system's rates.

A spill file holds the host arena (backends/arena.py).  Its rates are measured (solver/spill_rates.py) and kept by file
system (kept_costs.py), so that all plans of a folder agree.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")  # Linux
OCTAL = re.compile(r"\\([0-7]{3})")
IN_MEMORY = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class FileSystem:
    """`name` is printed, for example "ext4 on /dev/sda1"; `fingerprint` identifies the file system."""

    name: str
    fingerprint: str

    @property
    def is_memory(self) -> bool:
        return self.name.split()[0] in IN_MEMORY


@dataclass(frozen=True)
class Spill:
    """`write`, `read`: bytes per second to and from the file system's device; `path`: the file that caches them."""

    folder: str
    file_system: str
    write: float
    read: float
    path: str | None = None
    is_memory: bool = False
    measured_on: str = ""  # the day, of rates that are kept

    @property
    def rates(self) -> str:
        return f"writes {self.write / 1e9:.3g} GB/s, reads {self.read / 1e9:.3g} GB/s"

    def __str__(self) -> str:
        """The text in a plan's output: the place of offloaded bytes, its rates, and their origin."""
        again = f"measured on {self.measured_on}, or again with --measure" if self.measured_on else "measured"
        origin = "measured" if self.path is None else f"{again}; kept in {self.path}"
        return f"a spill file in {self.folder} ({self.file_system}): {self.rates} ({origin})"

    @property
    def warnings(self) -> list[str]:
        if not self.is_memory:
            return []
        what = f"{self.folder} is in memory ({self.file_system})"
        return [f"{what}: a spill file there frees nothing; name a folder on a disk"]

    @property
    def values(self) -> dict[str, object]:
        """The values for JSON and saved plans."""
        return {"folder": self.folder, "file_system": self.file_system, "write": self.write, "read": self.read}


def file_system_of(folder: str | os.PathLike[str]) -> FileSystem:
    """The file system of a folder; OSError if there is none."""
    path = os.path.realpath(folder)
    kind, source = _mounted(path)
    number = (os.statvfs(path).f_fsid if hasattr(os, "statvfs") else 0) or os.stat(path).st_dev
    name = f"{kind} on {source}" if source else kind
    return FileSystem(name, sha256(f"{name} {number}".encode()).hexdigest()[:16])


def _mounted(path: str) -> tuple[str, str]:
    """Type and device of the file system of `path`: of the mounts on its path, the last one."""
    found, best = ("file system", ""), ""
    if not MOUNTS.exists():
        return found
    for line in MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        mount, _, of = line.partition(" - ")
        point = OCTAL.sub(lambda escape: chr(int(escape[1], 8)), mount.split()[4])  # "\040" is a space
        if os.path.commonpath((path, point)) == point and len(point) >= len(best):
            kind, source = of.split()[:2]
            found, best = (kind, source), point
    return found
