"""Dropout: each element is zeroed with probability `dropout_ratio` (0.5), the others are scaled by 1 / (1 - ratio).

    memory  stashes nothing and reads dy only

The zeroed elements are a function of (seed, layer name, step, element), so that backward and a recomputed forward draw
the same numbers: Philox4x32-10 (Salmon et al. 2011) with

    key      seed mod 2^32, crc32 of the layer's name
    counter  e // 4, 0, step mod 2^32, step // 2^32        for element e in the order of memory
    dropped  where word e % 4 of the result < ratio 2^32

In TEST it is the identity.    source  Caffe dropout_layer.cpp
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from zlib import crc32

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import CAFFE_VALUE_BYTES, DX_OVER_DY, Y_OVER_X, Layer, Step, layer
from layermem.proto.schema import TEST


@layer("Dropout")
class Dropout(Layer):
    right_in_place = keeps_signs = True
    record: ops.Dropout
    recompute_kind = "seeded"
    inplace = True

    def setup(self) -> None:
        ratio = self.param.dropout_param.dropout_ratio
        if self.phase == TEST and ratio == 1:
            ratio = 0  # nothing is dropped in TEST, so that BVLC Caffe accepts it
        if not 0 <= ratio < 1:
            raise InputError(f"has dropout_ratio {ratio:g}; use a number from 0 up to, but not including, 1")
        self.tops = self.bottoms
        stream = crc32(self.name.encode())
        self.record = ops.Dropout(
            self.bottoms[0], int(ratio * 2**32), 1 / (1 - ratio), stream, identity=self.phase == TEST
        )

    @property
    def caffe_state_bytes(self) -> int:
        """Bytes of the mask."""
        return CAFFE_VALUE_BYTES * self.bottoms[0].count if self.phase != TEST else 0

    def forward(self) -> Step:
        return Step("forward", ("x0",), ("y0",), overlays=(Y_OVER_X,), flops=self.flops)

    def backward(self, wants: Collection[str], saved: Collection[str] = ()) -> Sequence[Step]:
        if "dx0" not in wants:
            return ()
        overlays = (DX_OVER_DY,)
        return (Step("backward", ("dy0",), ("dx0",), overlays=overlays, flops=self.flops),)

    @property
    def flops(self) -> int:
        """Arithmetic of the generator: ten rounds of about ten operations give four words."""
        return 0 if self.record.identity else 25 * self.tops[0].count
