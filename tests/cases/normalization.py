"""Normalization, scales and biases.

NORM_SHAPES   of a BatchNorm        MOMENT_ROWS   rows and columns whose moments, or sums for backward, are added
CHANNEL_AXES, CENTERED, LENGTHS, LRN_WINDOWS   of kernels of the cpu backend
"""

from tests.cases.base import (
    AXES,
    BATCH,
    BIG,
    CLIP,
    IMAGE,
    MAPS,
    ODD,
    PICTURES,
    QUADS,
    SLIVER,
    add,
    by_shape,
    cases_of,
    normal,
)
from tests.op_case import Shape

LOOSE = {"tolerance": 1e-5}
# Channels one at a time, four at a time in several parts, of rows, and before their pixels.
NORM_SHAPES: list[Shape] = [(2, 3, 7, 5), (6, 20, 9, 11), (3, 36), (4, 6, 11)]
# One row; less than a unit and one unit of 128 rows; several units, with a rest; columns of several blocks; many units.
MOMENT_ROWS: list[Shape] = [(1, 4), (31, 8), (128, 7), (300, 20), (700, 130), (513, 260), (4100, 3)]
# Sizes before, along and behind the axis of channels: rows and planes of one part and of several, one channel.
CHANNEL_AXES: list[Shape] = [
    (2 * 7 * 13, 36, 1), (3, 20, 91), (1, 1, 1000), (5, 3, 1), (4000, 17, 1), (1, 4, 7), (40000, 4, 1), (130, 130, 7),
]  # fmt: skip
CENTERED = [*AXES, (1, 400, 70)]  # for MVN, which sums long planes in parts
# Pixels, channels, and pixels that have one length together: one, some, half of all in several parts.
LENGTHS = [(7, 5, 1), (60, 37, 1), (60, 37, 20), (3000, 64, 1500), (4, 1, 2)]
# A stored shape and the size of a window: several vectors of channels, fewer than a vector, one row, many blocks.
LRN_WINDOWS = [((2, 7, 5, 36), 5), ((1, 3, 4, 3), 5), ((3, 13, 1, 20), 3), ((2, 40, 40, 96), 5)]
LRN, BatchNorm, MVN = cases_of("LRN"), cases_of("BatchNorm", "batch_norm_param"), cases_of("MVN")
LRN("LRN", "", timing=BATCH)
LRN("LRN of five", "local_size: 5 alpha: 0.3", medium=IMAGE)
LRN("LRN of three", "local_size: 3 alpha: 1", small=ODD)
LRN("LRN by quads", "local_size: 7 alpha: 1", small=QUADS)
LRN("LRN, another beta", "local_size: 5 alpha: 1 beta: 0.6", small=ODD)
LRN("LRN of AlexNet", "local_size: 5 alpha: 1e-4 beta: 0.75", gpu=MAPS)
LRN("LRN within", "local_size: 3 norm_region: WITHIN_CHANNEL", timing=BATCH)
LRN("LRN within by quads", "local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL", small=QUADS)
LRN("LRN within, alpha 0.3", "local_size: 3 alpha: 0.3 norm_region: WITHIN_CHANNEL", medium=IMAGE)
LRN("LRN within, alpha 1", "local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL", small=ODD)
for _region in ("ACROSS_CHANNELS", "WITHIN_CHANNEL"):
    for _size in (1, 3, 5):
        by_shape(
            LRN,
            f"LRN {_region} of {_size}",
            f"local_size: {_size} alpha: 0.5 beta: 0.75 norm_region: {_region}",
            [(2, 3, 7, 5), (1, 36, 3, 4), (3, 7, 13, 1), (1, 2500, 1, 2)],
        )
