"""Arenas: the one allocation of a device, and the host arena of offloaded buffers.

Both are flat byte arrays; every residency is a view at its offset.  The host arena may be a memory-mapped file
(`spill`), so that offloaded buffers leave host memory too.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from layermem.backends.direct_file import DirectFile, whole_blocks
from layermem.errors import DeviceError, InputError
from layermem.layers import Tensor
from layermem.utils.mapped_pages import discard
from layermem.utils.units import format_bytes

Bytes = npt.NDArray[np.uint8]

PAGE = mmap.PAGESIZE
POISON = 0xFF  # four or eight such bytes are NaN
UNTOUCHED = 0xFFFFA5FF  # a value that no kernel computes; also NaN as float32 or float64
WORD_BYTES = 4  # of UNTOUCHED
CHUNK_BYTES = 2**20  # that are compared at a time
DIRECT_BYTES = 2**19  # least bytes of a direct write: fewer wait longer for the disk than for the cache


class Arena:
    """`nbytes` of memory, page-aligned.

    measured   filled with UNTOUCHED, including a guard page after the end, so that written bytes can be found
    spill      a folder for the file that the arena is mapped to
    direct     whether store() writes past the cache of the system, if the file system lets it
    poison     initially filled with NaN
    persistent_bytes   bytes at the start that are not filled, because persistent buffers are written there first: their
               pages are not in memory before
    """

    _map: mmap.mmap | None = None  # mapping of the spill file
    _direct: DirectFile | None = None

    def __init__(
        self,
        nbytes: int,
        *,
        spill: Path | None = None,
        direct: bool = False,
        poison: bool = False,
        measured: bool = False,
        persistent_bytes: int = 0,
    ):
        self.nbytes = nbytes
        self.guard_bytes = PAGE if measured else 0
        try:
            if spill is not None and nbytes:
                # The mapping outlives the handle.
                with tempfile.TemporaryFile(dir=spill, prefix="layermem-spill-") as file:
                    _reserve(file.fileno(), nbytes)
                    self._map = mmap.mmap(file.fileno(), nbytes)
                    self._descriptor = os.dup(file.fileno())
                weakref.finalize(self, os.close, self._descriptor)
                if direct:
                    with suppress(OSError):
                        self._direct = DirectFile(self._descriptor)
                whole: Bytes = np.frombuffer(self._map, np.uint8)
            else:
                raw = np.empty(nbytes + self.guard_bytes + PAGE, np.uint8)
                start = -raw.ctypes.data % PAGE
                whole = raw[start : start + nbytes + self.guard_bytes]
        except MemoryError as error:
            raise DeviceError(f"this machine cannot allocate {format_bytes(nbytes)}; give a smaller budget") from error
        except OSError as error:
            raise spill_error(nbytes, spill, error.strerror or str(error)) from error
        self._whole, self.bytes = whole, whole[:nbytes]
        if measured:
            _words(whole[persistent_bytes:])[:] = UNTOUCHED
        elif poison:
            whole[persistent_bytes:] = POISON

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    def view(self, offset: int, tensor: Tensor, dtype: str | None = None) -> np.ndarray:
        """The tensor at `offset`, in its shape in memory (channels-last), C-contiguous."""
        kind = np.dtype(dtype or tensor.dtype)
        return self.bytes[offset : offset + tensor.count * kind.itemsize].view(kind).reshape(tensor.stored)

    def span(self, offset: int, nbytes: int) -> np.ndarray:
        return self.bytes[offset : offset + nbytes]

    def read(self, offset: int, tensor: Tensor, dtype: str | None = None) -> np.ndarray:
        """A copy of the tensor at `offset`, NCHW."""
        source = self.view(offset, tensor, dtype)
        values = np.array(axes_of_caffe(source), order="C")
        self.release(offset, source.nbytes)
        return values

    def write(self, offset: int, tensor: Tensor, value: np.ndarray, dtype: str | None = None) -> None:
        """Set the tensor at `offset` from numbers in NCHW order, of any shape with the right count."""
        target = axes_of_caffe(self.view(offset, tensor, dtype))
        target[...] = np.asarray(value).reshape(target.shape)
        self.release(offset, target.nbytes)

    def store(self, offset: int, source: Bytes) -> None:
        """Copy bytes to `offset` of the spill file."""
        end = offset + len(source)
        first, last = whole_blocks(offset, end)
        if self._direct is None or last - first < DIRECT_BYTES:
            first = last = end
        else:
            try:
                self._direct.write(first, source[first - offset : last - offset])
            except OSError:  # the disk has larger blocks, or fails: then the mapping says how
                self._direct, last = None, first
        self.span(offset, first - offset)[:] = source[: first - offset]
        self.span(last, end - last)[:] = source[last - offset :]
        self.release(offset, len(source))

    def zero(self, offset: int, nbytes: int) -> None:
        self.span(offset, nbytes)[:] = 0
        self.release(offset, nbytes)

    def discard(self, offset: int, nbytes: int) -> None:
        """Give the whole pages of a span, whose content is no longer needed, back to the system."""
        if self.is_file:
            self.release(offset, nbytes)
        else:
            discard(self.address + offset, nbytes)

    # -- the spill file --------------------------------------------------------------------------------------------

    @property
    def is_file(self) -> bool:
        return self._map is not None

    def release(self, offset: int, nbytes: int) -> None:
        """Give back the pages of a span, which count as memory of the process.  The system keeps their content, in its
        cache or in the file."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            start = offset // PAGE * PAGE
            self._map.madvise(mmap.MADV_DONTNEED, start, offset + nbytes - start)

    def flush(self) -> None:
        """Wait until all bytes of the spill file are on its device."""
        if self._map is not None:
            self._map.flush()

    def evict(self) -> None:
        """Flush, and drop the file's pages from memory if the system has a call for it, so that the next reads come
        from its device."""
        if self._map is not None:
            self.flush()
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    # -- written bytes ---------------------------------------------------------------------------------------------

    def touched_bytes(self) -> int:
        """Bytes from the start to the last word written since the arena was made, including the guard page.

        The arena must be `measured`."""
        for end in range(self.nbytes + self.guard_bytes, 0, -CHUNK_BYTES):
            begin = max(0, end - CHUNK_BYTES)
            written = np.flatnonzero(_words(self._copy(begin, end)) != UNTOUCHED)
            if len(written):
                return begin + WORD_BYTES * (int(written[-1]) + 1)
        return 0

    def _copy(self, begin: int, end: int) -> Bytes:
        """The bytes [begin, end), in the memory of the host."""
        return self._whole[begin:end]


def _words(span: Bytes) -> npt.NDArray[np.uint32]:
    """The whole words of a span."""
    return span[: len(span) // WORD_BYTES * WORD_BYTES].view(np.uint32)


def spill_error(nbytes: int, folder: Path | str | None, reason: str) -> InputError:
    return InputError(f"cannot spill {format_bytes(nbytes)} to {folder}: {reason}; name another --spill")


def check_spill_space(nbytes: int, folder: Path | str) -> None:
    """Raise the InputError of an Arena if the file system of `folder` has fewer free bytes."""
    if hasattr(os, "statvfs"):
        state = os.statvfs(folder)
        if nbytes > state.f_bavail * state.f_frsize:
            raise spill_error(nbytes, folder, os.strerror(errno.ENOSPC))


def _reserve(file: int, nbytes: int) -> None:
    """Allocate an open file's bytes on the disk: touching a page without disk space would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, nbytes)
    else:
        os.truncate(file, nbytes)


def axes_of_caffe(stored: np.ndarray) -> np.ndarray:
    """The NCHW view of channels-last memory; other ranks are unchanged."""
    return stored.transpose(0, 3, 1, 2) if stored.ndim == 4 else stored
