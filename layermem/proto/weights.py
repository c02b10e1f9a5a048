"""Reads and writes weights by layer name: .caffemodel files, binary or HDF5, and .safetensors and .npz files.

    {"conv1": [weight (K,C/g,kh,kw), bias (K)], ...}    float32, in Caffe's shapes

If several layers in a binary file have one name, later ones get a number, as in a net ("ip(2)"); a layer without a name
gets that of its type (proto/names.py).  `names_in_file` has the names in the file.  HDF5 has only unique names.

Files of 2014 and before have four extents for every blob.  Blobs of inner products and biases are read in today's form,
(N,K) for (1,1,N,K) and (K) for (1,1,1,K), so that Caffe accepts them when they are written again.  The five blobs of a
BatchNorm of NVCaffe are read in the form of its newest version: mean, variance, divisor, scale and bias, each (C).

Binary files hold a NetParameter.  They are read with the bytes variant of the schema, and with the plain one if a blob
does not fill its shape that way (its floats are not packed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from os import PathLike, fspath
from typing import BinaryIO, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from layermem.errors import InputError
from layermem.proto.blobs import (
    MESSAGE_LIMIT_BYTES,
    Array,
    Blob,
    LazyBlob,
    NotPacked,
    array_from_fast,
    array_from_plain,
    blob_bytes,
    find_blob,
    write_blob,
)
from layermem.proto.names import FreeNames, NamesInFile
from layermem.proto.schema import (
    FastNetParameter,
    LayerParameter,
    Message,
    NetParameter,
    SolverState,
    V1LayerParameter,
    copy_of,
    enum_name,
)
from layermem.proto.upgrade import v2_type
from layermem.proto.weight_names import NAMES, NameMap, layers_of, read_names, tensors_of
from layermem.proto.weights_hdf5 import is_hdf5, open_hdf5, write_hdf5
from layermem.proto.weights_npz import npz_content, open_npz
from layermem.proto.weights_safetensors import open_safetensors, safetensors_content
from layermem.proto.wire import LENGTH, WireError, WireField, fields, length_head, read_span
from layermem.utils.files import write_atomically
from layermem.utils.input_files import exists
from layermem.utils.open_file import OpenFile
from layermem.utils.units import format_bytes

WHAT = "weight file (.caffemodel or .caffemodel.h5)"
_LAYER, _OLD_LAYER = (NetParameter.DESCRIPTOR.fields_by_name[name].number for name in ("layer", "layers"))
_BLOBS = LayerParameter.DESCRIPTOR.fields_by_name["blobs"].number
_OLD_BLOBS = V1LayerParameter.DESCRIPTOR.fields_by_name["blobs"].number
# Names of types in Caffe's three formats.
_INNER_PRODUCT = ("InnerProduct", "INNER_PRODUCT", "innerproduct")
SAFETENSORS, NPZ = ".safetensors", ".npz"  # endings of names of files
_NORM = "BatchNorm"
_DEPTHWISE = ("ConvolutionDepthwise", "DepthwiseConvolution")  # types of forks
_WITH_BIAS = (*_INNER_PRODUCT, *_DEPTHWISE, "Convolution", "CONVOLUTION", "conv", "Deconvolution", "DECONVOLUTION")

# name -> (type, or the whole layer as it is in the net; blobs)
FileLayers = Mapping[str, tuple[str | Message, Sequence[Blob]]]
B = TypeVar("B")
T = TypeVar("T", Array, LazyBlob)


class Weights(dict[str, list[B]]):
    """The blobs of every layer with weights, by unique name, in the order of the file."""

    def __init__(self, layers: Mapping[str, list[B]], names_in_file: NamesInFile | None = None, *, hdf5: bool = False):
        super().__init__(layers)
        self.names_in_file = names_in_file or {}
        self.hdf5 = hdf5

    @classmethod
    def numbered(cls, layers: Sequence[tuple[str, str, list[B]]]) -> Weights[B]:
        """Return the weights for (name, type, blobs) in the order of a binary file."""
        weights = cls({})
        names = FreeNames(name for name, _, _ in layers)
        for name, kind, blobs in layers:
            unique = name if name and name not in weights else names.take(name or kind)
            if unique != name:
                weights.names_in_file[unique] = name
            weights[unique] = blobs
        return weights


def is_named(path: str | PathLike[str]) -> bool:
    """Whether a file holds tensors by name, as other programs write them (weight_names.py)."""
    return fspath(path).endswith((SAFETENSORS, NPZ))


def open_weights(path: str | PathLike[str] | OpenFile, names: NameMap | None = None) -> Weights[Blob]:
    """Read like `read_weights`, but if possible as blobs that are read from the open file when they are needed."""
    file = path if isinstance(path, OpenFile) else OpenFile(path, what=WHAT)
    if is_named(file.path):
        return _named_weights(file, names)
    if is_hdf5(file):
        return Weights(open_hdf5(file), hdf5=True)
    if located := _find_blobs(file):
        return located
    weights = _read_binary(file)
    return Weights({name: [*blobs] for name, blobs in weights.items()}, weights.names_in_file)


def _named_weights(file: OpenFile, names: NameMap | None) -> Weights[Blob]:
    """Read tensors by name; without `names`, with the map next to the file, if there is one."""
    tensors = (open_npz if file.path.endswith(NPZ) else open_safetensors)(file)
    beside = file.path + NAMES
    if names is None and exists(beside):
        names = read_names(beside)
    try:
        return Weights(layers_of(tensors, names))
    except InputError as error:
        raise error.at(path=file.path) from None


def read_weights(path: str | PathLike[str]) -> Weights[Array]:
    """Read the blobs of every layer with weights, by name, in the order of the file.  Arrays may be read-only."""
    file = OpenFile(path, what=WHAT)
    if not is_named(path) and not is_hdf5(file):
        return _read_binary(file)
    opened = open_weights(file)
    return Weights({name: [np.asarray(blob) for blob in blobs] for name, blobs in opened.items()}, hdf5=opened.hdf5)


def _read_binary(file: OpenFile) -> Weights[Array]:
    raw = file.content(MESSAGE_LIMIT_BYTES)
    try:
        return _weights_of(raw)
    except InputError as error:
        raise error.at(path=file.path) from None


def write_weights(
    path: str | PathLike[str],
    net_name: str,
    layers: FileLayers,
    names_in_file: NamesInFile | None = None,
    names: NameMap | None = None,
    form: str | PathLike[str] | None = None,
) -> None:
    """Write {layer name: (type, blobs)} atomically, in the format that the end of the path names, or of `form`.

    names_in_file   other names for some layers in a binary file; names in HDF5 are unique
    names           the names of tensors in a .safetensors or .npz file
    InputError if a binary file would exceed 2 GiB, the limit of protobuf readers.
    """
    try:
        write_atomically(path, weights_content(form or path, net_name, layers, names_in_file, names))
    except InputError as error:
        raise error.at(path=str(path)) from None


def weights_content(
    path: str | PathLike[str],
    net_name: str,
    layers: FileLayers,
    names_in_file: NamesInFile | None = None,
    names: NameMap | None = None,
) -> Callable[[BinaryIO], None]:
    """Return a function that writes a weight file for `path` to an open file; InputError as in write_weights."""
    blobs_of = {name: blobs for name, (_, blobs) in layers.items()}
    if is_named(path):
        content = npz_content if fspath(path).endswith(NPZ) else safetensors_content
        return content(tensors_of(blobs_of, names))
    if fspath(path).endswith(".h5"):
        return lambda handle: write_hdf5(handle, blobs_of)
    _refuse_beyond_limit(sum(4 * blob.size for _, blobs in layers.values() for blob in blobs))
    return lambda handle: _write_binary(handle, net_name, layers, names_in_file or {})


def _write_binary(handle: BinaryIO, net_name: str, layers: FileLayers, names_in_file: NamesInFile) -> None:
    """Write a NetParameter blob by blob, so that only one is in memory at a time."""
    handle.write(NetParameter(name=net_name).SerializeToString())
    for name, (layer, blobs) in layers.items():
        whole = LayerParameter(type=layer) if isinstance(layer, str) else copy_of(layer)
        whole.ClearField("blobs")
        whole.name = names_in_file.get(name, name)
        before, after = _around_blobs(whole)
        size = len(before) + len(after)
        for blob in blobs:
            size += len(length_head(_BLOBS, blob_bytes(blob))) + blob_bytes(blob)
        handle.write(length_head(_LAYER, size) + before)
        for blob in blobs:
            write_blob(handle, _BLOBS, blob)
        handle.write(after)
    _refuse_beyond_limit(handle.tell())


def _around_blobs(layer: Message) -> tuple[bytes, bytes]:
    """The fields of a layer with lower and with higher numbers than its blobs, as bytes."""
    before, after = copy_of(layer), copy_of(layer)
    for field, _ in layer.ListFields():
        (after if field.number < _BLOBS else before).ClearField(field.name)
    return before.SerializeToString(), after.SerializeToString()


def _find_blobs(file: OpenFile) -> Weights[Blob] | None:
    """Locate the blobs of a binary file; None for a file that `read_weights` must parse, or refuse."""
    layers: list[tuple[str, str, list[Blob]]] = []
    reader = file.reader()
    try:
        for layer in fields(reader, 0, file.size if file.size <= MESSAGE_LIMIT_BYTES else 0):
            if layer.number not in (_LAYER, _OLD_LAYER) or layer.kind != LENGTH:
                continue
            name, kind, blobs = _find_layer(file, reader, layer)
            if blobs:
                layers.append((name, kind, blobs))
    except (ValueError, DecodeError, InputError):
        return None
    return Weights.numbered(layers)


def _find_layer(file: OpenFile, reader: BinaryIO, layer: WireField) -> tuple[str, str, list[Blob]]:
    head = b""
    blobs: list[LazyBlob] = []
    blobs_number = _BLOBS if layer.number == _LAYER else _OLD_BLOBS
    for field in fields(reader, layer.start, layer.stop):
        if field.number == blobs_number and field.kind == LENGTH:
            blobs.append(find_blob(file, reader, field.start, field.stop))
        else:
            head += read_span(reader, field.begin, field.stop)
    message = (LayerParameter if layer.number == _LAYER else V1LayerParameter).FromString(head)
    if layer.number == _OLD_LAYER and message.HasField("layer"):
        raise WireError("a layer of Caffe's first format")
    kind = message.type if layer.number == _LAYER else enum_name(message, "type")
    if not isinstance(message.name, str):
        raise WireError("a name that is not UTF-8")
    located = [blob.reshape(_shape_today(kind, i, blob.shape)) for i, blob in enumerate(blobs)]
    return message.name, _type_today(kind), [*_in_order_today(kind, located)]


def _refuse_beyond_limit(size: int) -> None:
    if size > MESSAGE_LIMIT_BYTES:
        raise InputError(
            f"cannot be written: the weights take {format_bytes(size)}, above the limit of a binary .caffemodel, "
            f"{format_bytes(MESSAGE_LIMIT_BYTES)}; use HDF5 (.caffemodel.h5)"
        )


def _weights_of(raw: bytes) -> Weights[Array]:
    if not raw:
        raise InputError(f"is empty; give a {WHAT}")
    try:
        try:
            weights = _collect_blobs(FastNetParameter.FromString(raw), array_from_fast)
        except NotPacked:
            weights = _collect_blobs(NetParameter.FromString(raw), array_from_plain)
    except InputError as error:
        raise _other_file(raw) or error from None
    except (DecodeError, UnicodeDecodeError):
        raise _other_file(raw) or InputError(f"is truncated, or is not a {WHAT}; copy it again") from None
    if not weights and (other := _other_file(raw)):
        raise other
    return weights


def _collect_blobs(net: Message, as_array: Callable[[Message], Array]) -> Weights[Array]:
    layers: list[tuple[str, str, list[Array]]] = []
    count = 0
    for name, kind, blobs in _layers_of(net):
        count += 1
        if not isinstance(name, str):  # protobuf returns text that is not UTF-8 as bytes
            raise InputError(f"has a layer with the name {name!r}, which is not UTF-8; the file is damaged")
        if not blobs:
            continue
        try:
            arrays = [as_array(blob) for blob in blobs]
            arrays = [array.reshape(_shape_today(kind, i, array.shape)) for i, array in enumerate(arrays)]
            layers.append((name, _type_today(kind), _in_order_today(kind, arrays)))
        except InputError as error:
            raise error.at(layer=name) from None
    if not count:
        raise InputError(f"has no layers; give a {WHAT}")
    return Weights.numbered(layers)


def _layers_of(net: Message) -> Iterator[tuple[str, str, Sequence[Message]]]:
    """(name, type, blobs) of every layer, in any of Caffe's three formats."""
    for layer in net.layer:
        yield layer.name, layer.type, layer.blobs
    for layer in net.layers:
        if layer.HasField("layer"):
            yield layer.layer.name, layer.layer.type, layer.layer.blobs
        else:
            yield layer.name, enum_name(layer, "type"), layer.blobs


