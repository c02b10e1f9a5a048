"""Layers run as one op: what several passes over a blob do, done in one (graph/fuse.py decides where).

    BatchNormScale   y = relu(factor (x - mean) inv_std + bias)     mean, inv_std [C] of the batch, stashed
    Rectified        y = relu(f(x)),  f a Convolution, an InnerProduct or an Eltwise sum
    Summed           y = f(x0) + x1 or its relu,  f a Convolution, an InnerProduct or a BatchNormScale

Backward of the first reads x and the stash; the sign that ReLU needs is rebuilt from them, so neither the normalized
blob nor the scaled one ever takes a byte.  The others keep a bit per element, or y where that is kept anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from layermem import ops
from layermem.layers.activation import ReLU, bits, elementwise_overlays
from layermem.layers.base import Layer, Overlay, Step
from layermem.layers.convolution import Convolution
from layermem.layers.eltwise import Eltwise
from layermem.layers.inner_product import InnerProduct
from layermem.layers.normalization import BatchNorm, Scale
from layermem.proto.schema import LayerParameter


class BatchNormScale(Layer):
    """A training BatchNorm, the Scale with a bias that reads it, and maybe the ReLU that reads that.

    norm, scale   the layers themselves, with their attributes
    relu          whether a ReLU follows
    params        the three averages of the BatchNorm, then factor and bias of the Scale: w0 .. w4
    """

    type = "BatchNormScale"

    def __init__(self, norm: BatchNorm, scale: Scale, relu: ReLU | None):
        self.norm, self.scale, self.relu = norm, scale, relu is not None
        chain: list[Layer] = [norm, scale, *([relu] if relu is not None else [])]
        self.operations = sum(it.forward().flops for it in chain)
        param = LayerParameter(name="+".join(it.name for it in chain), type=self.type)
        param.bottom.extend(norm.param.bottom)
        param.top.extend(chain[-1].param.top)
        super().__init__(param, norm.phase, norm.bottoms)

    def setup(self) -> None:
        self.tops = self.bottoms
        self.params = (*self.norm.params, *self.scale.params)
        self.stash = dict(self.norm.stash)
        norm, scale = self.norm.record, self.scale.record
        assert isinstance(norm, ops.BatchNorm) and isinstance(scale, ops.Scale)
        self.record = ops.BatchNormScale(norm, scale, self.relu)

    def forward(self) -> Step:
        writes, averages = ("y0", *self.stash), ("w0", "w1", "w2")
        return Step("forward", ("x0", "w3", "w4"), writes, averages, (Overlay("y0", "x0", "forward"),), self.operations)

    def recompute(self) -> Step:
        reads, overlays = ("x0", *self.stash, "w3", "w4"), (Overlay("y0", "x0", "forward"),)
        return Step("recompute", reads, ("y0",), overlays=overlays, flops=4 * self.tops[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        writes = tuple(role for role in ("dx0", "dw3", "dw4") if role in wants)
        overlays = (Overlay("dx0", "dy0", "gradient"), Overlay("dx0", "x0", "intra")) if "dx0" in wants else ()
        reads = ("x0", *self.stash, "w3", "w4", "dy0")
        return (Step("backward", reads, writes, overlays=overlays, flops=14 * self.tops[0].count),)


class Rectified(Layer):
    """`inner` and the ReLU that alone reads its top.  Its type, under which a device has kernels, is ConvolutionReLU,
    InnerProductReLU or EltwiseReLU; parameters and roles are those of `inner`."""

    bottoms_wanted = (1, None)
    relu = True

    def __init__(self, inner: Convolution | InnerProduct | Eltwise, relu: ReLU):
        self.inner, self.type = inner, f"{inner.type}ReLU"
        param = LayerParameter(name=f"{inner.name}+{relu.name}", type=self.type)
        param.bottom.extend(inner.param.bottom)
        param.top.extend(relu.param.top)
        super().__init__(param, inner.phase, inner.bottoms)

    def setup(self) -> None:
        self.tops, self.params = self.inner.tops, self.inner.params
        self.stash = {"mask": bits(self.tops[0])}
        self.record = replace(self.inner.record, relu=True)  # type: ignore[call-arg]

    def forward(self) -> Step:
        step = self.inner.forward()
        flops = step.flops + self.tops[0].count
        return Step("forward", step.reads, (*step.writes, "mask"), overlays=step.overlays, flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        sign, steps = "y0" if "y0" in saved else "mask", self.inner.backward(wants, saved)
        if not steps:
            return ()
        count = self.tops[0].count
        if isinstance(self.inner, Eltwise):  # one op, which passes on what the sum would have got
            data = ("y0",) if sign == "y0" else ()
            overlays = tuple(o for role in steps[0].writes for o in elementwise_overlays(role, "dy0", *data))
            return (Step("backward", (sign, "dy0"), steps[0].writes, overlays=overlays, flops=steps[0].flops + count),)
        mask = Step("relu_backward", (sign,), (), ("dy0",), flops=count, record=ops.ReluMask(self.tops[0]))
        return (mask, *(replace(step, record=self.inner.record) for step in steps))


class Summed(Layer):
    """`inner` and the Eltwise sum `total` that alone reads its top, with bottom number `added` of its two; maybe the
    ReLU that alone reads the sum.

    Its type is ConvolutionSum, ConvolutionSumReLU and so on; parameters are those of `inner`.  x1 is what is added.
    What flows back into `inner` is the gradient of the sum itself, which takes no bytes twice.
    """

    bottoms_wanted = (2, 2)

    def __init__(
        self, inner: Convolution | InnerProduct | BatchNormScale, total: Eltwise, added: int, relu: ReLU | None
    ):
        self.inner, self.relu = inner, relu is not None
        self.type = f"{inner.type}Sum{'ReLU' if self.relu else ''}"
        chain: list[Layer] = [inner, total, *([relu] if relu is not None else [])]
        param = LayerParameter(name="+".join(it.name for it in chain), type=self.type)
        param.bottom.extend((inner.param.bottom[0], total.param.bottom[added]))
        param.top.extend(chain[-1].param.top)
        super().__init__(param, inner.phase, (*inner.bottoms, total.bottoms[added]))

    def setup(self) -> None:
        self.tops, self.params = self.inner.tops, self.inner.params
        self.stash = {**self.inner.stash, **({"mask": bits(self.tops[0])} if self.relu else {})}
        self.record = replace(self.inner.record, residual=True, relu=self.relu)  # type: ignore[call-arg]

    def forward(self) -> Step:
        return self._with_sum(self.inner.forward())

    def recompute(self) -> Step | None:
        step = self.inner.recompute()
        return None if step is None else self._with_sum(step)

    def _with_sum(self, step: Step) -> Step:
        writes = (*step.writes, "mask") if self.relu else step.writes
        overlays = (*step.overlays, Overlay("y0", "x1", "forward"))
        flops = step.flops + (1 + self.relu) * self.tops[0].count
        return replace(step, reads=(*step.reads, "x1"), writes=writes, overlays=overlays, flops=flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        inner = self.inner.backward([role for role in wants if role != "dx1"], saved)
        steps = [replace(step, record=self.inner.record) for step in inner]
        if "dx1" in wants:  # last, when dx1 may lie on dy
            overlays, record = elementwise_overlays("dx1", "dy0"), ops.ResidualGrad(self.tops[0])
            steps.append(Step("residual_backward", ("dy0",), ("dx1",), overlays=overlays, record=record))
        if self.relu and steps:
            sign = "y0" if "y0" in saved else "mask"
            count, mask = self.tops[0].count, ops.ReluMask(self.tops[0])
            steps.insert(0, Step("relu_backward", (sign,), (), ("dy0",), flops=count, record=mask))
        return steps
