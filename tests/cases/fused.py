"""FUSED: geometries of kernels that compute more than the op of a layer, or that check others, by what they compute."""

from __future__ import annotations

from layermem.ops import ConvProblem, Window


def problem_of(
    n: int,
    c: int,
    k: int,
    size: int | tuple[int, int],
    kernel: int = 3,
    stride: int = 1,
    pad: int | None = None,
    dilation: int = 1,
    groups: int = 1,
) -> ConvProblem:
    """A convolution of images [c, *size], whose sides have the same window; `pad` is half a kernel if it is None."""
    pad = kernel // 2 if pad is None else pad
    sides = size if isinstance(size, tuple) else (size, size)
    return ConvProblem(n, c, k, *(Window(side, kernel, stride, pad, dilation) for side in sides), groups)


def first_layer(outputs: int) -> ConvProblem:
    """A small convolution of images of three channels, which a kernel by patches computes."""
    return problem_of(2, 3, outputs, 19, 5, 2)


MOMENTS = {
    "one tile of some rows": problem_of(1, 4, 8, 5, 1),
    "rows of many tiles": problem_of(3, 8, 40, 15, 1),
    "columns of two tiles": problem_of(2, 4, 136, 9, 1),
    "strided": problem_of(2, 4, 36, 17, stride=2),
    "groups": problem_of(2, 8, 24, 9, groups=2),
    "one float at a time": problem_of(2, 3, 7, 12),
    "a group of rows alone": problem_of(1, 4, 4, 13, 1),  # 169 = 128 + 32 + 9
    "octets": problem_of(3, 16, 136, 11),
    "groups of octets": problem_of(2, 16, 48, 9, groups=2),
}
OF_OCTETS = ["rows of many tiles", "octets", "groups of octets"]
FUSED = {
    "fprop + moments": MOMENTS,
    "dgrad + sums": {name: problem for name, problem in MOMENTS.items() if problem.stride == (1, 1)} | {
        "channels of two tiles": problem_of(3, 136, 8, 9, 1),
        "a map of taps": problem_of(2, 40, 12, 11),
        "groups of quads": problem_of(2, 24, 16, 9, groups=2),
        "depthwise": problem_of(2, 8, 8, 9, groups=8),
        "in phases": problem_of(2, 36, 4, 17, stride=2),
    },
    "dgrad + mask": {
        "whole bytes of two tiles": problem_of(3, 136, 40, (9, 5), 1),
        "in two groups": problem_of(2, 48, 12, (7, 5), groups=2),
        "one by one, strided": problem_of(2, 64, 64, (7, 9), 1, 2),  # pixels under no window are masked too
        "by threes": problem_of(2, 8, 9, (9, 6), stride=2),
        "bytes of two pixels": problem_of(2, 4, 8, 5, 2, pad=0),
        "depthwise": problem_of(2, 40, 40, (7, 5), groups=40),
        "depthwise, by two": problem_of(2, 16, 16, (7, 6), stride=2, groups=16),
        "depthwise, dilated": problem_of(1, 8, 8, (7, 6), pad=0, dilation=2, groups=8),
        "groups of eight, by two": problem_of(1, 24, 24, (7, 5), stride=2, groups=3),
        "one float at a time": problem_of(1, 7, 5, (6, 5)),
    },
    "tiles of weights": {
        "columns beyond": ConvProblem(1, 264, 320, Window(5, 2), Window(5, 1)),  # and k's, of fprop
        "groups": ConvProblem(1, 80, 128, Window(5, 1), Window(5, 3), groups=2),
    },
    "naive products": {
        "groups, strides, pads and dilations": ConvProblem(2, 6, 4, Window(7, 3, 2, 2, 2), Window(9, 2, 3, 1), 2),
        "an inner product": problem_of(3, 35, 6, 1, 1),
        "stride beyond the kernel": ConvProblem(2, 5, 3, Window(8, 1, 3), Window(5, 2, 4, 1)),
        "parts of the weight gradient": ConvProblem(3, 1, 2, Window(70, 1), Window(72, 2, 1, 1)),
    },
    "fprop by a patch": {
        "wide windows": problem_of(2, 3, 96, (41, 39), 11, 4, pad=0),
        "rows of four floats": problem_of(2, 3, 64, 32, 7, 2),
        "odd rows": problem_of(3, 3, 76, (25, 23), 7, 2),
        "tiles of many images": problem_of(9, 1, 48, 9, 5, pad=0),
        "two groups, dilated": ConvProblem(2, 6, 96, Window(15, 3, 1, 2, 2), Window(17, 3, 2, 1), 2),
        "pad below and right alone": ConvProblem(2, 3, 50, Window(14, 4, 3, 1), Window(11, 3, 4, 2)),
        "two tiles of outputs": problem_of(1, 3, 130, 14),
        "single outputs": problem_of(2, 2, 45, 13, 5),
    },
}  # fmt: skip
