"""Programs that write databases: convert_imageset, compute_image_mean, and the converters of MNIST and CIFAR-10.

source  Caffe tools/convert_imageset.cpp, tools/compute_image_mean.cpp, examples/{mnist,cifar10,siamese}
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from layermem.cli.caffe_tools.gflags import Flag
from layermem.cli.caffe_tools.program import CaffeProgram, Call
from layermem.data.database import DEFAULT, database_kind, database_names, open_database
from layermem.data.databases import ImageOptions, image_records, image_rows, mean_content, mean_image, write_database
from layermem.data.datum_source import Record
from layermem.data.raw_datasets import cifar_records, mnist_records, read_mnist, siamese_records
from layermem.errors import InputError
from layermem.report.log import number
from layermem.utils.files import write_atomically

SEED = 0  # of random orders and pairs; Caffe's differ from run to run
NOTED = 1000  # records between two lines of the log
BACKEND = Flag("backend", DEFAULT, " or ".join(database_names()))


def backend(name: str) -> str:
    """Return the name of a kind of database; InputError for others."""
    database_kind(name)
    return name


def _convert_imageset(call: Call) -> int:
    root, listing, out, *_ = call.words
    height, width = (max(0, int(call.values[f"resize_{side}"])) for side in ("height", "width"))
    if bool(height) != bool(width):
        call.log.write("only one of resize_height and resize_width is given, so images keep their sizes", severity="W")
    options = ImageOptions(
        root=root,
        size=(height, width) if height and width else None,
        gray=bool(call.values["gray"]),
        encoded=bool(call.values["encoded"]),
        encode=call.text("encode_type") or None,
        shuffle=SEED if call.values["shuffle"] else None,
        check_size=bool(call.values["check_size"]),
        as_caffe=True,
    )
    if call.values["shuffle"]:
        call.log.write("Shuffling data", "convert_imageset.cpp:86")
    rows = image_rows(Path(listing), options)
    call.log.write(f"A total of {len(rows)} images.", "convert_imageset.cpp:89")
    if options.encode and not options.encoded:
        call.log.write("encode_type specified, assuming encoded=true.", "convert_imageset.cpp:92")

    def skip(error: InputError) -> None:
        call.log.write(f"Could not open or find file {error}", "io.cpp:80", "E")

    records = image_records(Path(listing), options, skip=skip, rows=rows)
    kind = backend(call.text("backend"))
    return _write(call, out, records, kind, "convert_imageset.cpp:153", NOTED)


def _compute_image_mean(call: Call) -> int:
    backend(call.text("backend"))  # the files of a database show its kind
    database, *out = call.words
    with closing(open_database(Path(database), labels=False)) as source:
        kind, count = source.kind.lower(), source.length
    _log_opened(call, kind, database)
    call.log.write("Starting iteration", "compute_image_mean.cpp:70")
    mean = mean_image(Path(database))
    call.log.write(f"Processed {count} files.", "compute_image_mean.cpp:101")
    if out:
        call.log.write(f"Write to {out[0]}", "compute_image_mean.cpp:108")
        write_atomically(out[0], mean_content(mean))
    call.log.write(f"Number of channels: {len(mean)}", "compute_image_mean.cpp:114")
    for channel, values in enumerate(mean):
        total = np.add.accumulate(values.ravel(), dtype=np.float32)[-1]  # in Caffe's order
        value = total / np.float32(values.size)
        call.log.write(f"mean_value channel [{channel}]: {number(value)}", "compute_image_mean.cpp:119")
    return 0


def _convert_mnist(call: Call) -> int:
    images, labels, out = call.words
    kind = backend(call.text("backend"))
    items = read_mnist(Path(images), Path(labels))
    (rows, columns), pixels, _ = items
    call.log.write(f"A total of {len(pixels)} items.", "convert_mnist_data.cpp:88")
    call.log.write(f"Rows: {rows} Cols: {columns}", "convert_mnist_data.cpp:89")
    return _write(call, out, mnist_records(items), kind, "convert_mnist_data.cpp:108")


def _convert_siamese(call: Call) -> int:
    images, labels, out = call.words
    items = read_mnist(Path(images), Path(labels))
    return _write(call, out, siamese_records(items, SEED), "leveldb")


def _convert_cifar(call: Call) -> int:
    folder, out, kind = call.words
    backend(kind)
    for name, train in (("train", True), ("test", False)):
        call.log.write(f"Writing {name.capitalize()}ing data", "convert_cifar_data.cpp:52")
        records = cifar_records(Path(folder), train=train)
        _write(call, f"{out}/cifar10_{name}_{kind}", records, kind)
    return 0


def _write(call: Call, out: str, records: Iterable[Record], kind: str, place: str = "", every: int = 0) -> int:
    """Write a database, and log how many records it has after `every` of them, and at the end."""

    def counted() -> Iterator[Record]:
        count = 0
        for record in records:
            yield record
            count += 1
            if every and count % every == 0:
                call.log.write(f"Processed {count} files.", place)
        if place and (not every or count % every):
            call.log.write(f"Processed {count} files.", place)

    _log_opened(call, kind, out)
    write_database(Path(out), counted(), backend=kind)
    return 0


def _log_opened(call: Call, kind: str, path: str) -> None:
    call.log.write(f"Opened {kind} {path}", database_kind(kind).log_place)


PROGRAMS = {
    "convert_imageset": CaffeProgram(
        _convert_imageset,
        "ROOTFOLDER/ LISTFILE DB_NAME",
        range(3, sys.maxsize),
        "convert_imageset.cpp:1",
        flags=(
            BACKEND,
            Flag("gray", False, "one channel instead of three"),
            Flag("shuffle", False, "a random order, the same in each run"),
            Flag("resize_width", 0, "width of all images"),
            Flag("resize_height", 0, "height of all images"),
            Flag("check_size", False, "refuse images of different sizes"),
            Flag("encoded", False, "store image files"),
            Flag("encode_type", "", "their format: png, jpg or bmp"),
        ),
    ),
    "compute_image_mean": CaffeProgram(
        _compute_image_mean, "INPUT_DB [OUTPUT_FILE]", range(1, 3), "compute_image_mean.cpp:1", flags=(BACKEND,)
    ),
    "convert_mnist_data": CaffeProgram(
        _convert_mnist,
        "IMAGE_FILE LABEL_FILE DB_NAME",
        range(3, 4),
        "convert_mnist_data.cpp:1",
        usage_code=0,
        flags=(BACKEND,),
    ),
    "convert_mnist_siamese_data": CaffeProgram(
        _convert_siamese,
        "IMAGE_FILE LABEL_FILE DB_NAME",
        range(3, 4),
        "convert_mnist_siamese_data.cpp:1",
        usage_code=0,
        on_terminal=False,
    ),
    "convert_cifar_data": CaffeProgram(
        _convert_cifar, "INPUT_FOLDER OUTPUT_FOLDER DB_TYPE", range(3, 4), "convert_cifar_data.cpp:1", usage_code=0
    ),
}
