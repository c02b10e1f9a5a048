"""Direct convolutions (cuda/direct.cuh): the common parts of depthwise.py and grouped.py, and the parts of a wgrad.

They compute in fp32 for every precision of products, so they have the same bits in all.  The kernel depends only on
channels and windows, the parts of a gradient only on the shape of the whole batch.

A weight gradient is summed in parts: bands of rows, in groups of images.  A slice of the batch may end within a group:
its open sums continue in the next slice, image by image, and the parts of a group are added in their order once the
group is complete.

    slices     | 0 1 | 2 3 | 4 5 |     groups of three images
    complete   |     |  0  |  1  |     their parts, in the workspace, are added to the carried gradient
    open       |  0  |  1  |     |     sums of the bands of a group, carried after it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from layermem.backends.cuda.base import FLOAT
from layermem.backends.cuda.products.wgrad import ImageSlice, sum_parts
from layermem.backends.cuda.support.launch import Launch, ceil_div, divider
from layermem.backends.struct_layout import StructValues
from layermem.ops import ConvProblem
from layermem.utils.units import aligned

CHANNELS, WARP = 32, 32  # channels of a block of fprop or dgrad, as in cuda/direct.cuh; threads of a warp
WARPS = 4  # of a block of wgrad

Size = tuple[int, int]  # rows, columns


def shape_struct(problem: ConvProblem) -> StructValues:
    """The fields of the struct DirectShape."""
    (kernel_h, kernel_w), (stride_h, stride_w) = problem.kernel, problem.stride
    (pad_h, pad_w), (dilation_h, dilation_w) = problem.pad, problem.dilation
    return {
        "images": problem.n, "height": problem.h, "width": problem.w, "channels": problem.c, "maps_h": problem.out_h,
        "maps_w": problem.out_w, "outputs": problem.k, "kernel_h": kernel_h, "kernel_w": kernel_w,
        "stride_h": stride_h, "stride_w": stride_w, "pad_h": pad_h, "pad_w": pad_w, "dilation_h": dilation_h,
        "dilation_w": dilation_w,
    }  # fmt: skip


def cells(size: int, pad: int, stride: int) -> int:
    """The number of cells of `stride` pixels, counted from the padded border, that contain pixels of the image."""
    return (size - 1 + pad) // stride - pad // stride + 1


# -- wgrad -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DirectWgrad(ImageSlice, ABC):
    """The part of a weight gradient over the images of a slice."""

    # -- parts: by the shape of the whole batch ------------------------------------------------------------------------

    @property
    @abstractmethod
    def across(self) -> int:
        """Blocks across the outputs."""

    @property
    @abstractmethod
    def warps(self) -> int:
        """Warps of a part."""

    @property
    @abstractmethod
    def strips_w(self) -> int:
        """Strips in a row of the maps."""

    @property
    @abstractmethod
    def rows_each(self) -> int:
        """Rows of a band."""

    @property
    @abstractmethod
    def images_each(self) -> int:
        """Images of a group."""

    @property
    def chunks(self) -> int:
        """Blocks that share the taps."""
        return 1

    @property
    def bands(self) -> int:
        return max(1, ceil_div(self.problem.out_h, self.rows_each))

    # -- groups that these images meet ---------------------------------------------------------------------------------

    @property
    def groups(self) -> range:
        return range(self.first // self.images_each, ceil_div(self.end, self.images_each))

    @property
    def begins_open(self) -> bool:
        """Whether earlier slices began the first group."""
        return self.first % self.images_each > 0

    @property
    def leaves_open(self) -> bool:
        """Whether the last group continues in a later slice."""
        return self.end % self.images_each > 0 and not self.is_last

    @property
    def complete(self) -> int:
        """The number of groups that end in this slice."""
        return len(self.groups) - self.leaves_open

    # -- memory --------------------------------------------------------------------------------------------------------

    @property
    def sums_bytes(self) -> int:
        """Bytes of the gradient."""
        return FLOAT * self.problem.filter.count

    @property
    def is_whole(self) -> bool:
        return self.problem.n == self.images

    @property
    def has_one_part(self) -> bool:
        """Whether there is one part, which is the gradient itself."""
        return self.is_whole and self.complete * self.bands == 1

    @property
    def workspace_bytes(self) -> int:
        return 0 if self.has_one_part else self.complete * self.bands * self.sums_bytes

    @property
    def carry_bytes(self) -> int:
        """Bytes of the sum of all complete groups, and of the open sums of a group if slices end within groups."""
        ends = range(self.problem.n, self.images, self.problem.n)
        leaves_some = any(end % self.images_each for end in ends)
        return aligned(self.sums_bytes) + self.bands * self.sums_bytes * leaves_some

    # -- launches ------------------------------------------------------------------------------------------------------

    def launches(
        self, dw: int, maps: int, image: int, accumulate: bool, workspace: int, carry: int = 0, suffix: str = ""
    ) -> Iterator[Launch]:
        """dw = or += the gradient of the whole batch; a slice adds to `carry`, and the last one writes dw."""
        if self.has_one_part:
            yield self._sum(self.groups, dw, maps, image, accumulate=accumulate, suffix=suffix)
            return
        open_sums = carry + aligned(self.sums_bytes)
        # The open sums of a group overwrite those of the group before it, which another launch reads.
        exchanges = self.begins_open and self.leaves_open and len(self.groups) > 1
        for groups in (self.groups[:1], self.groups[1:]) if exchanges else (self.groups,):
            behind = (groups.start - self.groups.start) * self.bands * self.sums_bytes
            yield self._sum(
                groups, workspace + behind, maps, image, open_in=open_sums, open_out=open_sums, suffix=suffix
            )
        if self.complete:
            yield sum_parts(
                self.problem,
                dw if self.is_last else carry,
                workspace,
                self.complete * self.bands,
                accumulate and self.is_last,
                sum_before=carry if self.groups.start else 0,
            )

    def _sum(
        self,
        groups: range,
        parts: int,
        maps: int,
        image: int,
        *,
        open_in: int = 0,
        open_out: int = 0,
        accumulate: bool = False,
        suffix: str = "",
    ) -> Launch:
        """Sum the parts of some groups.  `open_in` holds the open sums of the slice's first group from earlier slices;
        the open sums of its last group go to `open_out`."""
        begins, ends = groups.start == self.groups.start, groups.stop == self.groups.stop
        count, of_block = len(groups) * self.bands, WARPS // self.warps
        grid = self.across, ceil_div(count, of_block), self.chunks
        values: StructValues = {
            "parts": parts, "open_in": open_in if begins and self.begins_open else 0,
            "open_out": open_out if ends and self.leaves_open else 0, "maps": maps, "image": image,
            "of": shape_struct(self.problem), "by_strips_w": divider(self.strips_w),
            "by_bands": divider(self.bands),
            "by_outputs": divider(self.problem.k // self.problem.groups), "warps": self.warps, "count": count,
            "rows_each": self.rows_each,
            "first_group": groups.start, "images_each": self.images_each, "first_image": self.first, "end": self.end,
            "images_whole": self.images, "accumulate": accumulate,
        }  # fmt: skip
        return self._launch(grid, suffix, values)

    @abstractmethod
    def _launch(self, grid: tuple[int, int, int], suffix: str, values: StructValues) -> Launch:
        """Launch the kernel; `values` are the fields of the struct DirectWgradArgs."""
