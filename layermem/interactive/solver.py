"""layermem.Solver: the solver with its nets, with the API of pycaffe.

source  pycaffe's Solver, _caffe.cpp
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from layermem.errors import InputError, not_copyable
from layermem.graph.net import NetOptions
from layermem.interactive.solver_net import SolverNet
from layermem.planning.job import Budget
from layermem.proto.read import SolverFile, read_solver_text
from layermem.solver.jobs import StepOptions
from layermem.solver.rules import learning_rate
from layermem.solver.run_options import RunOptions
from layermem.solver.training import Training
from layermem.utils.arguments import checked
from layermem.utils.exclusive import made_once
from layermem.utils.files import PathName
from layermem.utils.fixed import Fixed
from layermem.utils.keywords import documented, signature, split

OPTIONS = (NetOptions, StepOptions, RunOptions)
HIDDEN = ("arrays", "copied", "noise", "ranks")  # RunOptions.data and RunOptions.transport say so


class Solver(Training):
    __doc__ = f"""Training of a net by a solver prototxt, within a memory budget.

solver = Solver("solver.prototxt", device="cpu", strategy="liveness", budget="50%", log=Log())
solver.solve()                         everything: iterations to max_iter, tests, displays, snapshots
solver.step(10); solver.test(0)        or in parts

InputError for errors in files, BudgetError if no plan fits, DivergenceError when a loss is not finite.
Its keywords decide the net, the step and the run:

{documented(*OPTIONS)}

nets, job, report, program, runner    the parts of the solver
iteration    number of updates so far        outputs    outputs of the last batch, by blob
interrupted  whether a signal or request("stop") ended solve()
"""
    __signature__ = signature("file", *OPTIONS, hidden=HIDDEN)

    def __init__(self, file: SolverFile | PathName, **options: Any):
        net, step, run = split("Solver", options, *OPTIONS, hidden=HIDDEN)
        super().__init__(file, net, step, run)

    @classmethod
    @checked
    def from_text(cls, text: str, **options: Any) -> Solver:
        """Make the solver in a prototxt `text`; the options are those of Solver."""
        return cls(read_solver_text(text), **options)

    def __repr__(self) -> str:
        return f"<Solver: {self.nets.train.name}, {self.param.type}, iteration {self.iteration} of {self.max_iter}>"

    def __reduce__(self) -> NoReturn:
        advice = "save it with solver.snapshot(), and make another from its prototxt with snapshot=path"
        raise not_copyable(f"the solver of net '{self.nets.train.name}' owns its memory and", advice)

    @property
    def iter(self) -> int:
        """The number of updates so far."""
        return self.iteration

    # -- nets --------------------------------------------------------------------------------------------------------

    @made_once
    def net(self) -> SolverNet:
        """The train net in the arena of the solver: parameters, and the blobs of the last step."""
        return SolverNet(self, 0)

    @made_once
    def test_nets(self) -> list[SolverNet]:
        """The test nets, in the arena of the solver."""
        return Fixed("test_nets", (SolverNet(self, 1 + index) for index in range(len(self.nets.tests))))

    # -- the learning rate ---------------------------------------------------------------------------------------------

    @property
    def base_lr(self) -> float:
        """The rate from which the policy starts; the policy continues with a new value.  Snapshots keep it."""
        return float(self.param.base_lr)

    @base_lr.setter
    @checked
    def base_lr(self, value: float) -> None:
        self.set_base_lr(value)

    @property
    def rate(self) -> float:
        """The learning rate of the next iteration.  Setting it sets base_lr, and the policy continues from there."""
        return float(learning_rate(self.param, self.iteration))

    @rate.setter
    @checked
    def rate(self, value: float) -> None:
        if not self.rate:
            raise InputError(
                f"the rate of iteration {self.iteration} is 0 under lr_policy '{self.param.lr_policy}', whatever "
                "base_lr is; set base_lr"
            )
        self.set_base_lr(value / self.rate * self.base_lr)

    # -- the budget ----------------------------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The bytes of the arena at most; None is no limit.

        Setting it, to what the keyword `budget` takes, plans the step anew: now, or before the next iteration if a
        callback or another thread sets it (`layermem docs live_budget`)."""
        return self.report.budget_bytes

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self.set_budget(budget)

    # -- callbacks -----------------------------------------------------------------------------------------------------

    @checked
    def add_callback(
        self,
        on_start: Callable[[], object] | None = None,
        on_gradient: Callable[[], object] | None = None,
        *,
        on_iteration: Callable[[], object] | None = None,
    ) -> None:
        """Call functions without arguments in each iteration.

        on_start      called before its first forward pass
        on_gradient   called when its gradients are final: before the update with iter_size > 1; otherwise the step
                      updates each parameter as soon as its gradient is final, and the call follows the step
        on_iteration  called at its end, with new `iter` and `outputs`; solver.request("stop") ends the run
        """
        self.callbacks.add(on_start=on_start, on_gradient=on_gradient, on_iteration=on_iteration)
