"""Depthwise convolutions (cuda/depthwise.cu), whose groups have one input channel each (implicit_gemm.is_depthwise):
launches, and parts of wgrad.

They compute in fp32 whatever the precision of products, and so have the same bits in all: memory bounds them.  The
kernel depends on channels and windows alone, the parts of a gradient on the shape of the whole batch.

A weight gradient is summed in parts: of bands of rows, in groups of images.  Slices of the batch may end within a
group: what they leave of it goes on in the next slice, image by image, and parts are added in their order once their
group is complete.

    slices     | 0 1 | 2 3 | 4 5 |     groups of three images
    complete   |     |  0  |  1  |     their parts, in the workspace, are added to the gradient that is carried
    open       |  0  |  1  |     |     sums of the bands of a group, carried behind it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import NamedTuple

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.implicit_gemm import NO_EPILOGUE, SMS, Epilogue, sum_parts
from layermem.backends.cuda.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.backends.cuda.struct_layout import StructValues
from layermem.ops import BatchSlice, ConvProblem
from layermem.utils.units import aligned

CHANNELS, WARP = 32, 32  # of a block, as in cuda/depthwise.cu; threads
MOST_TALL = 8  # rows of strips that follow each other down the columns of a block
FEW_STRIPS = 4  # that a thread of wgrad adds up before their sum is one of its warp
BLOCKS, WARPS = 3 * SMS, 4  # of wgrad that run at once; of each
ANY_RIGHT, ANY_TAPS = 4, 4  # outputs of a strip for any window; taps of a block of wgrad

Size = tuple[int, int]  # rows, columns


class Form(NamedTuple):
    """Kernels for one kind of window, or for any.

    name    behind those of the kernels
    vector  channels of a thread
    fprop   outputs of a strip
    dgrad   cells of one, each of stride x stride pixels; pixels where the window is any
    wgrad   outputs of one, in a row
    """

    name: str
    vector: int
    fprop: Size
    dgrad: Size
    wgrad: int

    @property
    def is_any(self) -> bool:
        return self.name == f"v{self.vector}"

    def strips(self, threads: int) -> int:
        """That so many threads have at once."""
        return threads * self.vector // CHANNELS


FORMS = {  # by kernel and stride
    (3, 1): Form("3x3_s1", 4, (2, 4), (2, 4), 2),
    (3, 2): Form("3x3_s2", 4, (2, 2), (1, 2), 2),
    (5, 1): Form("5x5_s1", 4, (2, 4), (2, 4), 2),
    (5, 2): Form("5x5_s2", 4, (2, 2), (1, 2), 1),
}
ANY = {v: Form(f"v{v}", v, (1, ANY_RIGHT), (1, 1), ANY_RIGHT) for v in (1, 4)}


def form_of(problem: ConvProblem) -> Form:
    """By channels and windows, not by the batch."""
    if problem.k != problem.c or vector_width(problem.c) == 1:
        return ANY[1]
    square = problem.kernel[0] == problem.kernel[1] and problem.stride[0] == problem.stride[1]
    own = FORMS.get((problem.kernel[0], problem.stride[0]))
    return own if own and square and problem.dilation == (1, 1) else ANY[4]


def shape_struct(problem: ConvProblem) -> StructValues:
    """The struct DepthwiseShape."""
    (kernel_h, kernel_w), (stride_h, stride_w) = problem.kernel, problem.stride
    (pad_h, pad_w), (dilation_h, dilation_w) = problem.pad, problem.dilation
    return {
        "images": problem.n, "height": problem.h, "width": problem.w, "channels": problem.c, "maps_h": problem.out_h,
        "maps_w": problem.out_w, "outputs": problem.k, "kernel_h": kernel_h, "kernel_w": kernel_w,
        "stride_h": stride_h, "stride_w": stride_w, "pad_h": pad_h, "pad_w": pad_w, "dilation_h": dilation_h,
        "dilation_w": dilation_w,
    }  # fmt: skip


# -- fprop and dgrad ---------------------------------------------------------------------------------------------------


def fprop(
    problem: ConvProblem, maps: int, image: int, filters: int, epilogue: Epilogue = NO_EPILOGUE, suffix: str = ""
) -> Launch:
    """`suffix`: as CudaCall has it, if image and maps are in 16 bits."""
    form = form_of(problem)
    strips = ceil_div(problem.out_h, form.fprop[0]), ceil_div(problem.out_w, form.fprop[1])
    return _launch(
        f"fprop_{form.name}{suffix}", problem, form, strips, problem.k, maps, image, filters, epilogue
    )  # fmt: skip


def dgrad(
    problem: ConvProblem, image: int, maps: int, filters: int, bias: int = 0, accumulate: bool = False, *,
    kept: int = 0, suffix: str = "",
) -> Launch:  # fmt: skip
    """`kept`: bits of the image, of which those that are not set make elements zero; 0 keeps all."""
    form = form_of(problem)
    strides = (1, 1) if form.is_any else problem.stride
    rows, columns = (
        ceil_div(_cells(size, pad, stride), of_strip)
        for size, pad, stride, of_strip in zip((problem.h, problem.w), problem.pad, strides, form.dgrad, strict=True)
    )
    epilogue = Epilogue(bias, image if accumulate else 0)
    return _launch(
        f"dgrad_{form.name}{suffix}", problem, form, (rows, columns), problem.c, image, maps, filters, epilogue, kept
    )


def _cells(size: int, pad: int, stride: int) -> int:
    """Of `stride` pixels each, counted from the padded border, that the image meets."""
    return (size - 1 + pad) // stride - pad // stride + 1


def _tall(rows: int) -> int:
    """Rows of strips of a band: bands of them add the fewest rows that are not there, and are tall."""
    return min(range(1, MOST_TALL + 1), key=lambda tall: (ceil_div(rows, tall) * tall, -tall))


def _launch(
    function: str, problem: ConvProblem, form: Form, strips: Size, channels: int, y: int, x: int, filters: int,
    epilogue: Epilogue, kept: int = 0,
) -> Launch:  # fmt: skip
    rows, columns = strips
    tall, across = _tall(rows), ceil_div(channels, CHANNELS)
    of_image = ceil_div(rows, tall) * tall * columns
    grid = across * ceil_div(problem.n * of_image, form.strips(THREADS))
    every_h, every_w = (
        stride // gcd(stride, dilation) for stride, dilation in zip(problem.stride, problem.dilation, strict=True)
    )
    return launch(
        "depthwise", f"depthwise_{function}", "DepthwiseArgs", grid, y=y, x=x, filter=filters,
        of=shape_struct(problem), by_across=divider(across), by_image=divider(of_image),
        by_band=divider(tall * columns), by_tall=divider(tall), by_multiplier=divider(problem.k // problem.c),
        by_stride_h=divider(problem.stride[0]), by_stride_w=divider(problem.stride[1]), every_h=every_h,
        every_w=every_w, strips=problem.n * of_image, epilogue={**epilogue._asdict(), "kept": kept},
    )  # fmt: skip


# -- wgrad -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DepthwiseWgrad:
    """Images `first` .. `first` + problem.n - 1 of a weight gradient over `images` images."""

    problem: ConvProblem
    first: int
    images: int

    @classmethod
    def of(cls, problem: ConvProblem, part: BatchSlice | None) -> DepthwiseWgrad:
        """`problem` has the images of `part`, or of the whole batch."""
        if part is None:
            return cls(problem, 0, problem.n)
        each = problem.n // part.count
        return cls(problem, each * part.first, each * part.items)

    # -- parts: by the shape of the whole batch ------------------------------------------------------------------------

    @cached_property
    def form(self) -> Form:
        return form_of(self.problem)

    @property
    def strips_w(self) -> int:
        """Of a row of the maps."""
        return ceil_div(self.problem.out_w, self.form.wgrad)

    @property
    def chunks(self) -> int:
        """Blocks that share the taps."""
        kernel_h, kernel_w = self.problem.kernel
        return kernel_h * ceil_div(kernel_w, ANY_TAPS) if self.form.is_any else 1

    @cached_property
    def warps(self) -> int:
        """Of a part: 1, 2, .. up to those of a block, as long as each thread has some strips."""
        strips, warps = self.problem.out_h * self.strips_w, 1
        while warps < WARPS and strips >= 2 * warps * self.form.strips(WARP) * FEW_STRIPS:
            warps *= 2
        return warps

    @property
    def _blocks(self) -> int:
        """With a part for each image."""
        across = ceil_div(self.problem.k, CHANNELS) * self.chunks
        return across * ceil_div(self.images * self.warps, WARPS)

    @cached_property
    def rows_each(self) -> int:
        """Rows of a band: all, where the images are blocks enough, else bands as make twice as many as run at once."""
        rows = self.problem.out_h
        if self._blocks >= BLOCKS:
            return rows
        least = ceil_div(FEW_STRIPS * self.warps * self.form.strips(WARP), self.strips_w)
        return min(rows, max(least, ceil_div(rows, max(1, 2 * BLOCKS // max(1, self._blocks)))))

    @property
    def bands(self) -> int:
        return max(1, ceil_div(self.problem.out_h, self.rows_each))

    @cached_property
    def images_each(self) -> int:
        """Images of a group: several where images are many, which takes less memory."""
        return 1 if self.bands > 1 else max(1, (self._blocks + BLOCKS // 2) // BLOCKS)

    # -- groups that these images meet ---------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The image behind the last."""
        return self.first + self.problem.n

    @property
    def is_last(self) -> bool:
        return self.end == self.images

    @property
    def groups(self) -> range:
        return range(self.first // self.images_each, ceil_div(self.end, self.images_each))

    @property
    def begins_open(self) -> bool:
        """Whether earlier slices began the first group."""
        return self.first % self.images_each > 0

    @property
    def leaves_open(self) -> bool:
        """Whether the last group goes on in a later slice."""
        return self.end % self.images_each > 0 and not self.is_last

    @property
    def complete(self) -> int:
        """Groups that end here."""
        return len(self.groups) - self.leaves_open

    # -- memory --------------------------------------------------------------------------------------------------------

    @property
    def sums_bytes(self) -> int:
        """Of the gradient."""
        return FLOAT * self.problem.filter.count

    @property
    def is_whole(self) -> bool:
        return self.problem.n == self.images

    @property
    def has_one_part(self) -> bool:
        """Whether that is the gradient."""
        return self.is_whole and self.complete * self.bands == 1

    @property
    def workspace_bytes(self) -> int:
        return 0 if self.has_one_part else self.complete * self.bands * self.sums_bytes

    @property
    def carry_bytes(self) -> int:
        """Of the sum of all groups that are complete, and of the sums of one that is not, where slices leave some."""
        ends = range(self.problem.n, self.images, self.problem.n)
        leaves_some = any(end % self.images_each for end in ends)
        return aligned(self.sums_bytes) + self.bands * self.sums_bytes * leaves_some

    # -- launches ------------------------------------------------------------------------------------------------------

    def launches(
        self, dw: int, maps: int, image: int, accumulate: bool, workspace: int, carry: int = 0, suffix: str = ""
    ) -> Iterator[Launch]:
        """dw = or += the gradient, of the whole batch; of a slice, adds to `carry`, and the last one writes dw."""
        if self.has_one_part:
            yield self._sum(self.groups, dw, maps, image, accumulate=accumulate, suffix=suffix)
            return
        left = carry + aligned(self.sums_bytes)
        # What is left of one group lies where that of the group before lay: another launch reads it.
        exchanges = self.begins_open and self.leaves_open and len(self.groups) > 1
        for groups in (self.groups[:1], self.groups[1:]) if exchanges else (self.groups,):
            behind = (groups.start - self.groups.start) * self.bands * self.sums_bytes
            yield self._sum(groups, workspace + behind, maps, image, begun=left, left=left, suffix=suffix)
        if self.complete:
            yield sum_parts(
                self.problem, dw if self.is_last else carry, workspace, self.complete * self.bands,
                accumulate and self.is_last, begun=carry if self.groups.start else 0,
            )  # fmt: skip

    def _sum(
        self, groups: range, parts: int, maps: int, image: int, *, begun: int = 0, left: int = 0,
        accumulate: bool = False, suffix: str = "",
    ) -> Launch:  # fmt: skip
        """The parts of some groups.  `begun` holds what earlier slices have left of the first one of all, and what is
        left of the last one goes to `left`."""
        begins, ends = groups.start == self.groups.start, groups.stop == self.groups.stop
        count, of_block = len(groups) * self.bands, WARPS // self.warps
        grid = ceil_div(self.problem.k, CHANNELS), ceil_div(count, of_block), self.chunks
        return launch(
            "depthwise", f"depthwise_wgrad_{self.form.name}{suffix}", "DepthwiseWgradArgs", grid,
            WARPS * WARP, parts=parts, begun=begun if begins and self.begins_open else 0,
            left=left if ends and self.leaves_open else 0, maps=maps, image=image, of=shape_struct(self.problem),
            by_strips_w=divider(self.strips_w), by_bands=divider(self.bands),
            by_multiplier=divider(self.problem.k // self.problem.c), warps=self.warps, count=count,
            rows_each=self.rows_each, first_group=groups.start, images_each=self.images_each, first_image=self.first,
            end=self.end, images_whole=self.images, accumulate=accumulate,
        )  # fmt: skip
