"""Loss scale: a power of two by which the gradient of the loss is multiplied, so that small gradients do not underflow.

    backward begins with scale * loss_weight (ops.Fill), so that all gradients are multiplied by it; an update first
    divides it out (ops.Update), exactly except for subnormal numbers

    overflow   the norm of all gradients, over all ranks and micro-batches, is infinite or NaN: no parameter and no
               optimizer state changes, and the iteration counts as skipped
    dynamic    the scale is halved after an overflow, and doubled after GROWTH_INTERVAL updates in a row

source  Micikevicius et al., "Mixed Precision Training", ICLR 2018; PyTorch torch/amp/grad_scaler.py, its defaults
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypedDict

from layermem.errors import InputError
from layermem.ops import SCALED

DYNAMIC = "dynamic"
FIRST = 65536.0  # GradScaler's init_scale
GROWTH_INTERVAL = 2000  # updates
LEAST, LARGEST = 2.0**-32, 2.0**32  # limits of a dynamic scale


class SavedScale(TypedDict):
    """The fields of a loss scale in a snapshot."""

    setting: str
    scale: float
    good_steps: int
    skipped: int


@dataclass
class LossScale:
    """setting     "dynamic", or the given number
    scale       the scale of the next iteration
    good_steps  updates since the last change of the scale or the last overflow
    skipped     iterations without an update so far
    """

    setting: str
    scale: float
    good_steps: int = 0
    skipped: int = 0

    @property
    def is_dynamic(self) -> bool:
        return self.setting == DYNAMIC

    def count(self, norm: float) -> bool:
        """Record the norm of an iteration's gradients; return whether it was finite, so that parameters were
        updated."""
        is_good = math.isfinite(norm)
        self.skipped += not is_good
        self.good_steps = self.good_steps + 1 if is_good else 0
        if self.is_dynamic and not is_good:
            self.scale = max(self.scale / 2, LEAST)
        elif self.is_dynamic and self.good_steps == GROWTH_INTERVAL:
            self.scale, self.good_steps = min(self.scale * 2, LARGEST), 0
        return is_good

    def change_since(self, before: LossScale) -> str | None:
        """A clause on what an iteration has changed, if its update was skipped or the scale has grown."""
        if self.skipped > before.skipped:
            goes_on = "" if self.scale == before.scale else f"; loss scale {self.scale:g}"
            return f"gradients overflowed at loss scale {before.scale:g}, and the update is skipped{goes_on}"
        return f"loss scale {self.scale:g}, after {GROWTH_INTERVAL} updates" if self.scale > before.scale else None

    def saved(self) -> SavedScale:
        return {"setting": self.setting, "scale": self.scale, "good_steps": self.good_steps, "skipped": self.skipped}

    def restore(self, saved: SavedScale | None) -> str | None:
        """Continue with the scale of a snapshot; return a note if it was written with another setting."""
        if saved is None:
            return f"the snapshot has no loss scale: it begins with {self.scale:g}"
        self.skipped = saved["skipped"]
        if saved["setting"] == self.setting:
            self.scale, self.good_steps = saved["scale"], saved["good_steps"]
            return None
        return (
            f"the snapshot was written with --loss-scale {saved['setting']} and goes on with {self.setting}, from "
            f"{self.scale:g}: give --loss-scale {saved['setting']} for the bits of an uninterrupted run"
        )


def loss_scale_of(storage: str, given: str | float | None) -> LossScale | None:
    """The loss scale of a run with this storage of activations; None if gradients are not scaled.

    InputError unless it is a power of two from 1 to 2^32, and for a storage that needs no scale.
    """
    if storage not in SCALED:
        if given is None or _number(given) == 1:
            return None
        raise InputError(
            f"a loss scale is for the storage {' or '.join(SCALED)}, and {storage} has exponents enough for gradients; "
            f"leave --loss-scale out, or give --storage {SCALED[0]}"
        )
    if given is None or given == DYNAMIC:
        return LossScale(DYNAMIC, FIRST)
    scale = _number(given)
    if not 1 <= scale <= LARGEST or math.frexp(scale)[0] != 0.5:
        raise InputError(
            f"cannot scale the loss by '{str(given)[:24]}'; give --loss-scale dynamic, or a power of two from 1 to "
            f"{LARGEST:.0f}, by which gradients are divided exactly"
        )
    return LossScale(f"{scale:.0f}", scale)


def _number(given: str | float) -> float:
    """The number in `given`; NaN if it is no number."""
    try:
        return float(given)
    except ValueError:
        return math.nan


def is_saved_scale(value: object) -> bool:
    """Whether `value` is valid in a snapshot: a SavedScale, or None."""
    if value is None:
        return True
    if not isinstance(value, dict) or value.keys() != SavedScale.__annotations__.keys():
        return False
    scale, counts = value["scale"], (value["good_steps"], value["skipped"])
    is_scale = isinstance(scale, int | float) and LEAST <= scale <= LARGEST and math.frexp(scale)[0] == 0.5
    are_counts = all(isinstance(count, int) and 0 <= count < 2**31 for count in counts)
    return isinstance(value["setting"], str) and is_scale and are_counts
