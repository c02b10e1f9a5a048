"""Geometries of matrix products by tile, for tools/gpu/large.py: full tiles, partial tiles and long sums."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from layermem.backends.cuda.products.gemm_tiles import DGRAD, FPROP
from layermem.ops import ConvProblem, Window
from tests.cases.fused import first_layer

OF_PATCHES = (180, 100)  # numbers of outputs, each with its own tile
IMAGES, PARTS = 255, 17  # images of the real problems, and parts of their weight gradients
FEW_IMAGES, FEW_PARTS = 14, 2
TAPS, WINDOWS, DEEP = 9, 35, 23  # small problems: windows of an image; more channels are summed
DEEP_IN_PHASES = 127  # because a phase has only some of the taps


class Tile(Protocol):
    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...


class Kind(NamedTuple):
    """Problems whose kernels share a number of elements per access.  Channels and outputs of a group are multiples of
    `units`; for 1 they are odd."""

    name: str
    channels: int
    outputs: int
    units: tuple[int, int]
    stride: int = 1
    groups: int = 1

    def problem(self, product: str, tile: Tile, small: bool) -> ConvProblem:
        if not small:
            return self._problem(IMAGES, self.channels, self.outputs, (14, 14))
        (channels, outputs), images = (above(DEEP, unit) for unit in self.units), tile.m // WINDOWS + 1
        if product == FPROP:
            outputs = above(tile.n, self.units[1])
        elif product == DGRAD:
            channels = above(tile.n, self.units[0])
            outputs = above(DEEP_IN_PHASES, self.units[1]) if self.stride > 1 else outputs
        else:
            images, outputs = FEW_IMAGES, above(tile.m, self.units[1])
            channels = above(tile.n // TAPS, self.units[0])
        return self._problem(images, channels, outputs, (5, 7))

    def _problem(self, images: int, channels: int, outputs: int, maps: tuple[int, int]) -> ConvProblem:
        """Make a problem in which the phases of a stride have different numbers of pixels."""
        rows, columns = (Window(1 + self.stride * (each - 1), 3, self.stride, 1) for each in maps)
        return ConvProblem(images, self.groups * channels, self.groups * outputs, rows, columns, self.groups)


OCTETS = Kind("octets", 136, 264, (8, 8))
ODD = Kind("odd", 133, 131, (1, 1))
FEW_CHANNELS = Kind("few channels", 9, 132, (1, 4))
WORDS = Kind("words", 288, 320, (32, 64))  # widths for data gradients of packed operands by warpgroups
OCTETS_IN_PHASES = Kind("octets in groups with a stride", 136, 264, (8, 8), 2, 2)
WORDS_IN_PHASES = Kind("words in groups with a stride", 288, 320, (32, 64), 2, 2)


def above(count: int, unit: int) -> int:
    """The smallest multiple of `unit` above `count`; for 1 the smallest odd number."""
    return count // unit * unit + unit if unit > 1 else (count + 1) | 1


def patches(outputs: int, small: bool) -> ConvProblem:
    """A problem with an image of few channels, like input data."""
    if small:
        return first_layer(outputs)
    return ConvProblem(64, 3, outputs, Window(61, 7, 2, 3), Window(53, 7, 2, 3))
