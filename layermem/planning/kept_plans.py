"""The cache of plans: a plan that fits fewer bytes is a candidate for more, even if another process found it.

<folder>/<question>.plans     the plans of one question: a job with its costs, hints and slices, and a strategy
    budgets                   bytes that were asked for before: their answer needs no search
    plans                     each with its budget, bytes and seconds; a plan of more bytes is faster than all of fewer

The folder is plans/ in the cache of kept_costs.py, which users may delete at any time.  Only plans of strategies that
combine others are kept, and only for a single rank: each rank plans alone, and all must find the same plan.  A file
that is damaged, or that belongs to another question or version of the planner, is ignored.  Before a plan is used, it
is placed, timed and checked again, so no file can make a schedule wrong.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import insort
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from math import inf
from pathlib import Path

from layermem import __version__, _native
from layermem.errors import InputError, LayermemError
from layermem.planning.fusion_search import Attempt
from layermem.planning.kept_costs import keep, kept_folder
from layermem.planning.plan import Plan, saved_fingerprint, saved_slices
from layermem.planning.registry import as_entry
from layermem.planning.settings import SETTINGS
from layermem.schedule.check import UnsafeSchedule
from layermem.schedule.program import Program
from layermem.utils.input_files import read_bytes

ENDING = ".plans"
MAX_PLANS, MAX_BUDGETS = 256, 1024  # of a file
FILE_LIMIT_BYTES = 2**23  # of a file
TEXT_LIMIT_BYTES = 2**25  # of its text, half of them for plans
FOLDER_LIMIT_BYTES = 2**26  # of all files; beyond it the oldest are removed
PACKAGES = ("graph", "planning", "schedule")  # whose sources determine plans, with the native module
FASTER_RATIO = 1.0002  # times a kept plan's seconds: it replaces a plan that takes longer


@dataclass(frozen=True)
class KeptPlan:
    """A plan as Plan.to_json() writes it, with the budget of its search, the target of its placement and the numbers of
    its program."""

    budget_bytes: int
    arena_bytes: int
    host_bytes: int
    seconds: float
    target_bytes: int
    text: str

    @classmethod
    def of(cls, budget_bytes: int, program: Program, text: str) -> KeptPlan:
        numbers = program.arena_bytes, program.host_bytes, program.seconds
        return cls(budget_bytes, *numbers, program.target_bytes, text)

    @property
    def numbers(self) -> tuple[int, int, float]:
        return self.arena_bytes, self.host_bytes, self.seconds

    def is_as_good(self, other: KeptPlan) -> bool:
        return all(own <= its for own, its in zip(self.numbers, other.numbers))


@dataclass
class KeptPlans:
    """The plans of one question, by bytes; `path` is their file."""

    path: Path
    budgets: list[int] = field(default_factory=list)
    plans: list[KeptPlan] = field(default_factory=list)
    wrong: set[KeptPlan] = field(default_factory=set)  # plans that do not do what the file promises

    @classmethod
    def of(cls, attempt: Attempt) -> KeptPlans | None:
        """The plans that are kept for an attempt's question, whatever its budget; None if none are."""
        job, entry = attempt.job, as_entry(attempt.strategy)
        if attempt.budget_bytes is None or not entry.combines_others or job.ranks.size > 1:
            return None
        graphs = [graph.fingerprint for graph in job.unsliced]
        words = planner_digest(), _settings(), graphs, job.costs, job.hints, job.wanted_slices, entry.name
        question = hashlib.blake2b(repr(words).encode(), digest_size=16).hexdigest()
        kept = cls(kept_folder("plans") / f"{question}{ENDING}")
        kept.read()
        return kept

    def fastest(self, budget_bytes: int, host_bytes: int | None) -> KeptPlan | None:
        """The fastest plan within these bytes of the device and of the host (None: no limit)."""
        fitting = [
            plan
            for plan in self.plans
            if plan.arena_bytes <= budget_bytes and (host_bytes is None or plan.host_bytes <= host_bytes)
        ]
        return min(fitting, key=lambda plan: plan.seconds, default=None)

    def answer(self, attempt: Attempt) -> Attempt | None:
        """The attempt with the fastest kept plan, if its budget was asked for before."""
        return self._placed(attempt) if attempt.budget_bytes in self.budgets else None

    def fastest_with(self, found: Attempt, attempt: Attempt, *, is_answer: bool) -> Attempt:
        """The result of a search, which is kept, or the attempt with a kept plan that is faster or that alone fits.
        `is_answer`: the search left nothing out."""
        seconds = inf
        if found.refusal is None and found.budget_bytes is not None:
            self.add(found.budget_bytes, found.program, is_answer=is_answer)
            seconds = found.program.seconds / FASTER_RATIO
        return self._placed(attempt, seconds) or found

    def _placed(self, attempt: Attempt, seconds: float = inf) -> Attempt | None:
        """The attempt with the fastest kept plan within its budget, placed and checked again; None unless one takes
        less than `seconds`."""
        budget_bytes, host_bytes = attempt.budget_bytes or 0, attempt.job.hints.host_budget_bytes
        while (plan := self.fastest(budget_bytes, host_bytes)) is not None and plan.seconds < seconds:
            try:
                return _place(plan, attempt)
            except (LayermemError, ValueError, UnsafeSchedule):
                self.remove(plan)
        return None

    def read(self) -> None:
        """Add what the file has."""
        with suppress(OSError, InputError, zlib.error, ValueError, KeyError, TypeError, RecursionError):
            inflate = zlib.decompressobj()
            text = inflate.decompress(
                read_bytes(self.path, what="cache of plans", limit=FILE_LIMIT_BYTES), TEXT_LIMIT_BYTES
            )
            saved = json.loads(text)
            budgets = [int(budget) for budget in saved["budgets"]]
            plans = [
                KeptPlan(
                    int(plan["budget_bytes"]),
                    int(plan["arena_bytes"]),
                    int(plan["host_bytes"]),
                    float(plan["seconds"]),
                    int(plan["target_bytes"]),
                    str(plan["text"]),
                )
                for plan in saved["plans"]
            ]
            self.budgets = [*dict.fromkeys([*budgets, *self.budgets])]
            for plan in plans:
                self._insert(plan)

    def add(self, budget_bytes: int, program: Program, *, is_answer: bool = True) -> None:
        """Keep the program that was found for a budget, beside what other processes have kept by now; `is_answer`: the
        search for this budget is complete."""
        self.read()
        if is_answer:
            self.budgets = [*(each for each in self.budgets if each != budget_bytes), budget_bytes][-MAX_BUDGETS:]
        text = program.plan.to_json(program.train.graph)  # which may have fewer fusions than the job's
        self._insert(KeptPlan.of(budget_bytes, program, text))
        content = {"budgets": self.budgets, "plans": [asdict(plan) for plan in self.plans]}
        if keep(self.path, zlib.compress(json.dumps(content).encode(), 1)):
            with suppress(OSError):
                _remove_oldest(self.path.parent)

    def remove(self, plan: KeptPlan) -> None:
        """Forget a plan that does not do what the file promises."""
        self.plans.remove(plan)
        self.wrong.add(plan)

    def _insert(self, plan: KeptPlan) -> None:
        is_unfit = plan in self.wrong or len(plan.text) > TEXT_LIMIT_BYTES // 2
        if is_unfit or any(other.is_as_good(plan) for other in self.plans):
            return
        self.plans = [other for other in self.plans if not plan.is_as_good(other)]
        insort(self.plans, plan, key=lambda each: each.numbers)
        while len(self.plans) > MAX_PLANS or sum(len(each.text) for each in self.plans) > TEXT_LIMIT_BYTES // 2:
            # Omit the one that gains least over the next smaller one.
            gains = [smaller.seconds - larger.seconds for smaller, larger in zip(self.plans, self.plans[1:])]
            del self.plans[1 + gains.index(min(gains))]


