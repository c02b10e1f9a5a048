"""The images of a DetectionEvaluate with name_size_file: the window of each in its item, and its size in pixels.

A line of the file is a name, a height and a width, in the order of the images in the database.  The items of successive
batches are its lines, cyclically.  The fork skips images without a detection, and so takes wrong sizes for the
ones after them.
source  detection_evaluate_layer.cpp and bbox_util.cpp (OutputBBox) of the SSD fork of Caffe
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from layermem.data.boxes import UNIT
from layermem.data.feed import Feed, Opening, Shapes, feed_of
from layermem.data.resizing import Resizing
from layermem.errors import InputError
from layermem.layers.data import SIZES
from layermem.proto.schema import Message, enum_name
from layermem.utils.input_files import Read, read_bytes, read_lines

FILE_LIMIT_BYTES = 2**30
MAX_PIXELS = 2**24  # along an axis: float32 is exact up to here


@feed_of(SIZES)
class SizesFeed(Feed):
    """Rows of ITEM_SIZE numbers for the images of each batch."""

    remedy = "remove name_size_file"
    counts = "item"

    def __init__(self, shapes: Shapes, path: Path, p: Message, read: Read = read_bytes):
        self.shapes = shapes
        resizing = resizing_of_evaluation(p)
        sizes = read_sizes(path, read)
        windows = [resizing.window(*size) if resizing else UNIT for size in sizes]
        self.rows = np.array([(*window, width, height) for window, (height, width) in zip(windows, sizes)], np.float32)

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        p = opening.param.detection_evaluate_param
        return cls(opening.shapes, opening.resolve(p.name_size_file), p, opening.files.read_bytes)

    @classmethod
    def reads_ahead(cls, param: Message) -> bool:
        return False

    def _next(self) -> list[np.ndarray]:
        batch = self.shapes[0][0]
        rows = self.rows[(self.position + np.arange(batch)) % len(self.rows)]
        self.position += batch
        return [rows]


def resizing_of_evaluation(p: Message) -> Resizing | None:
    if not p.HasField("resize_param"):
        return None
    r = p.resize_param
    if enum_name(r, "resize_mode") == "FIT_SMALL_SIZE" and r.height_scale and r.width_scale:
        raise InputError("has height_scale and width_scale in its resize_param, which are not supported; remove them")
    return Resizing(r, "detection_evaluate_param")


def read_sizes(path: Path, read: Read = read_bytes) -> list[tuple[int, int]]:
    """Height and width of each image."""
    sizes = []
    for number, line in enumerate(
        read_lines(path, what="list of sizes", limit=FILE_LIMIT_BYTES, read=read, names=True), start=1
    ):
        words = line.split()
        if not words:
            continue
        if len(words) < 3 or not all(w.isascii() and w.isdigit() and 0 < int(w[:9]) < MAX_PIXELS for w in words[-2:]):
            what = "has a line that is not a name, a height and a width; write it as `000001 353 500`"
            raise InputError(what, path=str(path), line=number)
        sizes.append((int(words[-2]), int(words[-1])))
    if not sizes:
        raise InputError("lists no sizes; add lines such as `000001 353 500`, or remove name_size_file", path=str(path))
    return sizes
