"""A layer over a batch, computed whole and in slices: the bits of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, pairwise

import numpy as np

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.products import narrow_products, wgrad, wgrad_slices
from layermem.backends.cuda.products.wgrad import SplitK
from layermem.backends.narrow import narrowed
from layermem.layers.base import Layer, Step
from layermem.ops import CARRY, NARROW, OPEN, BatchSlice, ContrastiveLoss, ConvProblem, OpRecord
from tests.backends.cuda.harness import CONTEXT, PLAIN, Memory, Way, record_of, run_op
from tests.cases.slices import SlicedCase, piece
from tests.layers.harness import Run, steps_of

SPLITTING = (wgrad, wgrad_slices)  # modules that have a `split_of`
Pair = tuple[str, np.ndarray, np.ndarray]  # what it is, of slices, of the whole batch
GRADIENTS = ("dx", "dw")
OF_THE_WHOLE = ("items", "normalizer")  # fields that a slice's record takes from that of the whole batch


def slice_record(record: OpRecord, whole: OpRecord, batch_slice: BatchSlice) -> OpRecord:
    """The record of a slice, from that of a batch of its items."""
    names = {each.name for each in fields(record)} & set(OF_THE_WHOLE)
    own = {} if isinstance(record, ContrastiveLoss) else {name: getattr(whole, name) for name in names}
    return replace(record, batch_slice=batch_slice, **own)


@dataclass
class Slices:
    """A layer over a batch, computed whole and in slices of `counts` items.

    overlaid  sums in place lie in the same memory as the result, in the last slice
    storage   the word of a type of 16 bits that blobs have where kernels take them so
    copies    of pieces that are not in place, with their places
    """

    case: SlicedCase
    counts: Sequence[int]
    way: Way = PLAIN
    adds: bool = False  # gradients to what is there
    overlaid: bool = False
    storage: str = ""
    copies: list[tuple[Memory, np.ndarray, np.ndarray]] = field(default_factory=list)

    def check(self) -> None:
        """Every step, with equal bits in every role that it writes."""
        for what, got, want in self.pairs():
            assert want.dtype.kind != "f" or not np.isnan(want).any()
            assert want.tobytes() == got.tobytes(), what

    def pairs(self) -> Iterator[Pair]:
        """What it writes, as slices leave it and as the whole batch does."""
        layer, rng, memory = self.case.layer(sum(self.counts)), np.random.default_rng(7), Memory()
        arrays = {role: memory.stored(value, np.float32) for role, value in self.case.values(layer, rng).items()}
        starts = [0, *accumulate(self.counts)]
        parts = [BatchSlice(begin, end - begin, starts[-1]) for begin, end in pairwise(starts)]
        layers = [self.case.layer(part.count) for part in parts]
        for step, *steps in zip(steps_of(layer), *map(steps_of, layers), strict=True):
            yield from self._step(layer, step, list(zip(layers, steps, parts, strict=True)), arrays, rng)

    def piece(self, array: np.ndarray, batch_slice: BatchSlice) -> np.ndarray:
        """The items of a slice: in place, or of volumes copied frame by frame."""
        if not self.case.volumes:
            each = array.shape[0] // batch_slice.items
            return array[each * batch_slice.first : each * (batch_slice.first + batch_slice.count)]
        memory, items = Memory(), piece(array, batch_slice)
        copy = memory.bytes(items.nbytes).view(array.dtype).reshape(-1, *array.shape[1:])
        copy[...] = items.reshape(copy.shape)
        self.copies.append((memory, items, copy))
        return copy

    def put_back(self) -> None:
        """Write pieces that are not in place to their arrays."""
        while self.copies:
            memory, items, copy = self.copies.pop()
            memory.check()
            items[...] = copy.reshape(items.shape)

    def _step(
        self,
        layer: Layer,
        step: Step,
        slices: list[tuple[Layer, Step, BatchSlice]],
        arrays: dict[str, np.ndarray],
        rng: np.random.Generator,
    ) -> Iterator[Pair]:
        memory, written = Memory(), (*step.writes, *step.updates)
        record = record_of(layer, step)
        added = [role for role in written if self.adds and role.startswith(GRADIENTS)]
        before = {role: rng.standard_normal(Run(layer).tensor(role).shape) for role in written}
        narrow = self._narrow(record, step)

        def results() -> dict[str, np.ndarray]:
            made = {}
            for role in written:
                tensor = Run(layer).tensor(role)
                dtype = np.dtype(np.uint16 if role in narrow else tensor.dtype)
                made[role] = memory.bytes(tensor.count * dtype.itemsize).view(dtype).reshape(tensor.stored)
                if role in added:
                    made[role][...] = memory.stored(before[role], np.float32)
            return made

        want, got = results(), results()
        reads = {role: arrays[role] for role in step.reads}
        for role in narrow.intersection(reads):
            bits = narrowed(reads[role], NARROW[self.storage])
            reads[role] = memory.bytes(bits.nbytes).view(bits.dtype).reshape(bits.shape)
            reads[role][...] = bits
        how = {"accumulates": added, "context": CONTEXT, "way": self.way, "storage": self.storage if narrow else ""}
        run_op(record, step.step, {**reads, **want}, **how)
        carries: dict[str, np.ndarray] = {}
        sliced = [
            slice_record(record_of(small, its_step), record, batch_slice) for small, its_step, batch_slice in slices
        ]
        for small, its_step, batch_slice in slices:
            its_record = slice_record(record_of(small, its_step), record, batch_slice)
            operands: dict[str, np.ndarray] = {}
            for role, array in ({**reads, **got}).items():
                shape, of_slice = Run(layer).tensor(role).stored, Run(small).tensor(role).stored
                if shape != of_slice:
                    operands[role] = self.piece(array, batch_slice)
                elif role in got:
                    for suffix, bytes_of in ((CARRY, cuda_kernels.carry_bytes), (OPEN, cuda_kernels.open_bytes)):
                        size = max(bytes_of(each, step.step, role) or 0 for each in sliced)
                        if size:
                            operands[role + suffix] = carries.setdefault(role + suffix, memory.bytes(size))
                    if batch_slice.is_last:
                        operands[role] = array
                        if self.overlaid and cuda_kernels.sums_in_place(its_record, step.step, role):
                            operands[role] = got[role] = operands[role + CARRY].view(array.dtype).reshape(array.shape)
                else:
                    operands[role] = array
            operands |= {f"{role}.whole": arrays[role].copy() for role in record.over_items(step.step).counted}
            only_read = [
                (operands[role + CARRY], operands[role + CARRY].tobytes())
                for role in written
                if batch_slice.is_last and role + CARRY in operands and role not in added and not self.overlaid
                if cuda_kernels.sums_in_place(its_record, step.step, role)
            ]
            run_op(its_record, step.step, operands, **how)
            self.put_back()
            assert all(carry.tobytes() == before for carry, before in only_read)
        memory.check()
        for role in written:
            yield f"{role} of {step.step}", got[role], want[role]
        arrays.update(got)

    def _narrow(self, record: OpRecord, step: Step) -> frozenset[str]:
        """Roles that the kernels take in 16 bits."""
        if not self.storage:
            return frozenset()
        dtypes = dict.fromkeys((*step.reads, *step.writes, *step.updates), NARROW[self.storage])
        return narrow_products.takes(self.way.precision, record, step.step, dtypes, ())


def splits_of(images: int) -> Callable[[ConvProblem], SplitK]:
    """For `split_of` of SPLITTING: splits of so many images, for products that are too small to have any."""
    return lambda problem: SplitK(min(images, problem.n), -(-problem.n // images))
