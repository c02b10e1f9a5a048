"""Permute: the axes of a blob in another order."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from layermem.ops.base import MIXES, Along, OpRecord, Tensor


@dataclass(frozen=True)
class Permute(OpRecord):
    """The elements of x in Caffe's order as an array of `sizes`, transposed: axis i of y is axis order[i] of that.

    sizes   the axes of x, some of them split into several; the shapes of x and y may join these again

    forward   y0 from x0        backward   dx0 from dy0
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def sizes_of_y(self) -> tuple[int, ...]:
        return tuple(self.sizes[axis] for axis in self.order)

    @property
    def plain(self) -> tuple[bool, bool]:
        """Whether `sizes` only split the axes of x, and likewise of y.  If so, strides walk that side in Caffe's order;
        a kernel first copies a side whose memory has another order."""
        return not cuts(self.x, self.sizes), not cuts(self.y, self.sizes_of_y)

    @property
    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The distance between neighbours along each of `sizes`, in x and in y."""
        sides = ((self.x, self.sizes), (self.y, self.sizes_of_y))
        of_x, of_y = (
            strides_of_parts(Tensor((tensor.count,)) if plain else tensor, sizes)
            for (tensor, sizes), plain in zip(sides, self.plain, strict=True)
        )
        return of_x, tuple(of_y[self.order.index(axis)] for axis in range(len(self.order)))

    @property
    def view(self) -> bool:
        """Whether x and y hold every element at the same place."""
        if any(plain and t.interleaved for plain, t in zip(self.plain, (self.x, self.y), strict=True)):
            return False
        of_x, of_y = self.strides
        return all(size == 1 or a == b for size, a, b in zip(self.sizes, of_x, of_y, strict=True))

    def over_items(self, step: str) -> Along:
        """Items may be split if they are the outermost axis of one side, and if axis 0 of the other side joins them
        with the axes around them: with axes in front of them, items of that side lie apart."""
        inputs, outputs = range(len(self.sizes)), self.order  # the axes of both sides, outermost first
        for own, axis, other, axes in ((self.x, 0, self.y, outputs), (self.y, self.order[0], self.x, inputs)):
            before = prod(self.sizes[each] for each in axes[: axes.index(axis)])
            if own.shape[0] == self.sizes[axis] and other.shape[0] % (before * own.shape[0]) == 0:
                stem = "y0" if other is self.y else "x0"
                return Along(scattered=frozenset({stem, f"d{stem}"} if before > 1 else ()))
        return MIXES


def cuts(tensor: Tensor, sizes: tuple[int, ...]) -> bool:
    """Whether `sizes` split the axes of `tensor`, each axis separately."""
    parts = list(sizes)
    for size in reversed(tensor.shape):
        covered = 1
        while parts and covered < size:
            covered *= parts.pop()
        if covered != size:
            return False
    return True


def strides_of_parts(tensor: Tensor, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The distance in memory along each of `sizes`, which split the axes of `tensor`."""
    strides: list[int] = []
    parts = list(sizes)
    for axis in reversed(range(len(tensor.shape))):
        _, size, step = tensor.around(axis)
        covered = 1
        while parts and covered < size:
            strides.append(step * covered)
            covered *= parts.pop()
    return tuple(reversed(strides + [1] * len(parts)))  # remaining axes have size 1
