"""Permute: the elements of a blob, counted through its axes in another order."""

from __future__ import annotations

from dataclasses import dataclass

from layermem.ops.base import OpRecord, Tensor


@dataclass(frozen=True)
class Permute(OpRecord):
    """The elements of x in Caffe's order as an array of `sizes`, transposed: axis i of y is axis order[i] of that.

    sizes   the axes of x, some of them cut into several; x and y may join them again in their own shapes

    forward   y0 from x0        backward   dx0 from dy0
    """

    x: Tensor
    y: Tensor
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def strides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The distance between neighbours along each of `sizes`, in the memory of x and in that of y."""
        of_x = strides_of_parts(self.x, self.sizes)
        of_y = strides_of_parts(self.y, tuple(self.sizes[axis] for axis in self.order))
        return of_x, tuple(of_y[self.order.index(axis)] for axis in range(len(self.order)))

    @property
    def view(self) -> bool:
        """Whether both hold every element at the same place."""
        of_x, of_y = self.strides
        return all(size == 1 or a == b for size, a, b in zip(self.sizes, of_x, of_y, strict=True))


def strides_of_parts(tensor: Tensor, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The distance in memory along each of `sizes`, which cut the axes of `tensor`, in Caffe's order, into parts."""
    strides: list[int] = []
    parts = list(sizes)
    for axis in reversed(range(len(tensor.shape))):
        _, size, step = tensor.around(axis)
        covered = 1
        while parts and covered < size:
            strides.append(step * covered)
            covered *= parts.pop()
    return tuple(reversed(strides + [1] * len(parts)))  # what is left has size 1
