"""Depthwise convolutions (cuda/depthwise.cu), whose groups have one input channel each (direct_problems.is_depthwise):
launches, and parts of wgrad.  Memory bounds them.
"""

from __future__ import annotations

from functools import cached_property
from math import gcd
from typing import NamedTuple

from layermem.backends.cuda.products.direct import CHANNELS, WARP, WARPS, DirectWgrad, Size, cells, shape_struct
from layermem.backends.cuda.products.gemm_tiles import SMS
from layermem.backends.cuda.products.implicit_gemm import NO_EPILOGUE, Epilogue
from layermem.backends.cuda.support.launch import THREADS, Launch, ceil_div, divider, launch, vector_width
from layermem.backends.struct_layout import StructValues
from layermem.ops import ConvProblem

MODULE = "depthwise"
MAX_TALL = 8  # limit of the rows of strips that follow each other down a band
FEW_STRIPS = 4  # strips that a thread of wgrad adds up before the warp sums them
BLOCKS = 3 * SMS  # of wgrad that run at the same time
ANY_RIGHT, ANY_TAPS = 4, 4  # outputs of a strip for any window; taps of a block of wgrad


class DepthwiseForm(NamedTuple):
    """Kernels for one shape of window, or for any.

    name    suffix of the kernels' names
    vector  channels of a thread
    fprop   outputs of a strip
    dgrad   cells of a strip, each of stride x stride pixels; pixels in the form for any window
    wgrad   outputs of a strip, in a row
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
        """The number of strips that `threads` threads compute at the same time."""
        return threads * self.vector // CHANNELS


FORMS = {  # by kernel and stride
    (3, 1): DepthwiseForm("3x3_s1", 4, (2, 4), (2, 4), 2),
    (3, 2): DepthwiseForm("3x3_s2", 4, (2, 2), (1, 2), 2),
    (5, 1): DepthwiseForm("5x5_s1", 4, (2, 4), (2, 4), 2),
    (5, 2): DepthwiseForm("5x5_s2", 4, (2, 2), (1, 2), 1),
}
ANY = {v: DepthwiseForm(f"v{v}", v, (1, ANY_RIGHT), (1, 1), ANY_RIGHT) for v in (1, 4)}


def form_of(problem: ConvProblem) -> DepthwiseForm:
    """The form for the channels and windows; the batch does not matter."""
    if problem.k != problem.c or vector_width(problem.c) == 1:
        return ANY[1]
    square = problem.kernel[0] == problem.kernel[1] and problem.stride[0] == problem.stride[1]
    own = FORMS.get((problem.kernel[0], problem.stride[0]))
    return own if own and square and problem.dilation == (1, 1) else ANY[4]


# -- fprop and dgrad ---------------------------------------------------------------------------------------------------


def fprop(
    problem: ConvProblem, maps: int, image: int, filters: int, epilogue: Epilogue = NO_EPILOGUE, suffix: str = ""
) -> Launch:
    """`suffix` as in CudaCall, if image and maps are in 16 bits."""
    form = form_of(problem)
    strips = ceil_div(problem.out_h, form.fprop[0]), ceil_div(problem.out_w, form.fprop[1])
    return _launch(f"fprop_{form.name}{suffix}", problem, form, strips, problem.k, maps, image, filters, epilogue)


def dgrad(
    problem: ConvProblem,
    image: int,
    maps: int,
    filters: int,
    bias: int = 0,
    accumulate: bool = False,
    *,
    bottom_mask: int = 0,
    suffix: str = "",
) -> Launch:
    """`bottom_mask`: bits of the image; elements with a cleared bit become zero; 0 keeps all."""
    form = form_of(problem)
    strides = (1, 1) if form.is_any else problem.stride
    rows, columns = (
        ceil_div(cells(size, pad, stride), of_strip)
        for size, pad, stride, of_strip in zip((problem.h, problem.w), problem.pad, strides, form.dgrad, strict=True)
    )
    epilogue = Epilogue(bias, image if accumulate else 0)
    return _launch(
        f"dgrad_{form.name}{suffix}",
        problem,
        form,
        (rows, columns),
        problem.c,
        image,
        maps,
        filters,
        epilogue,
        bottom_mask,
    )


def _tall(rows: int) -> int:
    """Rows of strips in a band: the number that adds the fewest missing rows, and the largest of these."""
    return min(range(1, MAX_TALL + 1), key=lambda tall: (ceil_div(rows, tall) * tall, -tall))


def _launch(
    function: str,
    problem: ConvProblem,
    form: DepthwiseForm,
    strips: Size,
    channels: int,
    y: int,
    x: int,
    filters: int,
    epilogue: Epilogue,
    bottom_mask: int = 0,
) -> Launch:
    rows, columns = strips
    tall, across = _tall(rows), ceil_div(channels, CHANNELS)
    of_image = ceil_div(rows, tall) * tall * columns
    grid = across * ceil_div(problem.n * of_image, form.strips(THREADS))
    every_h, every_w = (
        stride // gcd(stride, dilation) for stride, dilation in zip(problem.stride, problem.dilation, strict=True)
    )
    return launch(
        "depthwise",
        f"depthwise_{function}",
        "DepthwiseArgs",
        grid,
        y=y,
        x=x,
        filter=filters,
        of=shape_struct(problem),
        by_across=divider(across),
        by_image=divider(of_image),
        by_band=divider(tall * columns),
        by_tall=divider(tall),
        by_outputs=divider(problem.k // problem.groups),
        by_stride_h=divider(problem.stride[0]),
        by_stride_w=divider(problem.stride[1]),
        every_h=every_h,
        every_w=every_w,
        strips=problem.n * of_image,
        epilogue={**epilogue._asdict(), "bottom_mask": bottom_mask},
    )


# -- wgrad -------------------------------------------------------------------------------------------------------------


class DepthwiseWgrad(DirectWgrad):
    """Each thread computes strips of an image; their sums are added within a warp, within a part, and over images."""

    @cached_property
    def form(self) -> DepthwiseForm:
        return form_of(self.problem)

    @property
    def strips_w(self) -> int:
        """Strips in a row of the maps."""
        return ceil_div(self.problem.out_w, self.form.wgrad)

    @property
    def across(self) -> int:
        return ceil_div(self.problem.k, CHANNELS)

    @property
    def chunks(self) -> int:
        kernel_h, kernel_w = self.problem.kernel
        return kernel_h * ceil_div(kernel_w, ANY_TAPS) if self.form.is_any else 1

    @cached_property
    def warps(self) -> int:
        """Warps of a part: 1, 2, .. up to those of a block, as long as each thread has some strips."""
        strips, warps = self.problem.out_h * self.strips_w, 1
        while warps < WARPS and strips >= 2 * warps * self.form.strips(WARP) * FEW_STRIPS:
            warps *= 2
        return warps

    @property
    def _blocks(self) -> int:
        """The number of blocks with one part per image."""
        return self.across * self.chunks * ceil_div(self.images * self.warps, WARPS)

    @cached_property
    def rows_each(self) -> int:
        """All rows if the images make enough blocks, otherwise bands that make twice as many as run at once."""
        rows = self.problem.out_h
        if self._blocks >= BLOCKS:
            return rows
        least = ceil_div(FEW_STRIPS * self.warps * self.form.strips(WARP), self.strips_w)
        return min(rows, max(least, ceil_div(rows, max(1, 2 * BLOCKS // max(1, self._blocks)))))

    @cached_property
    def images_each(self) -> int:
        """Images of a part: several if there are many, which takes less memory."""
        return 1 if self.bands > 1 else max(1, (self._blocks + BLOCKS // 2) // BLOCKS)

    def _launch(self, grid: tuple[int, int, int], suffix: str, values: StructValues) -> Launch:
        function = f"depthwise_wgrad_{self.form.name}{suffix}"
        return launch(MODULE, function, "DirectWgradArgs", grid, WARPS * WARP, base=values)
