"""Steps of layers whose kernels take operands in 16 bits, and the same with converted operands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from layermem.backends.cuda.products import narrow_products
from layermem.backends.narrow import narrowed, widened
from layermem.layers import Layer, Step
from layermem.ops import NARROW, OpRecord
from tests.backends.cuda.harness import CONTEXT, PLAIN, Memory, Way, first_step, record_of, run_op
from tests.cases import CASES, select
from tests.layers.harness import Run, roles, wants_of
from tests.op_case import OpCase

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Taken:
    """A step of a layer whose roles `narrow` are in 16 bits, and the arrays of all that it reads, in Caffe's axes."""

    layer: Layer
    step: Step
    record: OpRecord
    narrow: frozenset[str]
    given: Arrays
    word: str

    def run(
        self, direct: bool, way: Way = PLAIN, *, over: Mapping[str, str] | None = None, adds: Collection[str] = ()
    ) -> Arrays:
        """What the step writes, in 16 bits by its kernels, or in fp32 with its operands widened and results rounded."""
        dtype, memory, arrays = NARROW[self.word], Memory(), {}
        for role in (*self.step.reads, *self.step.updates, *self.step.writes):
            if over and role in over:
                stored = Run(self.layer).tensor(role).stored
                arrays[role] = arrays[over[role]].reshape(stored)
                continue
            value = self.given[role] if role in self.given else np.full(Run(self.layer).tensor(role).shape, np.nan)
            kind = np.dtype(np.float32) if value.dtype.kind == "f" else value.dtype
            if role in self.step.writes and role not in adds and kind != np.float32:
                value = np.full_like(value, 0xFF if kind == np.uint8 else -1)
            array = np.array(value, kind)
            if role in self.narrow:
                bits = narrowed(array, dtype)
                array = bits if direct else widened(bits, dtype)
            arrays[role] = memory.stored(array, array.dtype)
        run_op(
            self.record,
            self.step.step,
            arrays,
            accumulates=adds,
            context=CONTEXT,
            way=way,
            storage=self.word if direct else "",
        )
        memory.check()
        written = {role: arrays[role] for role in (*self.step.writes, *self.step.updates)}
        if direct:
            return written
        return {role: narrowed(array, dtype) if role in self.narrow else array for role, array in written.items()}


def whole_numbers(values: np.ndarray) -> np.ndarray:
    """Small ones: sums of their products are exact in every order."""
    return np.clip(np.round(values), -2, 2)


def taken_steps(case: OpCase, word: str, precision: str = "fp32", *, exact: bool = False) -> Iterator[Taken]:
    """The steps of a layer that kernels take in 16 bits, forward and backward, with their operands by the reference;
    also those that they take with bottoms in fp32, as the data of a net are.  exact: of whole_numbers."""
    rng, draw = np.random.default_rng(11), whole_numbers if exact else np.asarray
    layer = case.layer("small")
    xs, ws = (list(map(draw, values)) for values in case.inputs(layer, rng))
    truth = Run(layer, context=dict(CONTEXT), overlaid=False)
    for stem, values in (("x", xs), ("w", ws)):
        for role, value in zip(roles(stem, len(values)), values, strict=True):
            truth.put(role, np.float32(value))
    wants = wants_of(layer)
    recompute = layer.recompute()
    steps = [first_step(layer, wants)]
    steps += [recompute] if recompute is not None and recompute.step != "forward" else []
    for number, step in enumerate([*steps, *layer.backward(wants)]):
        if number == len(steps):
            for role, top in zip(roles("dy", len(layer.tops)), layer.tops, strict=True):
                truth.put(role, np.float32(draw(rng.standard_normal(top.shape))))
        record, touched = record_of(layer, step), (*step.reads, *step.writes, *step.updates)
        floats = {role for role in touched if Run(layer).tensor(role).dtype == "float32"}
        dtypes = {role: NARROW[word] if role in floats else "uint8" for role in touched}
        of_data = {role: "float32" if role.startswith("x") else dtype for role, dtype in dtypes.items()}
        taken = (narrow_products.takes(precision, record, step.step, each, ()) for each in (dtypes, of_data))
        given = {role: np.array(truth.arrays[role]) for role in (*step.reads, *step.updates)}
        truth.step(step)
        given_back = {role: np.array(truth.arrays[role]) for role in step.writes}
        for narrow in dict.fromkeys(filter(None, taken)):
            yield Taken(layer, step, record, narrow, given | given_back, word)


SMALL = [*(case.name for case in select("small")), "Slice"]
TAKING = [name for name in SMALL if any(taken_steps(CASES[name], next(iter(NARROW))))]
