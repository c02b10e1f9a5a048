"""BlobProto messages as numpy arrays and back, and files with a single blob.

Arrays are float32 in C order, of any shape; the file holds the same numbers in the same order.  Large files give
LazyBlobs: shapes are known at once, and numbers are read when NumPy needs them, so that only one blob at a time is in
memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from os import PathLike
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.proto.schema import AS_BYTES, BlobProto, FastBlobProto, Message
from layermem.proto.wire import LENGTH, WireError, fields, length_head, read_span
from layermem.utils.input_files import Read, read_bytes
from layermem.utils.open_file import OpenFile

Array = npt.NDArray[np.float32]

MESSAGE_LIMIT_BYTES = 2**31 - 1  # of one protobuf message
_OLD_EXTENTS = ("num", "channels", "height", "width")
_DATA, _DOUBLES = (BlobProto.DESCRIPTOR.fields_by_name[name].number for name in ("data", "double_data"))
_ARRAYS = tuple(BlobProto.DESCRIPTOR.fields_by_name[name].number for name in AS_BYTES)


class NotPacked(Exception):
    """The bytes of a blob do not fill its shape: its floats are unpacked, or the file is damaged."""


@dataclass(frozen=True, eq=False)
class LazyBlob:
    """An array of a file or a device: `read` returns its numbers, in any shape, each time that NumPy needs them."""

    shape: tuple[int, ...]
    read: Callable[[], Array]

    @property
    def size(self) -> int:
        return prod(self.shape)

    def reshape(self, shape: tuple[int, ...]) -> LazyBlob:
        return replace(self, shape=shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self.read(), dtype or np.float32).reshape(self.shape)


Blob: TypeAlias = Array | LazyBlob
B = TypeVar("B", Array, LazyBlob, Blob)


def blob_bytes(blob: Blob) -> int:
    """The size of a BlobProto with the blob's shape and float32 data, in bytes."""
    nbytes = 4 * blob.size
    return len(length_head(_DATA, nbytes)) + nbytes + len(_shape_message(blob))


def write_blob(handle: BinaryIO, number: int, blob: Blob) -> None:
    """Write a BlobProto as field `number` of a message, byte for byte as protobuf does, without a copy of the
    numbers."""
    array = np.ascontiguousarray(blob, dtype="<f4").reshape(-1)
    handle.write(length_head(number, blob_bytes(blob)) + length_head(_DATA, array.nbytes))
    handle.write(array.view(np.uint8).data)
    handle.write(_shape_message(blob))


def find_blob(file: OpenFile, reader: BinaryIO, start: int, stop: int) -> LazyBlob:
    """Locate the BlobProto at [start, stop) of a file; WireError unless it has one packed array that fits its shape."""
    head, arrays = b"", {}
    for field in fields(reader, start, stop):
        if field.number in _ARRAYS:
            if field.kind != LENGTH or field.number in arrays:
                raise WireError("an array is in parts")
            arrays[field.number] = field
        else:
            head += read_span(reader, field.begin, field.stop)
    shape = _shape_of(FastBlobProto.FromString(head))
    dtype = np.dtype("<f8" if _DOUBLES in arrays else "<f4")
    data = arrays.get(_DOUBLES) or arrays.get(_DATA)
    count = 0 if data is None else (data.stop - data.start) // dtype.itemsize
    if min(shape, default=1) < 0 or count != prod(shape) or (data and (data.stop - data.start) % dtype.itemsize):
        raise WireError("an array does not fit its shape")
    offset = data.start if data else 0

    return LazyBlob(shape, lambda: _as_float(array_at(file, offset, dtype, count)))


def array_at(file: OpenFile, start: int, dtype: npt.DTypeLike, count: int) -> npt.NDArray[Any]:
    """Read `count` numbers from byte `start` of a file; InputError if it has changed since it was opened."""
    values = np.empty(count, dtype)
    file.fill(values.view(np.uint8).data, start)
    file.check_unchanged()
    return values


def array_from_fast(blob: Message) -> Array:
    """Return the data of a BlobProto of the bytes variant, read-only; NotPacked if the plain variant is needed."""
    shape = _shape_of(blob)
    packed, dtype = (blob.double_data, "<f8") if blob.double_data else (blob.data, "<f4")
    raw = packed[0] if len(packed) == 1 else b"".join(packed)
    if min(shape, default=1) < 0 or len(raw) != prod(shape) * np.dtype(dtype).itemsize:
        raise NotPacked
    return _as_float(np.frombuffer(raw, dtype)).reshape(shape)


def array_from_plain(blob: Message) -> Array:
    """Return the data of a BlobProto of the plain variant; InputError if the number of values does not fit its
    shape."""
    shape = _shape_of(blob)
    numbers = blob.double_data if blob.double_data else blob.data
    if min(shape, default=1) < 0 or len(numbers) != prod(shape):
        text = " x ".join(map(str, shape)) or "one number"
        raise InputError(f"has a blob of shape {text} with {len(numbers)} numbers; the file is damaged")
    return _as_float(np.array(numbers, np.float64)).reshape(shape)


def _as_float(values: npt.NDArray[Any]) -> Array:
    with np.errstate(over="ignore"):  # doubles beyond the range become infinite
        return values.astype(np.float32, copy=False)


def read_blob(path: str | PathLike[str], read: Read = read_bytes) -> Array:
    """Read the array in a .binaryproto file, such as a mean image: [1,C,H,W] or [C,H,W]; `read` gets its bytes."""
    raw = read(path, what="binaryproto", limit=MESSAGE_LIMIT_BYTES)
    try:
        try:
            return array_from_fast(FastBlobProto.FromString(raw))
        except NotPacked:
            return array_from_plain(BlobProto.FromString(raw))
    except (DecodeError, InputError):
        what = "is truncated, or is not a binaryproto (a file with one blob, such as a mean image); write it again"
        raise InputError(what, path=str(path)) from None


def reshaped(array: B, shape: Sequence[int]) -> B:
    """Reshape `array` to `shape`, its shape in a net; InputError if they do not fit.

    Files of 2014 and before have four extents for every blob: (1,1,N,K) for the (N,K) of an inner product.
    """
    target = tuple(shape)
    if array.shape == target or array.shape == (1,) * (4 - len(target)) + target:
        return array.reshape(target)
    in_file, in_net = (" x ".join(map(str, s)) or "a single number" for s in (array.shape, target))
    raise InputError(f"has a blob of shape {in_file} in the file, and of shape {in_net} in the net")


def _shape_message(blob: Blob) -> bytes:
    message = FastBlobProto()
    message.shape.dim.extend(blob.shape)
    return bytes(message.SerializeToString())


def _shape_of(blob: Message) -> tuple[int, ...]:
    if any(blob.HasField(extent) for extent in _OLD_EXTENTS):
        return tuple(getattr(blob, extent) for extent in _OLD_EXTENTS)
    return tuple(blob.shape.dim)
