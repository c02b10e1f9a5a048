"""Convolution and Deconvolution: a window of weights slides over an image.

    Convolution    image x [N,C,H,W] -> y [N,K,Ho,Wo],  Ho = floor((H + 2 pad - extent) / stride) + 1
                   weights (K, C/g, kh, kw), bias (K);  extent = dilation (kernel - 1) + 1
    Deconvolution  x [N,C,H,W] -> image y [N,K,Ho,Wo],  Ho = stride (H - 1) + extent - 2 pad
                   weights (C, K/g, kh, kw), bias (K);  it runs the data gradient of a convolution forward

    ConvolutionDepthwise, DepthwiseConvolution   of forks: a Convolution with group = C

    memory         stashes nothing; wgrad reads x and dy, dgrad reads dy and the weights alone

Several bottoms go to as many tops through the same weights.  wgrad runs before dgrad: no op needs x after it, and dx
may take its bytes.

source  Caffe base_conv_layer.cpp, conv_layer.cpp, deconv_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Message, Step, Window, layer, roles
from layermem.ops import ConvProblem


class BaseConvolution(Layer):
    """What both have in common.  The image is x of a Convolution, y of a Deconvolution."""

    record: ops.Conv | ops.Deconv
    bottom_range = (1, None)
    top_range = (1, None)

    def setup(self) -> None:
        p = self.param.convolution_param
        x = self.bottoms[0]
        self._check(p)
        windows = [
            Window(size, kernel, stride, pad, dilation)
            for size, kernel, stride, pad, dilation in zip(
                x.shape[2:],
                sizes(p, "kernel", "kernel_size", None),
                sizes(p, "stride", "stride", 1),
                sizes(p, "pad", "pad", 0),
                sizes(p, "dilation", "dilation", 1),
                strict=True,
            )
        ]
        self.record = self._record(windows, p.num_output, self.groups, p.bias_term)
        problem = self.record.problem
        y = problem.maps if isinstance(self.record, ops.Conv) else problem.image
        self.tops = (y,) * len(self.bottoms)
        self.params = (self.make_param(0, problem.filter.shape, p.weight_filler),)
        if p.bias_term:
            self.params += (self.make_param(1, (p.num_output,), p.bias_filler),)

    def _record(self, windows: Sequence[Window], outputs: int, groups: int, bias: bool) -> ops.Conv | ops.Deconv:
        """The op for `windows` over the bottom."""
        raise NotImplementedError

    def _check(self, p: Message) -> None:
        x = self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(
                f"has a bottom of {len(x.shape)} axes ({x}); {self.type} takes N x C x H x W: Reshape it first"
            )
        if self.axis(p.axis) != 1:
            raise InputError(f"has its channels in axis {p.axis}; layermem has them in axis 1: remove 'axis'")
        if len(self.param.bottom) != len(self.param.top):
            raise InputError(
                f"has {len(self.param.bottom)} bottoms and {len(self.param.top)} tops; give each bottom its own top"
            )
        for other in self.bottoms[1:]:
            if other.shape != x.shape:
                raise InputError(f"has bottoms of {x} and {other}; bottoms that share weights must have one shape")
        if p.num_output < 1:
            raise InputError("needs num_output of at least 1")
        if self.groups < 1 or x.shape[1] % self.groups or p.num_output % self.groups:
            raise InputError(
                f"has group {self.groups}, which must divide its {x.shape[1]} input and {p.num_output} output channels"
            )

    @property
    def groups(self) -> int:
        return int(self.param.convolution_param.group)

    def forward(self) -> Step:
        count = len(self.bottoms)
        reads = (*roles("x", count), *roles("w", len(self.params)))
        return Step("forward", reads, roles("y", count), flops=count * self.flops)

    @property
    def flops(self) -> int:
        """Of one bottom, forward or either gradient."""
        return 2 * self.record.problem.macs

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        count = len(self.bottoms)
        steps = []
        gradients = tuple(role for role in roles("dw", len(self.params)) if role in wants)
        if gradients:
            xs = roles("x", count) if "dw0" in gradients else ()  # the bias needs dy only
            flops = count * self.flops if xs else sum(y.count for y in self.tops)
            steps.append(Step("wgrad", (*xs, *roles("dy", count)), gradients, flops=flops))
        numbers = [i for i in range(count) if f"dx{i}" in wants]
        if numbers:
            reads = (*(f"dy{i}" for i in numbers), "w0")
            writes = tuple(f"dx{i}" for i in numbers)
            steps.append(Step("dgrad", reads, writes, flops=len(numbers) * self.flops))
        return steps


@layer("Convolution")
class Convolution(BaseConvolution):
    def _record(self, windows: Sequence[Window], outputs: int, groups: int, bias: bool) -> ops.Conv:
        rows, columns = windows
        for window in windows:
            if window.extent > window.size + 2 * window.pad:
                raise InputError(
                    f"has windows of {rows.extent} x {columns.extent} on a padded bottom of "
                    f"{rows.size + 2 * rows.pad} x {columns.size + 2 * columns.pad}; "
                    "use a smaller kernel or a larger pad"
                )
        n, c = self.bottoms[0].shape[:2]
        return ops.Conv(ConvProblem(n, c, outputs, rows, columns, groups), len(self.bottoms), bias)


class Depthwise(Convolution):
    """A Convolution with a group for each channel, which a net need not state."""

    @property
    def groups(self) -> int:
        channels, p = self.bottoms[0].shape[1], self.param.convolution_param
        if p.HasField("group") and p.group not in (1, channels):
            raise InputError(
                f"has group {p.group}, but {self.type} has a group for each of its {channels} channels: remove 'group'"
            )
        return channels


@layer("ConvolutionDepthwise")
class ConvolutionDepthwise(Depthwise):
    """conv_dw_layer.cpp of forks for MobileNet and ShuffleNet"""


@layer("DepthwiseConvolution")
class DepthwiseConvolution(Depthwise):
    """depthwise_conv_layer.cpp of yonghenglh6/DepthwiseConvolution"""


@layer("Deconvolution")
class Deconvolution(BaseConvolution):
    def _record(self, windows: Sequence[Window], outputs: int, groups: int, bias: bool) -> ops.Deconv:
        out = [w.stride * (w.size - 1) + w.extent - 2 * w.pad for w in windows]
        if min(out) < 1:
            raise InputError(f"crops its top to {out[0]} x {out[1]}; use a smaller pad")
        rows, columns = (replace(window, size=size) for size, window in zip(out, windows, strict=True))
        n, k = self.bottoms[0].shape[:2]
        return ops.Deconv(ConvProblem(n, outputs, k, rows, columns, groups), len(self.bottoms), bias)


def sizes(p: Message, stem: str, both: str, default: int | None) -> tuple[int, int]:
    """(rows, columns) of a size that prototxt gives as `both` (once, or once per axis) or as stem_h and stem_w."""
    listed = list(getattr(p, both))
    if stem != "dilation" and (p.HasField(f"{stem}_h") or p.HasField(f"{stem}_w")):
        if listed:
            raise InputError(f"gives {both} and also {stem}_h or {stem}_w; keep one of the two forms")
        pair = (getattr(p, f"{stem}_h"), getattr(p, f"{stem}_w"))
    elif len(listed) > 2 or (not listed and default is None):
        raise InputError(f"gives {both} {len(listed)} times; give it once, or once for rows and once for columns")
    else:
        pair = (listed[0], listed[-1]) if listed else (default, default)
    if stem != "pad" and min(pair) < 1:
        raise InputError(f"needs a {stem} of at least 1 in both axes, has {pair[0]} x {pair[1]}")
    return pair
