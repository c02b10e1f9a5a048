"""One layer alone, on emulated kernels, held against the reference device in double precision.

Every op runs from its launches (layermem.backends.cuda) as a GPU would run it: outputs start as NaN, inputs
are given back unchanged, nothing outside its buffers is written.  It then runs again for every overlay that it permits,
which must not change a bit, and with every gradient added to what is there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

import layermem.backends.reference  # noqa: F401  (registers the reference)
from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import NO_ERROR, CudaCall
from layermem.backends.cuda.products import narrow_products
from layermem.backends.cuda.support.step_scalars import pack_step_scalars
from layermem.backends.reference.base import axes_of_caffe
from layermem.errors import InputError
from layermem.layers.base import Layer, Step, Tensor
from layermem.ops import OpRecord
from tests.backends.cuda.refused import NotTried
from tests.emulator import emulate
from tests.layers.harness import Run, logical, roles, wants_of
from tests.layers.harness import first_step as first_step
from tests.layers.harness import layer_of as layer_of
from tests.op_case import OpCase

GUARD = 256
BESIDE = ("error_flag", "step_scalars")  # buffers that are no roles of an op
CONTEXT = {"seed": 1701, "step": 3}
BOUND = 2e-6  # relative error of a whole tensor, where a test names no other
DRAWS, NUDGE = 8, 1e-6  # random changes of the inputs that tell how far a result moves, and their size


@dataclass(frozen=True)
class Way:
    """How kernels are run: the build of the emulator, the order of its threads, the moment its copies land; and the
    precision of matrix products, and the capability that chooses their kernels.  With a GPU
    (tests/backends/cuda/on_gpu.py) they run there instead."""

    mode: str = "plain"
    order: str = "shuffled"
    copies: str = "late"
    precision: str = "fp32"
    gpu: Any = None
    capability: str = ""


PLAIN = Way()


class Memory:
    """Arrays on 256-byte steps between guards, as an arena has them."""

    def __init__(self) -> None:
        self.blocks: list[tuple[np.ndarray, int, int]] = []

    def bytes(self, nbytes: int) -> np.ndarray:
        """All 0xFF, which is NaN as a float."""
        block = np.full(nbytes + 3 * GUARD, 0xAB, np.uint8)
        begin = -block.ctypes.data % GUARD + GUARD
        self.blocks.append((block, begin, begin + nbytes))
        block[begin : begin + nbytes] = 0xFF
        return block[begin : begin + nbytes]

    def stored(self, like: np.ndarray, dtype: np.dtype | type) -> np.ndarray:
        """A copy of an array with Caffe's axes, in the order of memory."""
        memory = like.transpose(0, 2, 3, 1) if like.ndim == 4 else like
        kind = np.dtype(dtype)
        array = self.bytes(memory.size * kind.itemsize).view(kind).reshape(memory.shape)
        array[...] = memory
        return array

    def check(self) -> None:
        for block, begin, end in self.blocks:
            assert (block[:begin] == 0xAB).all() and (block[end:] == 0xAB).all(), "a kernel wrote outside its buffers"


def run_op(
    record: OpRecord,
    step: str,
    arrays: Mapping[str, np.ndarray],
    *,
    accumulates: Collection[str] = (),
    context: Mapping | None = None,
    way: Way = PLAIN,
    storage: str = "",
) -> int:
    """Run one step of a record on float32 arrays in the order of memory; the number of launches.  `storage`: of the
    arrays of 16 bits, if there are some.

    The workspace is made here, of exactly the bytes that the op needs.
    """
    memory = Memory()
    rounding = narrow_products.rounding_bytes(way.precision, record, step, storage)
    size = max(rounding, cuda_kernels.workspace_bytes(record, step, tuple(arrays)))
    scalars = np.frombuffer(bytearray(pack_step_scalars(context or CONTEXT)), np.uint8)
    buffers = {**arrays, "error_flag": np.full(1, NO_ERROR, np.int32), "step_scalars": scalars}
    if size:
        buffers["workspace"] = memory.bytes(size)
    error_flag = buffers["error_flag"]
    host = {role: array.ctypes.data for role, array in buffers.items()}
    addresses = way.gpu.placed(buffers) if way.gpu else host
    call = CudaCall(
        addresses={role: address for role, address in addresses.items() if role not in BESIDE},
        counts={role: array.size for role, array in arrays.items()},
        accumulated=accumulates,
        storage=storage,
        narrow=[role for role, array in arrays.items() if array.dtype == np.uint16] if storage else (),
        precision=way.precision,
        capability=way.capability,
        error_flag=addresses["error_flag"],
        step_scalars=addresses["step_scalars"],
    )
    launches = 0
    for launch in cuda_kernels.bind(record, step, call):
        launches += 1
        if way.gpu:
            way.gpu.launch(launch, context or CONTEXT)
            continue
        kernels = emulate.load(f"cuda/{launch.module}.cu", way.mode, order=way.order, copies=way.copies)
        kernels.launch(
            launch.function,
            launch.grid,
            launch.block,
            launch.packed(context or CONTEXT),
            launch.shared,
            buffers=list(buffers.values()),
        )
    if way.gpu:
        way.gpu.bring_back()
    memory.check()
    if error_flag[0] != NO_ERROR:
        raise InputError(f"reads label {error_flag[0]}")
    return launches


