"""Tracks the last passes of a net, and reads their blobs, which are held or recomputed.

A forward pass leaves the blobs that its program holds.  A program that holds another blob recomputes it from the same
inputs, with the same random numbers; states that a forward pass advances (averages of BatchNorm, recurrent states) are
restored first, so that they advance only once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from layermem.graph.layer_ranges import (
    FED_BLOB,
    FED_DIFF,
    BackwardRange,
    LayerRange,
    diff_buffer,
    oldest_version,
    outside_blobs,
)
from layermem.graph.net import Net
from layermem.graph.ops import FORWARD
from layermem.interactive.session import Array, Bound, Session

Batch = dict[str, list[Array]]
STACK = 4  # stack frames from a warning here to the user's line that reads `.data`


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Layers [begin, end), run on `batch` as step number `step`; `states` are the states before it."""

    begin: int
    end: int
    batch: Mapping[str, Sequence[Array]]
    step: int
    states: Mapping[str, Array]
    made: Mapping[str, str]  # name of blob -> its version after the pass


@dataclass(frozen=True, eq=False)
class BackwardPass:
    """Layers [begin, end) of the last forward pass, with the gradients that the host gave, by version."""

    begin: int
    end: int
    fed: Mapping[str, Array]

    @property
    def range(self) -> BackwardRange:
        return BackwardRange(self.begin, self.end, tuple(self.fed))


