"""BlobProto and Datum as arrays, and back.

source  Caffe python/caffe/io.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from layermem.data.images import datum_image
from layermem.errors import ArgumentError
from layermem.proto.schema import BlobProto, BlobProtoVector, Datum, Message

Array = npt.NDArray[Any]
EXTENTS = ("num", "channels", "height", "width")  # fields of blobs of 2014 and before


def blobproto_to_array(blob: Message, return_diff: bool = False) -> npt.NDArray[np.float64]:
    """The data of a BlobProto, or its diff, in its shape; ArgumentError if the count of numbers does not fit."""
    values = blob.diff or blob.double_diff if return_diff else blob.data or blob.double_data
    old = any(blob.HasField(name) for name in EXTENTS)
    shape = tuple(getattr(blob, name) for name in EXTENTS) if old else tuple(blob.shape.dim)
    array = np.array(values, np.float64)
    if min(shape, default=1) < 0 or array.size != np.prod(shape, dtype=np.int64):
        what = f"a BlobProto of shape {_text(shape)} has {array.size} numbers; give them and the shape that they have"
        raise ArgumentError(what)
    return array.reshape(shape)


def array_to_blobproto(arr: Array, diff: Array | None = None) -> Message:
    """A BlobProto with the shape and the numbers of `arr`, as float32, and with `diff`, which has that shape too."""
    blob = BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(np.asarray(arr, np.float64).ravel().tolist())
    if diff is not None:
        if diff.shape != arr.shape:
            raise ArgumentError(f"diff has shape {_text(diff.shape)}, and data {_text(arr.shape)}; give both one shape")
        blob.diff.extend(np.asarray(diff, np.float64).ravel().tolist())
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[Array]) -> bytes:
    """The bytes of a BlobProtoVector with a blob for each array."""
    vector = BlobProtoVector()
    vector.blobs.extend(array_to_blobproto(each) for each in arraylist)
    return bytes(vector.SerializeToString())


def blobprotovector_str_to_arraylist(data: bytes) -> list[npt.NDArray[np.float64]]:
    """The arrays of the blobs in the bytes of a BlobProtoVector."""
    return [blobproto_to_array(each) for each in BlobProtoVector.FromString(data).blobs]


def array_to_datum(arr: Array, label: int | None = None) -> Message:
    """A Datum of an array [C,H,W]: it holds bytes if the array is uint8, otherwise floats."""
    if arr.ndim != 3:
        raise ArgumentError(f"an array of shape {_text(arr.shape)} is no Datum; give one of shape [C,H,W]")
    datum = Datum(channels=arr.shape[0], height=arr.shape[1], width=arr.shape[2])
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(np.asarray(arr, np.float64).ravel().tolist())
    if label is not None:
        datum.label = label
    return datum


def datum_to_array(datum: Message) -> Array:
    """The array [C,H,W] of a Datum: uint8, or float64 of its floats.  An encoded image is decoded, as blue, green, red.

    Its label is `datum.label`.
    """
    image = datum_image(datum)
    return image.astype(np.float64) if image.dtype == np.float32 else image.copy()


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "of one number"
