"""Weights in HDF5 files, in the layout of Caffe.

    /data/conv1/0   float32 (K,C/g,kh,kw)        a group for each layer, a dataset for each blob
    /data/conv1/1   float32 (K)
    /data/relu1                                  layers without blobs are empty groups

A name with slashes, such as inception_3a/1x1, is a nested group.  Shared blobs are stored with the layer that owns
them; gradients, which Caffe may add under /diff, are ignored.

    source  Caffe net.cpp, ToHDF5 and CopyTrainedLayersFromHDF5
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from layermem.errors import InputError
from layermem.proto.blobs import Array, Blob, LazyBlob
from layermem.proto.checks import shape_fault
from layermem.utils.input_files import check_regular
from layermem.utils.units import format_bytes

if TYPE_CHECKING:
    import h5py

CLAIM_LIMIT = 2**28  # bytes that a dataset may claim without storing them
MAX_COMPRESSION = 1100  # bytes that one stored byte may stand for; DEFLATE reaches 1032
SIGNATURE = b"\x89HDF\r\n\x1a\n"  # of every HDF5 file


def is_hdf5(path: str | PathLike[str]) -> bool:
    """Whether the file has the signature of HDF5; False for one that cannot be read."""
    try:
        check_regular(path, what="HDF5 file")
        with open(path, "rb") as handle:
            return handle.read(len(SIGNATURE)) == SIGNATURE
    except (OSError, InputError):
        return False


def open_hdf5(path: str) -> dict[str, list[Blob]]:
    """The blobs of every layer with weights, by name; each is read from the file when it is needed."""
    import h5py

    with reading(path, ".caffemodel.h5") as file:
        if not isinstance(file.get("data"), h5py.Group):
            raise InputError("has no group 'data'; give a .caffemodel.h5")
        numbered = _blobs_in(path, file["data"])
        return {layer: _in_order(layer, blobs) for layer, blobs in numbered.items()}


def read_hdf5(path: str) -> dict[str, list[Array]]:
    """The same, read."""
    return {layer: [np.asarray(blob) for blob in blobs] for layer, blobs in open_hdf5(path).items()}


def lazy_blob(path: str, dataset: h5py.Dataset) -> LazyBlob:
    """A dataset of numbers that is read when it is needed; InputError for one that cannot be a blob."""
    if dataset.dtype.kind not in "fiu":
        raise InputError(f"has a dataset '{dataset.name}' of {dataset.dtype}; store numbers")
    if fault := dataset_fault(path, dataset):
        raise InputError(f"has a dataset '{dataset.name}' {fault}")
    name, shape = dataset.name, dataset.shape

    def read() -> Array:
        with reading(path, "HDF5 file with blobs") as file:
            return np.asarray(file[name][()], np.float32).reshape(shape)

    return LazyBlob(shape, read)


def dataset_fault(path: str, dataset: h5py.Dataset) -> str | None:
    """Why a dataset is not read, as the end of "a dataset 'x' ..."; None if it is."""
    if dataset.shape is None:
        return "without a shape; store numbers"
    if dataset.external or dataset.is_virtual or dataset.file.filename != path:
        return "whose numbers are in another file; store them in this one"
    if fault := shape_fault(dataset.shape):
        return f"of {fault}"
    if dataset.nbytes > CLAIM_LIMIT and dataset.nbytes > MAX_COMPRESSION * dataset.id.get_storage_size():
        return f"that claims {format_bytes(dataset.nbytes)} and stores almost none of it; write it again"
    return None


@contextmanager
def reading(path: str, what: str) -> Iterator[h5py.File]:
    """The open file; InputError for any error of HDF5 meanwhile, and for what does not fit the memory."""
    import h5py

    check_regular(path, what=what)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except InputError as error:
        raise error.at(path=path) from None
    except MemoryError:
        raise InputError(
            "holds more numbers than this machine has memory for; use one with more, or a smaller file", path=path
        ) from None
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"is truncated, or is not a {what} ({reason}); copy it again", path=path) from None


def write_hdf5(handle: BinaryIO, layers: Mapping[str, Sequence[Blob]]) -> None:
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


def _blobs_in(path: str, data: h5py.Group) -> dict[str, dict[int, Blob]]:
    """All datasets below a group, by layer name and blob index."""
    import h5py

    blobs: dict[str, dict[int, Blob]] = {}

    def visit(name: str, node: h5py.HLObject) -> None:
        if not isinstance(node, h5py.Dataset):
            return
        layer, _, index = name.rpartition("/")
        if not (layer and index.isdecimal() and index.isascii() and len(index) < 10) or node.dtype.kind not in "fiu":
            raise InputError(f"has an unexpected dataset 'data/{name}'; give a .caffemodel.h5")
        if fault := dataset_fault(path, node):
            raise InputError(f"has a blob {index} {fault}", layer=layer)
        blobs.setdefault(layer, {})[int(index)] = lazy_blob(path, node)

    data.visititems(visit)
    return blobs


def _in_order(layer: str, blobs: dict[int, Blob]) -> list[Blob]:
    missing = next(index for index in range(len(blobs) + 1) if index not in blobs)
    if missing < len(blobs):
        raise InputError(
            f"has no blob {missing} of {max(blobs) + 1} in the file; Caffe omits blobs that another layer owns, so "
            "save such weights as a binary .caffemodel",
            layer=layer,
        )
    return [blobs[index] for index in range(len(blobs))]


def _check_name(layer: str, layers: Mapping[str, Sequence[Blob]]) -> None:
    """InputError for a layer name that is not a path in HDF5, or that equals the path of a blob."""
    parts = layer.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in layer:
        raise InputError("has a name that HDF5 does not allow; rename it, or write a binary .caffemodel", layer=layer)
    owner = "/".join(parts[:-1])
    if parts[-1].isdecimal() and len(layers.get(owner, ())) > int(parts[-1]):
        what = f"has the name of a blob of layer '{owner}' in HDF5; rename it, or write a binary .caffemodel"
        raise InputError(what, layer=layer)