def _type_today(kind: str) -> str:
    """Today's name of a type of any format: InnerProduct for INNER_PRODUCT."""
    return v2_type(kind) if kind.isupper() and kind not in ("LSTM", "RNN") else kind


def _shape_today(kind: str, index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Today's shape of blob `index` of a layer of type `kind`, which may have the four extents of old files."""
    if kind == _NORM and len(shape) == 4 and shape[0] == shape[2] == shape[3] == 1:  # NVCaffe with cuDNN
        return shape[1:2]
    rank = 4 if kind not in _WITH_BIAS else 1 if index else 2 if kind in _INNER_PRODUCT else 4
    old = len(shape) == 4 and shape[: 4 - rank] == (1,) * (4 - rank)
    return shape[4 - rank :] if old else shape


def _in_order_today(kind: str, blobs: list[T]) -> list[T]:
    """Return mean, variance, divisor, scale, bias; older versions of NVCaffe have scale and bias first (files of
    DIGITS)."""
    legacy = kind == _NORM and len(blobs) == 5 and prod(blobs[4].shape) == 1 < prod(blobs[0].shape)
    return [blobs[i] for i in (2, 3, 4, 0, 1)] if legacy else blobs


PYTORCH = b"PK\x03\x04", b"\x80\x02"  # a zip archive, as torch.save writes it, and a pickle, as it once did


def _other_file(raw: bytes) -> InputError | None:
    """The error for a file of PyTorch, a text or a solver state, which are common mistakes; None for other files."""
    start = raw[:512]
    if start.startswith(PYTORCH):
        return InputError(f"is a checkpoint of PyTorch; save its weights as .safetensors, or export ONNX, for a {WHAT}")
    if not any(byte < 32 and byte not in b"\t\n\r\f" for byte in start):
        return InputError(f"is text; give a {WHAT}")
    try:
        state = SolverState.FromString(raw)
        if state.learned_net and isinstance(state.learned_net, str) and state.learned_net.isprintable():
            return InputError(f"is a solver state, for --snapshot; for --weights give its '{state.learned_net}'")
    except (DecodeError, UnicodeDecodeError):
        pass
    return None
