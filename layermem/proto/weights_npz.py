"""Reads tensors of an .npz file by name, each when it is needed.  Nothing is unpickled.

An .npz is a zip archive with a .npy file for each array.  Sizes are checked before an array is read, because a
compressed member may claim more bytes than a machine has.
source  numpy.org, numpy.lib.format
"""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from layermem.errors import InputError
from layermem.proto.blobs import Array, Blob, LazyBlob
from layermem.proto.checks import shape_fault
from layermem.utils.open_file import OpenFile
from layermem.utils.units import format_bytes

WHAT = ".npz file"
ENDING = ".npy"  # ending of every member's name
HEADER_BYTES = 1 << 16  # of the largest header of an array
CLAIM_LIMIT_BYTES = 2**28  # what an array may claim without storing them
MAX_COMPRESSION = 1100  # bytes that one stored byte may stand for; DEFLATE reaches 1032
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    NotImplementedError,
    OverflowError,
    SyntaxError,
    struct.error,
    MemoryError,
    AttributeError,
    tokenize.TokenError,
)


def open_npz(file: OpenFile) -> dict[str, LazyBlob]:
    """Return the tensors; InputError unless the file is an .npz whose arrays can be blobs."""
    with _reading(file) as archive:
        names = archive.namelist()
        if len({*names}) < len(names):
            raise InputError("holds two arrays of one name; write it again")
        return {name.removesuffix(ENDING): _lazy(file, archive, name) for name in names}


def _lazy(file: OpenFile, archive: zipfile.ZipFile, member: str) -> LazyBlob:
    info, name = archive.getinfo(member), member.removesuffix(ENDING)[:80]
    if not member.endswith(ENDING):
        raise InputError(f"holds '{member[:80]}', which is no array; write it with numpy.savez")
    with archive.open(info) as head:
        shape, _, dtype = _head(head)
    if dtype.kind not in "fiub" or dtype.hasobject:
        raise InputError(f"holds '{name}' of type {str(dtype)[:40]}; store numbers")
    if shape and (fault := shape_fault(shape)):
        raise InputError(f"holds '{name}' of {fault}; write it again")
    nbytes = prod(shape) * dtype.itemsize
    if not nbytes <= info.file_size <= nbytes + HEADER_BYTES:
        raise InputError(f"holds '{name}' with {info.file_size:,} bytes for {nbytes:,}; write it again")
    if nbytes > CLAIM_LIMIT_BYTES and nbytes > MAX_COMPRESSION * info.compress_size:
        raise InputError(
            f"holds '{name}', which claims {format_bytes(nbytes)} and stores almost none of it; write it again"
        )

    def read() -> Array:
        with _reading(file) as again, again.open(member) as data:
            values = npy.read_array(data, allow_pickle=False)
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(values, np.float32).reshape(shape)

    return LazyBlob(shape, read)


def _head(file: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, type) of a .npy file."""
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"version {version[0]}.{version[1]}")
    return readers[version](file)


@contextmanager
def _reading(file: OpenFile) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file.reader()) as archive:
            yield archive
    except InputError as error:
        raise error.at(path=file.path) from None
    except (*_DAMAGED, RecursionError) as error:
        file.check_unchanged()
        reason = (str(error).splitlines() or [""])[0][:80] or type(error).__name__
        raise InputError(f"is truncated, or is not an {WHAT} ({reason}); copy it again", path=file.path) from None
    file.check_unchanged()


def npz_content(tensors: Mapping[str, Blob]) -> Callable[[BinaryIO], None]:
    """Return a function that writes the tensors to an open file, one at a time, without compression."""

    def write(handle: BinaryIO) -> None:
        with zipfile.ZipFile(handle, "w", zipfile.ZIP_STORED) as archive:
            for name, blob in tensors.items():
                with archive.open(zipfile.ZipInfo(name + ENDING), "w", force_zip64=True) as file:
                    npy.write_array(file, np.ascontiguousarray(blob, np.float32), allow_pickle=False)

    return write
