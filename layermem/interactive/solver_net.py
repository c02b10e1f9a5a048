"""A net of a solver with the interface of layermem.Net, in the arena of the solver.

A step updates each parameter as soon as its gradient is final, so `forward` can run on its own, but `backward` cannot.
Outputs can always be read, other blobs if the solver was made with `keep`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from layermem.errors import InputError
from layermem.graph.needs import is_updated
from layermem.graph.train import diff_buffer
from layermem.interactive.blob import Array, Blob, NetBlob
from layermem.interactive.lending import LendingNet
from layermem.interactive.net import Net
from layermem.interactive.shadows import Shadows
from layermem.report.notebook import net_html
from layermem.report.plan_report import PlanReport
from layermem.runtime.runner import Runner
from layermem.solver.feeds import Feeds
from layermem.solver.planned import Planned
from layermem.utils.arguments import checked
from layermem.utils.exclusive import exclusive

INSTEAD = "use solver.step(1), or a layermem.Net of its own with net.share_with(solver.net)"


class SolverNet(Net):
    """Net number `number` of `planned`, a solver: 0 is the train net.

    params    live, in the arena of the solver           blobs    outputs and kept blobs of its last step or test
    forward   runs its next batch                        save, load   the parameters
    """

    def __init__(self, planned: Planned, number: int):
        engine = planned._engine
        self._planned, self._engine, self._number = planned, engine, number
        self._lock = engine.lock
        self._definition = engine.nets.all[number]
        self._shapes, self._input_arrays, self._diffs, self._lenders = {}, {}, {}, {}
        self._shadows = Shadows()
        engine.before_run.append(lambda: self._shadows.flush(engine.runner))
        engine.after_run.append(lambda: self._shadows.refresh(engine.runner))
        engine.on_rebind.append(self._follow)
        self._make_views()

    def _repr_html_(self) -> str:
        return net_html(self._definition, self.report)

    def _follow(self) -> None:
        """Take the shapes of the solver's current plan."""
        self._definition = self._engine.nets.all[self._number]

    def _runner(self) -> Runner:
        return self._engine.runner

    @property
    def _open_feeds(self) -> Feeds:
        return self._engine.open_feeds

    def _given(self, name: str) -> Array | None:
        return self._constant(name)

    @property
    def report(self) -> PlanReport:
        """The plan of the whole solver, as it is now."""
        return self._planned.report

    @property
    @exclusive
    def measured_peak_bytes(self) -> int:
        return self._engine.runner.measured_peak_bytes

    @exclusive
    @checked
    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Array]:
        """Run the next batch forward; return arrays by name of output blob, and of `blobs`.

        In a train net this advances the data and averages of BatchNorm, as in Caffe.
        """
        if start is not None or end is not None or inputs:
            self._refuse("runs whole forward passes over the data of its input layers")
        engine = self._engine
        if self._number:
            engine.forward_test(self._number - 1)
        else:
            engine.forward(int(engine.context["iteration"]))
        return {name: np.array(self.blobs[name].data) for name in dict.fromkeys((*self.outputs, *(blobs or ())))}

    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **top_diffs: Any
    ) -> dict[str, Array]:
        """Raise InputError: a step of a solver runs backward and update together."""
        self._refuse("goes backward and updates as one")

    def _forward_batch(self, blobs: Sequence[str] | None, batch: Mapping[str, Array]) -> dict[str, Array]:
        self._refuse("runs over the data of its input layers")

    @exclusive
    def set_input_arrays(self, data: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Set the arrays of its MemoryData layer (solver.give sets those of any layer)."""
        layer = self._memory_data()
        self._engine.open_feeds.give(self._number, layer, [np.asarray(data), np.asarray(labels)])

    @exclusive
    def reshape(self, **shapes: Sequence[int]) -> None:
        """Raise InputError for other shapes: the plan of a solver holds for its shapes."""
        if shapes:
            self._refuse("is planned for its shapes")

    def share_with(self, other: LendingNet) -> None:
        """Do nothing for a net of the same solver, which shares its parameters already; raise InputError for
        another."""
        if not (isinstance(other, SolverNet) and other._engine is self._engine):
            raise InputError("a net of a solver keeps its own parameters; copy them with net.load(path)")

    def close(self) -> None:
        """Do nothing: the solver owns the arena."""

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(f"net '{self.name}' of a solver {what}; {INSTEAD}")

    # -- views -------------------------------------------------------------------------------------------------------

    def _blob(self, name: str) -> Blob:
        return NetBlob(name, lambda: self._shape(name), lambda: self._data(name), lambda: self._diff(name))

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._definition.blobs[self._version(name)].shape

    def _parameter(self, layer: str, index: int, name: str, shape: tuple[int, ...]) -> Blob:
        def data() -> Array:
            with self._lock.mutex:
                return self._shadows.array(self._runner(), name, shape)

        def diff() -> Array:
            with self._lock.mutex:
                runner = self._runner()
                if not is_updated(self._definition, name):
                    return np.zeros(shape, runner.device.real)
                if f"{name}.diff" in runner.persistent and runner.is_whole(f"{name}.diff"):
                    return self._shadows.array(runner, f"{name}.diff", shape)
                held = self._engine.held(self._number)
                if held is not None and f"{name}.diff" in held:
                    return held.read(f"{name}.diff").reshape(shape)
            raise InputError(
                f"the gradient of '{layer}' is consumed by its update within a step; Solver(keep='*.diff') holds those "
                "of parameters to the end of it"
            )

        return NetBlob(f"{layer}[{index}]", lambda: shape, data, diff)

    @exclusive
    def _data(self, name: str) -> Array:
        given = self._given(name)
        if given is not None:
            return given
        version = self._version(name)
        held = self._engine.held(self._number)
        if held is not None and version in held:
            return held.read(version)
        values: Mapping[str, Array] = self._engine.values[self._number]
        if version in values:
            return values[version]
        raise self._not_kept(name, "data")

    @exclusive
    def _diff(self, name: str) -> Array:
        held = self._engine.held(self._number)
        buffer = None if held is None else diff_buffer(self._definition, name, held.schedule.graph)
        if held is None or buffer is None or buffer not in held:
            raise self._not_kept(name, "diff")
        return held.read(buffer)

    def _not_kept(self, name: str, what: str) -> InputError:
        ran = self._engine.values[self._number]
        if not ran:
            return InputError(f"blob '{name}' has no {what} before the net runs; call solver.step(1) first")
        return InputError(
            f"the {what} of blob '{name}' is not in the arena now: the plan gives it away within a step, or another "
            f"net ran since; Solver(keep=['{name}']) holds it to the end of a step"
        )
