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
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from layermem.errors import InputError
from layermem.proto.blobs import Array, Blob, LazyBlob
from layermem.proto.checks import shape_fault
from layermem.utils.open_file import OpenFile
from layermem.utils.units import format_bytes

if TYPE_CHECKING:
    import h5py

CLAIM_LIMIT_BYTES = 2**28  # what a dataset may claim without storing them
MAX_COMPRESSION = 1100  # bytes that one stored byte may stand for; DEFLATE reaches 1032
CHUNK_CACHE_BYTES = 2**20  # of each dataset, whatever the default of HDF5: 1 MiB up to 1.14, 8 MiB in 2.0
SIGNATURE = b"\x89HDF\r\n\x1a\n"  # start of every HDF5 file


def is_hdf5(file: OpenFile) -> bool:
    """Whether the file begins with the signature of HDF5."""
    return file.read(0, len(SIGNATURE)) == SIGNATURE


def open_hdf5(file: OpenFile) -> dict[str, list[Blob]]:
    """The blobs of every layer with weights, by name; each is read from the file when it is needed."""
    import h5py

    with reading(file, ".caffemodel.h5") as h5:
        if not isinstance(h5.get("data"), h5py.Group):
            raise InputError("has no group 'data'; give a .caffemodel.h5")
        numbered = _blobs_in(file, h5)
        return {layer: _in_order(layer, blobs) for layer, blobs in numbered.items()}


def lazy_blob(file: OpenFile, h5: h5py.File, dataset: h5py.Dataset) -> LazyBlob:
    """Return a dataset of `h5`, the content of `file`, as a blob that is read on demand; InputError for other
    datasets."""
    if dataset.dtype.kind not in "fiu":
        raise InputError(f"has a dataset '{dataset.name}' of {dataset.dtype}; store numbers")
    if fault := dataset_fault(h5, dataset):
        raise InputError(f"has a dataset '{dataset.name}' {fault}")
    name, shape = dataset.name, dataset.shape

    def read() -> Array:
        with reading(file, "HDF5 file with blobs") as again:
            return np.asarray(again[name][()], np.float32).reshape(shape)

    return LazyBlob(shape, read)


def dataset_fault(h5: h5py.File, dataset: h5py.Dataset) -> str | None:
    """The reason why a dataset of `h5` is not read, as the end of "a dataset 'x' ..."; None if it is read."""
    if dataset.shape is None:
        return "without a shape; store numbers"
    if dataset.external or dataset.is_virtual or dataset.file.filename != h5.filename:
        return "whose numbers are in another file; store them in this one"
    if fault := shape_fault(dataset.shape):
        return f"of {fault}"
    if dataset.nbytes > CLAIM_LIMIT_BYTES and dataset.nbytes > MAX_COMPRESSION * dataset.id.get_storage_size():
        return f"that claims {format_bytes(dataset.nbytes)} and stores almost none of it; write it again"
    return None


@contextmanager
def reading(file: OpenFile, what: str) -> Iterator[h5py.File]:
    """Open the content of a file; every error of HDF5 in the context, lack of memory, and a change of the file since it
    was opened become InputErrors."""
    import h5py

    try:
        with h5py.File(file.reader(), "r", rdcc_nbytes=CHUNK_CACHE_BYTES) as h5:
            yield h5
    except InputError as error:
        raise error.at(path=file.path) from None
    except MemoryError:
        raise InputError(
            "holds more numbers than this machine has memory for; use one with more, or a smaller file", path=file.path
        ) from None
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, AttributeError, OverflowError) as error:
        file.check_unchanged()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"is truncated, or is not a {what} ({reason}); copy it again", path=file.path) from None
    file.check_unchanged()


def write_hdf5(handle: BinaryIO, layers: Mapping[str, Sequence[Blob]]) -> None:
    """Write {layer name: blobs} to an open file."""
    import h5py

    check_names({layer: len(blobs) for layer, blobs in layers.items()})
    with h5py.File(handle, "w") as file:
        data = file.create_group("data")
        for layer, blobs in layers.items():
            group = data.require_group(layer)  # exists if a nested layer was written before
            for index, blob in enumerate(blobs):
                group.create_dataset(str(index), data=np.asarray(blob, dtype=np.float32))


def _blobs_in(file: OpenFile, h5: h5py.File) -> dict[str, dict[int, Blob]]:
    """Return all datasets below the group `data`, by layer name and blob index."""
    import h5py

    blobs: dict[str, dict[int, Blob]] = {}

    def visit(name: str, node: h5py.HLObject) -> None:
        if not isinstance(node, h5py.Dataset):
            return
        layer, _, index = name.rpartition("/")
        if not (layer and index.isdecimal() and index.isascii() and len(index) < 10) or node.dtype.kind not in "fiu":
            raise InputError(f"has an unexpected dataset 'data/{name}'; give a .caffemodel.h5")
        if fault := dataset_fault(h5, node):
            raise InputError(f"has a blob {index} {fault}", layer=layer)
        blobs.setdefault(layer, {})[int(index)] = lazy_blob(file, h5, node)

    h5["data"].visititems(visit)
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


def check_names(blob_counts: Mapping[str, int]) -> None:
    """Raise InputError, before any work, for layers whose names HDF5 cannot hold; `blob_counts` is by layer name."""
    for layer in blob_counts:
        _check_name(layer, blob_counts)


def _check_name(layer: str, blob_counts: Mapping[str, int]) -> None:
    """Raise InputError for a layer name that is not a path in HDF5, or that leads through a blob of another layer."""
    parts = layer.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in layer:
        raise InputError("has a name that HDF5 does not allow; rename it, or write a binary .caffemodel", layer=layer)
    for depth, part in enumerate(parts):
        owner = "/".join(parts[:depth])
        if part in map(str, range(blob_counts.get(owner, 0))):
            what = f"has the name of a blob of layer '{owner}' in HDF5; rename it, or write a binary .caffemodel"
            raise InputError(what, layer=layer)
