"""Kernels by op record: one registry per backend, one call object per bound op.

    cpu = KernelRegistry[CpuCall, Launches]("cpu")

    @cpu.kernel(Pool, "forward")
    def pool_forward(op: Pool, call: CpuCall) -> Launches: ...

A kernel is found under the record's type and the op's step.  It gets the record, which defines the computation, and the
call, which has its operands: addresses or arrays by role, roles that accumulate, the workspace, and the step's context.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import Any, Generic, TypedDict, TypeVar

import numpy.typing as npt

from layermem.distributed.transport import Transport
from layermem.errors import LayermemError
from layermem.ops import CARRY as CARRY
from layermem.ops import NARROW, ByteImages, OpRecord
from layermem.ops import OPEN as OPEN

R = TypeVar("R", bound=OpRecord)  # the record
C = TypeVar("C")  # the backend's call
K = TypeVar("K", bound="KernelCall")
T = TypeVar("T")  # the result of binding: launches, or None if the kernel runs at once

WorkspaceRule = Callable[[R, Collection[str]], int]  # (record, roles of the op) -> bytes
CarryRule = Callable[[R, str], "int | None"]  # (record, a summed role) -> bytes; None: not in slices
OpenRule = Callable[[R, str], int]  # (record, a summed role) -> additional bytes
NarrowRule = Callable[[R], "str | Sequence[str]"]  # (record) -> a pattern of roles, or several in order of preference
InPlaceRule = Callable[[R, str], bool]  # (record, a summed role) -> whether slices carry the result itself


NO_ROLES: frozenset[str] = frozenset()


class UndeclaredRole(LayermemError):
    """A kernel needs a role that its op does not declare, so the layer's memory traits are wrong."""

    def __init__(self, op: str, needed: Sequence[str], declared: Collection[str]):
        names = " or ".join(f"'{role}'" for role in needed)
        super().__init__(
            f"{op} did not declare {names}, which its kernel needs (declared: {' '.join(declared) or 'nothing'}); "
            "correct the steps of its layer in layermem/layers"
        )


def storage_of(dtypes: Collection[str]) -> str:
    """The name of the 16-bit type among these, "" if there is none (KernelCall.storage)."""
    return next((word for word, dtype in NARROW.items() if dtype in dtypes), "")


def narrow_roles(dtypes: Mapping[str, str]) -> frozenset[str]:
    """The roles in 16 bits, given the element types of all."""
    return frozenset(role for role, dtype in dtypes.items() if dtype in NARROW.values())


class StepContext(TypedDict, total=False):
    """Values that ops read at run time and the solver sets between steps.

    seed, step     key and counter of random numbers; `step` counts batches
    iteration      iteration of the solver;  rate  the current learning rate
    loss_scale     factor of gradients;  skipped  number of iterations without an update, because gradients overflowed
    momentum ..    settings of the update rules, which no iteration changes
    transport      connection to the other ranks;  averaged  number of batches that move averages, if not all do
    batch          arrays (NCHW) by input layer;  results  arrays by output blob, set by the step
    """

    seed: int
    step: int
    iteration: int
    rate: float
    loss_scale: float
    skipped: int
    momentum: float
    momentum2: float
    rms_decay: float
    delta: float
    weight_decay: float
    regularization: str
    clip: float
    iter_size: int
    transport: Transport
    averaged: int
    batch: Mapping[str, Sequence[npt.NDArray[Any] | ByteImages]]
    results: dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class KernelCall:
    """One op bound to its bytes.

    addresses    addresses by role; "workspace" if the op needs one
    counts       numbers of elements by role
    accumulated  roles whose result is added to the old contents
    layer        name of the layer, for errors
    storage      "" or the name in NARROW of the roles that the kernel takes in 16 bits (KernelRegistry.takes)
    narrow       these roles
    """

    addresses: Mapping[str, int]
    counts: Mapping[str, int] = field(default_factory=dict)
    accumulated: Collection[str] = ()
    context: StepContext = field(default_factory=StepContext)
    layer: str = ""
    storage: str = ""
    narrow: Collection[str] = ()

    def __getitem__(self, role: str) -> int:
        """The address of `role`, or 0 if the op lacks it."""
        return self.addresses.get(role, 0)

    def __contains__(self, role: str) -> bool:
        return role in self.addresses

    def require(self, *roles: str) -> int:
        """The address of the first of `roles` that the op declares; UndeclaredRole if it declares none of them."""
        for role in roles:
            if role in self.addresses:
                return self.addresses[role]
        raise UndeclaredRole(f"an op of layer '{self.layer}'", roles, self.addresses)

    def accumulates(self, role: str) -> bool:
        return role in self.accumulated

    def count(self, role: str) -> int:
        return self.counts[role]

    def renamed(self: K, names: Mapping[str, str], *, without: Collection[str] = (), **more: int) -> K:
        """This call by the roles of an op that computes a part of it: `names` maps roles to theirs, those in `without`
        are left out, and `more` are addresses of others."""
        addresses = {names.get(role, role): at for role, at in self.addresses.items() if role not in without}
        accumulated = frozenset(names.get(role, role) for role in self.accumulated)
        return replace(self, addresses={**addresses, **more}, accumulated=accumulated)

    def numbered(self, stem: str) -> list[int]:
        """The addresses of stem0, stem1, .. up to the first that is absent."""
        return [self.addresses[f"{stem}{i}"] for i in takewhile(lambda i: f"{stem}{i}" in self.addresses, count())]

    @property
    def workspace(self) -> int:
        return self["workspace"]


