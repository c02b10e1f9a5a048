"""Records of data sets in the files that their authors publish, as Caffe's converters write them.

    MNIST      images: 4 numbers of 4 bytes, most significant first (2051, count, rows, columns), then a byte for each
               pixel; labels: 2 numbers (2049, count), then a byte for each
    CIFAR-10   records of a label and 3 x 32 x 32 pixels, a byte each, in data_batch_1.bin to _5.bin and test_batch.bin

source  Caffe examples/mnist/convert_mnist_data.cpp, examples/cifar10/convert_cifar_data.cpp,
        examples/siamese/convert_mnist_siamese_data.cpp
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from layermem.data.datum_source import Record
from layermem.errors import InputError
from layermem.proto.schema import Datum
from layermem.utils.input_files import read_bytes
from layermem.utils.seeds import generator

FILE_LIMIT_BYTES = 2**31
IMAGES, LABELS = 2051, 2049  # first numbers of MNIST's files
CIFAR_SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3 * 32 * 32  # of CIFAR-10
CIFAR_BATCH = 10_000  # records in a file
CIFAR_TRAIN = 5  # files of the training set

Items = tuple[tuple[int, int], list[bytes], list[int]]  # rows and columns; pixels and label of each image


def read_mnist(images: Path, labels: Path) -> Items:
    """Read the images and the labels of MNIST, or of a data set in its files."""
    (count, rows, columns), pixels = _parse(images, IMAGES, 3, "image")
    (label_count,), raw_labels = _parse(labels, LABELS, 1, "label")
    if count != label_count:
        raise InputError(f"has {label_count:,} labels of {count:,} images; give files of one set", path=str(labels))
    size = rows * columns
    for path, raw, needed in ((images, pixels, count * size), (labels, raw_labels, count)):
        if len(raw) < needed:
            what = f"is cut off: it states {needed:,} bytes and has {len(raw):,}; copy it again, and decompress it"
            raise InputError(what, path=str(path))
    return (rows, columns), [pixels[i * size : (i + 1) * size] for i in range(count)], _signed(raw_labels[:count])


def mnist_records(items: Items) -> Iterator[Record]:
    """The records of convert_mnist_data: one image each, with keys of 8 digits."""
    (rows, columns), pixels, labels = items
    for number, (data, label) in enumerate(zip(pixels, labels)):
        yield b"%08d" % number, Datum(channels=1, height=rows, width=columns, data=data, label=label)


def siamese_records(items: Items, seed: int) -> Iterator[Record]:
    """The records of convert_mnist_siamese_data: two random images as two channels, with label 1 if theirs agree."""
    (rows, columns), pixels, labels = items
    pairs = generator(seed, "siamese pairs").integers(0, len(pixels) or 1, (len(pixels), 2))
    for number, (i, j) in enumerate(pairs):
        data, label = pixels[i] + pixels[j], int(labels[i] == labels[j])
        yield b"%08d" % number, Datum(channels=2, height=rows, width=columns, data=data, label=label)


def cifar_records(folder: Path, *, train: bool) -> Iterator[Record]:
    """The records of convert_cifar_data for the training set or the test set, with keys of 5 digits."""
    names = [f"data_batch_{i + 1}.bin" for i in range(CIFAR_TRAIN)] if train else ["test_batch.bin"]
    channels, height, width = CIFAR_SHAPE
    for file, name in enumerate(names):
        path = folder / name
        raw = read_bytes(path, what="batch of CIFAR-10", limit=FILE_LIMIT_BYTES)
        count, rest = divmod(len(raw), RECORD_BYTES)
        if rest or not 0 < count <= CIFAR_BATCH:
            what = (
                f"has {len(raw):,} bytes, which are not 1 to {CIFAR_BATCH:,} records of {RECORD_BYTES:,}; copy it again"
            )
            raise InputError(what, path=str(path))
        for number in range(count):
            label, data = raw[number * RECORD_BYTES], raw[number * RECORD_BYTES + 1 : (number + 1) * RECORD_BYTES]
            key = b"%05d" % (file * CIFAR_BATCH + number)
            yield key, Datum(channels=channels, height=height, width=width, data=data, label=_signed(bytes([label]))[0])


def _parse(path: Path, magic: int, numbers: int, what: str) -> tuple[tuple[int, ...], bytes]:
    """Return the numbers behind the first one of a file of MNIST, and its other bytes."""
    raw = read_bytes(path, what=f"{what} file of MNIST", limit=FILE_LIMIT_BYTES)
    head = struct.Struct(f">{1 + numbers}I")
    if len(raw) < head.size or head.unpack_from(raw)[0] != magic:
        remedy = "decompress it" if raw[:2] == b"\x1f\x8b" else f"give the file of the {what}s"
        raise InputError(f"is no {what} file of MNIST, which begins with {magic}; {remedy}", path=str(path))
    return head.unpack_from(raw)[1:], raw[head.size :]


def _signed(raw: bytes) -> list[int]:
    """The labels in bytes, which Caffe reads as signed."""
    return list(struct.unpack(f"{len(raw)}b", raw))
