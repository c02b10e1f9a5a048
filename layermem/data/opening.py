"""Creates the feed of an input layer.

    feed = open_feed(layer, phase, seed, path="net.prototxt")

Input and MemoryData take arrays from the caller (ArrayFeed.give); all other layers prefetch in a thread.
"""

from __future__ import annotations

from math import prod

from layermem.data.annotated import AnnotatedFeed, open_annotated
from layermem.data.database import open_database
from layermem.data.datum_source import DatumSource
from layermem.data.detection_sizes import SizesFeed
from layermem.data.feed import ArrayFeed, BlobFeed, DummyFeed, Feed, Hdf5Feed, ImageFeed, Shapes
from layermem.data.hdf5_source import Hdf5Source
from layermem.data.layer_files import ResolvePath, batch_size, resolver
from layermem.data.list_source import ImageListSource
from layermem.data.prefetch import Prefetch
from layermem.data.transform import Transform
from layermem.data.window_source import WindowFeed, cached_bytes
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.layers.data import MATRIX, SIZES, stated_shapes
from layermem.layers.fillers import is_constant
from layermem.proto.schema import Message, enum_name
from layermem.utils.input_files import Read
from layermem.utils.open_file import Files
from layermem.utils.seeds import generator

PREFETCH = 4  # batches; Caffe's default
PREFETCH_BYTES = 64 * 2**20  # of waiting batches, unless data_param states their number


def open_feed(
    param: Message,
    phase: int,
    seed: int,
    *,
    path: str,
    prefetch: bool = True,
    ranks: Ranks = Ranks(),
    in_bytes: bool = False,
    files: Files | None = None,
) -> Feed:
    """The feed of an input layer (a LayerParameter) of the net at `path`, whose batches `ranks` share.  With `in_bytes`
    batches are ByteImages where possible.  `files` holds the open files of the net."""
    remedy = "; create it, or " + ("remove name_size_file" if param.type == SIZES else "use DummyData")
    try:
        key = seed, phase, param.name
        feed = _create(param, phase, key, resolver(path, remedy), files or Files(), in_bytes=in_bytes)
    except InputError as error:
        raise error.at(path=path, layer=param.name) from None
    feed.path, feed.layer, feed.ranks = path, param.name, ranks
    depth = _prefetch_depth(param, feed.shapes)
    in_memory = isinstance(feed, (ArrayFeed, BlobFeed, SizesFeed)) or (isinstance(feed, DummyFeed) and feed.constant)
    return Prefetch(feed, depth) if prefetch and depth > 0 and not in_memory else feed