BatchNorm("BatchNorm", "", small=(4, 3, 12, 17), gpu=MAPS, **BIG, **LOOSE)
BatchNorm("BatchNorm by quads", "", small=QUADS, **LOOSE)
BatchNorm("BatchNorm of rows", "", medium=(9, 4), **LOOSE)
by_shape(
    BatchNorm, "BatchNorm", "", [*NORM_SHAPES, (6, 72, 9, 11), (300, 5), (1, 4, 1, 1)], drawn={0: normal(3, mean=1)}
)
BatchNorm("BatchNorm of pictures", "", timing=PICTURES)
BatchNorm("BatchNorm of averages", "use_global_stats: true", small=ODD, medium=IMAGE)
BatchNorm("BatchNorm of NVCaffe", "scale_bias: true", small=QUADS, medium=IMAGE, **LOOSE)
BatchNorm("BatchNorm of NVCaffe, in TEST", "scale_bias: true", small=ODD, medium=IMAGE, phase=1)
NORMALIZED = {"normalized": True, **LOOSE}
add("BatchNorm + Scale", "", medium=IMAGE, **NORMALIZED)
add("BatchNorm + Scale + ReLU", "", medium=IMAGE, relu=True, **NORMALIZED)
add("BatchNorm + Scale + residual", "", medium=SLIVER, residual=True, **NORMALIZED)
add("BatchNorm + Scale + residual from y", "", medium=SLIVER, saved="y0", residual=True, **NORMALIZED)
add("BatchNorm + Scale + residual + ReLU", "", small=ODD, gpu=MAPS, residual=True, relu=True, **NORMALIZED)
add("BatchNorm + Scale + residual + ReLU from y", "", small=QUADS, saved="y0", residual=True, relu=True, **NORMALIZED)
MVN("MVN", "", small=ODD, medium=IMAGE, timing=BATCH, **LOOSE)
MVN("MVN by quads", "", small=(2, 36, 3, 3), **LOOSE)
MVN("MVN of maps larger than a run", "", medium=(1, 70, 17, 19), small=(1, 1, 24, 17))
MVN("MVN across channels", "across_channels: true", small=ODD, medium=IMAGE, **LOOSE)
MVN("MVN of rows", "across_channels: true", medium=(4, 37), **LOOSE)
MVN("MVN, mean only", "normalize_variance: false", small=ODD, medium=IMAGE)
MVN("MVN, mean only, across channels", "normalize_variance: false across_channels: true", medium=IMAGE)
MVN("MVN of eps 0.1", "eps: 0.1", medium=SLIVER, tolerance=0.3)  # Caffe's gradient: eps 0


