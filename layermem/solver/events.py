"""What a solver tells about its work, as values.  It calls `log(event)`; report/log.py makes Caffe's lines of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Output:
    """A blob that no layer reads, or that counts in the objective: `values` in Caffe's order, `weight` its share."""

    name: str
    values: np.ndarray
    weight: float = 0.0


@dataclass(frozen=True)
class Note:
    """A sentence that the user may want to know."""

    text: str


@dataclass(frozen=True)
class Solving:
    """The run begins; parsers take their start time from here."""

    net: str
    policy: str


@dataclass(frozen=True)
class Stepped:
    """One iteration is done; `loss` is its own, not smoothed.  For progress bars."""

    iteration: int
    loss: float


@dataclass(frozen=True)
class Displayed:
    """What `display` asks for, every `interval` iterations.

    loss      mean of the last average_loss iterations
    done      iterations since the last time, in `seconds`
    """

    iteration: int
    loss: float
    rate: float
    outputs: tuple[Output, ...]
    interval: int
    done: int
    seconds: float


@dataclass(frozen=True)
class Testing:
    iteration: int
    index: int


@dataclass(frozen=True)
class Tested:
    """Means over the batches of one test; `loss` only if test_compute_loss asks for it."""

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
class Restored:
    iteration: int
    path: str


@dataclass(frozen=True)
class Finished:
    """The end of solve(): at max_iter, or early because somebody asked.  `loss` is smoothed, None if nothing ran."""

    iteration: int
    loss: float | None
    early: bool


Event = Note | Solving | Stepped | Displayed | Testing | Tested | Saving | Restored | Finished
