"""Reads tensors of a .safetensors file by name, each when it is needed.

    8 bytes    the length of the header, little-endian
    header     JSON: {"conv1.weight": {"dtype": "F32", "shape": [64, 3, 7, 7], "data_offsets": [0, 37632]}, ...}
    data       the tensors, little-endian, without holes between them

Every offset is checked before a tensor is read.  Tensors are written in fp32.
source  github.com/huggingface/safetensors, README.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from math import prod
from typing import Any, BinaryIO

import numpy as np

from layermem.errors import InputError
from layermem.proto.blobs import Array, Blob, LazyBlob, array_at
from layermem.proto.checks import shape_fault
from layermem.utils.open_file import OpenFile

WHAT = ".safetensors file"
HEADER_LIMIT_BYTES = 100_000_000  # a limit of the format
BFLOAT16 = "BF16"
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", BFLOAT16: "<u2", "BOOL": "?", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip
ALIGNMENT = 8  # alignment of the data in a file


def open_safetensors(file: OpenFile) -> dict[str, LazyBlob]:
    """Return the tensors; InputError unless the file is a .safetensors whose tensors can be blobs."""
    try:
        start, header = _header(file)
        header.pop("__metadata__", None)
        spans = {name: _span(name, entry, file.size - start) for name, entry in header.items()}
        _check_spans(spans, file.size - start)
        return {name: _lazy(file, name, header[name], start) for name in header}
    except InputError as error:
        raise error.at(path=file.path) from None


def _header(file: OpenFile) -> tuple[int, dict[str, Any]]:
    """Return the offset of the data, and the header."""
    length = int.from_bytes(file.read(0, 8), "little")
    if file.size < 8 or length > min(file.size - 8, HEADER_LIMIT_BYTES):
        raise InputError(f"is truncated, or is not a {WHAT}: its header takes {length:,} bytes; copy it again")
    try:
        header = json.loads(file.read(8, 8 + length).decode(), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0][:80] or type(error).__name__
        raise InputError(f"is damaged, or is not a {WHAT}: its header is not JSON ({reason}); copy it again") from None
    if not isinstance(header, dict):
        raise InputError(f"is not a {WHAT}: its header holds no tensors; copy it again")
    return 8 + length, header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _span(name: str, entry: Any, size: int) -> tuple[int, int]:
    """Return the range of a tensor in the data of `size` bytes."""
    try:
        name.encode()
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        known = isinstance(dtype, str) and all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        known = False
    if not known:
        raise InputError(f"has a damaged entry for the tensor {ascii(name)[:80]}; copy it again")
    if not begin <= end <= size:
        raise InputError(f"has the tensor '{name[:80]}' at bytes {begin} to {end} of {size}; copy it again")
    if dtype in DTYPES and end - begin != prod(shape) * np.dtype(DTYPES[dtype]).itemsize:
        text = " x ".join(map(str, shape)) or "one number"
        raise InputError(f"has {end - begin} bytes for the tensor '{name[:80]}' of {dtype}, {text}; copy it again")
    return begin, end


def _check_spans(spans: Mapping[str, tuple[int, int]], size: int) -> None:
    """Raise InputError unless the tensors fill the data without gaps."""
    ordered = sorted(spans.items(), key=lambda item: item[1])
    edges = [("", (0, 0)), *ordered, ("the end of the file", (size, size))]
    for (before, (_, end)), (name, (begin, _)) in pairwise(edges):
        if begin != end:
            fault = "overlaps" if begin < end else "does not begin behind"
            what = f"'{before[:80]}'" if before else "the header"
            raise InputError(f"has '{name[:80]}', which {fault} {what} in the file; copy it again")


def _lazy(file: OpenFile, name: str, entry: dict[str, Any], start: int) -> LazyBlob:
    shape, kind, (begin, _) = tuple(entry["shape"]), entry["dtype"], entry["data_offsets"]

    def read() -> Array:
        fault = None if not shape else shape_fault(shape)
        if kind not in DTYPES or fault:
            what = f"has the tensor '{name}' of {fault or f'type {kind}, which is not read; store it as F32'}"
            raise InputError(what, path=file.path)
        values = array_at(file, start + begin, DTYPES[kind], prod(shape))
        if kind == BFLOAT16:
            values = (values.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return values.astype(np.float32, copy=False).reshape(shape)

    return LazyBlob(shape, read)


def safetensors_content(tensors: Mapping[str, Blob]) -> Callable[[BinaryIO], None]:
    """Return a function that writes the tensors to an open file, one at a time."""
    header, offset = {}, 0
    for name, blob in tensors.items():
        header[name] = {"dtype": "F32", "shape": [*blob.shape], "data_offsets": [offset, offset + 4 * blob.size]}
        offset += 4 * blob.size
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % ALIGNMENT)

    def write(handle: BinaryIO) -> None:
        handle.write(len(raw).to_bytes(8, "little") + raw)
        for blob in tensors.values():
            handle.write(np.ascontiguousarray(blob, dtype="<f4").tobytes())

    return write
