"""The user's options for a run, besides those of its net and its training step."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from layermem.distributed.transport import Transport
from layermem.report.events import Event
from layermem.utils.arguments import check_fields, checked
from layermem.utils.files import PathName


@dataclass(frozen=True)
class RunOptions:
    """The user's options for a run, besides those of its net and its training step.

    data         instead of the data that the net names: "noise" or "noise:SEED", of the shapes of the net; or arrays by
                 names of tops, as a dictionary or an .npz file (`layermem docs arrays`)
    weights      files of initial weights, by layer name, instead of those in the solver
    snapshot     a .solverstate to resume from
    restart      resume from the newest complete snapshot of the solver's snapshot_prefix, if there is one
    iterations   the last iteration, instead of max_iter (which learning rates still refer to)
    seed         replaces random_seed; the seed of a snapshot overrides both
    loss_scale   for a device that stores fp16 (`layermem docs storage`): "dynamic", the default there, or a
                 power of two
    budget_file  a file whose text is the budget, in place of `budget` from when it exists; it is looked at between
                 iterations (`layermem docs live_budget`)
    follow_free  whether a budget `free` follows the free memory while training runs
    allow_nan    train on, and save snapshots, when the loss or a parameter is NaN or infinite
    timed        measure the times of the instructions of each step: `runner.times`
    poison       fill freed bytes with NaN (slow; for tests)
    log          called with each event; report.log.Log() prints Caffe's lines
    transport    connects the ranks that train the net together (`layermem docs ranks`): every rank makes a Solver
                 and calls the same methods; only the first one logs and saves snapshots
    """

    data: str | Mapping[str, Any] | None = None
    weights: tuple[str, ...] = ()
    snapshot: PathName | None = None
    restart: bool = False
    iterations: int | None = None
    seed: int | None = None
    loss_scale: str | float | None = None
    budget_file: PathName | None = None
    follow_free: bool = False
    allow_nan: bool = False
    timed: bool = False
    poison: bool = False
    log: Callable[[Event], None] | None = None
    transport: Transport | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @checked
    def of(cls, weights: PathName | Sequence[PathName] = (), **options: Any) -> RunOptions:
        """Make the options from a user's arguments; `weights` may be one path, or a string of them separated by
        commas."""
        names = weights.split(",") if isinstance(weights, str) else weights
        names = (names,) if isinstance(names, PathLike) else names
        return cls(weights=tuple(os.fspath(name) for name in names), **options)