def _place(kept: KeptPlan, attempt: Attempt) -> Attempt:
    """The attempt in the slices of a kept plan, with its program; InputError, ValueError or UnsafeSchedule if the
    program does not fit, or takes longer than it did."""
    slices, job = saved_slices(kept.text), attempt.job
    sliced = job.in_slices(slices) if slices else job
    placed = attempt.with_job(sliced.with_fingerprint(saved_fingerprint(kept.text)))
    plan = Plan.from_json(kept.text, placed.job.graphs[0])
    program = placed.compiler.build(plan, kept.target_bytes)
    if not KeptPlan.of(kept.budget_bytes, program, kept.text).is_as_good(kept):
        raise ValueError("the plan does not do what was kept of it")
    found_for = None if kept.budget_bytes == attempt.budget_bytes else kept.budget_bytes
    return replace(placed, compiled=placed.compiler.checked(program), found_for_bytes=found_for)


def _remove_oldest(folder: Path) -> None:
    files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in folder.glob(f"*{ENDING}"))
    excess = sum(size for _, size, _ in files) - FOLDER_LIMIT_BYTES
    for _, size, file in files[:-1]:
        if excess <= 0:
            break
        file.unlink(missing_ok=True)
        excess -= size


@cache
def planner_digest() -> str:
    """A hash of the planner: of its sources, and of the size and time of the native module."""
    hashed = hashlib.blake2b(__version__.encode(), digest_size=16)
    package = Path(__file__).parents[1]
    sources = sorted(file for name in PACKAGES for file in (package / name).rglob("*.py"))
    with suppress(OSError):  # a package in an archive
        for file in sources:
            hashed.update(file.read_bytes())
        native = Path(_native.__file__).stat()
        hashed.update(f"{native.st_size} {native.st_mtime_ns}".encode())
    return hashed.hexdigest()


def _settings() -> dict[str, object]:
    native = SETTINGS.native
    return {**vars(SETTINGS), "native": {name: getattr(native, name) for name in dir(native) if name[0] != "_"}}
