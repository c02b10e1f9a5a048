"""Shapes and sizes, rows of a table, recurrent layers.

COPIED_ROWS, COPIED_BYTES, TRANSPOSED, TABLES, RESIZED   of kernels of the cpu backend
SHAPE_PAIRS   of layers that change a shape
"""

from typing import Any

import numpy as np

from tests.cases.base import BATCH, BIG, IMAGE, ODD, QUADS, add, cases_of, integers
from tests.op_case import Draw, Shape

# Rows and their width: one, of parts, many short ones, of whole vectors.
COPIED_ROWS = [(1, 100), (2, 40001), (500, 3), (77, 64)]
COPIED_BYTES = [(2, 400_002), (3, 262_144), (2, 0), (0, 5)]  # besides: pieces of a row for several threads, and nothing
# Matrices, their rows and columns: one element, few rows, blocks with a rest, a long row, a long column.
TRANSPOSED = [(1, 1, 1), (3, 3, 91), (2, 50, 33), (1, 3, 70000), (2, 400, 17)]
# Pairs of shapes, some of which hold the same elements in the same order in memory.
SHAPE_PAIRS: list[tuple[Shape, Shape]] = [
    ((2, 3, 4, 5), (2, 60)),
    ((2, 3, 4, 5), (2, 3, 20, 1)),
    ((2, 3, 4, 5), (2, 3, 2, 10)),
    ((2, 3, 4, 5), (2, 4, 3, 5)),
    ((2, 3, 4, 5), (120,)),
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((4, 6, 1, 1), (4, 6)),
    ((4, 1, 3, 2), (4, 6)),
    ((4, 1, 3, 2), (4, 6, 1, 1)),
    ((4, 1, 3, 2), (2, 2, 3, 2)),
    ((1, 6, 2, 1), (1, 2, 6, 1)),
    ((6, 2, 2, 1), (3, 4, 2, 1)),
    ((2, 3, 4), (6, 4)),
    ((2, 3, 4), (6, 3)),
]
# Rows of a table, their width, and how many are read: few, some, wide rows, single numbers, one row.
TABLES = [(5, 3, 7), (300, 17, 40), (2, 40001, 5), (70, 1, 2000), (1, 8, 1)]
# Sizes of an image and of the result, and the corner and size of the part that is read.
RESIZED = [
    ((7, 5), (13, 9), (0, 0), (7, 5)),
    ((9, 8), (4, 5), (1, 2), (7, 4)),
    ((6, 6), (1, 1), (0, 0), (6, 6)),
    ((1, 1), (5, 3), (0, 0), (1, 1)),
    ((5, 4), (33, 25), (0, 0), (5, 4)),
    ((2, 1), (150, 70), (0, 0), (2, 1)),
]

