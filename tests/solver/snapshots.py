"""Runs that save snapshots, and what these hold."""

import json

import pytest

from layermem.errors import InputError
from layermem.interactive.solver import Solver
from tests.nets import solver_file

EVERY = {"snapshot": 2, "max_iter": 7, "snapshot_after_train": True, "test_interval": 2, "average_loss": 3}


def trained(net, folder, *, options=(), **fields):
    folder.mkdir(exist_ok=True)
    solver = Solver(solver_file(net, folder, **{**EVERY, **fields}), device="reference", **dict(options))
    with solver:
        solver.solve()
    return solver


def files(folder, model_only=False):
    """Contents by name; solver states are compared by values only, because they hold paths."""
    found = {}
    for path in sorted(folder.glob("run_iter_*")):
        if path.suffix == ".caffemodel" or path.name.endswith(".caffemodel.h5"):
            found[path.name] = path.read_bytes()
        elif not model_only and path.suffix == ".json":
            ours = json.loads(path.read_text())
            found[path.name] = ours  # holds the hash of the model and of the values of the state
    return found


def equal(a, b):
    return {k: [x.tobytes() for x in v] for k, v in a.items()} == {k: [x.tobytes() for x in v] for k, v in b.items()}


def refused(folder, name="run_iter_4.solverstate", net="chain", **fields):
    """The sentence with which a resume from `name` is refused."""
    with pytest.raises(InputError) as caught:
        Solver(solver_file(net, folder, **fields), device="reference", snapshot=folder / name)
    return str(caught.value)
