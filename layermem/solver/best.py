"""The best weights of a run by its first test net, and the end of the run for lack of better ones.

    keep_best: true    each test that is better than all before it writes PREFIX_best.caffemodel, in place of the last
    patience: N        likewise, and the run ends when N tests in succession were not better

Tests are compared by the output of the first Accuracy or DetectionEvaluate layer, of which the highest is best; without
such a layer by the first loss, of which the lowest is best.  Snapshots hold what is best so far, so that a resumed run
goes on with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from layermem.graph.net import Net
from layermem.proto.read import SolverFile
from layermem.report.events import Event, Note
from layermem.solver.build import reported
from layermem.solver.engine import Engine
from layermem.solver.progress import Progress, write_weights
from layermem.solver.snapshot import SavedBest, best_path


@dataclass(frozen=True)
class Criterion:
    """The output by which tests are compared, and whether a higher value of it is better."""

    output: str
    higher: bool

    def is_better(self, value: float, best: SavedBest | None) -> bool:
        if not math.isfinite(value) or best is None:
            return math.isfinite(value)
        return value > best["value"] if self.higher else value < best["value"]


def criterion_of(file: SolverFile, tests: Sequence[Net]) -> Criterion | None:
    """The criterion of a solver; None if it keeps no best weights.  InputError if it has no test to compare by."""
    param = file.message
    if not (param.keep_best or param.patience):
        return None
    field = "patience" if param.patience else "keep_best"
    if not tests or not param.test_interval:
        raise file.error(field, f"has {field} and no tests; add test_iter and test_interval, or remove it")
    outputs = [each for each in reported(tests[0]) if each.output]
    scores = [top for node in tests[0].nodes if node.layer.is_score for top in node.layer.param.top]
    for name in scores:
        if any(each.name == name for each in outputs):
            return Criterion(name, higher=True)
    for each in outputs:
        if each.weight:
            return Criterion(each.name, higher=False)
    raise file.error(field, f"has {field}, and its first test net has neither an accuracy nor a loss; add one")


class BestWeights:
    """Follows the tests of a run, writes the best weights, and says when the run ends for lack of better ones."""

    def __init__(self, file: SolverFile, tests: Sequence[Net]):
        self.criterion = criterion_of(file, tests)
        self.patience, self.prefix = file.message.patience, file.message.snapshot_prefix

    def take(
        self, means: Mapping[str, np.ndarray], engine: Engine, progress: Progress, log: Callable[[Event], None]
    ) -> None:
        """Count the test of this iteration, unless it was counted before its snapshot was saved, or is that of the
        initial weights."""
        best = progress.best
        counted = 0 if best is None else best["tested"]
        if self.criterion is None or progress.iteration <= counted:
            return
        value = float(np.ravel(means[self.criterion.output])[0])
        if self.criterion.is_better(value, best):
            model = best_path(self.prefix, engine.param)
            engine.parameters.shared.collect(partial(write_weights, model, engine))
            at = progress.iteration
            progress.best = {"value": value, "iteration": at, "model": model, "tested": at, "since": 0}
            log(Note(f"Iteration {at}: {self.criterion.output} = {value:g} is the best so far; weights in '{model}'"))
        elif best is not None:
            progress.best = {**best, "tested": progress.iteration, "since": best["since"] + 1}
        if self.is_over(progress):
            log(Note(f"Iteration {progress.iteration}: {self.patience} tests without a better one, so training ends"))

    def is_over(self, progress: Progress) -> bool:
        """Whether `patience` tests in succession were not better than the best one."""
        return bool(self.patience and progress.best is not None and progress.best["since"] >= self.patience)
