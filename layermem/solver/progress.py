"""The progress of training, and its snapshots: weights, optimizer state and positions in the data."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from layermem.errors import InputError
from layermem.proto.blobs import Blob
from layermem.proto.weights import weights_content
from layermem.solver import snapshot as snapshots
from layermem.solver.engine import Engine
from layermem.solver.rules import HISTORY_COUNTS, SQUARE_HISTORY, rate_drops
from layermem.solver.snapshot import SavedBest, SavedExtra, Snapshot
from layermem.solver.state_file import SolverStateData
from layermem.utils.files import write_atomically


@dataclass
class Progress:
    """The progress of the loop.

    losses      losses of the last average_loss iterations
    base_lr     the rate that was set at run time, if any
    saved_at    the iteration of the last snapshot, if nothing changed since; last_snapshot: its solver state
    resumed_from   the solver state that the run continues
    best        the best weights, if the solver keeps them
    """

    losses: deque[float]
    iteration: int = 0
    base_lr: float | None = None
    saved_at: int | None = None
    last_snapshot: str | None = None
    resumed_from: str | None = None
    best: SavedBest | None = None


def write_snapshot(model: str, path: str, engine: Engine, progress: Progress) -> None:
    """Write the files of a snapshot, whose optimizer state this rank has collected."""
    parameters, iteration = engine.parameters, progress.iteration
    drops = rate_drops(engine.param, max(0, iteration - 1))
    extra = snapshots.Extra(
        seed=engine.seed,
        iteration=iteration,
        losses=list(progress.losses),
        feeds=engine.open_feeds.state(),
        device=engine.runner.device.arithmetic,
        states=snapshots.saved_states(parameters.states()),
        base_lr=progress.base_lr,
        ranks=engine.group.size,
        loss_scale=None if engine.loss_scale is None else engine.loss_scale.saved(),
        type=engine.param.type,
        best=progress.best,
    )
    state = SolverStateData(iteration, model, drops, parameters.history())
    snapshots.write_snapshot(model, path, engine.nets.train, parameters.file_layers(), state, extra)


def write_weights(model: str, engine: Engine) -> None:
    """Write the weights alone, which this rank has collected."""
    net = engine.nets.train
    snapshots.make_folder(model)
    content = weights_content(model, net.name, engine.parameters.file_layers(), net.names_in_file)
    write_atomically(model, content)


def restore_snapshot(saved: Snapshot, engine: Engine, progress: Progress) -> list[str]:
    """Restore everything in a snapshot except base_lr, and return notes for the user.

    InputError, before anything changes, if the snapshot does not fit.
    """
    parameters, extra = engine.parameters, saved.extra
    place = saved.model
    try:
        values = parameters.match_snapshot(saved.weights)
        place = saved.path
        _check_type(engine.param.type, saved)
        history = parameters.match_history(saved.state.history)
        _check_squares(engine.param.type, history)
        place = f"{saved.path}.json"
        states = {} if extra is None else snapshots.states_of(extra)
        parameters.check_states(states)
    except InputError as error:
        raise error.at(path=place) from None
    if extra is not None:
        engine.open_feeds.check(extra["feeds"])
    engine.begin(engine.seed if extra is None else extra["seed"])
    parameters.write(values)
    parameters.write_history(history)
    parameters.write(states)
    progress.iteration = progress.saved_at = saved.state.iteration
    progress.last_snapshot = progress.resumed_from = saved.path
    progress.best = None if extra is None else extra["best"]
    progress.losses.clear()
    notes = []
    if left := parameters.left_history(history):
        notes.append(
            f"the snapshot has optimizer state of {' '.join(left)}, which lr_mult 0 freezes: it is left out, where "
            "BVLC Caffe moves them on by their momentum"
        )
    if extra is None:
        return [*notes, "the snapshot has no data positions and no seed: data start over with the seed of this run"]
    progress.losses.extend(extra["losses"])
    return [*notes, *_restore_extra(extra, engine)]


def _check_type(own: str, saved: Snapshot) -> None:
    """InputError if the JSON file of the snapshot names another solver type."""
    if saved.extra is not None and saved.extra["type"] not in ("", own):
        raise _of_other_type(f"type '{saved.extra['type']}'", own)


def _check_squares(own: str, history: Sequence[Blob]) -> None:
    """InputError if a sum of squares is negative: then the state is that of another solver type, whatever wrote it."""
    count = len(history) // HISTORY_COUNTS[own]
    squares = (blob for i in SQUARE_HISTORY.get(own, ()) for blob in history[i * count : (i + 1) * count])
    if any(np.any(np.asarray(blob) < 0) for blob in squares):
        raise _of_other_type("another type, with values below 0 where this one has sums of squares", own)


def _of_other_type(theirs: str, own: str) -> InputError:
    return InputError(
        f"is the state of a solver of {theirs}, and this solver has type '{own}': resume with the type of the "
        "snapshot, or begin from its weights alone (--weights)"
    )


def _restore_extra(extra: SavedExtra, engine: Engine) -> list[str]:
    """Restore the loss scale and the positions in the data, and return notes."""
    notes = []
    device, arithmetic = extra["device"], engine.runner.device.arithmetic
    if device and device != arithmetic:
        notes.append(
            f"the snapshot was written on '{device}' and goes on on '{arithmetic}': use that device and storage, and "
            "LAYERMEM_ISA for its instruction set, for the bits of an uninterrupted run"
        )
    if engine.loss_scale is not None and (note := engine.loss_scale.restore(extra["loss_scale"])):
        notes.append(note)
    notes += engine.open_feeds.restore(extra["feeds"])
    sources = dict.fromkeys(name for net in engine.nets.all for name in net.python_sources)
    return notes + [
        f"layer '{name}' is a Python source, whose place a snapshot does not hold: its data start over"
        for name in sources
    ]
