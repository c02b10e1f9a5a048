"""Writes LMDBs of Datums from lists of images, and the mean image of an LMDB.

The records are those of Caffe's convert_imageset: keys NNNNNNNN_PATH, pixels in the order blue, green, red.  The mean
is that of compute_image_mean: images are added in float32, in the order of their keys.

source  Caffe tools/convert_imageset.cpp, tools/compute_image_mean.cpp, src/caffe/util/io.cpp
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from layermem.data.images import decode, resize
from layermem.data.list_source import IMAGE_LIMIT, read_list
from layermem.data.lmdb_source import LmdbSource
from layermem.errors import InputError
from layermem.proto.schema import BlobProto, Datum, Message
from layermem.utils.input_files import file_beside, read_bytes
from layermem.utils.seeds import generator

try:
    import lmdb
except ImportError:  # only these functions need it
    lmdb = None  # type: ignore[assignment]

MAP_SIZE = 1 << 40  # the largest file, as in Caffe; it is as long as its content
MAX_KEY = 511  # bytes, of LMDB
RECORDS = 1000  # of a transaction
BATCH = 64  # images that are in memory while a mean is computed

Record = tuple[bytes, Message]  # key, Datum


def write_lmdb(folder: Path, records: Iterable[Record], *, replace: bool = False) -> int:
    """Write `records`, whose keys ascend, as the LMDB `folder`; returns their number.

    The folder appears when all records are in it.  InputError if it exists already, unless it may be replaced.
    """
    if lmdb is None:
        raise InputError("needs the package lmdb; install it with `pip install lmdb`", path=str(folder))
    if folder.exists() and not replace:
        raise InputError("exists already; give another name, or remove it first", path=str(folder))
    aside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    count = 0
    try:
        aside.mkdir(parents=True)
        with closing(lmdb.open(str(aside), map_size=MAP_SIZE)) as environment:
            iterator = iter(records)
            while written := _write_some(environment, iterator):
                count += written
        (aside / "lock.mdb").unlink(missing_ok=True)
        if replace:
            shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    except (OSError, lmdb.Error) as error:
        raise InputError(f"cannot be written: {error}", path=str(folder)) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return count


def _write_some(environment: lmdb.Environment, records: Iterator[Record]) -> int:
    """One transaction; the number of its records."""
    count = 0
    with environment.begin(write=True) as transaction:
        for key, datum in records:
            transaction.put(key, datum.SerializeToString(), append=True)
            count += 1
            if count == RECORDS:
                break
    return count


@dataclass(frozen=True)
class ImageOptions:
    """How images are stored.

    root      folder of the paths in the list; None: the working directory, or else the folder of the list
    size      (height, width) that images are resized to, or None: as they are
    gray      one channel instead of three
    encoded   the bytes of the files, to be decoded when they are read
    shuffle   seed of a random order, or None: that of the list
    """

    root: Path | None = None
    size: tuple[int, int] | None = None
    gray: bool = False
    encoded: bool = False
    shuffle: int | None = None

    def __post_init__(self) -> None:
        if self.encoded and (self.size or self.gray):
            raise InputError("--encoded stores files as they are; leave out --resize and --gray")


def image_records(
    listing: Path, options: ImageOptions, track: Callable[[list[int]], Iterable[int]] = list
) -> Iterator[Record]:
    """The records of the images in a list of `path label` lines; `track` may show the progress over their numbers."""
    entries = read_list(listing)
    order = [*range(len(entries))]
    if options.shuffle is not None:
        order = [int(i) for i in generator(options.shuffle, "convert images").permutation(len(entries))]
    for number in track([*range(len(order))]):
        name, label, line = entries[order[number]]
        key = f"{number:08d}_{name}".encode()
        try:
            if len(key) > MAX_KEY:
                raise InputError(f"has a path of {len(key)} bytes, above the {MAX_KEY} of an LMDB key; shorten it")
            path = options.root / name if options.root else file_beside(name, listing.parent)
            yield key, _datum(path, label, options)
        except InputError as error:
            raise InputError(f"image '{name}' {error.what}", path=str(listing), line=line) from None


def _datum(path: Path, label: int, options: ImageOptions) -> Message:
    raw = read_bytes(path, what="image", limit=IMAGE_LIMIT)
    image = decode(raw, color=not options.gray)  # also where the bytes are stored: none that cannot be read
    if options.encoded:
        return Datum(data=raw, label=label, encoded=True)
    if options.size:
        image = resize(image, *options.size)
    channels, height, width = image.shape
    return Datum(
        channels=channels, height=height, width=width, data=np.ascontiguousarray(image).tobytes(), label=label,
        encoded=False,
    )  # fmt: skip


def mean_image(folder: Path, track: Callable[[list[int]], Iterable[int]] = list) -> np.ndarray:
    """The mean [C,H,W] of all images of an LMDB, float32."""
    with closing(LmdbSource(folder, labels=False)) as source:
        total: np.ndarray = np.zeros(source.first_shape(), np.float32)
        for first in track([*range(0, source.length, BATCH)]):
            images, _ = source.read(min(BATCH, source.length - first))
            for number, image in enumerate(images, start=first):
                if image.shape != total.shape:
                    sizes = " and ".join("x".join(map(str, each.shape)) for each in (total, image))
                    what = f"has images of {sizes} (record {number}); resize them to one size with --resize"
                    raise InputError(what, path=str(folder))
                total += image
        total /= np.float32(source.length)
        return total


def mean_content(mean: np.ndarray) -> bytes:
    """The file of a mean image, a BlobProto with the extents of Caffe's tool."""
    channels, height, width = mean.shape
    blob = BlobProto(num=1, channels=channels, height=height, width=width, data=mean.ravel().tolist())
    content: bytes = blob.SerializeToString()
    return content
