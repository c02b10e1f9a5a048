"""Measures the rates of a spill file: copies through the host arena, timed to and from the device of its file system.

A file that was just written is in the page cache of the kernel and copies at the rate of memory until the cache is
full. A run that spills has no memory left for the cache, so the rates exclude it: a write goes past it where the file
system lets it (backends/direct_file.py), and is timed until the bytes are on the device (msync, as fdatasync); a read
begins when no page of the file is in memory.  A round is SPILL_BYTES in
copies of BLOCK_BYTES, and the result is the median of ROUNDS.  On a slow device the first trial is the result.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from statistics import median
from time import localtime, strftime

import numpy as np

from layermem.backends.arena import spill_error
from layermem.backends.base import Device
from layermem.planning.costs import as_written
from layermem.planning.kept_costs import keep_spill, read_spill, spill_path
from layermem.planning.spill import Spill, file_system_of
from layermem.utils.files import PathName, check_path
from layermem.utils.steps import report_step
from layermem.utils.stopwatch import seconds_since
from layermem.utils.units import format_bytes

BLOCK_BYTES = 2**22
TRIAL_BYTES = 2**23
SPILL_BYTES = 2**26
ROUNDS = 3
SLOW_SECONDS = 0.1  # limit of the trial: the rounds would take 24 times as long


def resolve_spill(folder: PathName | None, device: Device, *, again: bool = False) -> Spill | None:
    """The spill file in `folder`, with the rates that are kept for its file system; they are measured if there are
    none, or with `again`.  InputError if no file can be written there."""
    if folder is None:
        return None
    device.check_spill()
    try:
        file_system = file_system_of(check_path(folder, "spill folder"))
    except OSError as error:
        raise spill_error(BLOCK_BYTES, os.fspath(folder), error.strerror or str(error)) from None
    kept, path = None if again else read_spill(file_system), spill_path(file_system)
    if kept is None:
        write, read = (as_written(rate) for rate in measure_spill(device, Path(folder)))
        kept, kept_at = (write, read), keep_spill(file_system, write, read)
    else:
        # This folder may refuse a file that another on its disk took.
        device.host_arena(BLOCK_BYTES, spill=Path(folder))
        kept_at = path
    return Spill(
        os.fspath(folder),
        file_system.name,
        *kept,
        None if kept_at is None else str(kept_at),
        file_system.is_memory,
        "" if kept_at is None else strftime("%Y-%m-%d", localtime(os.stat(kept_at).st_mtime)),
    )


def measure_spill(device: Device, folder: Path) -> tuple[float, float]:
    """Bytes per second written to a spill file in `folder`, and read back."""
    nbytes = min(SPILL_BYTES, _free_bytes(folder) // 2 // BLOCK_BYTES * BLOCK_BYTES)
    file = _SpillFile(device, folder, max(nbytes, BLOCK_BYTES))
    trial = min(TRIAL_BYTES, file.nbytes)
    rounds, timed = [file.seconds(trial)], trial
    if sum(rounds[0]) <= SLOW_SECONDS and file.nbytes > trial:
        rounds, timed = [file.seconds(file.nbytes) for _ in range(ROUNDS)], file.nbytes
    write, read = (timed / max(median(each), 1e-9) for each in zip(*rounds))
    report_step(
        "measured the spill file in %s: %s written and read, %d times", folder, format_bytes(timed), len(rounds)
    )
    return write, read


class _SpillFile:
    """A host arena in a file, and copies between it and one block of a device's arena."""

    def __init__(self, device: Device, folder: Path, nbytes: int):
        self.nbytes, self._device = nbytes, device
        self._host, arena = device.host_arena(nbytes, spill=folder, direct=True), device.arena(BLOCK_BYTES)
        block = arena.span(0, BLOCK_BYTES)
        # Incompressible for any file system.
        block[:] = np.random.default_rng(0).integers(0, 256, BLOCK_BYTES, np.uint8)
        spans = [self._host.span(begin, BLOCK_BYTES) for begin in range(0, nbytes, BLOCK_BYTES)]
        self._writes = [partial(self._host.store, begin, block) for begin in range(0, nbytes, BLOCK_BYTES)]
        self._reads = [device.bind_copy(block, span) for span in spans]

    def seconds(self, nbytes: int) -> tuple[float, float]:
        """Seconds to copy the first `nbytes` to the device of the file system, and back."""
        copies = nbytes // BLOCK_BYTES
        begun = time.perf_counter()
        self._device.run(self._writes[:copies])
        self._host.flush()
        written = seconds_since(begun)
        self._host.evict()
        begun = time.perf_counter()
        self._device.run(self._reads[:copies])
        return written, seconds_since(begun)


def _free_bytes(folder: Path) -> int:
    if not hasattr(os, "statvfs"):
        return 2 * SPILL_BYTES
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
