"""BN: a BatchNorm with its scale and shift in one layer, as three forks have it under one name.

    y = scale (x - mean) / sqrt(var + eps) + shift, a channel at a time
    fork      by its fields        parameters                  statistics
    yjxiong   any field below,     slope, bias, mean, var      TRAIN: of the batch, whose averages move; TEST: the
              or none                                          averages, or with moving_average: false the batch's.
                                                               frozen: always the averages, and no parameter learns
    PSPNet    var_eps, decay or    scale, shift, mean, var     as yjxiong, with 1 - decay for momentum; TEST: the
              moving_average                                   averages with moving_average only, else of the batch
    SegNet    bn_mode, or fillers  scale, shift                LEARN: of the batch, in TEST too; INFERENCE: none
              by these names
    fields    yjxiong: slope_filler bias_filler momentum eps frozen, and of copies moving_average;  PSPNet: scale_filler
              shift_filler var_eps decay moving_average axis;  SegNet: scale_filler shift_filler bn_mode
    memory    stashes two numbers per channel where it takes the batch's statistics; backward computes the rest from x
    source    bn_layer.cpp of yjxiong/caffe, hszhao/PSPNet and alexgkendall/caffe-segnet, each with its BNParameter

Averages are of the biased variance, unlike those of BVLC Caffe's BatchNorm.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import DX_OVER_DY, DX_OVER_X, Y_OVER_X, Layer, Message, Overlay, Param, Step, Tensor, layer
from layermem.proto import schema

SEGNET_EPS = 1e-9
INFERENCE = 1  # BNParameter.BNMode
OF_FORK = {
    "yjxiong": ("slope_filler", "bias_filler", "momentum", "eps", "frozen"),
    "PSPNet": ("var_eps", "decay", "moving_average", "axis"),
    "SegNet": ("scale_filler", "shift_filler", "bn_mode"),
}


def fork_of(p: Message) -> str:
    """Return the fork whose fields `p` has; scale_filler and shift_filler are also PSPNet's, and moving_average is also
    of copies of yjxiong's."""
    stated = {fork: [f for f in fields if p.HasField(f)] for fork, fields in OF_FORK.items()}
    if stated["yjxiong"] and stated["PSPNet"] == ["moving_average"]:
        stated["PSPNet"] = []
    if stated["yjxiong"] and (stated["PSPNet"] or stated["SegNet"]):
        other = (stated["PSPNet"] or stated["SegNet"])[0]
        raise InputError(
            f"has fields of two forks in its bn_param, {stated['yjxiong'][0]} and {other}; keep one fork's"
        )
    if stated["PSPNet"] and "bn_mode" in stated["SegNet"]:
        raise InputError(f"has fields of two forks in its bn_param, {stated['PSPNet'][0]} and bn_mode; keep one fork's")
    return next((fork for fork in ("PSPNet", "SegNet") if stated[fork]), "yjxiong")


@layer("BN")
class BN(Layer):
    family = "normalization"
    right_in_place = True
    record: ops.AffineNorm | ops.Scale
    inplace = True

    def setup(self) -> None:
        p, x = self.param.bn_param, self.bottoms[0]
        if len(x.shape) not in (2, 4):
            raise InputError(
                f"has a bottom of {len(x.shape)} axes ({x}); BN takes N x C or N x C x H x W: Reshape it first"
            )
        if p.axis != 1:
            raise InputError(f"has its channels in axis {p.axis}; layermem has them in axis 1: remove 'axis'")
        fork, testing = fork_of(p), self.phase == schema.TEST
        self.tops, self.frozen = (x,), fork == "yjxiong" and p.frozen
        fillers = (p.slope_filler, p.bias_filler) if fork == "yjxiong" else (p.scale_filler, p.shift_filler)
        shape = (1, x.shape[1]) if fork == "yjxiong" else (1, x.shape[1], 1, 1)
        self.params = tuple(self._param(i, shape, filler, not self.frozen) for i, filler in enumerate(fillers))
        if fork == "SegNet":
            self.record = self._of_segnet(p, x)
        else:
            first = (0.0, 1.0 if self.frozen else 0.0)
            self.params += tuple(
                self._param(i, shape, schema.FillerParameter(value=value), False) for i, value in enumerate(first, 2)
            )
            pspnet = fork == "PSPNet"
            eps, kept = (p.var_eps, 1 - p.decay) if pspnet else (p.eps, p.momentum)
            averages = p.moving_average if pspnet or p.HasField("moving_average") else True
            moves = not (testing or self.frozen)
            global_stats = self.frozen or (testing and averages)
            self.record = ops.AffineNorm(x, eps, kept if moves else None, global_stats, share=1 - kept)
        if isinstance(self.record, ops.AffineNorm) and not self.record.global_stats:
            self.stash = {"mean": Tensor((x.shape[1],)), "inv_std": Tensor((x.shape[1],))}

    @property
    def caffe_state_bytes(self) -> int:
        return 2 * self.bottoms[0].nbytes

    def _param(self, index: int, shape: tuple[int, ...], filler: Message, learned: bool) -> Param:
        param = self.make_param(index, shape, filler, stored=(self.bottoms[0].shape[1],))
        return param if learned else replace(param, lr_mult=0.0, decay_mult=0.0, learned=False)

    def _of_segnet(self, p: Message, x: Tensor) -> ops.AffineNorm | ops.Scale:
        if p.bn_mode == INFERENCE:
            rest = tuple(i for i in range(len(x.shape)) if i != 1)
            view = tuple(1 if i in rest else size for i, size in enumerate(x.shape))
            return ops.Scale(x, "w0", view, rest, "w1")
        return ops.AffineNorm(x, SEGNET_EPS, None)

    def forward(self) -> Step:
        count, affine = self.bottoms[0].count, ("x0", "w0", "w1")
        if isinstance(self.record, ops.Scale):
            return Step("forward", affine, ("y0",), overlays=(Y_OVER_X,), flops=2 * count)
        if self.record.global_stats:
            return Step("forward", (*affine, "w2", "w3"), ("y0",), overlays=(Y_OVER_X,), flops=4 * count)
        averages = ("w2", "w3") if self.record.kept is not None else ()
        return Step("forward", affine, ("y0", *self.stash), averages, overlays=(Y_OVER_X,), flops=8 * count)

    def recompute(self) -> Step:
        if not self.stash:
            return self.forward()
        reads = ("x0", *self.stash, "w0", "w1")
        return Step("recompute", reads, ("y0",), overlays=(Y_OVER_X,), flops=4 * self.bottoms[0].count)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        count, record = self.bottoms[0].count, self.record
        writes = tuple(role for role in ("dx0", "dw0", "dw1") if role in wants)
        if isinstance(record, ops.AffineNorm) and record.global_stats:
            reads: tuple[str, ...] = ("w0", "w3", "dy0")
            writes = tuple(role for role in writes if role == "dx0")
            overlays: tuple[Overlay, ...] = (DX_OVER_DY,)
        elif isinstance(record, ops.Scale):
            data = (*(("x0",) if "dw0" in writes else ()), *(("w0",) if "dx0" in writes else ()))
            reads, overlays = (*data, "dy0"), (DX_OVER_DY, *((DX_OVER_X,) if "x0" in data else ()))
        else:
            reads, overlays = ("x0", *self.stash, "w0", "w1", "dy0"), (DX_OVER_DY, DX_OVER_X)
        if not writes:
            return ()
        permitted = overlays if "dx0" in writes else ()
        return (Step("backward", reads, writes, overlays=permitted, flops=10 * count),)
