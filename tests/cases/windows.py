"""Windows and regions of images, sums of blobs."""

from typing import Any

import numpy as np

from tests.cases.activation import ELEMENTWISE, relu
from tests.cases.base import BATCH, IMAGE, MAPS, ODD, QUADS, SIZES, SLIVER, add, cases_of, integers
from tests.op_case import Draw, Formula, Shape

Pooling = cases_of("Pooling")
Pooling("Pooling MAX 3/2", "kernel_size: 3 stride: 2", small=ODD, timing=BATCH, gpu=MAPS)
Pooling("Pooling MAX 3/2, padded", "kernel_size: 3 stride: 2 pad: 1", medium=IMAGE)
Pooling("Pooling MAX 3/1", "kernel_size: 3 pad: 1", medium=IMAGE, timing=BATCH)
Pooling("Pooling MAX by quads", "kernel_size: 2 pad: 1", small=QUADS)
Pooling("Pooling MAX 3/2, ceil_mode false", "kernel_size: 3 stride: 2 ceil_mode: false", medium=(2, 3, 6, 6))
add(
    "Pooling MAX and its mask",
    'type: "Pooling" top: "y" top: "m" pooling_param { kernel_size: 3 stride: 2 pad: 1 }',
    small=ODD,
    medium=IMAGE,
)
Pooling("Pooling STOCHASTIC", "pool: STOCHASTIC kernel_size: 2", small=ODD, positive=True)
Pooling("Pooling STOCHASTIC 3/2", "pool: STOCHASTIC kernel_size: 3 stride: 2", medium=IMAGE, positive=True)
Pooling(
    "Pooling STOCHASTIC of maps",
    "pool: STOCHASTIC global_pooling: true",
    medium=(1, 3, 19, 17),
    small=(1, 3, 19, 17),
    positive=True,
)
Pooling("Pooling STOCHASTIC in TEST", "pool: STOCHASTIC kernel_size: 3 stride: 2", small=ODD, medium=IMAGE, phase=1)
Pooling("Pooling AVE 3/2", "pool: AVE kernel_size: 3 stride: 2", small=ODD)
Pooling("Pooling AVE 3/2, padded", "pool: AVE kernel_size: 3 stride: 2 pad: 1", medium=IMAGE)
Pooling("Pooling AVE by quads", "pool: AVE kernel_size: 2 pad: 1", small=QUADS)
Pooling("Pooling AVE", "pool: AVE global_pooling: true", medium=IMAGE, timing=BATCH)
for _method in ("MAX", "AVE"):
    for _name, _settings, _shape in (
        ("two by two", "kernel_size: 2 stride: 2", (2, 4, 8, 6)),
        ("odd size", "kernel_size: 2 stride: 2", (2, 3, 7, 5)),
        ("overlapping", "kernel_size: 3 stride: 2", (2, 20, 13, 7)),
        ("overlapping by two rows", "kernel_size: 5 stride: 2 pad: 2", (1, 8, 9, 7)),
        ("padded", "kernel_size: 3 stride: 1 pad: 1", (2, 36, 7, 7)),
        ("padded, hanging over", "kernel_size: 3 stride: 2 pad: 1", (1, 3, 8, 10)),
        ("gaps", "kernel_h: 1 kernel_w: 2 stride: 3", (2, 4, 13, 13)),
        ("width one", "kernel_h: 2 kernel_w: 1 stride: 1", (3, 5, 7, 1)),
        ("whole image", "global_pooling: true", (2, 20, 7, 5)),
        ("more than 256 taps", "global_pooling: true", (2, 4, 17, 18)),
        ("rounded down", "kernel_size: 3 stride: 2 round_mode: FLOOR", (1, 4, 8, 8)),
        ("many channels", "kernel_size: 2 stride: 2", (2, 20, 8, 12)),
        ("many channels, overlapping", "kernel_size: 3 stride: 2", (2, 36, 13, 7)),
        ("many channels, padded", "kernel_size: 3 pad: 1", (1, 72, 7, 13)),
        ("padded and clipped", "kernel_size: 3 stride_h: 3 stride_w: 2 pad_h: 1 pad_w: 2", (2, 3, 13, 13)),
        ("many channels, whole image", "kernel_size: 7", (3, 36, 7, 7)),
        ("one channel", "kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1", (2, 1, 7, 9)),
        ("gaps between squares", "kernel_size: 2 stride: 3", (1, 4, 13, 13)),
        ("more than 256 taps, padded", "kernel_h: 17 kernel_w: 16 stride: 2 pad: 3", (1, 20, 19, 18)),
        ("width one, strided", "kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 1", (2, 5, 9, 1)),
    ):
        Pooling(f"Pooling {_method}: {_name}", f"pool: {_method} {_settings}", edges=_shape)
# Of equal elements the first gets the gradient.
Pooling("Pooling MAX of equal elements", "kernel_size: 3 stride: 2", edges=(2, 4, 7, 7), drawn={0: integers(0, 2)})