Tile, Permute, Reorg, Upsample = cases_of("Tile"), cases_of("Permute"), cases_of("Reorg"), cases_of("Upsample")
PriorBox, Crop, Interp = cases_of("PriorBox", "prior_box_param"), cases_of("Crop"), cases_of("Interp")
ShuffleChannel = cases_of("ShuffleChannel", "shuffle_channel_param")
add("Concat", 'type: "Concat"', small=[ODD, QUADS], medium=[IMAGE, (2, 3, 7, 5)], timing=[BATCH, BATCH])
add("Concat of three", 'type: "Concat"', edges=[(2, 3, 5, 7), (2, 8, 5, 7), (2, 1, 5, 7)])
add("Concat of one", 'type: "Concat"', edges=(2, 3, 5, 7))
add("Concat by quads", 'type: "Concat"', small=[QUADS, QUADS], edges=[(2, 4, 5, 7), (2, 8, 5, 7)])
add("Concat of items", 'type: "Concat" concat_param { axis: 0 }', edges=[(2, 3, 5, 7), (1, 3, 5, 7)])
add("Concat of columns", 'type: "Concat" concat_param { axis: 3 }', edges=[(2, 3, 5, 7), (2, 3, 5, 2)])
add("Concat of rows", 'type: "Concat" concat_param { axis: 2 }', medium=[IMAGE, (2, 6, 2, 5)])
add("Slice", 'type: "Slice" top: "a" top: "b" slice_param { slice_point: 2 }', medium=IMAGE)
add("Slice by quads", 'type: "Slice" top: "a" top: "b" slice_param { slice_point: 4 }', edges=(2, 12, 5, 3))
add("Slice of rows", 'type: "Slice" top: "a" top: "b" top: "c" slice_param { axis: 2 }', edges=(2, 4, 6, 3))
add("Slice into one", 'type: "Slice" top: "a"', edges=(2, 12, 5, 3))
add("Split", 'type: "Split" top: "a" top: "b"', medium=IMAGE)
add("Split into three", 'type: "Split" top: "a" top: "b" top: "c"', edges=(2, 3, 5, 7))
add("Flatten", 'type: "Flatten"', small=ODD, edges=(3, 5, 7, 2), **BIG)
add("Flatten of many channels", 'type: "Flatten"', edges=(2, 36, 9, 5))
add("Flatten, a view", 'type: "Flatten"', medium=(3, 5, 1, 1), edges=(3, 35, 1, 1))
add("Flatten of rows", 'type: "Flatten" flatten_param { axis: 2 }', edges=(3, 5, 7, 2))
add("Reshape", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 5 dim: 3 dim: 3 } }', small=ODD)
add("Reshape of rows", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 3 dim: 7 dim: 10 } }', medium=(2, 210))
add("Reshape of images", 'type: "Reshape" reshape_param { shape { dim: 2 dim: 3 dim: 7 dim: 10 } }', medium=IMAGE)
add("Reshape into images", 'type: "Reshape" reshape_param { shape { dim: 0 dim: 5 dim: 7 dim: -1 } }', edges=(3, 70))
add("Reshape of items", 'type: "Reshape" reshape_param { shape { dim: 3 dim: 10 dim: 7 dim: 2 } }', edges=(6, 5, 7, 2))
Tile("Tile of two", "tiles: 2", small=ODD)
Tile("Tile by quads", "tiles: 2", small=QUADS)
Tile("Tile of three", "tiles: 3", medium=IMAGE, edges=(2, 5, 4, 3))
Tile("Tile", "tiles: 4", timing=BATCH)
Tile("Tile of images", "axis: 0 tiles: 2", medium=IMAGE)
Tile("Tile of rows", "axis: 2 tiles: 65", medium=(2, 3, 1, 4))
Tile("Tile of rows by quads", "axis: 2 tiles: 2", edges=(2, 4, 4, 3))
Tile("Tile of one number", "axis: 1 tiles: 40", medium=(7, 1))
Permute(
    "Permute to the back",
    "order: 0 order: 2 order: 3 order: 1",
    small=ODD,
    **BIG,
    formula=lambda x: x.transpose(0, 2, 3, 1),
)
Permute("Permute of items", "order: 1", small=QUADS, formula=lambda x: x.transpose(1, 0, 2, 3))
Permute(
    "Permute of five axes",
    "order: 0 order: 2 order: 1",
    medium=(2, 3, 4, 2, 3),
    formula=lambda x: x.transpose(0, 2, 1, 3, 4),
)
Permute("Permute of columns", "order: 3 order: 1 order: 0", edges=(2, 3, 5, 7))
Permute("Permute of six axes", "order: 5 order: 3 order: 1 order: 4 order: 2", edges=(2, 3, 2, 3, 2, 4))
Permute("Permute, a view", "", small=ODD, formula=lambda x: x)
Reorg("Reorg", "stride: 2", small=(2, 4, 6, 2), medium=(1, 8, 4, 10))
Reorg("Reorg of one block", "stride: 2", small=(2, 4, 2, 2))
Reorg("Reorg, back", "stride: 2 reverse: true", small=(2, 8, 3, 5))
Reorg("Reorg of YOLO v2", "stride: 2", timing=(16, 64, 26, 26))
Upsample(
    "Upsample",
    "scale: 2",
    small=ODD,
    medium=IMAGE,
    timing=(16, 128, 26, 26),
    formula=lambda x: np.kron(x, np.ones((2, 2))),
)


