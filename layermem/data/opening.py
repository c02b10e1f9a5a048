"""From an input layer of a net to its feed, or to the shapes of its tops.

    feed = open_feed(layer, phase, seed, path="net.prototxt")
    probe(layer, phase, path)   the shapes alone; where files are not there yet, what the prototxt says of them

Input and MemoryData take arrays from the caller (ArrayFeed.give); everything else reads by itself, ahead in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from layermem.data.feed import ArrayFeed, DummyFeed, Feed, Hdf5Feed, ImageFeed, Shapes
from layermem.data.hdf5_source import Hdf5Source
from layermem.data.list_source import ImageListSource
from layermem.data.lmdb_source import LmdbSource
from layermem.data.prefetch import Prefetch
from layermem.data.transform import Transform
from layermem.errors import InputError
from layermem.layers.data import FROM_FILES, stated_shapes
from layermem.proto.read import resolve_path
from layermem.proto.schema import FillerParameter, enum_name
from layermem.utils.seeds import generator

Find = Callable[[str], Path]  # the file that a name in the prototxt means
READ_AHEAD = 4  # batches, as Caffe does unless Data says otherwise


def open_feed(param: Any, phase: int, seed: int, *, path: str, prefetch: bool = True) -> Feed:
    """The feed of an input layer (a LayerParameter) of the net at `path`."""
    try:
        feed = _make(param, phase, (seed, phase, param.name), _finder(path, "; make it, or feed noise with DummyData"))
    except InputError as error:
        raise error.at(path=path, layer=param.name) from None
    feed.path, feed.layer = path, param.name
    depth = param.data_param.prefetch if param.type == "Data" else READ_AHEAD
    idle = isinstance(feed, ArrayFeed) or (isinstance(feed, DummyFeed) and feed.fixed)  # a thread would have no work
    return Prefetch(feed, depth) if prefetch and depth > 0 and not idle else feed


def probe(param: Any, phase: int, path: str) -> Shapes:
    """Shapes of an input layer's tops: from its files, or from its prototxt if they are not there yet."""
    if param.type not in FROM_FILES:
        return tuple(stated_shapes(param))
    block, _ = FROM_FILES[param.type]
    find = _finder(path)
    try:
        find(getattr(param, block).source)
    except InputError as missing:
        if shapes := declared_shapes(param):
            return shapes
        told = "crop_size with force_color, force_gray or a mean_value for each channel"
        hint = f", or {told}" if param.type == "Data" else ""
        given = " ".join(f"--input {top}={'N,C,H,W' if i == 0 else 'N'}" for i, top in enumerate(param.top))
        raise InputError(
            f"{missing.what}, and its prototxt does not tell the shape; make it, or plan without it by {given}{hint}"
        ) from None
    feed = _make(param, phase, (0, phase, param.name), find)
    feed.close()
    return feed.shapes


def declared_shapes(param: Any) -> Shapes | None:
    """What the prototxt of Data or ImageData says of its tops; None if that is not all.

    Sizes are the crop's, else ImageData's new ones; channels follow from is_color, force_color, force_gray, or from
    several mean values.
    """
    if param.type == "HDF5Data":
        return None
    t = param.transform_param
    height = width = t.crop_size
    if param.type == "ImageData":
        channels = 3 if param.image_data_param.is_color else 1
        if not t.crop_size:
            height, width = param.image_data_param.new_height, param.image_data_param.new_width
    else:
        several = len(t.mean_value) if len(t.mean_value) > 1 else 0  # one mean value serves any number of channels
        channels = 3 if t.force_color else 1 if t.force_gray else several
    batch = _batch_size(param)
    return ((batch, channels, height, width), (batch,))[: len(param.top)] if channels and height and width else None


def synthetic_feed(param: Any, phase: int, seed: int, shapes: Shapes) -> Feed:
    """Noise in the shapes of an input layer, for measuring: the first top in [-128, 128), the others in [0, 1).

    Below 1 every label is class 0, which all nets have, and every target a probability.
    """
    kinds = [FillerParameter(type="uniform", min=-128, max=128), *(FillerParameter(type="uniform") for _ in shapes[1:])]
    return DummyFeed(shapes, kinds, (seed, phase, param.name))


def _finder(path: str, remedy: str = "") -> Find:
    """Looks for files as the net at `path` means them; `remedy` ends the sentence about one that is missing."""

    def find(name: str) -> Path:
        if not name:
            raise InputError("names no source")
        try:
            return resolve_path(name, path)
        except InputError as missing:
            raise InputError(f"cannot be fed: {missing.what}{remedy}") from None

    return find


def _batch_size(param: Any) -> int:
    block, field = FROM_FILES[param.type]
    batch: int = getattr(getattr(param, block), field)
    if batch < 1:
        raise InputError(f"has a batch_size of {batch}; set {block} {{ batch_size: .. }} to at least 1")
    return batch


def _make(param: Any, phase: int, key: tuple[int | str, ...], find: Find) -> Feed:
    if param.type == "DummyData":
        return DummyFeed(tuple(stated_shapes(param)), param.dummy_data_param.data_filler, key)
    if param.type in ("Input", "MemoryData"):
        return ArrayFeed(tuple(stated_shapes(param)), param.top)
    batch = _batch_size(param)
    if param.type == "HDF5Data":
        if param.HasField("transform_param"):
            raise InputError("has a transform_param, but HDF5Data takes its datasets as they are; remove it")
        p = param.hdf5_data_param
        return Hdf5Feed(Hdf5Source(find(p.source), param.top, key, shuffle=p.shuffle), batch)
    if len(param.top) > 2:
        raise InputError(f"has {len(param.top)} tops; it yields data, and a label if a second top asks for it")
    transform = Transform(param.transform_param, phase, key, find)
    source = _lmdb(param, key, find, transform) if param.type == "Data" else _image_list(param, key, find)
    try:
        return ImageFeed(source, transform, batch, len(param.top))
    except InputError:
        source.close()
        raise


def _lmdb(param: Any, key: tuple[int | str, ...], find: Find, transform: Transform) -> LmdbSource:
    p = param.data_param
    place = find(p.source)
    if enum_name(p, "backend") != "LMDB" and not (place / "data.mdb").exists():
        raise InputError("reads a LEVELDB, which layermem does not; convert it to LMDB and set backend: LMDB")
    skip = _random_skip(p.rand_skip, key)
    return LmdbSource(place, labels=len(param.top) > 1, color=transform.color, skip=skip)


def _image_list(param: Any, key: tuple[int | str, ...], find: Find) -> ImageListSource:
    p = param.image_data_param
    return ImageListSource(find(p.source), p, key, skip=_random_skip(p.rand_skip, key))


def _random_skip(limit: int, key: tuple[int | str, ...]) -> int:
    return int(generator(*key, "skip").integers(limit)) if limit > 0 else 0
