"""Pages that count as memory of the process until they are given back: of mapped files, and of freed memory.

On systems other than Linux the functions give nothing back.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import sys
from functools import lru_cache
from typing import Any

DONTNEED = 4  # MADV_DONTNEED of Linux
M_MMAP_THRESHOLD = -3  # of mallopt, in glibc
LARGE_BYTES = 2**22
DELETED = b" (deleted)"  # after the name of a file that was removed while it is mapped


def release_pages(path: str | os.PathLike[str]) -> None:
    """Give back the pages of all files at or below the absolute `path` that this process has mapped to read.

    They stay in the cache of the system, from which a later access takes them.
    """
    name = os.fsencode(path)
    try:
        with open("/proc/self/maps", "rb") as maps:
            mappings = [line.rstrip(b"\n").split(maxsplit=5) for line in maps if name in line]
    except OSError:
        return
    for addresses, access, *_, mapped in mappings:
        mapped = mapped.removesuffix(DELETED)
        if access == b"r--s" and (mapped == name or mapped.startswith(name + b"/")):
            start, stop = (int(address, 16) for address in addresses.split(b"-"))
            _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), DONTNEED)


def map_large_blocks() -> None:
    """Let malloc map each block of LARGE_BYTES or more, whose pages are given back when it is freed.

    By default glibc maps blocks only until the first one is freed, and keeps up to 64 MiB of others.  Does nothing for
    another C library.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def discard(address: int, nbytes: int) -> None:
    """Give back the whole pages of a span of anonymous memory, which then has no content."""
    begin = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (address + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if end > begin and sys.platform == "linux":
        _libc().madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), DONTNEED)


def trim_heap() -> None:
    """Give back the pages of freed memory, also of objects in cycles, where the allocator keeps them (glibc)."""
    gc.collect()
    if sys.platform == "linux" and hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(0)


@lru_cache(maxsize=1)
def _libc() -> Any:
    return ctypes.CDLL(None)