class KernelRegistry(Generic[C, T]):
    """The kernels of one backend, and the workspace that each needs.

    adds_narrow   whether all of its kernels can accumulate in 16 bits
    """

    def __init__(self, backend: str, *, adds_narrow: bool = False):
        self.backend, self.adds_narrow = backend, adds_narrow
        self._kernels: dict[tuple[type[OpRecord], str], Callable[..., T]] = {}
        self._workspaces: dict[tuple[type[OpRecord], str], Callable[..., int]] = {}
        self._in_place: dict[tuple[type[OpRecord], str], Callable[..., bool]] = {}
        self._carries: dict[tuple[type[OpRecord], str], Callable[..., int | None]] = {}
        self._open: dict[tuple[type[OpRecord], str], Callable[..., int]] = {}
        self._adds_narrow: set[tuple[type[OpRecord], str]] = set()
        self._narrow: dict[tuple[type[OpRecord], str], str | Callable[..., str | Sequence[str]]] = {}

    def kernel(
        self,
        record: type[R],
        *steps: str,
        workspace: WorkspaceRule[R] | None = None,
        carry: CarryRule[R] | None = None,
        open: OpenRule[R] | None = None,
        in_place: InPlaceRule[R] | None = None,
        narrow: str | NarrowRule[R] | None = None,
        adds_narrow: bool = False,
    ) -> Callable[[Callable[[R, C], T]], Callable[[R, C], T]]:
        """Register the kernel of `record`'s `steps`, with the rules for the bytes of its workspace and of the roles
        ".carry" and ".open" of slices.  `narrow` matches the roles that it also takes in 16 bits, all in the same type;
        it writes each of their elements once, so that results are rounded once.  With several patterns, the first one
        whose roles are all in 16 bits counts.  `adds_narrow`: it also accumulates in 16 bits."""

        def register(function: Callable[[R, C], T]) -> Callable[[R, C], T]:
            for step in steps:
                self._kernels[record, step] = function
                if workspace is not None:
                    self._workspaces[record, step] = workspace
                if carry is not None:
                    self._carries[record, step] = carry
                if open is not None:
                    self._open[record, step] = open
                if in_place is not None:
                    self._in_place[record, step] = in_place
                if narrow is not None:
                    self._narrow[record, step] = narrow
                if adds_narrow or self.adds_narrow:
                    self._adds_narrow.add((record, step))
            return function

        return register

    def implements(self, record: OpRecord, step: str) -> bool:
        return (type(record), step) in self._kernels

    def bind(self, record: OpRecord, step: str, call: C) -> T:
        """Bind the kernel of this op to `call`; KeyError if there is none."""
        return self._kernels[type(record), step](record, call)

    def workspace_bytes(self, record: OpRecord, step: str, roles: Collection[str]) -> int:
        rule = self._workspaces.get((type(record), step))
        return rule(record, roles) if rule is not None else 0

    def carry_bytes(self, record: OpRecord, step: str, role: str) -> int | None:
        """Bytes of the role "{role}.carry" of an op of one slice; None if its kernel cannot sum slice by slice."""
        rule = self._carries.get((type(record), step))
        return None if rule is None else rule(record, role)

    def open_bytes(self, record: OpRecord, step: str, role: str) -> int:
        """Bytes of the role "{role}.open" of an op of one slice."""
        rule = self._open.get((type(record), step))
        return 0 if rule is None else rule(record, role)

    def sums_in_place(self, record: OpRecord, step: str, role: str) -> bool:
        """Whether "{role}.carry" is the incomplete `role` itself: the last slice may have both in the same memory."""
        rule = self._in_place.get((type(record), step))
        return rule is not None and rule(record, role)

    def takes(
        self, record: OpRecord, step: str, dtypes: Mapping[str, str], accumulates: Collection[str]
    ) -> frozenset[str]:
        """The roles with these element types that the kernel takes in 16 bits: a pattern counts only if all its roles
        are."""
        rule = self._narrow.get((type(record), step), ())
        patterns = rule(record) if callable(rule) else rule
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            matching = frozenset(role for role in dtypes if re.fullmatch(pattern, role))
            types = {dtypes[role] for role in matching}
            if len(types) == 1 and not types.isdisjoint(NARROW.values()):
                adds = (type(record), step) in self._adds_narrow
                return matching if adds or matching.isdisjoint(accumulates) else NO_ROLES
        return NO_ROLES

    def names(self) -> list[str]:
        """ "Pool.forward" and so on, for tests that look for ops without a kernel."""
        return sorted(f"{record.__name__}.{step}" for record, step in self._kernels)
