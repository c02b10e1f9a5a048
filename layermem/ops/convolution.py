"""Convolution and Deconvolution: one geometry, `ConvProblem`, which all backends share.

With image [N,H,W,C], maps [N,Ho,Wo,K] and filter [K,kh,kw,C/g], and p the pixel under tap t of window o:

    fprop   maps[o] = sum_t image[p] filter[t]       Conv forward    Deconv dgrad
    dgrad   image[p] += maps[o] filter[t]            Conv dgrad     Deconv forward
    wgrad   dfilter[t] = sum_o maps[o] image[p]      both

With more than two spatial axes it is `ConvNdProblem`: a sum of such problems, one for each tap along the outer axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from layermem.ops.base import PIECES, WEIGHTS, Along, EndsInRelu, OpRecord, Tensor, Window, epilogue_name, roles
from layermem.ops.frames import image_frames, maps_frames, outer_taps

MASKED_DGRAD = "Conv.dgrad+relu"  # in Device.fusions: dgrad may read bottom_mask
CONV_MOMENTS = "Conv.forward+moments"  # forward may write moments
DGRAD_SUMS_FUSION = "Conv.dgrad+sums"  # dgrad may write norm_sums
MOMENTS_ROWS = 128  # pixels per unit of moments, and of norm_sums
# Roles of the operands that norm_sums needs.
NORM_OPERANDS = ("norm_x", "norm_mean", "norm_inv_std", "norm_factor", "norm_bias")


@dataclass(frozen=True)
class ConvProblem:
    """`n` images of `c` channels under two windows, with `k` output channels, in `groups` independent groups.

    rows, columns   windows over the image's axes; their `size` is the image's height and width, unpadded
    """

    n: int
    c: int
    k: int
    rows: Window
    columns: Window
    groups: int = 1

    @property
    def h(self) -> int:
        return self.rows.size

    @property
    def w(self) -> int:
        return self.columns.size

    @property
    def out_h(self) -> int:
        return self.rows.floor_out

    @property
    def out_w(self) -> int:
        return self.columns.floor_out

    @property
    def kernel(self) -> tuple[int, int]:
        return self.rows.kernel, self.columns.kernel

    @property
    def stride(self) -> tuple[int, int]:
        return self.rows.stride, self.columns.stride

    @property
    def pad(self) -> tuple[int, int]:
        return self.rows.pad, self.columns.pad

    @property
    def dilation(self) -> tuple[int, int]:
        return self.rows.dilation, self.columns.dilation

    @property
    def image(self) -> Tensor:
        return Tensor((self.n, self.c, self.h, self.w))

    @property
    def maps(self) -> Tensor:
        return Tensor((self.n, self.k, self.out_h, self.out_w))

    @property
    def filter(self) -> Tensor:
        return Tensor((self.k, self.c // self.groups, *self.kernel))

    @property
    def positions(self) -> int:
        """Number of windows of the whole batch."""
        return self.n * self.out_h * self.out_w

    @property
    def macs(self) -> int:
        """Multiply-adds of one fprop, dgrad or wgrad."""
        return self.positions * self.filter.count

    @property
    def moments(self) -> Tensor:
        """Shape of the moments of the maps."""
        return Tensor((-(-self.positions // MOMENTS_ROWS), 2, self.k))

    @property
    def norm_sums(self) -> Tensor:
        """Shape of the norm_sums of the image."""
        return Tensor((-(-self.n * self.h * self.w // MOMENTS_ROWS), 2, self.c))


@dataclass(frozen=True)
class Conv(EndsInRelu):
    """Convolution of `pairs` bottoms through one filter.

    forward   y{i} = x{i} * w0 [+ w1] [+ x1] [relu]; writes mask (1 bit per element: y > 0) where it is declared
    wgrad   dw0, dw1 from x{i} and dy{i}        dgrad   dx{i} from dy{i} and w0
    With the role bottom_mask, dgrad ends with the backward of the ReLU that made x0: the sum in dx0 is cleared where
    the bit of bottom_mask is not set.  With the role moments, forward also writes, for each channel of y0 and each unit
    of MOMENTS_ROWS pixels of the batch, the mean and the sum of squared distances from it: [units][2][K], for the
    BatchNorm that reads y0.  With the role norm_sums, dgrad also writes the sums that the backward of the BatchNorm
    that made x0 needs, of dx0 and of dx0 (norm_x - norm_mean) norm_inv_std, over the same units: [units][2][C]; if that
    op contains a ReLU, norm_factor and norm_bias determine which elements of dx0 it passes
    """

    problem: ConvProblem
    pairs: int = 1
    bias: bool = False
    relu: bool = False
    residual: bool = False

    @property
    def fusion(self) -> str | None:
        return epilogue_name("Conv", residual=self.residual, relu=self.relu) if self.relu or self.residual else None

    def over_items(self, step: str) -> Along:
        return WEIGHTS if step == "wgrad" else PIECES


@dataclass(frozen=True)
class Deconv(OpRecord):
    """Deconvolution: x holds the maps and y the image of `problem`; its fprop is the problem's dgrad.

    forward   y{i} from x{i}, w0 [+ w1]    wgrad   dw0, dw1 from x{i}, dy{i}    dgrad   dx{i} from dy{i}, w0
    """

    problem: ConvProblem
    pairs: int = 1
    bias: bool = False

    def over_items(self, step: str) -> Along:
        return WEIGHTS if step == "wgrad" else PIECES


# -- three spatial axes and more ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConvNdProblem:
    """A convolution under windows over `outer` axes, rows and columns: three or more.

    Blobs hold the frames of `n` items (frames.py), and the filter is (K, C/g, outer taps x kh, kw).  Under one outer
    tap, frames that are neighbours in both blobs are one ConvProblem; the taps add up in rising order.
    """

    n: int
    c: int
    k: int
    outer: tuple[Window, ...]
    rows: Window
    columns: Window
    groups: int = 1

    @property
    def outer_taps(self) -> int:
        return outer_taps(self.outer)

    @property
    def image(self) -> Tensor:
        return Tensor((image_frames(self.outer) * self.n, self.c, self.rows.size, self.columns.size))

    @property
    def maps(self) -> Tensor:
        return Tensor((maps_frames(self.outer) * self.n, self.k, self.rows.floor_out, self.columns.floor_out))

    @property
    def filter(self) -> Tensor:
        taps = self.outer_taps * self.rows.kernel
        return Tensor((self.k, self.c // self.groups, taps, self.columns.kernel))

    @property
    def macs(self) -> int:
        """Multiply-adds of one fprop, dgrad or wgrad."""
        return self.maps.count * self.filter.count // self.k

    def of_frames(self, count: int) -> ConvProblem:
        """The problem of `count` frames under one outer tap."""
        return ConvProblem(count * self.n, self.c, self.k, self.rows, self.columns, self.groups)


def frames_over_items(step: str, pairs: int) -> Along:
    """OpRecord.over_items of ops on the frames of `pairs` images and maps."""
    scattered = frozenset(role for stem in ("x", "y", "dx", "dy") for role in roles(stem, pairs))
    return replace(WEIGHTS if step == "wgrad" else PIECES, scattered=scattered)


@dataclass(frozen=True)
class ConvNd(OpRecord):
    """Convolution of `pairs` bottoms through one filter, with more than two spatial axes; roles as in Conv.

    forward   y{i} from x{i}, w0 [+ w1]    wgrad   dw0, dw1 from x{i}, dy{i}    dgrad   dx{i} from dy{i}, w0
    """

    problem: ConvNdProblem
    pairs: int = 1
    bias: bool = False

    def over_items(self, step: str) -> Along:
        return frames_over_items(step, self.pairs)


@dataclass(frozen=True)
class DeconvNd(OpRecord):
    """Deconvolution with more than two spatial axes: x holds the maps and y the image, as in Deconv."""

    problem: ConvNdProblem
    pairs: int = 1
    bias: bool = False

    def over_items(self, step: str) -> Along:
        return frames_over_items(step, self.pairs)
