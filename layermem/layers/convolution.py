"""Convolution and Deconvolution: a window of weights slides over an image.

    Convolution    image x [N,C,H,W] -> y [N,K,Ho,Wo],  Ho = floor((H + 2 pad - extent) / stride) + 1
                   weights (K, C/g, kh, kw), bias (K);  extent = dilation (kernel - 1) + 1
    Deconvolution  x [N,C,H,W] -> image y [N,K,Ho,Wo],  Ho = stride (H - 1) + extent - 2 pad
                   weights (C, K/g, kh, kw), bias (K);  it runs the data gradient of a convolution forward

    Channels are in `axis`, 1 by default, and all axes after it are spatial: one for a signal, three for a clip, or any
    number.  The axes before it hold independent items.  Weights are (K, C/g, kernel..).

    ConvolutionDepthwise     a type of forks: a Convolution with group = C and K = C, whatever the net states
    DepthwiseConvolution     a type of forks: a Convolution with group = C

    memory         stashes nothing; wgrad reads x and dy, dgrad reads dy and the weights alone

Several bottoms go to as many tops through the same weights.  wgrad runs before dgrad: no op needs x after it, and dx
may take its bytes.

source  Caffe base_conv_layer.cpp, conv_layer.cpp, deconv_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Message, Step, Tensor, Window, layer, roles
from layermem.layers.images import check_images, stated_shape
from layermem.ops import ConvNdProblem, ConvProblem


class BaseConvolution(Layer):
    """Base of Convolution and Deconvolution.  The image is x of a Convolution and y of a Deconvolution.

    The bottoms are images.  A part before this one makes images of blobs of other ranks (composite.py) and states their
    shape in the net; `blob_shape` is then the shape of the tops.
    """

    bottom_forms = ("N,C,H,W",)
    family, window_block = "convolution", "convolution_param"
    reads_x_for_weights = True
    record: ops.Conv | ops.Deconv | ops.ConvNd | ops.DeconvNd
    blob_shape: tuple[int, ...]
    bottom_range = (1, None)
    top_range = (1, None)

    def setup(self) -> None:
        p = self.param.convolution_param
        self._check_pairs()
        shape = stated_shape(self.param, self.bottoms[0])
        axis = self.axis(p.axis, Tensor(shape))
        check_images(self.type, self.bottoms[0], shape, axis)
        self._check_channels()
        windows = windows_of(p, shape[axis + 1 :])
        self.record = self._record(self._placed(windows), prod(shape[:axis]))
        problem = self.record.problem
        y = problem.maps if isinstance(self.record, (ops.Conv, ops.ConvNd)) else problem.image
        self.tops = (y,) * len(self.bottoms)
        self.blob_shape = (*shape[:axis], self.num_output, *self._outputs(windows))
        filter_shape = (*problem.filter.shape[:2], *(window.kernel for window in windows))
        self.params = (self.make_param(0, filter_shape, p.weight_filler, stored=problem.filter.shape),)
        if p.bias_term:
            self.params += (self.make_param(1, (self.num_output,), p.bias_filler),)

    def _placed(self, windows: Sequence[Window]) -> Sequence[Window]:
        """Return `windows` over the axes of the image."""
        raise NotImplementedError

    def _outputs(self, windows: Sequence[Window]) -> Sequence[int]:
        """Return the spatial extents of the top."""
        raise NotImplementedError

    def _record(self, windows: Sequence[Window], items: int) -> ops.Conv | ops.Deconv | ops.ConvNd | ops.DeconvNd:
        """Return the op for `windows` over the axes of the image."""
        raise NotImplementedError

    def _problem(self, windows: Sequence[Window], items: int, c: int, k: int) -> ConvProblem | ConvNdProblem:
        rows, columns = (Window(1, 1), Window(1, 1), *windows)[-2:]
        if len(windows) <= 2:
            return ConvProblem(items, c, k, rows, columns, self.groups)
        return ConvNdProblem(items, c, k, tuple(windows[:-2]), rows, columns, self.groups)

    def _check_pairs(self) -> None:
        x = self.bottoms[0]
        if len(self.param.bottom) != len(self.param.top):
            raise InputError(
                f"has {len(self.param.bottom)} bottoms and {len(self.param.top)} tops; give each bottom its own top"
            )
        for other in self.bottoms[1:]:
            if other.shape != x.shape:
                raise InputError(f"has bottoms of {x} and {other}; bottoms that share weights must have one shape")

    def _check_channels(self) -> None:
        x, outputs = self.bottoms[0], self.num_output
        if outputs < 1:
            raise InputError("has num_output 0; set convolution_param { num_output } to at least 1")
        if self.groups < 1 or x.shape[1] % self.groups or outputs % self.groups:
            raise InputError(
                f"has group {self.groups}, which must divide its {x.shape[1]} input and {outputs} output channels; "
                "change 'group' or 'num_output'"
            )

    @property
    def groups(self) -> int:
        return int(self.param.convolution_param.group)

    @property
    def num_output(self) -> int:
        return int(self.param.convolution_param.num_output)

    def forward(self) -> Step:
        count = len(self.bottoms)
        reads = (*roles("x", count), *roles("w", len(self.params)))
        return Step("forward", reads, roles("y", count), flops=count * self.flops)

    @cached_property
    def flops(self) -> int:
        """Arithmetic of one bottom in fprop, dgrad or wgrad."""
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
    def _placed(self, windows: Sequence[Window]) -> Sequence[Window]:
        check_fit(windows)
        return windows

    def _outputs(self, windows: Sequence[Window]) -> Sequence[int]:
        return [window.floor_out for window in windows]

    def _record(self, windows: Sequence[Window], items: int) -> ops.Conv | ops.ConvNd:
        p, pairs = self.param.convolution_param, len(self.bottoms)
        problem = self._problem(windows, items, self.bottoms[0].shape[1], self.num_output)
        if isinstance(problem, ConvNdProblem):
            return ops.ConvNd(problem, pairs, p.bias_term)
        return ops.Conv(problem, pairs, p.bias_term)


@layer("ConvolutionDepthwise")
class ConvolutionDepthwise(Convolution):
    """The type of conv_dw_layer.cpp in forks for MobileNet and ShuffleNet, which reads neither group nor num_output."""

    @property
    def groups(self) -> int:
        return self.bottoms[0].shape[1]

    num_output = groups


@layer("DepthwiseConvolution")
class DepthwiseConvolution(Convolution):
    """The type of depthwise_conv_layer.cpp in yonghenglh6/DepthwiseConvolution; the net need not state the group."""

    @property
    def groups(self) -> int:
        channels, p = self.bottoms[0].shape[1], self.param.convolution_param
        if p.HasField("group") and p.group not in (1, channels):
            raise InputError(
                f"has group {p.group}, but {self.type} has a group for each of its {channels} channels: remove 'group'"
            )
        return channels


@layer("Deconvolution")
class Deconvolution(BaseConvolution):
    def _placed(self, windows: Sequence[Window]) -> Sequence[Window]:
        out = self._outputs(windows)
        if min(out, default=1) < 1:
            raise InputError(f"crops its top to {by(out)}; use a smaller pad")
        return [replace(window, size=size) for size, window in zip(out, windows, strict=True)]

    def _outputs(self, windows: Sequence[Window]) -> Sequence[int]:
        return [w.stride * (w.size - 1) + w.extent - 2 * w.pad for w in windows]

    def _record(self, windows: Sequence[Window], items: int) -> ops.Deconv | ops.DeconvNd:
        p, pairs = self.param.convolution_param, len(self.bottoms)
        problem = self._problem(windows, items, self.num_output, self.bottoms[0].shape[1])
        if isinstance(problem, ConvNdProblem):
            return ops.DeconvNd(problem, pairs, p.bias_term)
        return ops.Deconv(problem, pairs, p.bias_term)


# -- windows -----------------------------------------------------------------------------------------------------------


def windows_of(p: Message, extents: Sequence[int]) -> list[Window]:
    """Return the window over each spatial axis of these extents, as a ConvolutionParameter states it."""
    axes = len(extents)
    return [
        Window(*numbers)
        for numbers in zip(
            extents,
            sizes(p, "kernel", "kernel_size", None, axes),
            sizes(p, "stride", "stride", 1, axes),
            sizes(p, "pad", "pad", 0, axes),
            sizes(p, "dilation", "dilation", 1, axes),
            strict=True,
        )
    ]


def sizes(p: Message, stem: str, field: str, default: int | None, axes: int) -> Sequence[int]:
    """Return a size per spatial axis.  Prototxt states it as `field`, once or once per axis, or for two axes as stem_h
    and stem_w."""
    listed = list(getattr(p, field))
    if stem != "dilation" and (p.HasField(f"{stem}_h") or p.HasField(f"{stem}_w")):
        if axes != 2:
            raise InputError(
                f"gives {stem}_h or {stem}_w, which are for 2 spatial axes, but its bottom has {axes}; "
                f"give {field} once, or once for each of them"
            )
        if listed:
            raise InputError(f"gives {field} and also {stem}_h or {stem}_w; keep one of the two forms")
        listed = [getattr(p, f"{stem}_h"), getattr(p, f"{stem}_w")]
    elif len(listed) not in (1, axes) and (listed or default is None):
        raise InputError(
            f"gives {field} {len(listed)} times; give it once, or once for each of the {axes} spatial axes"
        )
    elif len(listed) < 2:
        listed = [*listed, default][:1] * axes
    if stem != "pad" and min(listed, default=1) < 1:
        raise InputError(f"has a {stem} of {by(listed)}; set it to at least 1 in every spatial axis")
    return listed


def check_fit(windows: Sequence[Window]) -> None:
    """Raise InputError for a window that does not fit the padded bottom."""
    if any(window.extent > window.size + 2 * window.pad for window in windows):
        raise InputError(
            f"has windows of {by([window.extent for window in windows])} on a padded bottom of "
            f"{by([window.size + 2 * window.pad for window in windows])}; use a smaller kernel or a larger pad"
        )


def by(numbers: Sequence[int]) -> str:
    """Return a text such as "3 x 5 x 5"."""
    return " x ".join(map(str, numbers))