Scale, Bias = cases_of("Scale"), cases_of("Bias")
Scale("Scale without bias", "", timing=BATCH)
Scale("Scale", "bias_term: true", small=ODD, medium=IMAGE)
Scale("Scale by quads", "bias_term: true", small=QUADS)
Scale("Scale of C x H", "bias_term: true num_axes: 2", small=ODD)
Scale("Scale of C x H x W", "axis: 1 num_axes: -1", **BIG)
Scale("Scale by C", "axis: 1", medium=[IMAGE, (6,)])
Scale("Scale by N x C", "axis: 0", medium=[IMAGE, IMAGE[:2]], timing=[BATCH, BATCH[:2]])
Scale("Scale by N", "axis: 0", medium=[IMAGE, IMAGE[:1]])
Scale("Scale by all axes", "axis: 0", medium=[IMAGE, IMAGE])
Scale("Scale of one number", "num_axes: 0 bias_term: true", medium=IMAGE)
Scale("Scale of N", "axis: 0 num_axes: 1 bias_term: true", medium=IMAGE)
Scale("Scale of C x H, from axis 1", "axis: 1 num_axes: 2 bias_term: true", medium=IMAGE)
Scale("Scale of N x C x H", "axis: 0 num_axes: 3 bias_term: true", medium=IMAGE)
Scale("Scale of H", "axis: 2 num_axes: 1 bias_term: true", medium=IMAGE)
Scale("Scale of H x W", "axis: 2 num_axes: 2", medium=IMAGE)
Scale("Scale of everything", "axis: 0 num_axes: -1 bias_term: true", medium=IMAGE)
Scale("Scale of three axes", "axis: 2 bias_term: true", medium=(3, 4, 5))
Scale("Scale of four axes of five", "axis: 1 num_axes: 4 bias_term: true", small=(2, 2, 3, 2, 3), medium=CLIP)
Scale("Scale by four axes of five", "axis: 0", medium=[CLIP, CLIP[:4]])
Bias("Bias", "", **BIG)
Bias("Bias by N x C", "axis: 0", medium=[IMAGE, (2, 6)])
Bias("Bias by N", "axis: 0", medium=[IMAGE, IMAGE[:1]])
Bias("Bias of C x H x W", "axis: 1 num_axes: -1", medium=IMAGE)
for _name, _axis, _axes, _shape in (
    ("channels", 1, 1, (2, 8, 7, 5)),
    ("odd channels", 1, 1, (2, 3, 7, 5)),
    ("channels in many parts", 1, 1, (4, 16, 24, 23)),
    ("items", 0, 1, SLIVER),
    ("rows", 2, 1, SLIVER),
    ("columns", 3, 1, SLIVER),
    ("places", 2, 2, SLIVER),
    ("channels and rows", 1, 2, SLIVER),
    ("items and channels", 0, 2, SLIVER),
    ("all but the item", 1, -1, SLIVER),
    ("everything", 0, -1, SLIVER),
    ("a number", 1, 0, SLIVER),
    ("features", 1, 1, (30, 7)),
    ("three axes", 1, 1, (3, 4, 5)),
    ("the last of three axes", 2, 1, (3, 4, 5)),
):
    Bias(f"Bias: {_name}", f"axis: {_axis} num_axes: {_axes}", edges=_shape)
    for _biased in ("true", "false"):
        Scale(f"Scale: {_name}, bias {_biased}", f"axis: {_axis} num_axes: {_axes} bias_term: {_biased}", edges=_shape)
for _axis, _operand in ((0, (3, 4)), (1, (4,)), (0, SLIVER), (2, (5, 2)), (0, ())):
    Scale(f"Scale: {_operand} from axis {_axis}", f"axis: {_axis}", edges=[SLIVER, _operand])
    Bias(f"Bias: {_operand} from axis {_axis}", f"axis: {_axis}", edges=[SLIVER, _operand])


BN = cases_of("BN", **LOOSE)
BN("BN of yjxiong", "momentum: 0.8", small=ODD, **BIG)
BN("BN of yjxiong by quads", "slope_filler { value: 1 }", small=QUADS)
BN("BN of yjxiong, frozen", "frozen: true", small=ODD, medium=IMAGE)
BN("BN of rows", "eps: 0.01", medium=(9, 4))
BN("BN of PSPNet", "var_eps: 1e-5 decay: 0.1", small=ODD)
BN("BN of SegNet", "bn_mode: LEARN", small=QUADS, medium=IMAGE)
BN("BN of SegNet, inference", "bn_mode: INFERENCE", small=ODD, medium=IMAGE)


Normalize = cases_of("Normalize", "norm_param")
Normalize("Normalize", "", medium=IMAGE)
Normalize("Normalize of items", "", small=ODD)
Normalize("Normalize of items, by blocks", "channel_shared: false", small=(2, 3, 17, 13))
Normalize("Normalize of items by channel", "channel_shared: false", medium=IMAGE)
Normalize("Normalize of pixels", "across_spatial: false channel_shared: false", small=ODD, medium=IMAGE, timing=BATCH)
Normalize("Normalize of pixels by quads", "across_spatial: false channel_shared: false", small=QUADS)
Normalize("Normalize of pixels, one scale", "across_spatial: false eps: 0.01", small=ODD)
Normalize("Normalize of rows", "channel_shared: false", medium=(9, 4))
Normalize("Normalize of many channels", "across_spatial: false channel_shared: false", medium=(2, 300, 13, 9))
