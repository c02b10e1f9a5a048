"""Creates the feed of an input layer.

    feed = open_feed(layer, phase, seed, path="net.prototxt")

The class of its feed is found in the modules *feed.py of this folder.  Feeds that read files do so in a thread, ahead
of the step that needs them; Input and MemoryData take arrays from the caller (ArrayFeed.give).
"""

from __future__ import annotations

from importlib import import_module
from math import prod
from pathlib import Path

from layermem.data.feed import FEED_TYPES, Feed, Opening, Shapes
from layermem.data.layer_files import resolver
from layermem.data.prefetch import Prefetch
from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.layers.data import FROM_FILES
from layermem.proto.schema import Message
from layermem.utils.modules import modules_in
from layermem.utils.open_file import Files

PREFETCH = 4  # batches; Caffe's default
PREFETCH_BYTES = 64 * 2**20  # of waiting batches, unless data_param states their number

for _name, _ in modules_in([str(Path(__file__).parent)]):
    if _name.endswith("_feed"):
        import_module(f"layermem.data.{_name}")  # registers its feeds


def open_feed(
    param: Message,
    phase: int,
    seed: int,
    *,
    path: str,
    prefetch: bool = True,
    ranks: Ranks = Ranks(),
    in_bytes: bool = False,
    fills: bool = False,
    files: Files | None = None,
) -> Feed:
    """The feed of an input layer (a LayerParameter) of the net at `path`, whose batches `ranks` share.  With `in_bytes`
    batches are ByteImages where possible.  `fills` as for Prefetch.  `files` holds the open files of the net."""
    kind, key = FEED_TYPES[param.type], (seed, phase, param.name)
    resolve = resolver(path, f"; create it, or {kind.remedy}")
    try:
        feed = kind.open(Opening(param, phase, key, resolve, files or Files(), in_bytes))
    except InputError as error:
        raise error.at(path=path, layer=param.name) from None
    feed.path, feed.layer, feed.ranks = path, param.name, ranks
    depth = _prefetch_depth(param, feed.shapes)
    return Prefetch(feed, depth, fills=fills) if prefetch and depth > 0 and kind.reads_ahead(param) else feed


def _prefetch_depth(param: Message, shapes: Shapes) -> int:
    """The number of batches that may wait; one more is being read, and one is in use."""
    if FROM_FILES.get(param.type) == "data_param" and param.data_param.HasField("prefetch"):
        return int(param.data_param.prefetch)
    batch_bytes = 4 * sum(prod(shape) for shape in shapes)
    return max(1, min(PREFETCH, PREFETCH_BYTES // max(batch_bytes, 1)))


def held_bytes(param: Message, shapes: Shapes, path: str = "", files: Files | None = None) -> int:
    """Bytes that an input layer of the net at `path`, with tops of `shapes`, holds at a time: of batches, and of data
    that its feed keeps besides.  `files` holds the open files of the net."""
    kind, batch_bytes = FEED_TYPES[param.type], 4 * sum(prod(shape) for shape in shapes)
    try:
        cached = kind.cached_bytes(param, resolver(path), files or Files())
    except InputError:  # its files do not exist
        cached = 0
    depth = _prefetch_depth(param, shapes) if kind.reads_ahead(param) else 0
    return cached + batch_bytes * (depth + 2 if depth else 1)


def shapes_of_files(param: Message, phase: int, path: str, files: Files | None = None) -> Shapes:
    """Shapes of an input layer's tops, read from its files."""
    resolve = resolver(path, "; correct the path")
    feed = FEED_TYPES[param.type].open(Opening(param, phase, (0, phase, param.name), resolve, files or Files()))
    feed.close()
    return feed.shapes
