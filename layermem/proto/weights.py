"""Weights by layer name: .caffemodel, binary or HDF5, both ways.

    {"conv1": [weight (K,C/g,kh,kw), bias (K)], ...}    float32, in Caffe's shapes

Binary files hold a NetParameter.  They are read through the bytes variant of the schema, and again through the plain
one if a blob does not fill its shape that way (floats that some writer did not pack).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.proto.blobs import MESSAGE_LIMIT, Array, NotPacked, array_from_fast, array_from_plain, blob_from_array
from layermem.proto.schema import FastNetParameter, NetParameter, SolverState
from layermem.proto.text import read_bytes
from layermem.proto.weights_hdf5 import is_hdf5, read_hdf5, write_hdf5
from layermem.utils.files import write_atomically
from layermem.utils.units import format_bytes

_WHAT = "weight file (.caffemodel or .caffemodel.h5)"


def read_weights(path: str | PathLike[str]) -> dict[str, list[Array]]:
    """The blobs of every layer that has some, by name, in the order of the file.  Arrays may be read-only."""
    if is_hdf5(path):
        return read_hdf5(fspath(path))
    raw = read_bytes(path, what=_WHAT, limit=MESSAGE_LIMIT)
    try:
        return _weights_of(raw)
    except InputError as error:
        raise error.at(path=str(path)) from None


def write_weights(path: str | PathLike[str], net_name: str, layers: Mapping[str, tuple[str, Sequence[Array]]]) -> None:
    """Write {layer name: (type, blobs)} whole or not at all; a path that ends in .h5 gets HDF5.

    InputError if a binary file would pass 2 GiB, which no protobuf reader takes.
    """
    try:
        write_atomically(path, weights_content(path, net_name, layers))
    except InputError as error:
        raise error.at(path=str(path)) from None


def weights_content(
    path: str | PathLike[str], net_name: str, layers: Mapping[str, tuple[str, Sequence[Array]]]
) -> Callable[[BinaryIO], None]:
    """What writes a weight file called `path` to an open file; refuses what write_weights refuses."""
    if fspath(path).endswith(".h5"):
        blobs_of = {name: blobs for name, (_, blobs) in layers.items()}
        return lambda handle: write_hdf5(handle, blobs_of)
    _refuse_beyond_limit(sum(4 * blob.size for _, blobs in layers.values() for blob in blobs))
    return lambda handle: _write_binary(handle, net_name, layers)


def _write_binary(handle: BinaryIO, net_name: str, layers: Mapping[str, tuple[str, Sequence[Array]]]) -> None:
    """A message written in pieces is the message of all pieces, so one layer at a time is in memory twice."""
    written = handle.write(NetParameter(name=net_name).SerializeToString())
    for name, (kind, blobs) in layers.items():
        net = FastNetParameter()
        net.layer.add(name=name, type=kind).blobs.extend(blob_from_array(array) for array in blobs)
        written += handle.write(net.SerializeToString())
    _refuse_beyond_limit(written)


def _refuse_beyond_limit(size: int) -> None:
    if size > MESSAGE_LIMIT:
        raise InputError(
            f"cannot be written: the weights take {format_bytes(size)}, and a binary .caffemodel holds no more than "
            f"{format_bytes(MESSAGE_LIMIT)}; use HDF5 (.caffemodel.h5)"
        )


def _weights_of(raw: bytes) -> dict[str, list[Array]]:
    if not raw:
        raise InputError(f"is empty; name a {_WHAT}")
    try:
        try:
            weights = _collected(FastNetParameter.FromString(raw), array_from_fast)
        except NotPacked:
            weights = _collected(NetParameter.FromString(raw), array_from_plain)
    except InputError as error:
        raise _other_file(raw) or error from None
    except (DecodeError, UnicodeDecodeError):
        raise _other_file(raw) or InputError(f"is cut short, or is no {_WHAT}") from None
    if not weights and (other := _other_file(raw)):
        raise other
    return weights


def _collected(net: Any, as_array: Callable[[Any], Array]) -> dict[str, list[Array]]:
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
        raise InputError(f"holds no layers, so it is no {_WHAT}")
    return weights


def _layers_of(net: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """(name, blobs) of every layer, in whichever of Caffe's three formats."""
    for layer in net.layer:
        yield layer.name, layer.blobs
    for layer in net.layers:
        inner = layer.layer if layer.HasField("layer") else layer
        yield inner.name, inner.blobs


def _other_file(raw: bytes) -> InputError | None:
    """What the file is instead, if it is one that people give by mistake."""
    start = raw[:512]
    if not any(byte < 32 and byte not in b"\t\n\r\f" for byte in start):
        return InputError(f"is text; name a {_WHAT}")
    try:
        state = SolverState.FromString(raw)
        if state.learned_net and state.learned_net.isprintable():
            return InputError(f"is a solver state, for --snapshot; its weights are in '{state.learned_net}'")
    except (DecodeError, UnicodeDecodeError):
        pass
    return None
