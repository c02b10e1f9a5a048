"""Layers that move elements or rename axes without arithmetic.

    Concat   bottoms one after the other along `axis` (1)
    Slice    the bottom cut along `axis` (1), before each slice_point or into equal parts
    Split    the bottom, once per top
    Flatten  axes `axis` (1) to `end_axis` (-1) become one
    Reshape  `shape` in place of `num_axes` (-1: all) axes from `axis` (0): a 0 copies the bottom's axis, one -1 fits
    Tile     the bottom `tiles` times along `axis` (1)
    Silence  does nothing; its bottoms are then no outputs of the net

    memory   stash nothing; backward reads dy only.  A `view`, whose output is its input byte for byte, permits the
             overlay, and its kernel then does nothing
    source   Caffe concat_layer.cpp, slice_layer.cpp, flatten_layer.cpp, reshape_layer.cpp

Axes are Caffe's; memory is channels-last, so a Flatten of N x C x H x W moves elements where C > 1 and H W > 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import DX_OVER_DY, Y_OVER_X, Layer, Message, Overlay, Step, Tensor, layer, roles


def axis_of(layer: Layer, p: Message, legacy: str) -> int:
    """The value of `axis`, or of the unsigned `legacy` field of older nets."""
    if not p.HasField(legacy):
        return layer.axis(p.axis)
    if p.HasField("axis"):
        raise InputError(f"gives both axis and {legacy}; remove {legacy}")
    return layer.axis(getattr(p, legacy))


def with_size(x: Tensor, axis: int, size: int) -> Tensor:
    """The shape of x with another size of one axis."""
    return Tensor((*x.shape[:axis], size, *x.shape[axis + 1 :]))


@layer("Concat")
class Concat(Layer):
    moves_values = True
    record: ops.Concat
    bottom_range = (1, None)

    def setup(self) -> None:
        first = self.bottoms[0]
        along = axis_of(self, self.param.concat_param, "concat_dim")
        for i, x in enumerate(self.bottoms[1:], start=1):
            if len(x.shape) != len(first.shape) or with_size(x, along, 0) != with_size(first, along, 0):
                names = self.param.bottom
                raise InputError(
                    f"joins '{names[0]}' of shape {first} and '{names[i]}' of shape {x} along axis {along}; "
                    "make all other axes equal"
                )
        sizes = [x.shape[along] for x in self.bottoms]
        starts = tuple(accumulate(sizes, initial=0))[:-1]
        self.shares_data = self.shares_diff = len(self.bottoms) == 1
        y = with_size(first, along, sum(sizes))
        self.tops = (y,)
        self.record = ops.Concat(y, self.bottoms, along, starts)

    def forward(self) -> Step:
        overlays = (Y_OVER_X,) if self.record.view else ()
        return Step("forward", roles("x", len(self.bottoms)), ("y0",), overlays=overlays)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(r for r in roles("dx", len(self.bottoms)) if r in wants)
        overlays = (DX_OVER_DY,) if self.record.view else ()
        return (Step("backward", ("dy0",), writes, overlays=overlays),) if writes else ()


@layer("Slice")
class Slice(Layer):
    moves_values = True
    record: ops.Slice
    top_range = (1, None)

    def setup(self) -> None:
        p, x, count = self.param.slice_param, self.bottoms[0], len(self.param.top)
        along = axis_of(self, p, "slice_dim")
        size = x.shape[along]
        starts = (0, *self._points(list(p.slice_point), along, size, count))
        self.shares_data = self.shares_diff = count == 1
        ends = (*starts[1:], size)
        self.tops = tuple(with_size(x, along, end - start) for start, end in zip(starts, ends, strict=True))
        self.record = ops.Slice(x, self.tops, along, starts)

    def _points(self, points: list[int], along: int, size: int, count: int) -> list[int]:
        """Return the start of each top but the first."""
        if not points:
            if size % count:
                raise InputError(
                    f"cuts axis {along} of size {size} into {count} equal tops, which leaves {size % count}; "
                    "give slice_point, or another number of tops"
                )
            return list(range(size // count, size, size // count))
        if len(points) != count - 1:
            raise InputError(f"gives {len(points)} slice_point for {count} tops; give {count - 1}")
        if any(a >= b for a, b in zip([0, *points], [*points, size], strict=True)):
            raise InputError(
                f"has slice_point {spaced(points)} on an axis of size {size}; let them rise from 1 to {size - 1}"
            )
        return points

    def forward(self) -> Step:
        overlays = (Y_OVER_X,) if self.record.view else ()
        return Step("forward", ("x0",), roles("y", len(self.tops)), overlays=overlays)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = (DX_OVER_DY,) if self.record.view else ()
        return (Step("backward", roles("dy", len(self.tops)), ("dx0",), overlays=overlays),)


@layer("Split")
class Split(Layer):
    moves_values = shares_data = True
    top_range = (1, None)

    def setup(self) -> None:
        self.tops = self.bottoms * len(self.param.top)
        self.record = ops.Split(self.bottoms[0], len(self.tops))

    def forward(self) -> Step:
        ys = roles("y", len(self.tops))
        return Step("forward", ("x0",), ys, overlays=tuple(Overlay(y, "x0", "forward") for y in ys))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        dys = roles("dy", len(self.tops))
        overlays = tuple(Overlay("dx0", dy, "gradient") for dy in dys)
        flops = (len(dys) - 1) * self.tops[0].count
        return (Step("backward", dys, ("dx0",), overlays=overlays, flops=flops),)


class AxisReshape(Layer):
    """A layer that gives the same elements other axes."""

    moves_values = True
    record: ops.Reshape

    def setup(self) -> None:
        x, y = self.bottoms[0], Tensor(self.new_shape(self.bottoms[0].shape))
        self.tops = (y,)
        self.record = ops.Reshape(x, y)

    def new_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        raise NotImplementedError

    def forward(self) -> Step:
        overlays = (Y_OVER_X,) if self.record.view else ()
        return Step("forward", ("x0",), ("y0",), overlays=overlays)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        overlays = (DX_OVER_DY,) if self.record.view else ()
        return (Step("backward", ("dy0",), ("dx0",), overlays=overlays),) if "dx0" in wants else ()


@layer("Flatten")
class Flatten(AxisReshape):
    shares_data = shares_diff = True

    def new_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        p = self.param.flatten_param
        first, last = self.axis(p.axis), self.axis(p.end_axis)
        if first > last:
            raise InputError(f"flattens from axis {first} to axis {last}; let axis be at most end_axis")
        return (*shape[:first], prod(shape[first : last + 1]), *shape[last + 1 :])


@layer("Reshape")
class Reshape(AxisReshape):
    shares_data = shares_diff = True

    def new_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        p = self.param.reshape_param
        first, last = self._replaced_axes(p.axis, p.num_axes, len(shape))
        dims = [self._copied_size(shape, first + i) if d == 0 else int(d) for i, d in enumerate(p.shape.dim)]
        if any(d < -1 for d in dims) or dims.count(-1) > 1:
            raise InputError(f"has shape {spaced(p.shape.dim)}; use positive numbers, 0 to copy, and at most one -1")
        known = prod(shape[:first]) * prod(d for d in dims if d != -1) * prod(shape[last:])
        count = prod(shape)
        if -1 in dims:
            if known == 0 or count % known:
                raise InputError(f"cannot fit -1: a bottom of {count} elements is no multiple of {known}; change shape")
            dims[dims.index(-1)], known = count // known, count
        new = (*shape[:first], *dims, *shape[last:])
        if known != count:
            raise InputError(f"turns {Tensor(shape)} ({count} elements) into {Tensor(new)} ({known}); change shape")
        return new

    def _replaced_axes(self, axis: int, num_axes: int, rank: int) -> tuple[int, int]:
        """The axes that `shape` replaces, as a half-open range; a negative `axis` counts from the end, with -1 after
        the last."""
        first = axis if axis >= 0 else rank + axis + 1
        if not 0 <= first <= rank:
            raise InputError(f"names axis {axis}, but its bottom has {rank} axes: use {-rank - 1} to {rank}")
        last = rank if num_axes == -1 else first + num_axes
        if not first <= last <= rank:
            raise InputError(f"replaces {num_axes} axes from axis {first} of {rank}; use num_axes up to {rank - first}")
        return first, last

    def _copied_size(self, shape: tuple[int, ...], at: int) -> int:
        if at >= len(shape):
            raise InputError(f"copies axis {at} with a 0, but its bottom has {len(shape)} axes; write a number")
        return shape[at]


def spaced(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


@layer("Tile")
class Tile(Layer):
    moves_values = True

    def setup(self) -> None:
        p, x = self.param.tile_param, self.bottoms[0]
        along = self.axis(p.axis)
        if p.tiles < 1:
            raise InputError(f"has tiles {p.tiles}; set tile_param {{ tiles }} to at least 1")
        y = with_size(x, along, x.shape[along] * p.tiles)
        self.tops = (y,)
        self.record = ops.Tile(x, y, along, p.tiles)

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",))

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        return (Step("backward", ("dy0",), ("dx0",), flops=self.tops[0].count),) if "dx0" in wants else ()


@layer("Silence")
class Silence(Layer):
    has_gradient = False
    takes_truth = True
    bottom_range = (1, None)
    top_range = (0, 0)

    def setup(self) -> None:
        self.record = ops.Silence()

    def forward(self) -> Step:
        return Step("forward", (), ())
