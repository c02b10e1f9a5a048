"""Writes databases of Datums from lists of images and labels, and the mean image of a database.

The records of images are those of Caffe's convert_imageset: keys NNNNNNNN_PATH, pixels in the order blue, green, red.
The mean is that of compute_image_mean: images are added in float32, in the order of their keys.

Images with several labels have a second database: the same keys in the same order, and a Datum of L x 1 x 1 floats.

source  Caffe tools/convert_imageset.cpp, tools/compute_image_mean.cpp, src/caffe/util/io.cpp
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

import numpy as np

from layermem.data.database import DEFAULT, database_kind, open_database
from layermem.data.datum_source import Record
from layermem.data.encoding import ENCODERS, encode
from layermem.data.images import decode, resize
from layermem.data.list_source import IMAGE_LIMIT_BYTES, CaffeRows, RowList, label_of, listed_file, read_rows
from layermem.errors import InputError
from layermem.proto.schema import BlobProto, Datum, Message
from layermem.utils.files import write_atomically
from layermem.utils.folder_aside import folder_aside
from layermem.utils.input_files import read_bytes
from layermem.utils.numbers import parse_float
from layermem.utils.seeds import generator

MAX_KEY_BYTES = 511  # the limit of LMDB
RECORDS = 1000  # records in a transaction
BATCH = 64  # images in memory while a mean is computed
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"

Put = Callable[[Record], None]  # adds a record to a database
Track = Callable[[list[int]], Iterable[int]]  # passes numbers through, and may show progress
T = TypeVar("T")


def write_database(folder: Path, records: Iterable[Record], *, backend: str = DEFAULT, replace: bool = False) -> int:
    """Write `records`, whose keys ascend, as the database `folder`; returns their number.

    The folder appears once it holds all records.  InputError if it exists already, unless `replace` is set.
    """
    count = 0
    with new_database(folder, backend=backend, replace=replace) as put:
        for record in records:
            put(record)
            count += 1
    return count


@contextmanager
def new_database(folder: Path, *, backend: str = DEFAULT, replace: bool = False) -> Iterator[Put]:
    """A context with a function that adds a record, whose keys ascend, to the database `folder`.

    The folder appears at the end of the context, unless an error ends it.  InputError as for write_database.
    """
    kind = database_kind(backend)
    if not kind.is_installed():
        raise InputError(f"needs the package {kind.package}; install it with `{kind.install}`", path=str(folder))
    with folder_aside(folder, replace=replace) as aside, kind.writing(aside) as write:
        waiting: list[Record] = []

        def put(record: Record) -> None:
            waiting.append(record)
            if len(waiting) == RECORDS:
                write(waiting)
                waiting.clear()

        yield put
        write(waiting)


# -- images ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImageOptions:
    """Options for storing images in a database.

    root        text before each path in the list, such as `images/`; None: the paths are of the working directory, or
                else of the folder of the list
    size        (height, width) to which images are resized; None: unchanged
    gray        store one channel instead of three
    encoded     store image files, which are decoded when they are read: the original files if nothing changes them
    encode      the format of such files (encoding.py); None: the format of each original file
    shuffle     seed of a random order; None: the order of the list
    check_size  refuse images of different sizes
    labels      number of labels after each path; a single one is the label of the image
    as_caffe    do as Caffe's tool also where that surprises: a line of the list that has no label has label 0, a JPEG
                file that is cut off is stored as far as it goes, and a file that is stored as it is keeps its colours
                in spite of `gray`
    """

    root: str | None = None
    size: tuple[int, int] | None = None
    gray: bool = False
    encoded: bool = False
    encode: str | None = None
    shuffle: int | None = None
    check_size: bool = False
    labels: int = 1
    as_caffe: bool = False

    def __post_init__(self) -> None:
        if self.encode is not None and self.encode.lower() not in ENCODERS:
            raise InputError(f"cannot encode images as '{self.encode}'; use --encode-type {', '.join(ENCODERS)}")


def image_records(
    listing: Path,
    options: ImageOptions,
    track: Track = list,
    skip: Callable[[InputError], object] | None = None,
    rows: RowList | None = None,
) -> Iterator[Record]:
    """The records of the images in a list whose lines are a path and one or more labels: `rows`, if they were read
    before.  An image that cannot be read is an InputError, or goes to `skip` and has no record."""
    first: tuple[int, ...] | None = None
    for number, row in _numbered(rows or image_rows(listing, options), options.shuffle, track):
        name, _, line = row
        try:
            key = _key(number, name)
            path = listed_file(name, listing, options.root)
            try:
                raw, image = _read(path, options)
            except InputError as error:
                if skip is None:
                    raise
                skip(error.at(path=str(path)))
                continue
            first = first or image.shape
            datum = _datum(path.name.rpartition(".")[2], raw, image, options)
            if options.labels == 1:
                datum.label = label_of(row, listing)
            if options.check_size and image.shape != first:
                sizes = " after images of ".join("x".join(map(str, each)) for each in (image.shape, first))
                raise InputError(f"is of {sizes}; resize them to one size with --resize")
            yield key, datum
        except InputError as error:
            raise InputError(f"image '{name}' {error.what}", path=str(listing), line=line) from None


def image_rows(listing: Path, options: ImageOptions) -> RowList:
    """The rows of a list of images."""
    form = CaffeRows if options.as_caffe else RowList
    return read_rows(listing, options.labels, kind=int if options.labels == 1 else float, form=form)


def _numbered(entries: Sequence[T], seed: int | None, track: Track) -> Iterator[tuple[int, T]]:
    """The entries with their numbers, in the order of the list or in a random order by `seed`."""
    order = [*range(len(entries))]
    if seed is not None:
        order = [int(i) for i in generator(seed, "convert images").permutation(len(entries))]
    for number in track([*range(len(order))]):
        yield number, entries[order[number]]


def _key(number: int, name: str) -> bytes:
    key = os.fsencode(f"{number:08d}_{name}")
    if len(key) > MAX_KEY_BYTES:
        raise InputError(f"has a path of {len(key)} bytes, above the {MAX_KEY_BYTES} of an LMDB key; shorten it")
    return key


def _read(path: Path, options: ImageOptions) -> tuple[bytes, np.ndarray]:
    """The content of an image file, and its pixels."""
    raw = read_bytes(path, what="image", limit=IMAGE_LIMIT_BYTES)
    end = JPEG_END if options.as_caffe and raw.startswith(JPEG_START) else b""
    image = decode(raw + end, color=not options.gray)  # also when the file itself is stored, to reject unreadable ones
    return raw, resize(image, *options.size) if options.size else image


def _datum(ending: str, raw: bytes, image: np.ndarray, options: ImageOptions) -> Message:
    """The Datum, without its label, of an image whose file has this content and a name of this ending."""
    if not options.encoded and not options.encode:
        channels, height, width = image.shape
        pixels = np.ascontiguousarray(image).tobytes()
        return Datum(channels=channels, height=height, width=width, data=pixels, encoded=False)
    form = (options.encode or ending).lower()
    is_of_form = form == ending.lower() or (form, ending.lower()) == ("jpg", "jpeg")
    stays = is_of_form and not options.size and (options.as_caffe or not options.gray)
    return Datum(data=raw if stays else encode(image, form), encoded=True)


# -- labels ------------------------------------------------------------------------------------------------------------


def label_records(listing: Path, labels: int | None, shuffle: int | None, track: Track = list) -> Iterator[Record]:
    """The labels of a list as Datums of L x 1 x 1 floats, with the keys and the order of image_records."""
    for number, (name, words, line) in _numbered(read_rows(listing, labels, kind=float), shuffle, track):
        try:
            datum = Datum(channels=len(words), height=1, width=1, encoded=False, float_data=_numbers(words))
            yield _key(number, name), datum
        except InputError as error:
            raise InputError(f"image '{name}' {error.what}", path=str(listing), line=line) from None


def write_label_rows(path: Path, records: Iterable[Record], dataset: str = "label") -> int:
    """Write the labels as an HDF5 file for HDF5Data: `dataset` [N, L] of float32; returns N."""
    import h5py

    rows = np.array([datum.float_data for _, datum in records], np.float32)

    def write(handle: BinaryIO) -> None:
        with h5py.File(handle, "w") as file:
            file[dataset] = rows

    write_atomically(path, write)
    return len(rows)


def _numbers(words: list[str]) -> list[float]:
    with np.errstate(over="ignore"):
        values = np.array([parse_float(word) for word in words]).astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError(f"has the labels {' '.join(words)[:40]}, which are not all finite in fp32; correct them")
    return [float(value) for value in values]


# -- the mean ----------------------------------------------------------------------------------------------------------


def mean_image(folder: Path, track: Track = list) -> np.ndarray:
    """The mean [C,H,W] of all images of a database, float32."""
    with closing(open_database(folder, labels=False)) as source:
        total: np.ndarray = np.zeros(source.first_shape(), np.float32)
        for first in track([*range(0, source.length, BATCH)]):
            images, _ = source.read(min(BATCH, source.length - first))
            for number, image in enumerate(images, start=first):
                if image.shape != total.shape:
                    sizes = " and ".join("x".join(map(str, each)) for each in (total.shape, image.shape))
                    what = f"has images of {sizes} (record {number}); resize them to one size with --resize"
                    raise InputError(what, path=str(folder))
                total += image
        total /= np.float32(source.length)
        return total


def mean_content(mean: np.ndarray) -> bytes:
    """The bytes of a mean file: a BlobProto with the extents of Caffe's tool."""
    channels, height, width = mean.shape
    blob = BlobProto(num=1, channels=channels, height=height, width=width, data=mean.ravel().tolist())
    content: bytes = blob.SerializeToString()
    return content