def _prefetch_depth(param: Message, shapes: Shapes) -> int:
    """The number of batches that may wait; one more is being read, and one is in use."""
    if param.type in ("Data", "AnnotatedData") and param.data_param.HasField("prefetch"):
        return int(param.data_param.prefetch)
    batch_bytes = 4 * sum(prod(shape) for shape in shapes)
    return max(1, min(PREFETCH, PREFETCH_BYTES // max(batch_bytes, 1)))


def held_bytes(param: Message, shapes: Shapes, path: str = "") -> int:
    """Bytes that an input layer of the net at `path`, with tops of `shapes`, holds at a time: of batches, and of the
    images that a WindowData caches."""
    try:
        cached = cached_bytes(param.window_data_param, resolver(path)) if param.type == "WindowData" else 0
    except InputError:  # the file does not exist
        cached = 0
    return cached + _waiting_bytes(param, shapes)


def _waiting_bytes(param: Message, shapes: Shapes) -> int:
    batch_bytes = 4 * sum(prod(shape) for shape in shapes)
    fillers = param.dummy_data_param.data_filler
    if param.type in ("Input", "MemoryData", MATRIX, SIZES) or (
        param.type == "DummyData" and all(map(is_constant, fillers))
    ):
        return batch_bytes
    return batch_bytes * (_prefetch_depth(param, shapes) + 2)


def shapes_of_files(param: Message, phase: int, path: str, files: Files | None = None) -> Shapes:
    """Shapes of an input layer's tops, read from its files."""
    feed = _create(param, phase, (0, phase, param.name), resolver(path, "; correct the path"), files or Files())
    feed.close()
    return feed.shapes


def _create(
    param: Message,
    phase: int,
    key: tuple[int | str, ...],
    resolve: ResolvePath,
    files: Files,
    *,
    in_bytes: bool = False,
) -> Feed:
    read = files.read_bytes
    if param.type == "DummyData":
        return DummyFeed(tuple(stated_shapes(param)), param.dummy_data_param.data_filler, key)
    if param.type == MATRIX:
        return BlobFeed(tuple(stated_shapes(param)), resolve(param.infogain_loss_param.source), read)
    if param.type == SIZES:
        p = param.detection_evaluate_param
        return SizesFeed(tuple(stated_shapes(param)), resolve(p.name_size_file), p, read)
    if param.type in ("Input", "MemoryData"):
        arrays = ArrayFeed(tuple(stated_shapes(param)), param.top)
        if param.type == "MemoryData" and param.HasField("transform_param"):
            arrays.notes = ("transform_param has no effect on arrays that are given, as in BVLC Caffe",)
        return arrays
    batch = batch_size(param)
    if param.type == "HDF5Data":
        if param.HasField("transform_param"):
            raise InputError("has a transform_param, which HDF5Data does not support; remove it")
        hdf5 = param.hdf5_data_param
        rows = Hdf5Source(resolve(hdf5.source), param.top, key, shuffle=hdf5.shuffle, named=files)
        return Hdf5Feed(rows, batch)
    if param.type == "WindowData":
        return WindowFeed(resolve(param.window_data_param.source), param, key, resolve, read)
    if len(param.top) > 2:
        raise InputError(f"has {len(param.top)} tops; give it one top for the data, and a second one for labels")
    if param.type == "AnnotatedData":
        return _annotated(param, phase, key, resolve, files, batch)
    transform = Transform(param.transform_param, phase, key, resolve, read=read)
    in_database = param.type == "Data"
    source = _database(param, key, resolve, transform) if in_database else _image_list(param, key, resolve, read)
    try:
        if isinstance(source, DatumSource):
            files.check_same(source.path, source.identity)
        feed = ImageFeed(source, transform, batch, len(param.top), in_bytes=in_bytes)
        if param.type == "ImageData" and transform.color is not None:
            field = "force_color" if transform.color else "force_gray"
            feed.notes = (f"{field} has no effect on ImageData, as in BVLC Caffe; is_color decides",)
        return feed
    except InputError:
        source.close()
        raise


def _database(param: Message, key: tuple[int | str, ...], resolve: ResolvePath, transform: Transform) -> DatumSource:
    data = param.data_param
    path, skip = resolve(data.source), _random_skip(data.rand_skip, key)
    labels, stated = len(param.top) > 1, enum_name(data, "backend")
    return open_database(path, stated=stated, labels=labels, color=transform.color, skip=skip)


def _annotated(
    param: Message, phase: int, key: tuple[int | str, ...], resolve: ResolvePath, files: Files, batch: int
) -> AnnotatedFeed:
    transform = Transform(param.transform_param, phase, key, resolve, boxes=True, read=files.read_bytes)
    path, skip = resolve(param.data_param.source), _random_skip(param.data_param.rand_skip, key)
    source = open_annotated(path, enum_name(param.data_param, "backend"), color=transform.color, skip=skip)
    try:
        files.check_same(path, source.identity)
        return AnnotatedFeed(param, source, transform, batch, key)
    except InputError:
        source.close()
        raise


def _image_list(param: Message, key: tuple[int | str, ...], resolve: ResolvePath, read: Read) -> ImageListSource:
    images = param.image_data_param
    return ImageListSource(resolve(images.source), images, key, skip=_random_skip(images.rand_skip, key), read=read)


def _random_skip(limit: int, key: tuple[int | str, ...]) -> int:
    return int(generator(*key, "skip").integers(limit)) if limit > 0 else 0
