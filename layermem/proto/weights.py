"""Reads and writes weights by layer name: .caffemodel files, binary or HDF5.

    {"conv1": [weight (K,C/g,kh,kw), bias (K)], ...}    float32, in Caffe's shapes

Binary files hold a NetParameter.  They are read with the bytes variant of the schema, and with the plain one if a blob
does not fill its shape that way (its floats are not packed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import BinaryIO

from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.proto.blobs import MESSAGE_LIMIT, Array, NotPacked, array_from_fast, array_from_plain, blob_from_array
from layermem.proto.schema import FastNetParameter, Message, NetParameter, SolverState
from layermem.proto.text import read_bytes
from layermem.proto.weights_hdf5 import is_hdf5, read_hdf5, write_hdf5
from layermem.utils.files import write_atomically
from layermem.utils.units import format_bytes

_WHAT = "weight file (.caffemodel or .caffemodel.h5)"


def read_weights(path: str | PathLike[str]) -> dict[str, list[Array]]:
    """The blobs of every layer with weights, by name, in the order of the file.  Arrays may be read-only."""
    if is_hdf5(path):
        return read_hdf5(fspath(path))
    raw = read_bytes(path, what=_WHAT, limit=MESSAGE_LIMIT)
    try:
        return _weights_of(raw)
    except InputError as error:
        raise error.at(path=str(path)) from None


def write_weights(path: str | PathLike[str], net_name: str, layers: Mapping[str, tuple[str, Sequence[Array]]]) -> None:
    """Write {layer name: (type, blobs)} atomically, as HDF5 if the path ends in .h5.

    InputError if a binary file would exceed 2 GiB, the limit of protobuf readers.
    """
    try:
        write_atomically(path, weights_content(path, net_name, layers))
    except InputError as error:
        raise error.at(path=str(path)) from None


def weights_content(
    path: str | PathLike[str], net_name: str, layers: Mapping[str, tuple[str, Sequence[Array]]]
) -> Callable[[BinaryIO], None]:
    """A function that writes a weight file for `path` to an open file; InputError as in write_weights."""
    if fspath(path).endswith(".h5"):
        blobs_of = {name: blobs for name, (_, blobs) in layers.items()}
        return lambda handle: write_hdf5(handle, blobs_of)
    _refuse_beyond_limit(sum(4 * blob.size for _, blobs in layers.values() for blob in blobs))
    return lambda handle: _write_binary(handle, net_name, layers)


def _write_binary(handle: BinaryIO, net_name: str, layers: Mapping[str, tuple[str, Sequence[Array]]]) -> None:
    """Write one message per layer: concatenated messages merge, so only one layer at a time is copied."""
    written = handle.write(NetParameter(name=net_name).SerializeToString())
    for name, (kind, blobs) in layers.items():
        net = FastNetParameter()
        net.layer.add(name=name, type=kind).blobs.extend(blob_from_array(array) for array in blobs)
        written += handle.write(net.SerializeToString())
    _refuse_beyond_limit(written)


def _refuse_beyond_limit(size: int) -> None:
    if size > MESSAGE_LIMIT:
        raise InputError(
            f"cannot be written: the weights take {format_bytes(size)}, above the limit of a binary .caffemodel, "
            f"{format_bytes(MESSAGE_LIMIT)}; use HDF5 (.caffemodel.h5)"
        )


def _weights_of(raw: bytes) -> dict[str, list[Array]]:
    if not raw:
        raise InputError(f"is empty; give a {_WHAT}")
    try:
        try:
            weights = _collect_blobs(FastNetParameter.FromString(raw), array_from_fast)
        except NotPacked:
            weights = _collect_blobs(NetParameter.FromString(raw), array_from_plain)
    except InputError as error:
        raise _other_file(raw) or error from None
    except (DecodeError, UnicodeDecodeError):
        raise _other_file(raw) or InputError(f"is truncated, or is not a {_WHAT}") from None
    if not weights and (other := _other_file(raw)):
        raise other
    return weights


def _collect_blobs(net: Message, as_array: Callable[[Message], Array]) -> dict[str, list[Array]]:
    weights: dict[str, list[Array]] = {}
    count = 0
    for name, blobs in _layers_of(net):
        count += 1
        if not blobs:
            continue
        if name in weights:
            raise InputError(f"has two layers named '{name}' with weights; rename one and save again")
        try:
            weights[name] = [as_array(blob) for blob in blobs]
        except InputError as error:
            raise error.at(layer=name) from None
    if not count:
        raise InputError(f"has no layers; give a {_WHAT}")
    return weights


def _layers_of(net: Message) -> Iterator[tuple[str, Sequence[Message]]]:
    """(name, blobs) of every layer, in any of Caffe's three formats."""
    for layer in net.layer:
        yield layer.name, layer.blobs
    for layer in net.layers:
        inner = layer.layer if layer.HasField("layer") else layer
        yield inner.name, inner.blobs


def _other_file(raw: bytes) -> InputError | None:
    """The error for a text file or a solver state, two common mistakes; None for other files."""
    start = raw[:512]
    if not any(byte < 32 and byte not in b"\t\n\r\f" for byte in start):
        return InputError(f"is text; give a {_WHAT}")
    try:
        state = SolverState.FromString(raw)
        if state.learned_net and state.learned_net.isprintable():
            return InputError(f"is a solver state, for --snapshot; for --weights give its '{state.learned_net}'")
    except (DecodeError, UnicodeDecodeError):
        pass
    return None