def places(plane: int) -> Draw:
    """A different place in the plane for each pixel of a map."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        pixels = shape[2] * shape[3]
        maps = [rng.permutation(plane)[:pixels] for _ in range(shape[0] * shape[1])]
        return np.array(maps, float).reshape(shape)

    return draw


Upsample("Upsample by a mask", "scale: 2 pad_out_h: true", medium=[(2, 5, 3, 2)] * 2, drawn={1: places(5 * 4)})
Upsample(
    "Upsample by a mask of quads", "upsample_h: 5 upsample_w: 9", medium=[(2, 36, 3, 4)] * 2, drawn={1: places(5 * 9)}
)
Upsample("Upsample by 3 of quads", "scale: 3", small=QUADS)
add(
    "Axpy",
    'type: "Axpy"',
    small=[ODD[:2], ODD, ODD],
    medium=[IMAGE[:2], IMAGE, IMAGE],
    timing=[BATCH[:2], BATCH, BATCH],
    formula=lambda a, x, b: a[..., None, None] * x + b,
)
add("Axpy of quads", 'type: "Axpy"', small=[(2, 4, 1, 1), QUADS, QUADS])
PriorBox(
    "PriorBox",
    "min_size: 3.5 max_size: 8 aspect_ratio: 2 aspect_ratio: 3 variance: [0.1, 0.1, 0.2, 0.2]",
    small=[ODD, (2, 3, 20, 15)],
    medium=[IMAGE, (2, 3, 300, 200)],
)
PriorBox("PriorBox of 8732", "min_size: 3.5 aspect_ratio: 2 clip: true img_size: 300", timing=(1, 1, 54, 54))
ShuffleChannel("ShuffleChannel", "group: 2", medium=IMAGE, timing=BATCH)
ShuffleChannel("ShuffleChannel of quads", "group: 2", small=QUADS, formula=lambda x: x[:, [0, 2, 1, 3]])
add("Parameter", 'type: "Parameter" parameter_param { shape { dim: 2 dim: 3 dim: 5 dim: 3 } }', small=[], medium=[])
add("HDF5Output", 'type: "HDF5Output" hdf5_output_param { file_name: "f" }', medium=[IMAGE, (2,)])
add("Silence", 'type: "Silence"', medium=IMAGE, edges=(2, 3))
Crop("Crop", "axis: 2 offset: 1", small=[ODD, (2, 3, 3, 2)])
Crop("Crop by quads", "axis: 2 offset: 1", small=[QUADS, (2, 4, 3, 2)])
Crop("Crop of images", "offset: 1", medium=[IMAGE, (2, 6, 5, 3)])
Crop("Crop by 3", "offset: 3", timing=[BATCH, (64, 64, 50, 50)])
Crop("Crop by 1 and 2", "axis: 2 offset: 1 offset: 2", edges=[(2, 3, 7, 9), (2, 3, 4, 5)])
Crop("Crop of channels", "axis: 1 offset: 4 offset: 1 offset: 0", edges=[(2, 12, 7, 9), (2, 8, 4, 5)])
Crop("Crop of a row", "axis: 1 offset: 3", edges=[(4, 9), (4, 5)])
Interp("Interp to 7 x 2", "height: 7 width: 2", small=ODD)
Interp("Interp by quads", "height: 3 width: 5", small=QUADS)
Interp("Interp to 9 x 8", "height: 9 width: 8", medium=IMAGE)
Interp("Interp x 8", "height: 473 width: 473", timing=(4, 21, 60, 60))
Interp("Interp x 2", "height: 111 width: 111", timing=(16, 64, 56, 56))
Interp("Interp up", "height: 13 width: 9", edges=(2, 3, 7, 5))
Interp("Interp x 8 by quads", "zoom_factor: 8", edges=(1, 8, 3, 4))
Interp("Interp down", "height: 3 width: 4", edges=(2, 4, 7, 9))
Interp("Interp to a point", "height: 1 width: 5", edges=(2, 4, 7, 9))
Interp("Interp from a point", "height: 4 width: 5", edges=(2, 4, 1, 1))
Interp("Interp, cropped", "height: 6 width: 5 pad_beg: -1 pad_end: -2", edges=(2, 4, 9, 8))
Interp("Interp to the same size", "height: 7 width: 5", edges=(1, 3, 7, 5))

# -- rows of a table -----------------------------------------------------------------------------------------------


def embed(name: str, outputs: int, settings: str = "", rows: int = 5, **more: Any) -> None:
    settings = f"input_dim: {rows} num_output: {outputs} {settings}"
    add(name, f'type: "Embed" embed_param {{ {settings} }}', labels=0, classes=rows, **more)


embed("Embed", 3, small=(2, 4))
embed("Embed by quads", 8, "bias_term: false", small=(7,))
embed("Embed into an image", 3, small=(2, 3, 4), medium=(3, 2, 5))
embed("Embed of images", 4, small=(2, 3, 2, 2), medium=(2, 3, 4, 2))
embed("Embed of wide rows", 1030, rows=2, medium=(3,), small=(3,))
embed("Embed of words", 512, rows=20000, timing=(20, 1024))
add("BatchReindex", 'type: "BatchReindex"', labels=1, classes=2, small=[ODD, (5,)], medium=[IMAGE, (3,)])
add("BatchReindex by quads", 'type: "BatchReindex"', labels=1, classes=2, small=[QUADS, (1,)])
add("BatchReindex of rows", 'type: "BatchReindex"', labels=1, classes=4, medium=[(4, 7), (9,)])
add("BatchReindex of a batch", 'type: "BatchReindex"', labels=1, classes=64, timing=[BATCH, (64,)])

# -- recurrent layers ----------------------------------------------------------------------------------------------


def unit(items: int, cells: int) -> list[Shape]:
    """c, gates and cont of an LSTMUnit."""
    return [(1, items, cells), (1, items, 4 * cells), (1, items)]


add(
    "LSTMUnit",
    'type: "LSTMUnit"',
    small=unit(3, 5),
    medium=unit(2, 21),
    timing=unit(256, 4096),
    drawn={2: integers(0, 2)},
)
add("LSTMUnit of any cont", 'type: "LSTMUnit"', medium=unit(4, 3))
STATE = 'input_param { shape { dim: 1 dim: 3 dim: 5 } } param { name: "s" }'
add("StateRead", f'type: "StateRead" {STATE}', small=[], medium=[])
add("StateWrite", 'type: "StateWrite" param { name: "s" }', small=[(1, 3, 5)], medium=[(1, 3, 5)])
add("TimeSlice", 'type: "TimeSlice" top: "a" top: "b" slice_param { axis: 0 slice_point: 2 }', medium=(5, 3, 7))
add("Exposed", 'type: "Exposed"', small=[(1, 3, 5)], medium=[(1, 3, 5)])
