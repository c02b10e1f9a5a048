"""The cache of costs that are measured once: of a step on a GPU, and of copies to and from a spill file.

<folder>/<GPU>/<fingerprint>-<precision>.csv      written by costs.py; with -<slices> for a step that runs in slices
<folder>/spill/<fingerprint>.csv                  the rates of copies to and from one file system

The folder is costs/ in LAYERMEM_CACHE, else layermem/costs/ in XDG_CACHE_HOME or ~/.cache.  A file that cannot be read,
or whose GPU, step, precision or file system differs from its name, is ignored, and the measurement is repeated.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from layermem.errors import InputError
from layermem.planning.costs import (
    SPILL,
    WHAT,
    Costs,
    origin_of,
    precision_of,
    read_copy_rates,
    read_costs,
    write_costs,
)
from layermem.planning.gpus import TargetGpu
from layermem.planning.spill import FileSystem
from layermem.utils.files import write_atomically
from layermem.utils.input_files import read_lines

NAME_LIMIT = 200  # characters of a file's name


def costs_folder() -> Path:
    """The folder of the cache that holds measured costs."""
    return kept_folder("costs")


def kept_folder(name: str) -> Path:
    """The folder `name` of the cache, which users may delete at any time."""
    named = os.environ.get("LAYERMEM_CACHE")
    if named:
        return Path(named) / name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "")
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "layermem" / name


def kept_path(gpu: TargetGpu, device: str, fingerprint: str, slices: str = "") -> Path:
    """The path at which the costs of a step are kept, for a GPU and the title of the device."""
    name = "-".join([fingerprint, precision_of(device), *_words(slices)])
    return costs_folder() / "-".join(_words(gpu.name)) / f"{name[:NAME_LIMIT]}.csv"


def _words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+", text)


def read_kept(gpu: TargetGpu, device: str, fingerprint: str, slices: str = "") -> Costs | None:
    """The kept costs; None if there are none, InputError if their file is unusable."""
    path = kept_path(gpu, device, fingerprint, slices)
    if not path.is_file():
        return None
    origin = origin_of(read_lines(path, what=WHAT))
    if (origin.get("gpu"), origin.get("device"), origin.get("fingerprint")) != (gpu.name, device, fingerprint):
        raise InputError("is not of this GPU, step and precision; remove it", path=str(path))
    costs = read_costs(path, device, gpu)
    if not costs.measured:
        raise InputError("has no time of any op; remove it", path=str(path))
    return replace(costs, is_kept=True)


def keep_costs(text: str, gpu: TargetGpu, device: str, fingerprint: str, slices: str = "") -> Path | None:
    """Write the text of a costs file to the cache and return its path; None if the folder is not writable."""
    return keep(kept_path(gpu, device, fingerprint, slices), text.encode())


def spill_path(file_system: FileSystem) -> Path:
    """The path at which the rates of a spill file on this file system are kept."""
    return costs_folder() / "spill" / f"{file_system.fingerprint}.csv"


def read_spill(file_system: FileSystem) -> tuple[float, float] | None:
    """Bytes per second written and read; None if none are kept, or their file is unusable."""
    path = spill_path(file_system)
    with suppress(InputError):
        lines = read_lines(path, what=WHAT)
        return read_copy_rates(lines, str(path)) if origin_of(lines).get(SPILL) == file_system.name else None
    return None


def keep_spill(file_system: FileSystem, write: float, read: float) -> Path | None:
    """Write the rates of a file system to the cache; returns like keep_costs()."""
    return keep(spill_path(file_system), write_costs({}, d2h=write, h2d=read, spill=file_system.name).encode())


def keep(path: Path, content: bytes) -> Path | None:
    """Write a file of the cache and return its path; None if the folder is not writable."""
    with suppress(OSError, InputError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, content)
        return path
    return None
