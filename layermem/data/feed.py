"""Feeds: the batches of one input layer, as a stream whose position can be saved and restored.

    feed.shapes        shapes of the tops, known before any batch is read
    feed.next()        a float32 array for each top, shaped NCHW
    feed.skip(3)       skip batches; records are not read where positions can be counted
    feed.state()       the position of the next batch; restore(state) continues there with the same bits
    feed.check(state)  InputError for a state that restore cannot take, such as one of a damaged snapshot
    feed.close()

The seed, the layer and the position determine a batch.  `open_feed` (opening.py) creates the feed of a layer, by the
class that is registered for its type: of this module, or of another one named *_feed.py.

Where several ranks share the batches, each takes one batch in turn: `next` returns the batch of this rank and skips
those of the others.  Positions count the batches of all ranks, so they do not depend on the number of ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from layermem.data.database import open_database
from layermem.data.datum_source import DatumSource
from layermem.data.hdf5_source import Hdf5Source
from layermem.data.layer_files import ResolvePath
from layermem.data.list_source import ImageListSource, list_bytes
from layermem.data.position import State, number_in
from layermem.data.transform import CroppedWindows, Transform
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.layers.data import FROM_FILES, MATRIX, check_batch, stated_shapes
from layermem.layers.fillers import check_filler, fill, is_constant
from layermem.ops import ByteImages
from layermem.proto.blobs import read_blob
from layermem.proto.schema import FillerParameter, Message, enum_name
from layermem.utils.input_files import Read, read_bytes
from layermem.utils.open_file import Files
from layermem.utils.seeds import generator

Shapes = tuple[tuple[int, ...], ...]
BATCH = "batch"  # the unit of a position that counts batches
Batch = Sequence[np.ndarray | ByteImages]  # an array for each top, NCHW


@dataclass(frozen=True)
class Opening:
    """The arguments from which the feed of an input layer is made.

    key      seed, phase and name of the layer, which decide its random numbers
    resolve  a file name in the prototxt -> the file
    files    the open files of the net
    in_bytes whether images that are stored in bytes are delivered in bytes
    """

    param: Message
    phase: int
    key: tuple[int | str, ...]
    resolve: ResolvePath
    files: Files
    in_bytes: bool = False

    @property
    def shapes(self) -> Shapes:
        """The shapes that the layer itself states."""
        return tuple(stated_shapes(self.param))

    def skip(self, limit: int) -> int:
        """The number of items to skip at the start: a random number below `limit`."""
        return int(generator(*self.key, "skip").integers(limit)) if limit > 0 else 0


class Records(Protocol):
    """The methods of a data set that feeds call."""

    def skip(self, count: int) -> None: ...

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...

    def check(self, state: State) -> None: ...

    def close(self) -> None: ...


class Feed(ABC):
    """Batches of one input layer, in an order that its key determines."""

    shapes: Shapes
    path: str | None = None  # the net, for error messages
    layer: str | None = None
    notes: tuple[str, ...] = ()  # sentences for the user
    ranks = Ranks()  # the ranks that share the batches
    remedy: ClassVar[str] = "use DummyData"  # the way out if its file is missing
    counts: ClassVar[str] = ""  # unit of `position`, which is its name in snapshots; "" for a feed without one
    position = 0  # number of units so far
    varies = False  # whether batches may have other shapes than `shapes`

    @property
    def items(self) -> int | None:
        """The items of its data set, if it knows their number."""
        return getattr(self._records(), "length", None)

    def next(self) -> Batch:
        """The next batch of this rank: read-only float32 arrays of `shapes`, or ByteImages where a feed has them."""
        ranks = self.ranks
        try:
            if ranks.size == 1:
                return self._next()
            self._skip(ranks.rank)
            batch = self._next()
            self._skip(ranks.size - 1 - ranks.rank)
            return batch
        except InputError as error:
            raise error.at(path=self.path, layer=self.layer) from None

    def skip(self, batches: int) -> None:
        """Skip `batches` batches, counted over all ranks."""
        try:
            self._skip(batches)
        except InputError as error:
            raise error.at(path=self.path, layer=self.layer) from None

    def constant(self, top: int) -> np.ndarray | None:
        """The array that every batch has for this top, to which the caller may write; None if there is none."""
        return None

    def read_arrays_of(self, other: Feed) -> None:  # noqa: B027  most feeds take none
        """Read the arrays that a caller gives to `other`, the feed of the same layer, if it takes any."""

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        """Make the feed of an input layer; InputError if its prototxt or its files are wrong."""
        raise NotImplementedError

    @classmethod
    def reads_ahead(cls, param: Message) -> bool:
        """Whether batches of the layer `param` are read in a thread before they are needed."""
        return True

    @classmethod
    def cached_bytes(cls, param: Message, resolve: ResolvePath, files: Files) -> int:
        """Bytes that the feed of `param` holds beside its batches."""
        return 0

    @abstractmethod
    def _next(self) -> Batch: ...

    def _records(self) -> Records | None:
        """The records that it reads, which have a position of their own."""
        return None

    def _skip(self, batches: int) -> None:
        """Move the position past `batches` batches, whose records are not read."""
        items = batches * self.shapes[0][0] if self.shapes[0] else 0
        if records := self._records():
            records.skip(items)
        self.position += batches if self.counts == BATCH else items

    def state(self) -> State:
        """The position of the next batch, as values that JSON can hold."""
        own: State = {self.counts: self.position} if self.counts else {}
        return own | (records.state() if (records := self._records()) else {})

    def restore(self, state: State) -> None:
        """Continue from the position in `state`."""
        if self.counts:
            self.position = number_in(state, self.counts)
        if records := self._records():
            records.restore(state)

    def check(self, state: State) -> None:
        """InputError unless `restore` can take `state`; changes nothing."""
        if self.counts:
            number_in(state, self.counts)
        if records := self._records():
            records.check(state)

    def close(self) -> None:
        """Release files and threads; the feed must not be used afterwards."""
        if records := self._records():
            records.close()


FEED_TYPES: dict[str, type[Feed]] = {}  # by Caffe's name of the layer type
F = TypeVar("F", bound=type[Feed])


def feed_of(*types: str) -> Callable[[F], F]:
    """Register the class of feeds of these layer types.  `opening.py` finds the modules by their names, *feed.py."""

    def register(cls: F) -> F:
        FEED_TYPES.update(dict.fromkeys(types, cls))
        return cls

    return register


@feed_of("Data", "ImageData")
class ImageFeed(Feed):
    """Transformed images, as ByteImages with `in_bytes` if they are stored in bytes, and labels if there is a top."""

    counts = "sample"  # its number seeds the transform
    list_source: ClassVar[type[ImageListSource]] = ImageListSource

    def __init__(
        self,
        source: DatumSource | ImageListSource,
        transform: Transform,
        batch: int,
        tops: int,
        *,
        in_bytes: bool = False,
    ):
        self.source, self.transform, self.batch, self.tops = source, transform, batch, tops
        self.in_bytes, self.varies = in_bytes, batch == 1 and not transform.any_size
        self.shapes = ((batch, *transform.shape(source.first_shape())), (batch,))[:tops]
        if isinstance(source, DatumSource) and transform.color is not None and source.first_is_raw():
            self.notes = (f"{transform.forced} has no effect on images that are not encoded, as in BVLC Caffe",)

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        param, files = opening.param, opening.files
        batch = check_batch(param)
        check_tops(param)
        transform = Transform(param.transform_param, opening.phase, opening.key, opening.resolve, read=files.read_bytes)
        source = _database(opening, transform) if param.type == "Data" else _image_list(opening, cls.list_source)
        try:
            if isinstance(source, DatumSource):
                files.check_same(source.path, source.identity)
            feed = cls(source, transform, batch, len(param.top), in_bytes=opening.in_bytes)
        except InputError:
            source.close()
            raise
        if param.type != "Data" and transform.color is not None:
            feed.notes = (f"{transform.forced} has no effect on {param.type}, as in Caffe; is_color decides",)
        return feed

    @classmethod
    def cached_bytes(cls, param: Message, resolve: ResolvePath, files: Files) -> int:
        if param.type == "Data":
            path, stated = resolve(param.data_param.source), enum_name(param.data_param, "backend")
            with closing(open_database(path, stated=stated, labels=False)) as source:
                return source.held_bytes
        p = getattr(param, FROM_FILES[param.type])
        return list_bytes(resolve(p.source), p.root_folder, files.read_bytes, cls.list_source.kind)

    def _next(self) -> Batch:
        windows = self.transform.windows(self.position, self.batch)
        images, labels = self.source.read(self.batch, windows.cut)
        data = self._data(windows, images)
        self.position += self.batch
        return [data, labels][: self.tops]

    def _data(self, windows: CroppedWindows, images: Sequence[np.ndarray]) -> np.ndarray | ByteImages:
        stored = windows.in_bytes(images) if self.in_bytes else None
        data = windows.numbers(images) if stored is None else stored
        if data.shape != self.shapes[0] and not self.varies:
            is_, was = ("x".join(map(str, shape[1:])) for shape in (data.shape, self.shapes[0]))
            raise InputError(f"has an image of {is_} after images of {was}; resize the images, or set crop_size")
        return data

    def _records(self) -> Records:
        return self.source


def check_tops(param: Message) -> None:
    if len(param.top) > 2:
        raise InputError(f"has {len(param.top)} tops; give it one top for the data, and a second one for labels")


def _database(opening: Opening, transform: Transform) -> DatumSource:
    param, data = opening.param, opening.param.data_param
    path, skip = opening.resolve(data.source), opening.skip(data.rand_skip)
    labels, stated = len(param.top) > 1, enum_name(data, "backend")
    return open_database(path, stated=stated, labels=labels, color=transform.color, skip=skip)


def _image_list(opening: Opening, kind: type[ImageListSource]) -> ImageListSource:
    images = getattr(opening.param, FROM_FILES[opening.param.type])
    skip, read = opening.skip(images.rand_skip), opening.files.read_bytes
    return kind(opening.resolve(images.source), images, opening.key, skip=skip, read=read)


@feed_of("HDF5Data")
class Hdf5Feed(Feed):
    """HDF5Data: each top is a dataset; there is no transform."""

    def __init__(self, source: Hdf5Source, batch: int):
        self.source, self.batch = source, batch
        self.shapes = tuple((batch, *shape) for shape in source.row_shapes)

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        param, p = opening.param, opening.param.hdf5_data_param
        batch = check_batch(param)
        if param.HasField("transform_param"):
            raise InputError("has a transform_param, which HDF5Data does not support; remove it")
        path, files = opening.resolve(p.source), opening.files
        return cls(Hdf5Source(path, param.top, opening.key, shuffle=p.shuffle, named=files), batch)

    @classmethod
    def cached_bytes(cls, param: Message, resolve: ResolvePath, files: Files) -> int:
        p = param.hdf5_data_param
        return Hdf5Source(resolve(p.source), param.top, (0,), shuffle=p.shuffle, named=files).held_bytes

    def _next(self) -> Batch:
        return self.source.read(self.batch)

    def _records(self) -> Records:
        return self.source


@feed_of(MATRIX)
class BlobFeed(Feed):
    """A feed of one blob from a file, the same in every batch."""

    def __init__(self, shapes: Shapes, path: Path, read: Read = read_bytes):
        self.shapes = shapes
        blob = read_blob(path, read)
        if blob.size != prod(shapes[0]):
            size = "x".join(map(str, shapes[0]))
            raise InputError(f"has {blob.size} numbers in '{path}', where it needs {size}; use another file")
        self._blob = np.asarray(blob, np.float32).reshape(shapes[0])
        self._blob.flags.writeable = False

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        path = opening.resolve(opening.param.infogain_loss_param.source)
        return cls(opening.shapes, path, opening.files.read_bytes)

    @classmethod
    def reads_ahead(cls, param: Message) -> bool:
        return False

    def _next(self) -> Batch:
        return [self._blob]


@feed_of("DummyData")
class DummyFeed(Feed):
    """DummyData: constant tops are filled once, others for each batch, with the batch number as seed."""

    counts = BATCH

    def __init__(self, shapes: Shapes, fillers: Sequence[Message], key: tuple[int | str, ...]):
        self.shapes, self.key = shapes, (*key, "dummy")
        if len(fillers) not in (0, 1, len(shapes)):
            raise InputError(f"has {len(fillers)} data_filler for {len(shapes)} tops; give one, or one for each top")
        for filler in fillers:
            check_filler(filler)
        self.fillers = [fillers[index % len(fillers)] if fillers else FillerParameter() for index in range(len(shapes))]
        self._constants = {index: self._fill(index) for index, each in enumerate(self.fillers) if is_constant(each)}

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        return cls(opening.shapes, opening.param.dummy_data_param.data_filler, opening.key)

    @classmethod
    def reads_ahead(cls, param: Message) -> bool:
        return not all(map(is_constant, param.dummy_data_param.data_filler))

    def _next(self) -> Batch:
        self.position += 1
        return [self._constants[i] if i in self._constants else self._fill(i) for i in range(len(self.shapes))]

    def constant(self, top: int) -> np.ndarray | None:
        array = self._constants.get(top)
        if array is not None:
            array.flags.writeable = True
        return array

    def read_arrays_of(self, other: Feed) -> None:
        assert isinstance(other, DummyFeed)
        self._constants = other._constants

    def _fill(self, index: int) -> np.ndarray:
        values = fill(self.fillers[index], self.shapes[index], *self.key, index, self.position)
        values.flags.writeable = False  # constant tops are shared by all batches
        return values


@feed_of("Input", "MemoryData")
class ArrayFeed(Feed):
    """Input and MemoryData: batches of arrays that the caller gives, cyclically."""

    counts = BATCH

    def __init__(self, shapes: Shapes, tops: Sequence[str]):
        self.shapes, self.tops = shapes, tuple(tops)
        self._arrays: list[np.ndarray] = []

    @classmethod
    def open(cls, opening: Opening) -> Feed:
        feed = cls(opening.shapes, opening.param.top)
        if opening.param.type == "MemoryData" and opening.param.HasField("transform_param"):
            feed.notes = ("transform_param has no effect on arrays that are given, as in BVLC Caffe",)
        return feed

    @classmethod
    def reads_ahead(cls, param: Message) -> bool:
        return False

    def give(self, *arrays: np.ndarray) -> None:
        """Set the data: for each top an array of whole batches along its first axis.  float32 arrays are not copied."""
        if len(arrays) != len(self.shapes):
            raise InputError(
                f"takes {len(self.shapes)} arrays ({', '.join(self.tops)}), and was given {len(arrays)}; give one for "
                "each"
            )
        given = []
        for top, array, shape in zip(self.tops, arrays, self.shapes):
            batches, left = divmod(np.size(array), prod(shape))
            if left or not batches or (np.ndim(array) == len(shape) and np.shape(array)[1:] != shape[1:]):
                raise InputError(
                    f"takes whole batches of {shape} for '{top}', and was given an array of {np.shape(array)}; "
                    "reshape it, or leave the rest out"
                )
            given.append(np.ascontiguousarray(array, np.float32).reshape(batches, *shape))
        if len({len(array) for array in given}) > 1:
            counts = ", ".join(f"{len(array)} for '{top}'" for top, array in zip(self.tops, given))
            raise InputError(f"takes the same number of batches for each top, and was given {counts}; make them equal")
        self._arrays, self.position = given, 0

    def constant(self, top: int) -> np.ndarray | None:
        """The array of the only batch; zeros if none was given."""
        if not self._arrays:
            self.give(*(np.zeros(shape, np.float32) for shape in self.shapes))
        array = self._arrays[top]
        return array[0] if len(array) == 1 else None

    def read_arrays_of(self, other: Feed) -> None:
        assert isinstance(other, ArrayFeed)
        self._arrays = other._arrays

    def _next(self) -> Batch:
        if not self._arrays:
            tops = ", ".join(f"{top}=..." for top in self.tops)
            raise InputError(
                f"has no data yet; give arrays in Python, solver.give({tops}), or use a data layer that reads files"
            )
        batch = [array[self.position % len(array)] for array in self._arrays]
        self.position += 1
        return batch
