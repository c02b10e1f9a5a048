"""The events of a solver.  It calls `log(event)`; report/log.py formats them as Caffe's log lines, report/records.py as
records of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layermem.utils.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from layermem.report.plan_report import PlanReport


@dataclass(frozen=True)
class Output:
    """A blob that no layer reads or that has a loss weight: `values` in Caffe's order, `weight` in the objective."""

    name: str
    values: np.ndarray
    weight: float = 0.0


@dataclass(frozen=True)
class Note:
    """A note for the user; a warning is about files that are damaged or lost, and is shown with --quiet too."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True)
class Solving:
    """The run begins; log parsers take its start time from this line."""

    net: str
    policy: str


@dataclass(frozen=True)
class Stepped:
    """An iteration is complete, number `iteration` from 1 on; for progress bars and logs of the run.

    loss           loss of this iteration
    average_loss   mean loss of the last average_loss iterations
    rate           learning rate of its update
    outputs        outputs of its last batch
    """

    iteration: int
    loss: float
    average_loss: float = float("nan")
    rate: float = float("nan")
    outputs: tuple[Output, ...] = ()


@dataclass(frozen=True)
class RateDropped:
    """The rate of `iteration` has passed stepvalue number `step`, from 1 on, of multistep."""

    iteration: int
    step: int


@dataclass(frozen=True)
class Displayed:
    """The display of losses, every `interval` iterations.

    loss      mean of the last average_loss iterations
    done      iterations since the last display, in `seconds`
    items     items of these iterations, of all ranks; 0 if batches are sequences
    """

    iteration: int
    loss: float
    rate: float
    outputs: tuple[Output, ...]
    interval: int
    done: int
    seconds: float
    items: int = 0


@dataclass(frozen=True)
class Testing:
    iteration: int
    index: int


@dataclass(frozen=True)
class Tested:
    """Means over the batches of one test; `loss` only with test_compute_loss."""

    iteration: int
    index: int
    outputs: tuple[Output, ...]
    loss: float | None = None


@dataclass(frozen=True)
class Saving:
    """A snapshot is about to be written."""

    model: str
    state: str
    hdf5: bool


@dataclass(frozen=True)
class Saved:
    """A snapshot of `iteration` is complete."""

    iteration: int
    model: str
    state: str


@dataclass(frozen=True)
class Restored:
    iteration: int
    path: str


@dataclass(frozen=True)
class FinalLoss:
    """The loss of a last forward pass after the last update, smoothed; only if this iteration displays."""

    iteration: int
    loss: float


@dataclass(frozen=True)
class Budgeted:
    """Another budget was stated before `iteration`, where there was `before_bytes` (None: no limit); from now on the
    plan is that of `report`, which has not changed if there is a `refusal`."""

    iteration: int
    before_bytes: int | None
    report: PlanReport
    refusal: str | None = None

    @property
    def text(self) -> str:
        """The change in a sentence."""
        report = self.report
        now = "no budget" if report.budget_bytes is None else f"a budget of {format_bytes(report.budget_bytes)}"
        if self.refusal is not None or report.budget_bytes == self.before_bytes:
            return f"there is still {now}" + (f": {self.refusal}" if self.refusal is not None else "")
        plan = f"peak {format_bytes(report.peak_bytes)}, {format_seconds(report.seconds)} per step (predicted)"
        return f"from iteration {self.iteration} on there is {now}: strategy {report.strategy}, {plan}"


@dataclass(frozen=True)
class Finished:
    """The end of solve(): at max_iter, or `early` on request."""

    iteration: int
    early: bool


Event = (
    Note
    | Solving
    | Stepped
    | RateDropped
    | Displayed
    | Testing
    | Tested
    | Saving
    | Saved
    | Restored
    | FinalLoss
    | Budgeted
    | Finished
)
