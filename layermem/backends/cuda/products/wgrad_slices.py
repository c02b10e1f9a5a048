"""The weight gradient of a convolution, slice by slice of the batch, with the bits of the whole batch.

conv_wgrad sums the batch in splits, which sum_parts adds in order: so slices add each split as soon as it is complete,
and the next slice continues an incomplete one.  Within a split, conv_wgrad sums stages of DEPTH windows.  Slices end
between images, possibly within a stage: then the slice passes its windows of that stage to the next slice, as rows of
two matrices, and once the stage is complete it is summed as the weight gradient of an InnerProduct.

    slices     | 0 1 | 2 3 | 4 5 |     splits of three images
    complete   |     |  0  |  1  |     sums        carried as ".carry": the gradient of these, or of the only split
    open       |  0  |  1  |     |     open sums   carried as ".open", if some slice ends within a split
                                       maps_rows   up to DEPTH windows of the maps, [DEPTH][K], carried as ".open"
                                       image_rows  their pixels of the image, [DEPTH][g][kh kw][C/g]; both exist if
                                                   some slice ends within a stage

The workspace holds consecutive splits that one slice completes, until sum_parts adds them.  If SplitK cuts each image
into pieces, each piece is summed as a split is, and every slice completes all pieces of its images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT, Workspace, suffix
from layermem.backends.cuda.products.gemm_tiles import DEPTH, GemmEngine, windows
from layermem.backends.cuda.products.wgrad import (
    IN_ORDER,
    Frames,
    ImageSlice,
    SplitK,
    conv_wgrad,
    conv_wgrad_workspace_bytes,
    split_of,
    sum_parts,
    wgrad_splits,
)
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch
from layermem.ops import BatchSlice, ConvProblem, Window

PIXEL = Window(1, 1)


@dataclass(frozen=True)
class WgradSlice(ImageSlice):
    """The weight gradient over the images of a slice; all slices have as many images.

    sums, open, workspace   device addresses
    frames                  of these images
    """

    sums: int = 0
    open: int = 0
    workspace: int = 0
    frames: Frames = IN_ORDER

    @cached_property
    def split(self) -> SplitK:
        return split_of(replace(self.problem, n=self.images))

    @property
    def has_one_split(self) -> bool:
        return self.split.parts == 1

    @property
    def window_elements(self) -> int:
        """Elements of the image in a window, over all groups."""
        return prod(self.problem.kernel) * self.problem.c

    # -- memory --------------------------------------------------------------------------------------------------------

    @property
    def sums_bytes(self) -> int:
        """Bytes of the gradient."""
        return FLOAT * self.problem.filter.count

    def open_addresses(self) -> tuple[int, int, int, int]:
        """Addresses of the sums of an incomplete split, of maps_rows and of image_rows; and the bytes of all."""
        memory = Workspace(self.open)
        rests = {end % self.split.images_each for end in range(self.problem.n, self.images, self.problem.n)}
        leaves_split = any(rests) and not self.has_one_split
        sums = memory.take(self.sums_bytes * leaves_split)
        rows = DEPTH if any(images * windows(self.problem) % DEPTH for images in rests) else 0
        maps_rows, image_rows = (memory.take(FLOAT * rows * width) for width in (self.problem.k, self.window_elements))
        return self.sums if self.has_one_split else sums, maps_rows, image_rows, memory.nbytes

    @property
    def workspace_bytes(self) -> int:
        """Bytes for splits that are added to the gradient after all have been summed, and for a split that begins while
        another continues from the open sums."""
        if self.has_one_split or not self.complete or self.completes_one_alone:
            return 0
        return self.sums_bytes * (len(self.complete) * self.split.pieces + self.exchanges_open)

    # -- splits --------------------------------------------------------------------------------------------------------

    @property
    def touched(self) -> range:
        return range(self.first // self.split.images_each, ceil_div(self.end, self.split.images_each))

    @property
    def complete(self) -> range:
        """Splits that end in this slice."""
        ends = self.is_last or self.end % self.split.images_each == 0
        return self.touched if ends else self.touched[:-1]

    @property
    def completes_one_alone(self) -> bool:
        """Whether one split ends here and no other begins: then conv_wgrad adds it to the carry."""
        return len(self.touched) == len(self.complete) == self.split.pieces == 1 and not self.is_last

    @property
    def exchanges_open(self) -> bool:
        """Whether an open split ends here, and another one is left open."""
        return bool(self.complete) and self.first % self.split.images_each > 0 and self.complete != self.touched

    # -- windows, counted from the first image of the whole batch ------------------------------------------------------

    def split_at(self, image: int) -> tuple[int, int, int]:
        """The split that holds an image: its number, its first window, and the window after its last."""
        number, each = image // self.split.images_each, windows(self.problem)
        begin = number * self.split.images_each
        return number, begin * each, min(begin + self.split.images_each, self.images) * each

    @cached_property
    def splits(self) -> range:
        """Splits with a whole stage, or their end, in this slice."""
        each = windows(self.problem)

        def has_stage(number: int) -> bool:
            _, begin, end = self.split_at(number * self.split.images_each)
            before = ceil_div(max(self.first * each - begin, 0), DEPTH) * DEPTH
            behind = end - begin if self.end * each >= end else (self.end * each - begin) // DEPTH * DEPTH
            return behind > before

        found = [number for number in self.touched if has_stage(number)]
        return range(found[0], found[-1] + 1) if found else range(0)

    # -- launches ------------------------------------------------------------------------------------------------------

    def wgrad(self, engine: GemmEngine, dw: int, maps: int, image: int, accumulate: bool) -> Iterator[Launch]:
        """Add these images to the carry; the last slice writes dw, or adds to it."""
        target, adds = self._target(dw, accumulate)
        open_in, *_ = self.open_addresses()
        open_out = self.workspace + self.sums_bytes * len(self.complete) if self.exchanges_open else open_in
        if self._windows_left():
            # The last slice only reads the sums of a single split, unless it adds them to what dw holds.
            stage_sums = dw if self.has_one_split and self.is_last and not accumulate else open_in
            stage = (stage_sums, False) if self._goes_on(self.touched.start) else (target, adds)
            yield from self._complete_stage(engine, open_in, *stage, maps, image)
            open_in = stage_sums
        if self.splits:
            behind = self.sums_bytes * (self.splits.start - self.touched.start)
            pieces = range(self.splits.start * self.split.pieces, self.splits.stop * self.split.pieces)
            yield wgrad_splits(
                engine,
                self.problem,
                self.split,
                target + behind,
                maps,
                image,
                pieces,
                images=self.images,
                first=self.first,
                open_in=open_in,
                open_out=open_out,
                accumulate=adds,
                frames=self.frames,
            )
        yield from self._leave_rest(engine, maps, image)
        if self.workspace_bytes:
            moves = self.exchanges_open and self.touched[-1] in self.splits
            yield sum_parts(
                self.problem,
                dw if self.is_last else self.sums,
                target,
                len(self.complete) * self.split.pieces,
                accumulate and self.is_last,
                sum_before=self.sums if self.touched.start else 0,
                open_out=open_in if moves else 0,
            )

    def _target(self, dw: int, accumulate: bool) -> tuple[int, bool]:
        """The address for splits that end here, and whether they are added to its content."""
        if self.has_one_split:
            return dw, accumulate
        if self.completes_one_alone:
            return self.sums, self.touched.start > 0
        return self.workspace, False

    def _goes_on(self, number: int) -> bool:
        """Whether a split is still incomplete after the stage that this slice completes first."""
        return number in self.splits or number not in self.complete

    def _windows_left(self) -> int:
        """Windows that earlier slices have left of an incomplete stage."""
        at = self.first * windows(self.problem)
        _, begin, _ = self.split_at(self.first)
        return (at - begin) % DEPTH

    def _complete_stage(
        self, engine: GemmEngine, open_in: int, dw: int, accumulate: bool, maps: int, image: int
    ) -> Iterator[Launch]:
        """Gather the missing windows of the stage in progress; if that completes it, sum it from `open_in` to dw."""
        each = windows(self.problem)
        _, begin, end = self.split_at(self.first)
        at, earlier = self.first * each, self._windows_left()
        count = min(DEPTH - earlier, min(end, self.end * each) - at)
        yield self._gather(engine, maps, image, 0, count, earlier)
        if earlier + count < DEPTH and at + count < end:
            return
        _, maps_rows, image_rows, _ = self.open_addresses()
        windows_before = at - earlier - begin
        images = windows_before + earlier + count
        stage = ConvProblem(earlier + count, self.window_elements, self.problem.k, PIXEL, PIXEL, self.problem.groups)
        split = SplitK(images, 1)
        yield wgrad_splits(
            engine.on_fp32,
            stage,
            split,
            dw,
            maps_rows,
            image_rows,
            range(1),
            images=images,
            first=windows_before,
            open_in=open_in,
            accumulate=accumulate,
        )

    def _leave_rest(self, engine: GemmEngine, maps: int, image: int) -> Iterator[Launch]:
        """Gather the windows after the last whole stage for the next slice."""
        each = windows(self.problem)
        _, begin, end = self.split_at(self.end - 1)
        first, behind = self.first * each, self.end * each
        rest = (behind - begin) % DEPTH
        if rest and behind < end and behind - rest >= first:
            yield self._gather(engine, maps, image, behind - rest - first, rest, 0)

    def _gather(self, engine: GemmEngine, maps: int, image: int, first: int, count: int, row: int) -> Launch:
        """Gather `count` windows of this slice, from number `first` on, as rows from `row` on, in fp32."""
        problem, window_elements = self.problem, self.window_elements
        _, maps_rows, image_rows, _ = self.open_addresses()
        (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w) = problem.stride, problem.pad, problem.dilation
        return launch(
            "im2col",
            f"gather_windows{suffix(engine.storage)}",
            "GatherWindowsArgs",
            ceil_div(count * (problem.k + window_elements), THREADS),
            maps_rows=maps_rows + FLOAT * row * problem.k,
            image_rows=image_rows + FLOAT * row * window_elements,
            maps=maps,
            image=image,
            height=problem.h,
            width=problem.w,
            channels=problem.c,
            outputs=problem.k,
            kernel_w=problem.kernel[1],
            stride_h=stride_h,
            stride_w=stride_w,
            pad_h=pad_h,
            pad_w=pad_w,
            dilation_h=dilation_h,
            dilation_w=dilation_w,
            by_row=divider(window_elements),
            by_group=divider(window_elements // problem.groups),
            by_channels=divider(problem.c // problem.groups),
            by_kernel_w=divider(problem.kernel[1]),
            by_outputs=divider(problem.k),
            by_window=divider(windows(problem)),
            by_columns=divider(problem.out_w),
            first=first,
            count=count,
            frames=self.frames.struct,
        )


def conv_wgrad_carry_bytes(problem: ConvProblem) -> int:
    """Bytes of the carry: the gradient itself."""
    return FLOAT * problem.filter.count


def conv_wgrad_open_bytes(problem: ConvProblem, batch_slice: BatchSlice) -> int:
    """Bytes of the open sums between slices; `problem` has the images of `batch_slice`."""
    *_, nbytes = WgradSlice.of(problem, batch_slice).open_addresses()
    return nbytes


def conv_wgrad_workspace_bytes_of(problem: ConvProblem, batch_slice: BatchSlice | None, parts: int = 0) -> int:
    """Bytes of the workspace; `parts` as for conv_wgrad_workspace_bytes."""
    return (
        conv_wgrad_workspace_bytes(problem, parts)
        if batch_slice is None
        else WgradSlice.of(problem, batch_slice).workspace_bytes
    )


class WgradMemory(NamedTuple):
    """Addresses of the workspace and of the carries of slices."""

    workspace: int
    sums: int = 0
    open: int = 0


def conv_wgrad_of(
    batch_slice: BatchSlice | None,
    engine: GemmEngine,
    problem: ConvProblem,
    dw: int,
    maps: int,
    image: int,
    accumulate: bool,
    memory: WgradMemory,
    frames: Frames = IN_ORDER,
) -> Iterator[Launch]:
    """conv_wgrad of the images of `batch_slice`, if that is given: then only the last slice writes dw."""
    if batch_slice is None:
        yield from conv_wgrad(engine, problem, dw, maps, image, accumulate, memory.workspace, frames=frames)
    else:
        its = replace(WgradSlice.of(problem, batch_slice), **memory._asdict(), frames=frames)
        yield from its.wgrad(engine, dw, maps, image, accumulate)