def regions(items: int, pixels: int) -> Draw:
    """Corners of regions of interest in images of that many pixels, some beyond the border."""

    def draw(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        rois = rng.integers(-3, pixels + 3, (shape[0], 5)).astype(float)
        rois[:, 0] = rng.integers(0, items, shape[0])
        rois[1:, 3:] = np.maximum(rois[1:, 3:], rois[1:, 1:3])  # the first may be malformed: then it is one pixel
        return rois.reshape(shape)

    return draw


def roi_pool(name: str, settings: str, items: int, pixels: int, **more: Any) -> None:
    add(name, f'type: "ROIPooling" roi_pooling_param {{ {settings} }}', drawn={1: regions(items, pixels)}, **more)


roi_pool("ROIPooling 2x3", "pooled_h: 2 pooled_w: 3", 2, 5, small=[ODD, (4, 5)])
roi_pool(
    "ROIPooling 3x2 of half size", "pooled_h: 3 pooled_w: 2 spatial_scale: 0.5", 2, 12, medium=[IMAGE, (6, 5, 1, 1)]
)
roi_pool("ROIPooling 7x7", "pooled_h: 7 pooled_w: 7 spatial_scale: 0.0625", 2, 600, timing=[(2, 512, 38, 50), (128, 5)])


for _size, _g, _k, _scale, _shapes in (
    ("small", 2, 3, 1, [(2, 12, 5, 3), (4, 5)]),
    ("medium", 3, 2, 0.5, [(2, 18, 7, 5), (6, 5)]),
    ("timing", 7, 21, 0.0625, [(2, 1029, 38, 50), (128, 5)]),
):
    add(
        f"PSROIPooling {_g}x{_g}",
        f'type: "PSROIPooling" psroi_pooling_param {{ output_dim: {_k} group_size: {_g} spatial_scale: {_scale} }}',
        drawn={1: regions(2, {"small": 5, "medium": 12, "timing": 600}[_size])},
        **{_size: _shapes},
    )


Im2col = cases_of("Im2col", "convolution_param")
Im2col("Im2col", "kernel_size: 2", small=ODD, timing=BATCH)
Im2col("Im2col 3x3/2, padded", "kernel_size: 3 stride: 2 pad: 1", small=QUADS, medium=IMAGE)
Im2col("Im2col, dilated", "kernel_h: 3 kernel_w: 2 dilation: 2 pad_h: 3 pad_w: 0 stride: 1", medium=IMAGE)
Im2col("Im2col, stride beyond the kernel", "kernel_size: 1 stride: 3", small=(1, 2, 7, 4))


def eltwise(name: str, settings: str, count: int, formula: Formula | None, **more: Any) -> None:
    sizes = {size: [more.pop(size)] * count for size in SIZES if size in more}
    sizes = sizes or {"medium": [(2, 3, 2, 4)] * count}
    add(name, f'type: "Eltwise" eltwise_param {{ {settings} }}', formula=formula, **sizes, **more)


def largest(*xs: np.ndarray) -> np.ndarray:
    return np.max(xs, axis=0)


eltwise("Eltwise SUM", "", 2, lambda a, b: a + b, medium=IMAGE, timing=BATCH, gpu=MAPS)
eltwise("Eltwise SUM of three", "operation: SUM", 3, lambda a, b, c: a + b + c)
eltwise("Eltwise a + 2 b", "coeff: 1 coeff: 2", 2, lambda a, b: a + 2 * b, small=ODD)
eltwise("Eltwise a - b", "coeff: 1 coeff: -1", 2, lambda a, b: a - b)
eltwise("Eltwise a - b/2", "coeff: 1 coeff: -0.5", 2, lambda a, b: a - b / 2, medium=IMAGE)
eltwise(
    "Eltwise a - b/2 + 2 c",
    "coeff: 1 coeff: -0.5 coeff: 2",
    3,
    lambda a, b, c: a - b / 2 + 2 * c,
    medium=(2, 3, 2, 4),
    edges=(3, 5),
)
eltwise("Eltwise PROD of two", "operation: PROD", 2, lambda a, b: a * b, timing=BATCH)
eltwise("Eltwise PROD", "operation: PROD", 3, lambda a, b, c: a * b * c, small=ODD, medium=IMAGE)
eltwise("Eltwise PROD of four", "operation: PROD", 4, lambda a, b, c, d: a * b * c * d)
eltwise("Eltwise PROD, unstable", "operation: PROD stable_prod_grad: false", 3, lambda a, b, c: a * b * c)
eltwise("Eltwise MAX", "operation: MAX", 2, largest, small=ODD, medium=IMAGE, timing=BATCH)
eltwise("Eltwise MAX of four", "operation: MAX", 4, largest)
eltwise("Eltwise a - 2 b + ReLU", "coeff: 1 coeff: -2", 2, lambda a, b: relu(a - 2 * b), small=ODD, relu=True)
eltwise(
    "Eltwise a - b + ReLU from y", "coeff: 1 coeff: -1", 2, lambda a, b: relu(a - b), small=ODD, relu=True, saved="y0"
)
eltwise("Eltwise SUM + ReLU", "", 2, lambda a, b: relu(a + b), gpu=MAPS, relu=True)
for _operation in ("SUM", "PROD", "MAX"):
    for _count in (2, 3, 7):
        for _shape in ELEMENTWISE:
            eltwise(
                f"Eltwise {_operation}: {_count} of {_shape}", f"operation: {_operation}", _count, None, edges=_shape
            )
# Of equal largest inputs the last wins.
eltwise(
    "Eltwise MAX of equal elements",
    "operation: MAX",
    3,
    None,
    edges=(40, 5),
    drawn=dict.fromkeys(range(3), integers(0, 3)),
)
for _saved in ("", "y0"):
    _from_y = " from y" * bool(_saved)
    eltwise(
        f"Eltwise a - b/2 + ReLU{_from_y}",
        "coeff: 1 coeff: -0.5",
        2,
        lambda a, b: relu(a - b / 2),
        medium=IMAGE,
        relu=True,
        saved=_saved,
    )
    eltwise(
        f"Eltwise a - 2 b + c/2 + ReLU{_from_y}",
        "coeff: 1 coeff: -2 coeff: 0.5",
        3,
        lambda a, b, c: relu(a - 2 * b + c / 2),
        medium=SLIVER,
        relu=True,
        saved=_saved,
    )
