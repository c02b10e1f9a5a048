"""The weight gradient of a convolution, slice by slice of the batch, with the bits of the whole batch.

conv_wgrad sums a split of the batch in stages of DEPTH windows.  Slices end between images, which may be within a
stage: then the slice leaves its windows of that stage, as rows of two matrices, to the next one, which sums the stage
once it is complete, as the weight gradient of an InnerProduct.  Slices carry

    sums        one copy of the gradient for each split, which conv_wgrad continues
    maps_rows   up to DEPTH windows of the maps, [DEPTH][K]
    image_rows  and what they see of the image, [DEPTH][g][kh kw][C/g]

The last slice adds the copies in their order, as the kernel of the whole batch does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from layermem.backends.cuda.base import FLOAT, Workspace
from layermem.backends.cuda.implicit_gemm import (
    DEPTH,
    Engine,
    Split,
    conv_wgrad,
    split_of,
    sum_parts,
    wgrad_splits,
    windows,
)
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import BatchSlice, ConvProblem, Window

PIXEL = Window(1, 1)


@dataclass(frozen=True)
class WgradSlice:
    """Images `first` .. `first` + problem.n - 1 of the gradient that `split` cuts, over `images` images.

    carry   the address of what slices carry
    """

    problem: ConvProblem
    first: int
    images: int
    carry: int = 0

    @classmethod
    def of(cls, problem: ConvProblem, part: BatchSlice, carry: int = 0) -> WgradSlice:
        """`problem` has the images of `part`: one for each item, or more."""
        each = problem.n // part.count
        return cls(problem, each * part.first, each * part.items, carry)

    @cached_property
    def split(self) -> Split:
        return split_of(replace(self.problem, n=self.images))

    @property
    def end(self) -> int:
        """The image behind the last."""
        return self.first + self.problem.n

    @property
    def seen(self) -> int:
        """Elements of the image that a window sees, in all groups."""
        return prod(self.problem.kernel) * self.problem.c

    def addresses(self) -> tuple[int, int, int, int]:
        """Of sums, maps_rows and image_rows; and the bytes of all."""
        memory = Workspace(self.carry)
        rows = DEPTH if windows(self.problem) % DEPTH else 0
        sums = memory.take(FLOAT * self.split.parts * self.problem.filter.count)
        maps_rows, image_rows = (memory.take(FLOAT * rows * width) for width in (self.problem.k, self.seen))
        return sums, maps_rows, image_rows, memory.nbytes

    # -- windows, counted from the first image of the whole batch ------------------------------------------------------

    def split_at(self, image: int) -> tuple[int, int, int]:
        """The split that holds an image: its number, its first window and the one behind its last."""
        number, each = image // self.split.images_each, windows(self.problem)
        begin = number * self.split.images_each
        return number, begin * each, min(begin + self.split.images_each, self.images) * each

    def splits(self) -> range:
        """Splits of which a whole stage lies in this slice, or their end."""
        each = windows(self.problem)
        touched = range(self.first // self.split.images_each, ceil_div(self.end, self.split.images_each))

        def has_stage(number: int) -> bool:
            _, begin, end = self.split_at(number * self.split.images_each)
            before = ceil_div(max(self.first * each - begin, 0), DEPTH) * DEPTH
            behind = end - begin if self.end * each >= end else (self.end * each - begin) // DEPTH * DEPTH
            return behind > before

        found = [number for number in touched if has_stage(number)]
        return range(found[0], found[-1] + 1) if found else range(0)

    def wgrad(self, engine: Engine, dw: int, maps: int, image: int, accumulate: bool) -> Iterator[Launch]:
        """Adds these images to what slices carry; the last slice writes dw, or adds to it."""
        sums, *_ = self.addresses()
        yield from self._complete_stage(engine, sums, maps, image)
        splits = self.splits()
        if splits:
            yield wgrad_splits(
                engine, self.problem, self.split, sums, maps, image, splits, images=self.images, first=self.first
            )
        yield from self._leave_rest(maps, image)
        if self.end == self.images:
            yield sum_parts(self.problem, dw, sums, self.split.parts, accumulate)

    def _complete_stage(self, engine: Engine, sums: int, maps: int, image: int) -> Iterator[Launch]:
        """The stage that earlier slices began: the windows that it lacks, and its sum once it lacks none."""
        each = windows(self.problem)
        number, begin, end = self.split_at(self.first)
        at = self.first * each
        left = (at - begin) % DEPTH
        if not left:
            return
        count = min(DEPTH - left, min(end, self.end * each) - at)
        yield self._gather(maps, image, 0, count, left)
        if left + count < DEPTH and at + count < end:
            return
        _, maps_rows, image_rows, _ = self.addresses()
        windows_before = at - left - begin
        images = windows_before + left + count
        stage = ConvProblem(left + count, self.seen, self.problem.k, PIXEL, PIXEL, self.problem.groups)
        dw = sums + FLOAT * number * self.problem.filter.count
        split = Split(self.split.tile, images, 1)
        yield wgrad_splits(
            engine, stage, split, dw, maps_rows, image_rows, range(1), images=images, first=windows_before
        )

    def _leave_rest(self, maps: int, image: int) -> Iterator[Launch]:
        """The windows behind the last whole stage, for the next slice."""
        each = windows(self.problem)
        _, begin, end = self.split_at(self.end - 1)
        first, behind = self.first * each, self.end * each
        left = (behind - begin) % DEPTH
        if left and behind < end and behind - left >= first:
            yield self._gather(maps, image, behind - left - first, left, 0)

    def _gather(self, maps: int, image: int, first: int, count: int, row: int) -> Launch:
        """`count` windows of this slice, from number `first` on, as rows from `row` on."""
        problem, seen = self.problem, self.seen
        _, maps_rows, image_rows, _ = self.addresses()
        (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w) = problem.stride, problem.pad, problem.dilation
        return launch(
            "im2col", "gather_windows", "GatherWindowsArgs", ceil_div(count * (problem.k + seen), THREADS),
            maps_rows=maps_rows + FLOAT * row * problem.k, image_rows=image_rows + FLOAT * row * seen, maps=maps,
            image=image, height=problem.h, width=problem.w, channels=problem.c, outputs=problem.k,
            kernel_w=problem.kernel[1], stride_h=stride_h, stride_w=stride_w, pad_h=pad_h, pad_w=pad_w,
            dilation_h=dilation_h, dilation_w=dilation_w, by_row=divider(seen),
            by_group=divider(seen // problem.groups), by_channels=divider(problem.c // problem.groups),
            by_kernel_w=divider(problem.kernel[1]), by_window=divider(windows(problem)),
            by_columns=divider(problem.out_w), first=first, count=count,
        )  # fmt: skip


def conv_wgrad_carry_bytes(problem: ConvProblem, part: BatchSlice) -> int:
    """What slices carry of the weight gradient; `problem` has the images of `part`."""
    *_, nbytes = WgradSlice.of(problem, part).addresses()
    return nbytes


def conv_wgrad_of(
    part: BatchSlice | None, engine: Engine, problem: ConvProblem, dw: int, maps: int, image: int, accumulate: bool,
    memory: int,
) -> Iterator[Launch]:  # fmt: skip
    """conv_wgrad, of the images of `part` if that is given: then `memory` has what slices carry, not the workspace, and
    only the last slice writes dw."""
    if part is None:
        yield from conv_wgrad(engine, problem, dw, maps, image, accumulate, memory)
    else:
        yield from WgradSlice.of(problem, part, memory).wgrad(engine, dw, maps, image, accumulate)
