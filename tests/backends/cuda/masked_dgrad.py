"""A dgrad that ends with the backward of a ReLU, beside the two ops."""

from __future__ import annotations

import numpy as np

from layermem.ops import ReluMask
from tests.backends.cuda.harness import Memory, Way, layer_of, run_op

MASKS = {
    "whole bytes of two tiles": ("kernel_size: 1", 40, (3, 136, 9, 5)),
    "in two groups": ("kernel_size: 3 pad: 1 group: 2", 12, (2, 48, 7, 5)),
    "one by one, strided": ("kernel_size: 1 stride: 2", 64, (2, 64, 7, 9)),  # pixels under no window are masked too
    "by threes": ("kernel_size: 3 stride: 2 pad: 1", 9, (2, 8, 9, 6)),
    "bytes of two pixels": ("kernel_size: 2", 8, (2, 4, 5, 5)),
    "depthwise": ("kernel_size: 3 pad: 1 group: 40", 40, (2, 40, 7, 5)),
    "depthwise, by two": ("kernel_size: 3 pad: 1 stride: 2 group: 16", 16, (2, 16, 7, 6)),
    "depthwise, dilated": ("kernel_size: 3 dilation: 2 group: 8", 8, (1, 8, 7, 6)),
    "groups of eight, by two": ("kernel_size: 3 pad: 1 stride: 2 group: 3", 24, (1, 24, 7, 5)),
    "one float at a time": ("kernel_size: 3 pad: 1", 5, (1, 7, 6, 5)),
}


def stored(memory: Memory, values: np.ndarray, storage: str) -> np.ndarray:
    """In fp32, or the upper halves of these: bfloat16."""
    wide = np.asarray(values, np.float32)
    return memory.stored(
        (wide.view(np.uint32) >> 16).astype(np.uint16) if storage else wide, np.uint16 if storage else np.float32
    )


def masked_dgrad(
    name: str, accumulate: bool, way: Way, rng: np.random.Generator, storage: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """dx0 of a dgrad and the ReLU backward behind it: as one op, and one after the other."""
    settings, outputs, shape = MASKS[name]
    layer = layer_of(f'type: "Convolution" convolution_param {{ num_output: {outputs} {settings} }}', shape)
    memory, (top,) = Memory(), layer.tops
    dy, w, before = (rng.standard_normal(s) for s in (top.shape, layer.params[0].tensor.shape, shape))
    before[0, 0, 0, 0] = np.nan  # is cleared too, and not multiplied
    bits = rng.integers(0, 256, -(-before.size // 8), np.uint8)
    bits[0] &= 0xFE
    operands = {"dy0": stored(memory, dy, storage), "w0": memory.stored(w, np.float32)}
    together, apart = (stored(memory, before, storage) for _ in range(2))
    mask = memory.stored(bits, np.uint8)
    adds, how = ["dx0"] if accumulate else [], {"way": way, "storage": storage}
    run_op(layer.record, "dgrad", {**operands, "dx0": together, "bottom_mask": mask}, accumulates=adds, **how)
    run_op(layer.record, "dgrad", {**operands, "dx0": apart}, accumulates=adds, **how)
    run_op(ReluMask(layer.bottoms[0]), "relu_backward", {"dy0": apart, "mask": mask}, **how)
    return together, apart
