"""Weights in HDF5 files, in the layout of Caffe.

    /data/conv1/0   float32 (K,C/g,kh,kw)        a group for each layer, a dataset for each blob
    /data/conv1/1   float32 (K)
    /data/relu1                                  layers without blobs are empty groups

A name with slashes, such as inception_3a/1x1, is a nested group.  Shared blobs are stored with the layer that owns
them; gradients, which Caffe may add under /diff, are ignored.

    source  Caffe net.cpp, ToHDF5 and CopyTrainedLayersFromHDF5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, BinaryIO

import numpy as np

from layermem.errors import InputError
from layermem.proto.blobs import Array
from layermem.proto.checks import shape_fault

SIGNATURE = b"\x89HDF\r\n\x1a\n"  # of every HDF5 file


def is_hdf5(path: str | PathLike[str]) -> bool:
    """Whether the file has the signature of HDF5; False for one that cannot be read."""
    try:
        with open(path, "rb") as handle:
            return handle.read(len(SIGNATURE)) == SIGNATURE
    except (OSError, ValueError):
        return False


def read_hdf5(path: str) -> dict[str, list[Array]]:
    """The blobs of every layer with weights, by name."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            if not isinstance(file.get("data"), h5py.Group):
                raise InputError("has no group 'data'; give a .caffemodel.h5", path=path)
            numbered = _blobs_in(file["data"])
        return {layer: _in_order(layer, blobs) for layer, blobs in numbered.items()}
    except InputError as error:
        raise error.at(path=path) from None
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"is truncated, or is not a .caffemodel.h5: {reason}", path=path) from None


def write_hdf5(handle: BinaryIO, layers: Mapping[str, Sequence[Array]]) -> None:
    """Write {layer name: blobs} to an open file."""
    import h5py

    for layer in layers:
        _check_name(layer, layers)
    with h5py.File(handle, "w") as file:
        data = file.create_group("data")
        for layer, blobs in layers.items():
            group = data.require_group(layer)  # it exists if a nested layer was written before
            for index, blob in enumerate(blobs):
                group.create_dataset(str(index), data=np.asarray(blob, dtype=np.float32))


def _blobs_in(data: Any) -> dict[str, dict[int, Array]]:
    """All datasets below a group, by layer name and blob index."""
    import h5py

    blobs: dict[str, dict[int, Array]] = {}

    def visit(name: str, node: Any) -> None:
        if not isinstance(node, h5py.Dataset):
            return
        layer, _, index = name.rpartition("/")
        if not (layer and index.isdecimal()) or node.dtype.kind not in "fiu":
            raise InputError(f"has an unexpected dataset 'data/{name}'; give a .caffemodel.h5")
        if node.shape is None or (fault := shape_fault(node.shape)):
            raise InputError(f"has a blob {index} of {fault or 'no shape'}", layer=layer)
        blobs.setdefault(layer, {})[int(index)] = np.asarray(node[()], dtype=np.float32)

    data.visititems(visit)
    return blobs


def _in_order(layer: str, blobs: dict[int, Array]) -> list[Array]:
    missing = sorted(set(range(max(blobs) + 1)) - set(blobs))
    if missing:
        raise InputError(
            f"has no blob {missing[0]} of {max(blobs) + 1} in the file; Caffe omits blobs that another layer owns, so "
            "save such weights as a binary .caffemodel",
            layer=layer,
        )
    return [blobs[index] for index in range(len(blobs))]


def _check_name(layer: str, layers: Mapping[str, Sequence[Array]]) -> None:
    """InputError for a layer name that is not a path in HDF5, or that equals the path of a blob."""
    parts = layer.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in layer:
        raise InputError("has a name that HDF5 does not allow; rename it, or write a binary .caffemodel", layer=layer)
    owner = "/".join(parts[:-1])
    if parts[-1].isdecimal() and len(layers.get(owner, ())) > int(parts[-1]):
        what = f"has the name of a blob of layer '{owner}' in HDF5; rename it, or write a binary .caffemodel"
        raise InputError(what, layer=layer)
