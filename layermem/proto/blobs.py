"""BlobProto messages as numpy arrays and back, and files with a single blob.

Arrays are float32 in C order, of any shape; the file holds the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from os import PathLike

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.proto.schema import BlobProto, FastBlobProto, Message
from layermem.proto.text import read_bytes

Array = npt.NDArray[np.float32]

MESSAGE_LIMIT = 2**31 - 1  # bytes of one protobuf message
_OLD_EXTENTS = ("num", "channels", "height", "width")


class NotPacked(Exception):
    """The bytes of a blob do not fill its shape: its floats are unpacked, or the file is damaged."""


def blob_from_array(array: Array) -> Message:
    """A BlobProto (of the bytes variant) with the array's shape and float32 data."""
    blob = FastBlobProto()
    blob.shape.dim.extend(array.shape)
    blob.data.append(np.asarray(array, dtype="<f4").tobytes())
    return blob


def array_from_fast(blob: Message) -> Array:
    """The data of a BlobProto of the bytes variant, read-only; NotPacked if the plain variant is needed."""
    shape = _shape_of(blob)
    packed, dtype = (blob.double_data, "<f8") if blob.double_data else (blob.data, "<f4")
    raw = packed[0] if len(packed) == 1 else b"".join(packed)
    if min(shape, default=1) < 0 or len(raw) != prod(shape) * np.dtype(dtype).itemsize:
        raise NotPacked
    return np.frombuffer(raw, dtype).astype(np.float32, copy=False).reshape(shape)


def array_from_plain(blob: Message) -> Array:
    """The data of a BlobProto of the plain variant; InputError if the count of numbers does not fit its shape."""
    shape = _shape_of(blob)
    numbers = blob.double_data if blob.double_data else blob.data
    if min(shape, default=1) < 0 or len(numbers) != prod(shape):
        text = " x ".join(map(str, shape)) or "one number"
        raise InputError(f"a blob of shape {text} has {len(numbers)} numbers; the file is damaged")
    return np.array(numbers, dtype=np.float32).reshape(shape)


def read_blob(path: str | PathLike[str]) -> Array:
    """The array in a .binaryproto file, such as a mean image: [1,C,H,W] or [C,H,W]."""
    raw = read_bytes(path, what="binaryproto", limit=MESSAGE_LIMIT)
    try:
        try:
            return array_from_fast(FastBlobProto.FromString(raw))
        except NotPacked:
            return array_from_plain(BlobProto.FromString(raw))
    except (DecodeError, InputError):
        what = "is truncated, or is not a binaryproto (a file with one blob, such as a mean image)"
        raise InputError(what, path=str(path)) from None


def reshaped(array: Array, shape: Sequence[int]) -> Array:
    """`array` reshaped to `shape`, its shape in a net; InputError if the two differ.

    Files of 2014 and before have four extents for every blob: (1,1,N,K) for the (N,K) of an inner product.
    """
    target = tuple(shape)
    if array.shape == target or array.shape == (1,) * (4 - len(target)) + target:
        return array.reshape(target)
    in_file, in_net = (" x ".join(map(str, s)) or "a single number" for s in (array.shape, target))
    raise InputError(f"has a blob of shape {in_file} in the file, and of shape {in_net} in the net")


def _shape_of(blob: Message) -> tuple[int, ...]:
    if any(blob.HasField(extent) for extent in _OLD_EXTENTS):
        return tuple(getattr(blob, extent) for extent in _OLD_EXTENTS)
    return tuple(blob.shape.dim)
