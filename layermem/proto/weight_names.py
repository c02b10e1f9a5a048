"""Maps names of tensors in weight files of other programs to blobs of layers.

    conv1/0    conv1.weight          blob 0 of layer conv1 is the tensor conv1.weight
    bn1/2      =1                    a constant that the other file lacks: the divisor of a BatchNorm

There is one line per blob; empty lines and lines that start with # are skipped.  Names of layers may contain spaces,
but not names of tensors.  Without a map, a tensor is named LAYER/INDEX, as in HDF5, or LAYER.weight and LAYER.bias for
0 and 1.

Arrays are not converted: the layouts of torch and Caffe are equal for convolutions, deconvolutions, inner products,
embeddings and everything per channel.  Caffe's BatchNorm keeps sums and their divisor, blob 2, where others keep means:
if the map has a constant for the divisor, blobs 0 and 1 are divided by it when they are written.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np

from layermem.errors import InputError
from layermem.proto.blobs import Array, Blob, LazyBlob
from layermem.utils.input_files import read_lines
from layermem.utils.numbers import parse_float

WHAT = "name map, with lines such as `conv1/0 conv1.weight`"
NAMES = ".names"  # suffix of a weight file's map, which --weights uses
ROLES = {"weight": 0, "bias": 1}
_OURS = re.compile(r"(?P<layer>.+)/(?P<index>\d{1,3})", re.DOTALL)
_THEIRS = re.compile(rf"(?P<layer>.+)\.(?P<role>{'|'.join(ROLES)})", re.DOTALL)

Key = tuple[str, int]  # a layer, and the index of a blob


@dataclass(frozen=True)
class MapLine:
    """The source of a blob: a tensor or a constant, and the line of the map."""

    tensor: str | None
    constant: float
    number: int


@dataclass(frozen=True)
class NameMap:
    path: str
    lines: Mapping[Key, MapLine]


def read_names(path: str | PathLike[str]) -> NameMap:
    """Read the map in a file; InputError with its line if it is none."""
    found: dict[Key, MapLine] = {}
    for number, text in enumerate(read_lines(path, what=WHAT), start=1):
        if text.strip() and not text.lstrip().startswith("#"):
            try:
                key, line = _line_of(text, number)
                if key in found:
                    raise InputError(f"names '{_ours(key)}' a second time (line {found[key].number}); keep one")
            except InputError as error:
                raise error.at(path=str(path), line=number) from None
            found[key] = line
    for (layer, index), line in found.items():
        if index and (layer, index - 1) not in found:
            what = f"names blob {index} of '{layer}', and no blob {index - 1}; add a line for it"
            raise InputError(what, path=str(path), line=line.number)
    if not found:
        raise InputError(f"has no lines; give a {WHAT}", path=str(path))
    return NameMap(str(path), found)


def _line_of(text: str, number: int) -> tuple[Key, MapLine]:
    words = text.strip().rsplit(None, 1)
    match = _OURS.fullmatch(words[0].rstrip()) if len(words) == 2 else None
    if match is None:
        raise InputError(f"has a line that is not `LAYER/INDEX TENSOR`: {text.strip()[:60]!r}; write it so")
    key = match["layer"], int(match["index"])
    if not words[1].startswith("="):
        return key, MapLine(words[1], 0.0, number)
    try:
        constant = parse_float(words[1][1:])
    except ValueError:
        constant = math.nan
    if not math.isfinite(constant) or constant == 0:
        raise InputError(f"has the constant '{words[1][:40]}'; write a number other than 0, such as =1")
    return key, MapLine(None, constant, number)


def key_of(tensor: str) -> Key | None:
    """The blob that the name of a tensor denotes without a map."""
    if match := _OURS.fullmatch(tensor):
        return match["layer"], int(match["index"])
    if match := _THEIRS.fullmatch(tensor):
        return match["layer"], ROLES[match["role"]]
    return None


def _ours(key: Key) -> str:
    return f"{key[0]}/{key[1]}"


# -- reading -----------------------------------------------------------------------------------------------------------


def layers_of(tensors: Mapping[str, LazyBlob], names: NameMap | None) -> dict[str, list[Blob]]:
    """The blobs of every layer; with a map only those that it names, in the order of the map."""
    blobs = _mapped(tensors, names) if names else _by_name(tensors)
    layers: dict[str, dict[int, Blob]] = {}
    for (layer, index), blob in blobs.items():
        layers.setdefault(layer, {})[index] = blob
    for layer, by_index in layers.items():
        missing = next(index for index in range(len(by_index) + 1) if index not in by_index)
        if missing < len(by_index):
            raise InputError(f"has no blob {missing} of {max(by_index) + 1}; write a name map for it", layer=layer)
    return {layer: [by_index[index] for index in sorted(by_index)] for layer, by_index in layers.items()}


def _mapped(tensors: Mapping[str, LazyBlob], names: NameMap) -> dict[Key, Blob]:
    blobs: dict[Key, Blob] = {}
    for key, line in names.lines.items():
        if line.tensor is None:
            blobs[key] = np.full((1,), line.constant, np.float32)
        elif line.tensor in tensors:
            blobs[key] = tensors[line.tensor]
        else:
            some = ", ".join(list(tensors)[:5]) or "none"
            what = f"names the tensor '{line.tensor}', which the weight file does not have (it has: {some} ..)"
            raise InputError(f"{what}; correct it", path=names.path, line=line.number)
    return blobs


def _by_name(tensors: Mapping[str, LazyBlob]) -> dict[Key, Blob]:
    blobs: dict[Key, Blob] = {}
    for name, tensor in tensors.items():
        key = key_of(name)
        if key is None or key in blobs:
            fault = "is not of the form LAYER/INDEX or LAYER.weight" if key is None else f"is '{_ours(key)}' once more"
            raise InputError(f"has the tensor '{name[:80]}', which {fault}; write a name map: `conv1/0 conv1.weight`")
        blobs[key] = tensor
    return blobs


# -- writing -----------------------------------------------------------------------------------------------------------


def tensors_of(layers: Mapping[str, Sequence[Blob]], names: NameMap | None) -> dict[str, Blob]:
    """The tensors to write, by name: those in the map, or all of them as LAYER/INDEX."""
    if names is None:
        return {_ours((layer, i)): blob for layer, blobs in layers.items() for i, blob in enumerate(blobs)}
    tensors: dict[str, Blob] = {}
    for key, line in names.lines.items():
        layer, index = key
        try:
            if index >= len(layers.get(layer, ())):
                raise InputError(f"names '{_ours(key)}', which the weight file does not have; correct it")
            if line.tensor is None:
                continue
            if line.tensor in tensors:
                raise InputError(f"names the tensor '{line.tensor}' a second time; two blobs cannot be written to one")
        except InputError as error:
            raise error.at(path=names.path, line=line.number) from None
        tensors[line.tensor] = _divided(layers[layer], index, names.lines.get((layer, 2)))
    return tensors


def left_out(layers: Mapping[str, Sequence[Blob]], names: NameMap | None) -> list[str]:
    """The blobs that a map does not name."""
    every = ((layer, index) for layer, blobs in layers.items() for index in range(len(blobs)))
    return [_ours(key) for key in every if names is not None and key not in names.lines]


def _divided(blobs: Sequence[Blob], index: int, divisor: MapLine | None) -> Blob:
    """Blob `index`; an average of a BatchNorm whose divisor is a constant in the map is divided by it."""
    blob = blobs[index]
    if index > 1 or divisor is None or divisor.tensor is not None or len(blobs) < 3 or blobs[2].size != 1:
        return blob

    def read() -> Array:
        by = np.asarray(blobs[2], np.float32).reshape(()) / np.float32(divisor.constant)
        return np.asarray(blob, np.float32) / by if by else np.asarray(blob, np.float32)

    return LazyBlob(blob.shape, read)