def record_of(layer: Layer, step: Step) -> OpRecord:
    return step.record or layer.record


def kernel_names(module: str) -> list[str]:
    """The kernels of cuda/<module>.cu, as its build for the host lists them."""
    library = emulate.load(f"cuda/{module}.cu").host.library
    library.lm_emu_kernel_name.restype = ctypes.c_char_p
    return [name.decode() for name in iter(map(library.lm_emu_kernel_name, count()).__next__, None)]


@dataclass
class Case:
    """A layer with inputs in double precision, and the way in which its kernels are run.

    bounds   relative error by role, where it is not BOUND
    """

    layer: Layer
    xs: Sequence[np.ndarray]
    ws: Sequence[np.ndarray] = ()
    way: Way = PLAIN
    bounds: Mapping[str, float] = field(default_factory=dict)
    context: Mapping = field(default_factory=lambda: CONTEXT)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    errors: dict[str, float] = field(default_factory=dict)  # relative, by role, after check()
    refused: list[NotTried] = field(default_factory=list)  # by way.gpu: ops whose results the reference has computed
    repeats: bool = True  # run again over each overlay, and adding to what is there
    compares: bool = True

    def check_once(self) -> dict[str, np.ndarray]:
        """As check(), but without the runs over overlays and over gradients that are there already."""
        self.repeats = False
        return self.check()

    def run_once(self) -> None:
        """All launches of check_once(), whatever they compute."""
        self.compares = False
        self.check_once()

    def check(self, wants: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Forward, recompute and backward; the arrays of all roles, with Caffe's axes."""
        layer = self.layer
        truth = Run(layer, context=dict(self.context), overlaid=False)
        for stem, values in (("x", self.xs), ("w", self.ws)):
            for role, value in zip(roles(stem, len(values)), values, strict=True):
                truth.put(role, np.float32(value))
        self.got = {role: np.array(a) for role, a in truth.arrays.items()}
        wants = wants_of(layer) if wants is None else wants
        self._step(truth, first_step(layer, wants))
        recompute = layer.recompute()
        if recompute is not None and recompute.step != "forward":
            self._step(truth, recompute)
        for role, top in zip(roles("dy", len(layer.tops)), layer.tops, strict=True):
            truth.put(role, np.float32(self.rng.standard_normal(top.shape)))
            self.got[role] = np.array(truth.arrays[role])
        for step in layer.backward(wants):
            self._step(truth, step)
        return self.got

    def run_unchecked(self, dy: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The arrays of all roles after forward, and after backward of `dy` where that is given, whatever they are."""
        given = Run(self.layer)
        for stem, values in (("x", self.xs), ("w", self.ws)):
            for role, value in zip(roles(stem, len(values)), values, strict=True):
                given.put(role, value)
        self.got = {role: np.array(a) for role, a in given.arrays.items()}
        self.got.update(self._run(self.layer.forward(), {}))
        if dy is not None:
            self.got["dy0"] = np.float32(dy)
            for step in self.layer.backward(wants_of(self.layer)):
                self.got.update(self._run(step, {role: self.got[role] for role in step.updates}))
        return self.got

    def _step(self, truth: Run, step: Step) -> None:
        before = {role: np.array(self.got[role]) for role in step.updates}
        given = {role: truth.arrays[role].copy() for role in (*step.reads, *step.updates)}
        truth.step(step)
        try:
            self.got.update(self._run(step, before))
        except NotTried as error:
            self.refused.append(error)
            self.got.update({role: np.array(truth.arrays[role]) for role in (*step.writes, *step.updates)})
            return
        for role in (*step.writes, *step.updates):
            if not self.compares:
                continue
            want, bound = truth.arrays[role], self.bounds.get(role, BOUND)
            self.errors[role] = close(
                role, self.got[role], want, bound, lambda role=role: self._moves(step, given)[role]
            )
        if step.updates or not self.repeats:
            return
        for overlay in step.overlays:
            overlaid = self._run(step, {}, over={overlay.out: overlay.over})
            for role in step.writes:
                why = f"{step.step} with {overlay.out} on {overlay.over} gives another {role}"
                np.testing.assert_array_equal(overlaid[role], self.got[role], err_msg=why)
        gradients = [role for role in step.writes if role.startswith("d")]
        if gradients:
            self._adding(step, gradients)

    def _moves(self, step: Step, given: Mapping[str, np.ndarray]) -> dict[str, float]:
        """How far each result moves, in the norm, for a relative change of every input by one: the root mean square of
        a few changes by random signs.  A sum whose terms cancel moves as they do, however small it is itself."""
        signs, squares = np.random.default_rng(7), dict.fromkeys((*step.writes, *step.updates), 0.0)
        settled = {}
        for draw in range(1 + DRAWS):  # the first one changes nothing
            run = Run(self.layer, context=dict(self.context), overlaid=False)
            for role, value in given.items():
                names = value.dtype.kind != "f" or np.array_equal(value, np.round(value))  # labels, winners, masks
                change = 0.0 if names or draw == 0 else NUDGE * signs.choice([-1.0, 1.0], value.shape)
                run.put(role, value * (1 + change) if not names else value)
            run.step(step)
            if draw == 0:
                settled = {role: run.arrays[role].astype(np.float64) for role in squares}
            for role in squares:
                squares[role] += float(np.linalg.norm(run.arrays[role] - settled[role]) / NUDGE) ** 2 / DRAWS
        return {role: float(np.sqrt(square)) for role, square in squares.items()}

    def _adding(self, step: Step, gradients: Sequence[str]) -> None:
        before = {r: np.float32(self.rng.standard_normal(self.got[r].shape)) for r in gradients}
        summed = self._run(step, before, accumulates=gradients)
        for role in gradients:
            np.testing.assert_allclose(
                summed[role], before[role] + self.got[role], rtol=1e-5, atol=1e-5, err_msg=f"{role} added to"
            )

    def _run(
        self,
        step: Step,
        before: Mapping[str, np.ndarray],
        *,
        over: Mapping[str, str] | None = None,
        accumulates: Collection[str] = (),
    ) -> dict[str, np.ndarray]:
        """What the step leaves in the roles that it writes; `before` are their values where it adds or updates."""
        memory, arrays = Memory(), {}
        for role in step.reads:
            arrays[role] = memory.stored(self.got[role], kind_of(self.got[role]))
        for role in (*step.writes, *step.updates):
            if over and role in over:
                arrays[role] = arrays[over[role]].reshape(self._tensor(role).stored)
            elif role in before:
                arrays[role] = memory.stored(before[role], np.float32)
            else:
                empty = logical(self._tensor(role), "float32")
                arrays[role] = memory.stored(empty, empty.dtype)
        kept = {r: a.copy() for r, a in arrays.items() if r in step.reads and not (over and r in over.values())}
        record = record_of(self.layer, step)
        run_op(record, step.step, arrays, accumulates=accumulates, context=self.context, way=self.way)
        memory.check()
        for role, value in kept.items():
            np.testing.assert_array_equal(arrays[role], value, err_msg=f"{step.step} changed its input {role}")
        return {role: np.array(axes_of_caffe(arrays[role])) for role in (*step.writes, *step.updates)}

    def _tensor(self, role: str) -> Tensor:
        return Run(self.layer).tensor(role)


def case_of(case: OpCase, way: Way) -> Case:
    """A case of tests/cases in its small size; no sum of its is near zero, so that every precision can be held."""
    rng = np.random.default_rng(11)
    layer = case.layer("small")
    xs, ws = case.inputs(layer, rng, positive=True)
    bound = {"fp32": 2e-5, "fp32x3": 2e-5, "tf32": 2e-3, "bf16": 2e-2}[way.precision]
    bounds = dict.fromkeys(("y0", "dx0", "dw0", "dw1", "dx1", "inv_std", "w1"), bound)
    return Case(layer, xs, ws, way=way, bounds=bounds, rng=rng)


def kind_of(array: np.ndarray) -> np.dtype:
    return np.dtype(np.float32) if array.dtype.kind == "f" else array.dtype


def close(
    role: str, got: np.ndarray, want: np.ndarray, bound: float, moves: Callable[[], float] | None = None
) -> float:
    """The relative error of the whole, which keeps to `bound`; no element is much worse than the rest.  What is not
    made of floats is equal.  Where the result is small because its terms cancel, `moves` says what its error is
    relative to."""
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=role)
        return 0.0
    assert not np.isnan(got).any(), f"{role} has NaN"
    difference = np.abs(got.astype(np.float64) - want)
    scale = float(np.linalg.norm(want)) or 1.0
    if moves is not None and not _within(difference, bound, scale):
        scale = max(scale, moves())
    error = float(np.linalg.norm(difference)) / scale
    assert _within(difference, bound, scale), (
        f"{role} is off by {error:.2e}, one element by {difference.max():.2e}, more than {bound:.0e} allows"
    )
    return error


def _within(difference: np.ndarray, bound: float, scale: float) -> bool:
    rms = scale / np.sqrt(max(difference.size, 1))
    return bool(np.linalg.norm(difference) <= bound * scale and difference.max(initial=0) <= 50 * bound * rms)
