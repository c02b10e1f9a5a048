"""Runs whose budget changes."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from layermem.distributed.loopback import run_ranks
from layermem.errors import BudgetError
from layermem.interactive.solver import Solver
from layermem.report.events import Budgeted
from tests.nets import DATA, LOSS, conv, norm, relu, solver_file

NET = f"""
    {DATA} {conv("conv1", "data", 8, 3)} {norm("conv1")} {relu("conv1")} {conv("conv2", "conv1", 8, 3)} {relu("conv2")}
    layer {{ name: "act" type: "TanH" bottom: "conv2" top: "act" }} {conv("conv3", "act", 4, 3)} {relu("conv3")}
    layer {{ name: "fc" type: "InnerProduct" bottom: "conv3" top: "fc"
            inner_product_param {{ num_output: 16 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "drop" type: "Dropout" bottom: "fc" top: "fc" dropout_param {{ dropout_ratio: 0.4 }} }}
    {LOSS % "fc"}
"""
LAST = 8
FIELDS = {
    "max_iter": LAST,
    "snapshot": 3,
    "snapshot_after_train": True,
    "test_interval": 3,
    "display": 2,
    "random_seed": 5,
    "average_loss": 3,
}


def solver_of(**fields):
    return solver_file(NET, Path(), **{**FIELDS, **fields, "snapshot_prefix": "run"})


def trained(ranks=1, fields=None, before=lambda solver: None, snapshot=None, **options):
    """A hash of the last snapshot and of all that was displayed and tested; the events, and the solvers' answers to
    `before`, by rank."""
    for old in Path().glob(f"run_iter_{LAST}.*"):
        old.unlink()
    events: list[list[object]] = [[] for _ in range(ranks)]

    def run(transport):
        rank = 0 if transport is None else transport.rank
        own = {name: value[rank] if isinstance(value, list) else value for name, value in options.items()}
        with Solver(
            solver_of(**(fields or {})),
            transport=transport,
            snapshot=snapshot,
            log=events[rank].append,
            device=own.pop("device", "cpu"),
            **own,
        ) as solver:
            answer = before(solver)
            solver.solve(sigusr1="budget")
            assert solver.runner.measured_peak_bytes == solver.program.arena_bytes == solver.runner.arena.nbytes
            return answer

    answers = [run(None)] if ranks == 1 else run_ranks(ranks, run, seed=ranks)
    shown = [e for e in events[0] if type(e).__name__ in ("Tested", "Displayed", "FinalLoss")]
    seen = [(type(e).__name__, e.iteration, [str(o.values) for o in getattr(e, "outputs", ())]) for e in shown]
    files = [Path(f"run_iter_{LAST}.{end}").read_bytes() for end in ("caffemodel", "solverstate")]
    return sha256(b"".join(files)).hexdigest(), seen, [e for e in events[0] if isinstance(e, Budgeted)], answers


def bounds(ranks=1, fields=None, **options):
    """The least bytes of the step, and those of its plan without a budget."""
    if ranks > 1:
        return max(run_ranks(ranks, lambda transport: _bounds(fields, transport=transport, **options)))
    return _bounds(fields, **options)


def _bounds(fields, **options):
    with Solver(solver_of(**(fields or {})), **options) as solver:
        most = solver.program.arena_bytes
        with pytest.raises(BudgetError) as caught:
            solver.budget = 1
        return caught.value.minimum_bytes, most
