"""PriorBox: the default boxes of a map of scores, one set of sizes around each of its pixels.

x0 [N,C,H,W] the map, x1 the image (whose size img_size, or img_h and img_w, may state instead)
y  [1, 2, H W boxes 4]: corners in images, then variances
boxes of a pixel: for each min_size m: m x m; with a max_size M sqrt(m M) x sqrt(m M); and for each aspect_ratio r but
1, with flip for 1/r too, m sqrt(r) x m / sqrt(r).  Sizes are whole: a fraction is cut off, as in the fork
memory  stashes nothing and reads only shapes, so it can be recomputed without inputs.  It has no gradient
source  prior_box_layer.cpp of the SSD fork of Caffe (weiliu89/caffe, branch ssd), PriorBoxParameter
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from layermem import ops
from layermem.errors import InputError
from layermem.layers.base import Layer, Message, Step, layer

MAX_BOXES = 64  # most boxes of a pixel
SAME = 1e-6  # aspect ratios that differ by less are the same


@layer("PriorBox")
class PriorBox(Layer):
    has_gradient = False
    bottom_range = (1, 2)

    def setup(self) -> None:
        p, x = self.param.prior_box_param, self.bottoms[0]
        if len(x.shape) != 4:
            raise InputError(f"has a bottom of {len(x.shape)} axes ({x}); PriorBox takes N x C x H x W")
        sizes = box_sizes(p)
        if len(sizes) > MAX_BOXES:
            raise InputError(f"has {len(sizes)} boxes for each pixel; use at most {MAX_BOXES}")
        image = self._image(p)
        rows, columns = x.shape[2:]
        step = both(p, "step", lambda i: float(np.float32(image[i]) / np.float32((rows, columns)[i])))
        variance = tuple(p.variance) or (float(np.float32(0.1)),)
        if len(variance) not in (1, 4) or not all(math.isfinite(v) and v > 0 for v in variance):
            raise InputError("has a wrong variance; give one or four above 0 in its prior_box_param")
        if not math.isfinite(p.offset):
            raise InputError(f"has offset {p.offset:g} in its prior_box_param; use a finite number, such as 0.5")
        v = variance if len(variance) == 4 else variance * 4
        self.record = ops.PriorBox(rows, columns, sizes, step, p.offset, image, p.clip, (v[0], v[1], v[2], v[3]))
        self.tops = (self.record.y,)

    def _image(self, p: Message) -> tuple[int, int]:
        """(height, width) as the net states it, or of the second bottom."""

        def of_bottom(i: int) -> float:
            if len(self.bottoms) < 2 or len(self.bottoms[1].shape) != 4:
                raise InputError("takes the image's size from a second bottom of N x C x H x W; add it, or img_size")
            return self.bottoms[1].shape[2 + i]

        height, width = both(p, "img", of_bottom, whole="img_size")
        return int(height), int(width)

    def forward(self) -> Step:
        return Step("forward", (), ("y0",), flops=2 * self.tops[0].count)


def both(p: Message, stem: str, otherwise: object, whole: str = "") -> tuple[float, float]:
    """(down, right): field `whole` (or the stem) sets both, else stem_h and stem_w, else otherwise(axis); each is above
    0."""
    whole = whole or stem
    if p.HasField(f"{stem}_h") or p.HasField(f"{stem}_w"):
        if p.HasField(whole):
            raise InputError(f"gives {whole} and also {stem}_h or {stem}_w; keep one of the two forms")
        pair = (getattr(p, f"{stem}_h"), getattr(p, f"{stem}_w"))
    elif p.HasField(whole):
        pair = (getattr(p, whole),) * 2
    else:
        assert callable(otherwise)
        pair = (otherwise(0), otherwise(1))
    if not all(math.isfinite(each) and each > 0 for each in pair):
        raise InputError(f"has {whole} {pair[0]:g} x {pair[1]:g}; use numbers above 0")
    return pair


def box_sizes(p: Message) -> tuple[tuple[float, float], ...]:
    """(width, height) of each box of a pixel, in float32."""
    if not p.min_size or not all(math.isfinite(m) and m >= 1 for m in p.min_size):
        raise InputError("has no min_size; set prior_box_param { min_size } to at least 1")
    if len(p.max_size) not in (0, len(p.min_size)):
        raise InputError(f"gives {len(p.max_size)} max_size for {len(p.min_size)} min_size; give one for each, or none")
    if any(not m < big < math.inf for m, big in zip(p.min_size, p.max_size)):
        raise InputError("has a max_size that is not above its min_size; make it larger")
    ratios = aspect_ratios(list(p.aspect_ratio), p.flip)
    sizes: list[tuple[float, float]] = []
    for i, m in enumerate(map(int, p.min_size)):
        sizes.append((m, m))
        if p.max_size:
            side = math.sqrt(m * int(p.max_size[i]))
            sizes.append((side, side))
        sizes += [(m * math.sqrt(r), m / math.sqrt(r)) for r in ratios]
    return tuple((float(np.float32(w)), float(np.float32(h))) for w, h in sizes)


def aspect_ratios(stated: Sequence[float], flip: bool) -> list[float]:
    """Return the distinct aspect ratios other than 1."""
    if not all(math.isfinite(r) and r > 0 for r in stated):
        raise InputError("has an aspect_ratio that is not above 0; use positive numbers")
    ratios = [1.0]
    for r in stated:
        if all(abs(r - known) >= SAME for known in ratios):
            ratios += [r, float(np.float32(1 / r))] if flip else [r]
    return [r for r in ratios if abs(r - 1) >= SAME]