class Passes:
    """The passes of one net.

    keep     globs of names of blobs to hold to the end of a step; None is all blobs
    trains   whether forward passes use the program that can continue with backward
    given    the array of a blob that its layer copies in each pass, to which a user may write; None for other blobs
    """

    def __init__(
        self,
        net: Net,
        session: Session,
        keep: Sequence[str] | None,
        trains: bool,
        given: Callable[[str], Array | None] = lambda name: None,
    ):
        self.net, self.session, self.keep, self._given = net, session, keep, given
        self.step = 0
        self.history: list[ForwardPass] = []  # the last pass, and those with a blob that is still the newest
        self.backward_pass: BackwardPass | None = None
        self.copies: dict[str, Array] = {}  # copies of blobs outside the arena, by name; a user may write to them
        self.diff_copies: dict[str, Array] = {}
        self._range = BackwardRange(0, len(net.layers)) if trains else None
        self._in_arena: tuple[ForwardPass, Bound, bool] | None = None  # (last pass, its program, whether backward ran)
        self._warned: set[str] = set()
        session.on_new_arena = self.forget

    # -- running ---------------------------------------------------------------------------------------------------

    def default_range(self) -> LayerRange:
        """The range of a whole forward pass."""
        end = len(self.net.layers)
        return self._layer_range(0, end, self._range if self._covers(0, end) else None)

    def forward(
        self, begin: int, end: int, batch: Batch, prepare: Callable[[], None], wanted: Sequence[str] = ()
    ) -> None:
        """Run layers [begin, end) forward; blobs of earlier layers keep their current values.

        prepare   called when the arena exists, right before the pass
        wanted    names of blobs that will be read: those that are not held are copied out"""
        whole = LayerRange(begin, end)
        names = {version: name for name in self._names() for version in self.net.versions[name]}
        inputs = {FED_BLOB + v: [np.array(self._outside(names[v]))] for v in outside_blobs(self.net, whole)}
        made = self._made(begin, end)
        layer_range = self._layer_range(begin, end, self._range if self._covers(begin, end) else None)
        copied = {made[name]: name for name in wanted if name in made and not self._is_held(made[name], layer_range)}
        bound = self.session.bind(replace(layer_range, copied=tuple(copied)))
        prepare()
        new = ForwardPass(begin, end, {**batch, **inputs}, self.step, self._states(bound), made)
        self.step += 1
        self._start(new, bound)
        self.history = [p for p in self.history if p.made.keys() - made.keys()] + [new]
        self.copies = {name: array for name, array in self.copies.items() if name not in made}
        self.copies |= {name: bound.results[version] for version, name in copied.items()}
        outside = {names[fed.removeprefix(FED_BLOB)]: arrays[0] for fed, arrays in inputs.items()}
        self.copies |= {name: array for name, array in outside.items() if name not in made}
        self.backward_pass, self.diff_copies = None, {}

    def forward_on_zeros(self, batch: Batch, prepare: Callable[[], None]) -> None:
        """Run a whole forward pass that leaves states and the pass number as they are."""
        self.forward(0, len(self.net.layers), batch, prepare)
        self._write_states(self.history[-1].states)
        self.step -= 1

    def backward(self, begin: int, end: int, fed: Mapping[str, Array], wanted: Sequence[str] = ()) -> None:
        """Run layers [begin, end) of the last forward pass backward, from the gradients `fed`."""
        last = self.history[-1]
        self._range = BackwardRange(begin, end, tuple(fed))
        layer_range = self._layer_range(last.begin, last.end, self._range)
        copied = tuple(name for name in dict.fromkeys(wanted) if name not in layer_range.diffs)
        if copied:
            older = [v for name in copied for v in self.net.versions[name][:-1]]
            layer_range = replace(layer_range, unfused=(*layer_range.unfused, *older), copied_diffs=copied)
        bound = self.session.bind(layer_range)
        self._run_backward(last, bound, fed)
        self.backward_pass, self.diff_copies = BackwardPass(begin, end, dict(fed)), {}
        for name in copied:
            buffer = self._diff_buffer(name, bound)
            if buffer is not None:
                self.diff_copies[name] = bound.results[buffer]

    def computes_diff(self, name: str) -> bool:
        """Whether the last backward pass computed the gradient of blob `name`, instead of reading it."""
        if self.backward_pass is None:
            return False
        oldest = oldest_version(self.net, name, self.backward_pass.range)
        return oldest is not None and oldest not in self.backward_pass.fed

    def leaves(self, begin: int, end: int) -> dict[str, str]:
        """Blobs of layers [begin, end) that none of these layers overwrites: name -> version."""
        layers = self.net.layers[begin:end]
        nodes = [node for layer in layers for node in layer.nodes]
        read = {bottom for node in nodes if node.tops for bottom in node.bottoms}
        return {name: v for layer in layers for name, v in zip(layer.message.top, layer.tops) if v not in read}

    def continue_from(self, other: Passes) -> None:
        """Continue the pass numbers and the backward state of `other`."""
        self.step, self._range = other.step, other._range

    def forget(self) -> None:
        """Forget the last pass, because another arena replaces its arena."""
        self._in_arena = None

    def _run_backward(self, forward: ForwardPass, bound: Bound, fed: Mapping[str, Array]) -> None:
        if self._in_arena != (forward, bound, False):
            self._repeat(forward, bound)
        self.session.context["batch"] = {FED_DIFF + version: [array] for version, array in fed.items()}
        self._in_arena = None
        bound.run_backward()
        self._in_arena = forward, bound, True

    def _start(self, forward: ForwardPass, bound: Bound) -> None:
        self.session.context["step"] = forward.step
        self.session.context["batch"] = forward.batch
        self._in_arena = None
        bound.run_forward()
        self._in_arena = forward, bound, False

    def _repeat(self, forward: ForwardPass, bound: Bound) -> None:
        """Repeat a forward pass with the states that it began with."""
        runner = self.session.runner
        assert runner is not None
        now = {name: runner.read(name) for name in forward.states}
        self._write_states(forward.states)
        self._start(forward, bound)
        self._write_states(now)

    def _write_states(self, states: Mapping[str, Array]) -> None:
        assert self.session.runner is not None
        for name, value in states.items():
            self.session.runner.write(name, value)

    def _states(self, bound: Bound) -> dict[str, Array]:
        """The current values of the states that the forward part advances."""
        graph = bound.schedule.graph
        touched = {b for op in graph.ops if op.kind == FORWARD for b in (*op.updates, *op.writes)}
        return {name: bound.runner.read(name) for name in touched if graph.buffers[name].persistent}

    # -- reading ---------------------------------------------------------------------------------------------------

    def data(self, name: str) -> Array:
        """The blob `name`: a view of the arena, or an array that the host keeps until the next pass."""
        if name in self.copies:
            return self.copies[name]
        forward = next((p for p in reversed(self.history) if name in p.made), None)
        if forward is None:
            shape = self.net.blobs[self.net.versions[name][-1]].shape
            return self.copies.setdefault(name, np.zeros(shape, self.session.device.real))
        version = forward.made[name]
        if self._in_arena is not None and self._in_arena[0] is forward:
            _, bound, backward = self._in_arena
            held = bound.held(backward=backward)
            if version in held:
                return self._readable(self.copies, name, held.read(version))
        self._warn(name, "data", "forward pass")
        return self.copies.setdefault(name, self._copy(forward, name))

    def _copy(self, forward: ForwardPass, name: str) -> Array:
        """Recompute a blob of an earlier forward pass, up to the last layer that writes it."""
        version = forward.made[name]
        last = max(i for i, layer in enumerate(self.net.layers) if version in layer.tops)
        bound = self.session.bind(LayerRange(forward.begin, last + 1, copied=(version,)))
        self._repeat(forward, bound)
        self.forget()
        return bound.results[version]

    def diff(self, name: str) -> Array | None:
        """The gradient of blob `name` from the last backward pass; None if there is none."""
        if name in self.diff_copies:
            return self.diff_copies[name]
        if self.backward_pass is None or not self._has_diff(name):
            return None
        if self._in_arena is not None:
            _, bound, backward = self._in_arena
            buffer = self._diff_buffer(name, bound)
            if backward and buffer is not None and buffer in bound.held(backward=True):
                return self._readable(self.diff_copies, name, bound.held(backward=True).read(buffer))
        if not self.reaches(name):
            return self.diff_copies.setdefault(name, np.zeros_like(self.data(name)))
        self._warn(name, "diff", "pass")
        again, forward = self.backward_pass, self.history[-1]
        part = BackwardRange(again.begin, again.end, tuple(again.fed), data_only=True)
        older = tuple(self.net.versions[name][:-1])
        bound = self.session.bind(LayerRange(forward.begin, forward.end, part, unfused=older, copied_diffs=(name,)))
        buffer = self._diff_buffer(name, bound)
        if buffer is None:  # no gradient reaches the blob
            return self.diff_copies.setdefault(name, np.zeros_like(self.data(name)))
        self._run_backward(forward, bound, again.fed)
        self.forget()
        return self.diff_copies.setdefault(name, bound.results[buffer])

    def _has_diff(self, name: str) -> bool:
        """Whether the layers of the last backward pass read or write the blob."""
        assert self.backward_pass is not None
        inside = self.net.layers[self.backward_pass.begin : self.backward_pass.end]
        return any(name in (*layer.message.bottom, *layer.message.top) for layer in inside)

    def _diff_buffer(self, name: str, bound: Bound) -> str | None:
        """The buffer with the gradient of blob `name` after the last backward pass."""
        assert self.backward_pass is not None
        return diff_buffer(self.net, name, bound.schedule.graph, self.backward_pass.range)

    def reaches(self, name: str) -> bool:
        """Whether a gradient reaches the blob, or may reach it: the layers that write it may be fused with its
        readers."""
        forward, again = self.history[-1], self.backward_pass
        assert again is not None
        layer_range = self._layer_range(forward.begin, forward.end, again.range)
        graph = self.session.bind(layer_range).schedule.graph
        newest = self.net.versions[name][-1]
        return newest not in graph.buffers or f"{newest}.diff" in graph.buffers

    def _outside(self, name: str) -> Array:
        """The value of a blob for layers that begin after it."""
        given = self._given(name)
        return self.data(name) if given is None else given

    def _readable(self, copies: dict[str, Array], name: str, array: Array) -> Array:
        """Return a view unchanged; keep a copy from a device, so that writes by the user persist."""
        return array if self.session.device.shares_host_memory else copies.setdefault(name, array)

    def _warn(self, name: str, what: str, again: str) -> None:
        if name not in self._warned and not self.is_kept(name):
            self._warned.add(name)
            warnings.warn(
                f"the plan gives the {what} of blob '{name}' away within a step, so another {again} makes it again; "
                f"keep=['{name}'] holds it",
                stacklevel=STACK,
            )

    # -- ranges ----------------------------------------------------------------------------------------------------

    def is_kept(self, name: str) -> bool:
        return self.keep is None or any(fnmatchcase(name, glob) for glob in self.keep)

    def _layer_range(self, begin: int, end: int, backward: BackwardRange | None) -> LayerRange:
        """Layers [begin, end) with their held blobs, which are computed as in Caffe."""
        made = self._made(begin, end)
        data = tuple(made[name] for name in made if self.is_kept(name))
        if backward is None:
            return LayerRange(begin, end, None, data)
        inputs = self.input_names()
        diffs = tuple(name for name in self._names() if self.is_kept(name) or name in inputs)
        older = [v for name in made if self.keep and self.is_kept(name) for v in self.net.versions[name][:-1]]
        return LayerRange(begin, end, backward, data, diffs, tuple(older))

    def _is_held(self, version: str, layer_range: LayerRange) -> bool:
        return version in layer_range.data or version in self.leaves(layer_range.begin, layer_range.end).values()

    def _covers(self, begin: int, end: int) -> bool:
        """Whether the last backward pass lies within these layers."""
        return self._range is not None and begin <= self._range.begin and self._range.end <= end

    def _made(self, begin: int, end: int) -> dict[str, str]:
        """The blobs that layers [begin, end) write: name -> the newest version among them."""
        layers = self.net.layers[begin:end]
        return {name: version for layer in layers for name, version in zip(layer.message.top, layer.tops)}

    def _names(self) -> Collection[str]:
        return dict.fromkeys(name for layer in self.net.layers for name in layer.message.top)

    def input_names(self) -> list[str]:
        """Names of the tops of Input layers."""
        return [name for layer in self.net.layers if layer.type == "Input" for name in layer.message.top]
