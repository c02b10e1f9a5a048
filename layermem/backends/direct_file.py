"""Writes to a spill file past the cache of the system (O_DIRECT).

A write through the mapping leaves its pages in the cache, and where memory is short the process waits for the system to
write them out, page by page.  A direct write goes to the disk in large blocks.  Reads stay with the mapping, because
the system reads ahead of them.
"""

from __future__ import annotations

import mmap
import os
import weakref

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

BLOCK_BYTES = 4096  # offsets, sizes and addresses of direct writes are multiples of the block of all usual disks
PIECE_BYTES = 2**20  # of a write, which are copied to an address that is a multiple of BLOCK_BYTES


class DirectFile:
    """A second descriptor of an open file.  OSError where its file system has no direct writes."""

    def __init__(self, descriptor: int):
        if not hasattr(os, "O_DIRECT"):
            raise OSError("this system has no direct writes")
        self._descriptor = os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_DIRECT)
        weakref.finalize(self, os.close, self._descriptor)
        self._piece = mmap.mmap(-1, PIECE_BYTES)  # begins at a page

    def write(self, offset: int, source: Bytes) -> None:
        """Write `source` at `offset`; both the offset and the number of bytes are multiples of BLOCK_BYTES."""
        piece = np.frombuffer(self._piece, np.uint8)
        for begin in range(0, len(source), PIECE_BYTES):
            part = source[begin : begin + PIECE_BYTES]
            piece[: len(part)] = part
            done = 0
            while done < len(part):
                done += os.pwrite(self._descriptor, memoryview(self._piece)[done : len(part)], offset + begin + done)


def whole_blocks(begin: int, end: int) -> tuple[int, int]:
    """The range of the whole blocks within [begin, end); it is empty where there are none."""
    first, last = -(-begin // BLOCK_BYTES) * BLOCK_BYTES, end // BLOCK_BYTES * BLOCK_BYTES
    return first, max(first, last)
