"""AnnotatedData: images of a database of AnnotatedDatums, with their boxes.

    distort, expand, sample (augment.py), then resize, mirror, subtract the mean, scale

The boxes of a batch are one top of 1 x 1 x R x 8: item, label, instance, left, top, right, bottom, difficult.  In the
fork R changes with the batch.  Here it is the largest number of boxes in any batch of successive records, which one
pass over the database counts without decoding images; unused rows follow the others and are -1.  Without the database,
ROWS_OF_ITEM rows are planned for each item.

Every random number depends on the seed, the layer and the number of the sample, so that a resumed run draws the same
numbers.
source  annotated_data_layer.cpp and data_transformer.cpp of the SSD fork of Caffe
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from layermem.data.augment import distort, expand, sample
from layermem.data.boxes import COLUMNS, UNIT, Boxes, boxes_of, mirrored, seen_through
from layermem.data.database import kind_at
from layermem.data.datum_source import DatumSource
from layermem.data.feed import Feed, Opening, Records, check_tops, feed_of
from layermem.data.layer_files import ResolvePath
from layermem.data.resizing import resizing_of
from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.layers.data import check_batch
from layermem.proto.schema import AnnotatedDatum, Message, enum_name
from layermem.proto.wire import LENGTH, WireError, fields
from layermem.utils.open_file import Files
from layermem.utils.seeds import generator

Annotated = tuple[np.ndarray, Boxes]
Change = Callable[[int, np.ndarray, Boxes], Annotated]  # of image i of a batch and its boxes, before the next one
DATUM, GROUP, ANNOTATION = 1, 3, 2  # field numbers of AnnotatedDatum and AnnotationGroup


class AnnotatedSource(DatumSource):
    """A database of AnnotatedDatums."""

    def _datum(self) -> Message:
        datum: Message = self._record().datum
        return datum

    def _record(self) -> Message:
        try:
            record = AnnotatedDatum.FromString(self._counted_value())
        except DecodeError:
            raise self._error("is not an AnnotatedDatum; create it with the convert_annoset of the SSD fork") from None
        return record

    def read_annotated(self, count: int, change: Change, *, typed: bool) -> list[Annotated]:
        """Return `change(i, image, boxes)` for each of the next `count` images, decoded one by one.  With `typed`, a
        record without an annotation type is an error."""
        changed = []
        with self._reading():
            for index in range(count):
                changed.append(change(index, *self._annotated(typed)))
                self._advance()
        return changed

    def _annotated(self, typed: bool) -> Annotated:
        """The next image and its boxes."""
        record = self._record()
        if typed and not record.HasField("type"):
            raise self._error("has no type of annotation; set anno_type: BBOX in annotated_data_param")
        boxes = boxes_of(record)
        if not np.isfinite(boxes).all():
            raise self._error("has a box that is not finite; write it again")
        return self._image(record.datum), boxes

    def most_boxes(self, batch: int) -> int:
        """The largest number of boxes in `batch` successive records, in the cyclic order of the keys."""
        with self._reading():
            counts = np.array([self._count(value) for value in self._counted_values()])
        rounds, rest = divmod(batch, len(counts))
        sums = np.concatenate([[0], np.cumsum(np.concatenate([counts, counts]))])
        return int(rounds * counts.sum() + (sums[rest : rest + len(counts)] - sums[: len(counts)]).max())

    def _count(self, value: memoryview | bytes) -> int:
        """The number of boxes of a record, without decoding its image."""
        file = io.BytesIO(value[_end_of_datum(value) :])
        try:
            groups = [each for each in fields(file, 0, len(file.getbuffer())) if each.number == GROUP]
            return sum(
                each.number == ANNOTATION and each.kind == LENGTH
                for group in groups
                for each in fields(file, group.start, group.stop)
            )
        except WireError:
            raise InputError(
                "has a record that is not an AnnotatedDatum; create it with the convert_annoset of the SSD fork",
                path=str(self.path),
            ) from None


def annotated(kind: type[DatumSource]) -> type[AnnotatedSource]:
    """The class of a kind of database that holds AnnotatedDatums."""
    return type(f"Annotated{kind.__name__}", (AnnotatedSource, kind), {})


def open_annotated(path: Path, stated: str, **options: Any) -> AnnotatedSource:
    """Open the database at `path`; `stated` as for database.kind_at."""
    return annotated(kind_at(path, stated))(path, labels=False, **options)


def _end_of_datum(value: memoryview | bytes) -> int:
    """Offset after the Datum of a record if that is its first field, as writers put it; otherwise 0."""
    if len(value) == 0 or value[0] != DATUM << 3 | LENGTH:
        return 0
    size = shift = 0
    for at in range(1, min(len(value), 11)):
        size |= (value[at] & 0x7F) << shift
        shift += 7
        if value[at] < 0x80:
            return min(at + 1 + size, len(value))
    return 0


@feed_of("AnnotatedData")
class AnnotatedFeed(Feed):
    """Batches of transformed images, and of their boxes if the layer has a second top."""

    counts = "sample"

    def __init__(
        self, param: Message, source: AnnotatedSource, transform: Transform, batch: int, key: tuple[int | str, ...]
    ):
        self.source, self.transform, self.batch, self.key = source, transform, batch, (*key, "annotated")
        self.own, self.tops = param.annotated_data_param, len(param.top)
        self.resizing = resizing_of(transform.param)
        self.emit = transform.param.emit_constraint if transform.param.HasField("emit_constraint") else None
        check_augmentation(transform, self.own)
        shape = source.first_shape()
        self._check_channels(shape[0])
        self.size = self.resizing.stated or self._fitted(shape)
        image = transform.shape((shape[0], *self.size))
        rows = max(1, source.most_boxes(batch)) if self.tops > 1 else 1
        self.shapes = ((batch, *image), (1, 1, rows, COLUMNS + 1))[: self.tops]

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        param, files = opening.param, opening.files
        batch, data = check_batch(param), opening.param.data_param
        check_tops(param)
        read = files.read_bytes
        transform = Transform(param.transform_param, opening.phase, opening.key, opening.resolve, boxes=True, read=read)
        path, skip = opening.resolve(data.source), opening.skip(data.rand_skip)
        source = open_annotated(path, enum_name(data, "backend"), color=transform.color, skip=skip)
        try:
            files.check_same(path, source.identity)
            return cls(param, source, transform, batch, opening.key)
        except InputError:
            source.close()
            raise

    @classmethod
    def cached_bytes(cls, param: Message, resolve: ResolvePath, files: Files) -> int:
        data = param.data_param
        with closing(open_annotated(resolve(data.source), enum_name(data, "backend"))) as source:
            return source.held_bytes

    def _fitted(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """The size of every image, computed from the size of the first."""
        if self.own.batch_sampler or self.transform.param.HasField("expand_param"):
            raise InputError(
                "has resize_mode FIT_SMALL_SIZE beside batch_sampler or expand_param, which change the aspect ratio "
                "of images; use WARP or FIT_LARGE_SIZE_AND_PAD"
            )
        return self.resizing.size(*shape[1:])

    def _check_channels(self, channels: int) -> None:
        p = self.transform.param
        if p.HasField("distort_param") and channels != 3:
            raise InputError(f"has a distort_param and images of {channels} channels; set force_color, or remove it")

    def _next(self) -> list[np.ndarray]:
        typed = self.tops > 1 and not self.own.HasField("anno_type")
        windows = self.transform.windows(self.position, self.batch)

        def change(index: int, image: np.ndarray, boxes: Boxes) -> Annotated:
            image, boxes = self._augment(image, boxes, self.position + index)
            return windows.cut(index, image), boxes

        images, boxes = zip(*self.source.read_annotated(self.batch, change, typed=typed))
        data = windows.numbers(images)
        if data.shape != self.shapes[0]:
            is_, was = ("x".join(map(str, shape[1:])) for shape in (data.shape, self.shapes[0]))
            raise InputError(f"has an image of {is_} after images of {was}; set force_color or force_gray")
        self.position += self.batch
        return [data, self._rows(boxes, windows.mirrored)] if self.tops > 1 else [data]

    def _augment(self, image: np.ndarray, boxes: Boxes, number: int) -> tuple[np.ndarray, Boxes]:
        p, rng = self.transform.param, generator(*self.key, number)
        if image.dtype != np.uint8:
            raise InputError("has images of floats; AnnotatedData takes bytes: write them again")
        if p.HasField("distort_param"):
            self._check_channels(len(image))
            image = distort(image, p.distort_param, rng)
        if p.HasField("expand_param"):
            mean = np.broadcast_to(self.transform.mean_values[:, 0, 0], (len(image),))
            image, boxes = expand(image, boxes, p.expand_param, self.emit, mean, rng)
        if self.own.batch_sampler:
            image, boxes = sample(image, boxes, list(self.own.batch_sampler), self.emit, rng)
        modes = self.resizing.interpolations
        mode = modes[rng.integers(len(modes))] if p.resize_param.interp_mode else modes[0]
        boxes = seen_through(self.resizing.boxes(boxes, *image.shape[1:]), UNIT, self.emit)
        return self._checked(self.resizing.image(image, mode)), boxes

    def _checked(self, image: np.ndarray) -> np.ndarray:
        if image.shape[1:] != self.size:
            is_, was = ("x".join(map(str, size)) for size in (image.shape[1:], self.size))
            raise InputError(
                f"has an image of {is_} after images of {was}, by resize_mode FIT_SMALL_SIZE; use "
                "FIT_LARGE_SIZE_AND_PAD or WARP"
            )
        return image

    def _rows(self, boxes: Sequence[Boxes], mirrors: np.ndarray) -> np.ndarray:
        """The second top: the rows of all boxes of a batch."""
        rows = [
            np.column_stack([np.full(len(each), item, np.float32), mirrored(each) if mirror else each])
            for item, (each, mirror) in enumerate(zip(boxes, mirrors, strict=True))
        ]
        table, planned = np.concatenate(rows), self.shapes[1][2]
        if len(table) > planned:
            raise InputError(
                f"has a batch of {len(table)} boxes, and {planned} rows are planned; the database has grown: restart"
            )
        top = np.full(self.shapes[1], -1, np.float32)
        top[0, 0, : len(table)] = table
        return top

    def _records(self) -> Records:
        return self.source


def check_augmentation(transform: Transform, own: Message) -> None:
    """Raise InputError for an empty range of random numbers."""
    p = transform.param
    d, e = p.distort_param, p.expand_param
    ranges = [
        ("contrast", d.contrast_lower, d.contrast_upper),
        ("saturation", d.saturation_lower, d.saturation_upper),
        ("brightness_delta", 0, d.brightness_delta),
        ("hue_delta", 0, d.hue_delta),
        ("max_expand_ratio", 1, e.max_expand_ratio),
    ]
    for s in (each.sampler for each in own.batch_sampler):
        ranges += [
            ("min_scale", 1e-6, s.min_scale),
            ("scale", s.min_scale, s.max_scale),
            ("max_scale", s.max_scale, 1),
            ("min_aspect_ratio", 1e-6, s.min_aspect_ratio),
            ("aspect_ratio", s.min_aspect_ratio, s.max_aspect_ratio),
        ]
    for name, low, high in ranges:
        if not (math.isfinite(low) and math.isfinite(high) and 0 <= low <= high):
            raise InputError(f"has a {name} from {low:g} to {high:g}; give a range that rises")
    if p.HasField("expand_param") and transform.mean is not None:
        raise InputError("has an expand_param and a mean_file; give mean_value, which fills what lies outside")
