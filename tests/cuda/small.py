"""Small layers that between them launch every kernel, and convolutions of odd shapes: what is run in every way that the
emulator knows, and on a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from layermem.layers.base import Layer
from layermem.layers.fused import BatchNormScale, Rectified, Summed
from tests.cuda.harness import Case, Way, layer_of
from tests.layers.harness import with_saved


@dataclass(frozen=True)
class Small:
    """A layer's text, the shapes of its bottoms, and the bottom that holds labels, if one does.

    kept   blobs that other layers keep anyway
    relu   whether a ReLU is part of the layer; its weights have both signs then, and no sum is near zero
    added  whether a sum with another blob is, before the ReLU; `normalized`: the layer is a BatchNorm and its Scale
    """

    text: str
    shapes: Sequence[Sequence[int]]
    labels: int | None = None
    kept: str = ""
    relu: bool = False
    added: bool = False
    normalized: bool = False

    def case(self, way: Way) -> Case:
        rng = np.random.default_rng(11)
        layer = joined(self.text, self.shapes, self.relu, self.added, self.normalized)
        with_saved(layer, frozenset(filter(None, [self.kept])))
        xs = [np.abs(rng.standard_normal(x.shape)) + 0.1 for x in layer.bottoms]
        if self.labels is not None:
            xs[self.labels] = rng.integers(0, 2, self.shapes[self.labels])
        ws = [rng.random(p.tensor.shape) + 0.5 for p in layer.params]
        if self.relu and ws and not self.normalized:
            signs = rng.choice([-1.0, 1.0], ws[0].shape[0])
            ws = [(signs * w.T).T for w in ws]
        bound = {"fp32": 2e-5, "fp32x3": 2e-5, "tf32": 2e-3, "bf16": 2e-2}[way.precision]
        loose = dict.fromkeys(("y0", "dx0", "dw0", "dw1", "dx1", "inv_std", "w1"), bound)
        return Case(layer, xs, ws, way=way, bounds=loose, rng=rng)


def joined(
    text: str, shapes: Sequence[Sequence[int]], relu: bool = False, added: bool = False, normalized: bool = False
) -> Layer:
    """The layer of the text, or a BatchNorm and its Scale, with a sum and a ReLU where these are asked for."""
    layer = layer_of(text or 'type: "BatchNorm"', *shapes)
    if normalized:
        layer = BatchNormScale(layer, layer_of('type: "Scale" scale_param { bias_term: true }', *shapes), None)
    shape = layer.tops[0].shape
    after = layer_of('type: "ReLU"', shape) if relu else None
    if added:
        return Summed(layer, layer_of('type: "Eltwise"', shape, shape), 1, after)
    return Rectified(layer, after) if after else layer


def _convolution(kind: str, outputs: int, settings: str, *shape: int, **more: Any) -> Small:
    return Small(f'type: "{kind}" convolution_param {{ num_output: {outputs} {settings} }}', [shape], **more)


IMAGE = (2, 4, 5, 3)
ODD = (2, 3, 5, 3)
SMALL = {
    "convolution by fours": _convolution("Convolution", 8, "kernel_size: 3 pad: 1 stride: 2", 2, 4, 5, 4),
    "convolution": _convolution("Convolution", 5, "kernel_size: 2 dilation: 2", 2, 3, 5, 4),
    "convolution, grouped": _convolution("Convolution", 6, "kernel_size: 3 pad: 1 group: 3", 1, 3, 4, 4),
    "convolution in parts": _convolution("Convolution", 4, "kernel_size: 1", 4, 4, 12, 12),
    "deconvolution": _convolution("Deconvolution", 4, "kernel_size: 3 stride: 2", 1, 4, 4, 3),
    "a wide product": _convolution("Convolution", 40, "kernel_size: 1", 1, 4, 9, 15),
    "a wide odd product": _convolution("Convolution", 41, "kernel_size: 1", 1, 3, 9, 15),
    "inner product": Small('type: "InnerProduct" inner_product_param { num_output: 5 }', [(6, 7)]),
    "convolution and ReLU": _convolution("Convolution", 40, "kernel_size: 3 pad: 1 stride: 2", 2, 4, 5, 4, relu=True),
    "convolution and ReLU, grouped": _convolution("Convolution", 16, "kernel_size: 1 group: 2", 1, 6, 7, 13, relu=True),
    "convolution and ReLU from y": _convolution("Convolution", 5, "kernel_size: 2", 2, 3, 5, 4, relu=True, kept="y0"),
    "convolution in a sum": _convolution("Convolution", 40, "kernel_size: 3 pad: 1 stride: 2", 2, 4, 5, 4, relu=True,
                                     added=True),
    "odd convolution in a sum": _convolution("Convolution", 5, "kernel_size: 2", 2, 3, 5, 4, added=True),
    "inner product and ReLU": Small('type: "InnerProduct" inner_product_param { num_output: 5 }', [(6, 7)], relu=True),
    "ReLU": Small('type: "ReLU"', [ODD]),
    "ReLU from y": Small('type: "ReLU"', [ODD], kept="y0"),
    "Clip": Small('type: "Clip" clip_param { min: 0 max: 1 }', [ODD]),
    "Clip from x": Small('type: "Clip" clip_param { min: 0 max: 1 }', [ODD], kept="x0"),
    "ELU": Small('type: "ELU"', [ODD]),
    "Sigmoid": Small('type: "Sigmoid"', [ODD]),
    "TanH": Small('type: "TanH"', [ODD]),
    "AbsVal": Small('type: "AbsVal"', [ODD]),
    "Power": Small('type: "Power" power_param { power: 2 }', [ODD]),
    "linear Power": Small('type: "Power" power_param { scale: 2 }', [ODD]),
    "Exp": Small('type: "Exp"', [ODD]),
    "Log": Small('type: "Log"', [ODD]),
    "BNLL": Small('type: "BNLL"', [ODD]),
    "Swish": Small('type: "Swish"', [ODD]),
    "Threshold": Small('type: "Threshold"', [ODD]),
    "PReLU": Small('type: "PReLU"', [ODD]),
    "PReLU by fours": Small('type: "PReLU"', [IMAGE]),
    "max pooling": Small('type: "Pooling" pooling_param { kernel_size: 3 stride: 2 }', [ODD]),
    "max pooling by fours": Small('type: "Pooling" pooling_param { kernel_size: 2 pad: 1 }', [IMAGE]),
    "mean pooling": Small('type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 }', [ODD]),
    "mean pooling by fours": Small('type: "Pooling" pooling_param { pool: AVE kernel_size: 2 pad: 1 }', [IMAGE]),
    "dropout": Small('type: "Dropout"', [ODD]),
    "sum": Small('type: "Eltwise" eltwise_param { coeff: 1 coeff: 2 }', [ODD, ODD]),
    "sum and ReLU": Small('type: "Eltwise" eltwise_param { coeff: 1 coeff: -2 }', [ODD, ODD], relu=True),
    "sum and ReLU from y": Small('type: "Eltwise" eltwise_param { coeff: 1 coeff: -1 }', [ODD, ODD], kept="y0",
                                 relu=True),
    "product": Small('type: "Eltwise" eltwise_param { operation: PROD }', [ODD, ODD, ODD]),
    "maximum": Small('type: "Eltwise" eltwise_param { operation: MAX }', [ODD, ODD]),
    "BatchNorm": Small('type: "BatchNorm"', [(4, 3, 12, 17)]),
    "BatchNorm by fours": Small('type: "BatchNorm"', [IMAGE]),
    "BatchNorm in a sum": Small("", [ODD], relu=True, added=True, normalized=True),
    "BatchNorm by fours in a sum": Small("", [IMAGE], relu=True, kept="y0", added=True, normalized=True),
    "BatchNorm of averages": Small('type: "BatchNorm" batch_norm_param { use_global_stats: true }', [ODD]),
    "Scale": Small('type: "Scale" scale_param { bias_term: true }', [ODD]),
    "Scale by fours": Small('type: "Scale" scale_param { bias_term: true }', [IMAGE]),
    "Scale by place": Small('type: "Scale" scale_param { bias_term: true num_axes: 2 }', [ODD]),
    "LRN": Small('type: "LRN" lrn_param { local_size: 3 alpha: 1 }', [ODD]),
    "LRN in a channel": Small('type: "LRN" lrn_param { local_size: 3 alpha: 1 norm_region: WITHIN_CHANNEL }', [ODD]),
    "concat": Small('type: "Concat"', [ODD, IMAGE]),
    "concat by fours": Small('type: "Concat"', [IMAGE, IMAGE]),
    "flatten": Small('type: "Flatten"', [ODD]),
    "reshape": Small('type: "Reshape" reshape_param { shape { dim: 2 dim: 5 dim: 3 dim: 3 } }', [ODD]),
    "tile": Small('type: "Tile" tile_param { tiles: 2 }', [ODD]),
    "tile by fours": Small('type: "Tile" tile_param { tiles: 2 }', [IMAGE]),
    "crop": Small('type: "Crop" crop_param { axis: 2 offset: 1 }', [ODD, (2, 3, 3, 2)]),
    "crop by fours": Small('type: "Crop" crop_param { axis: 2 offset: 1 }', [IMAGE, (2, 4, 3, 2)]),
    "interp": Small('type: "Interp" interp_param { height: 7 width: 2 }', [ODD]),
    "interp by fours": Small('type: "Interp" interp_param { height: 3 width: 5 }', [IMAGE]),
    "softmax": Small('type: "Softmax"', [(9, 35)]),
    "softmax of planes": Small('type: "Softmax"', [(2, 3, 5)]),
    "softmax loss": Small('type: "SoftmaxWithLoss" top: "l" top: "p"', [(9, 35), (9,)], labels=1),
    "softmax loss, ignoring": Small(
        'type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', [(2, 3, 5), (2, 5)], labels=1),
    "accuracy": Small('type: "Accuracy" top: "a" top: "c"', [(9, 35), (9,)], labels=1),
    "accuracy of planes": Small('type: "Accuracy"', [(2, 3, 5), (2, 5)], labels=1),
    "Euclidean": Small('type: "EuclideanLoss"', [ODD, ODD]),
    "cross entropy": Small('type: "SigmoidCrossEntropyLoss"', [ODD, ODD], labels=1),
    "hinge": Small('type: "HingeLoss"', [(5, 3), (5,)], labels=1),
    "multinomial": Small('type: "MultinomialLogisticLoss"', [(5, 3), (5,)], labels=1),
    "contrastive": Small('type: "ContrastiveLoss"', [(9, 35), (9, 35), (9,)], labels=2),
    "sums": Small('type: "Reduction" reduction_param { axis: 1 }', [ODD]),
    "sums of magnitudes": Small('type: "Reduction" reduction_param { operation: ASUM axis: 2 }', [ODD]),
    "sums of squares": Small('type: "Reduction" reduction_param { operation: SUMSQ }', [ODD]),
    "argmax": Small('type: "ArgMax" argmax_param { top_k: 2 }', [ODD]),
}  # fmt: skip

# text of the convolution_param (beside num_output), num_output, shape of x
CONVOLUTIONS = {
    "one by one": ("kernel_size: 1", 20, (2, 36, 7, 13)),
    "one by one, strided": ("kernel_size: 1 stride: 2", 72, (1, 20, 13, 7)),
    "three by three": ("kernel_size: 3 pad: 1", 36, (2, 20, 7, 7)),
    "first layer": ("kernel_size: 7 stride: 2 pad: 3", 12, (2, 3, 23, 15)),
    "five by five without pad": ("kernel_size: 5", 20, (2, 1, 13, 13)),
    "even kernel, wide pad": ("kernel_size: 2 pad: 3", 3, (1, 4, 7, 6)),
    "width one": ("kernel_h: 3 kernel_w: 1 pad_h: 1 pad_w: 0 stride: 1", 20, (2, 4, 13, 1)),
    "stride three and two": ("kernel_size: 3 stride_h: 3 stride_w: 2 pad: 1", 4, (2, 20, 13, 13)),
    "stride beyond the kernel": ("kernel_h: 2 kernel_w: 1 stride: 3", 4, (1, 4, 13, 12)),
    "dilated": ("kernel_size: 3 pad: 2 dilation: 2", 8, (2, 4, 13, 7)),
    "dilated by the stride": ("kernel_size: 3 pad: 2 dilation: 2 stride: 2", 8, (1, 4, 9, 8)),
    "dilation and stride without a common factor": (
        "kernel_h: 3 kernel_w: 2 pad: 1 dilation: 3 dilation: 2 stride: 2", 20, (2, 3, 13, 11)),
    "two groups": ("kernel_size: 3 pad: 1 group: 2", 36, (2, 72, 7, 5)),
    "a group a channel": ("kernel_size: 3 pad: 1 stride: 2 group: 20", 20, (2, 20, 7, 7)),
    "more outputs than inputs in a group": ("kernel_size: 1 group: 4", 12, (1, 4, 7, 7)),
    "long sum": ("kernel_size: 1", 20, (1, 500, 2, 3)),
    "one pixel": ("kernel_size: 3", 72, (1, 36, 3, 3)),
    "parts of the weight gradient": ("kernel_size: 3 pad: 1", 4, (6, 4, 13, 13)),
    "a tile of 128 outputs": ("kernel_size: 1", 140, (3, 8, 9, 5)),
}  # fmt: skip

# The same, for a convolution and its ReLU: a byte of the mask holds eight channels of a pixel, or parts of two pixels.
RECTIFIED = {
    "whole bytes of two tiles": ("kernel_size: 1", 136, (3, 8, 9, 5)),
    "whole bytes in two groups": ("kernel_size: 3 pad: 1 group: 2", 48, (2, 6, 7, 5)),
    "whole bytes, three channels": ("kernel_size: 7 stride: 2 pad: 3", 64, (1, 3, 23, 15)),
    "bytes across groups": ("kernel_size: 1 group: 4", 16, (1, 8, 7, 13)),
    "bytes across pixels": ("kernel_size: 3 pad: 1", 36, (2, 20, 7, 7)),
}

# precision: bound of forward and data gradient, of the weight gradient's long sums, and what it cannot be below
BOUNDS = {"fp32x3": (2e-6, 1e-5, 0), "tf32": (5e-4, 5e-4, 1e-4), "bf16": (4e-3, 4e-3, 1e-3)}
