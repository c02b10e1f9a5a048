"""Refuses options that have no effect in combination with others, so that none is silently ignored, and files whose
name belongs to another kind than that of the option.

Options that always exclude each other are in groups of argparse; the checks here depend on values and files.  A stage
or a level that no rule names is a warning of the net (graph/warnings.py).
"""

from __future__ import annotations

import argparse
import os

from layermem.errors import InputError
from layermem.utils.files import check_name

FILES = (  # options with files of one kind, with their endings
    ("load", (".json",), "a plan"),
    ("costs", (".csv",), "a file of costs"),
    ("save_costs", (".csv",), "a file of costs"),
    ("hints", (), "a hints file"),
    ("net", (".prototxt",), "a net"),
    ("solver", (".prototxt",), "a solver"),
    ("snapshot", (".solverstate", ".h5"), "a solver state"),
)
OF_A_JOB = (  # options of watch that plan a job other than the one in its log
    "phase",
    "batch",
    "input",
    "stage",
    "level",
    "device",
    "precision",
    "storage",
    "costs",
    "budget",
    "host_budget",
    "hints",
    "segment_ends",
    "keep",
    "recompute",
    "strategy",
    "slices",
    "split_weights",
)
# Fields of a solver that have an option of their own.
OF_FIELDS = {"max_iter": "iterations", "random_seed": "seed", "iter_size": "iter_size"}
# Options that determine a plan.
OF_A_PLAN = ("strategy", "slices", "split_weights", "segment_ends", "keep", "recompute", "hints")


def check_combinations(arguments: argparse.Namespace) -> None:
    """Raise InputError for the first option that would have no effect."""
    given = vars(arguments)
    for name, own, what in FILES:
        check_name(given.get(name), own, what)
    for name in OF_A_PLAN:
        for plan in ("load", "import_schedule"):
            if given.get(plan) and given.get(name):
                what = f"--{name.replace('_', '-')} has no effect on the plan of --{plan.replace('_', '-')}"
                raise InputError(f"{what}; give only one of them")
    if given.get("load") and given.get("import_schedule"):
        raise InputError("--load and --import-schedule both give the plan; give only one of them")
    if given.get("restart") and given.get("snapshot"):
        raise InputError("--restart has no effect beside --snapshot, which names the one to resume from; give only one")
    if given.get("measure") and (given.get("ranks") or 1) > 1:
        raise InputError("--measure runs the step of one rank alone; give --costs instead, or leave --ranks out")
    if given.get("measure") and given.get("costs"):
        raise InputError("--measure makes times in place of --costs; give one of them (--save-costs F writes them)")
    if given.get("save_costs") and not given.get("measure"):
        raise InputError("--save-costs has no effect without --measure, whose times it writes; add it, or leave it out")
    if given.get("steps") and (given.get("ranks") or 1) > 1:
        raise InputError("--run measures the steps of one rank alone; leave --ranks out, or --run")
    if given.get("solver") and given.get("phase"):
        raise InputError("--phase needs --net; a solver has a train net and test nets, so leave it out")
    if given.get("solver", "") is None and given.get("data"):
        raise InputError("--data needs --solver, whose nets a run trains on the data; give the solver, or leave it out")
    _check_fields(given)
    _check_batch(given)
    _check_fit(given)
    if "port" in given and not (given.get("net") or given.get("solver")):
        for name in OF_A_JOB:
            if given.get(name):
                what = f"--{name.replace('_', '-')} has no effect on the run of a log, which says how it is planned"
                raise InputError(f"{what}; add --solver F or --net F, or leave it out")
    if given.get("fused") is False and given.get("device"):
        raise InputError("--device has no effect on the layers of a net; add --fused, or leave it out")
    if given.get("steps") == 0 and given.get("threads") is not None:
        raise InputError("--threads has no effect on predicted times; add --run N, or leave it out")
    if given.get("seed") is not None and given.get("snapshot") and os.path.exists(f"{given['snapshot']}.json"):
        raise InputError("--seed has no effect beside --snapshot, whose run has a seed; leave it out")


def _check_fields(given: dict[str, object]) -> None:
    changes = given.get("set")
    for change in changes if isinstance(changes, list) else ():
        option = OF_FIELDS.get(change.partition("=")[0].strip(), "")
        if given.get(option) is not None:
            text = f"--{option.replace('_', '-')} {given[option]}"
            raise InputError(f"--set {change} has no effect beside {text}; give only one of them")


def _check_batch(given: dict[str, object]) -> None:
    from layermem.cli.options import read_shapes

    texts, batch = given.get("input"), given.get("batch")
    for name, shape in read_shapes(texts).items() if isinstance(texts, list) and batch is not None else ():
        if shape[0] != batch:
            what = f"--batch {batch} has no effect on the shape of '{name}', whose batch size is {shape[0]}"
            raise InputError(f"{what}; give one batch size")


def _check_fit(given: dict[str, object]) -> None:
    if given.get("grow") and given.get("costs"):
        raise InputError("--costs are of one size, and fit tries many; give --measure, or leave it out")
    if given.get("grow") == "batch" and given.get("batch") is not None:
        raise InputError("--batch has no effect where the batch grows; leave it out (--max N is the largest to try)")
    if given.get("grow") == "depth" and given.get("phase") is not None:
        raise InputError("--phase has no effect where the depth grows, in training; leave it out")
