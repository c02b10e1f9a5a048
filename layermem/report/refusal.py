"""The text of a refusal: the budget, the minimum, the users of memory at the peak, and the strategies that would fit.

budget 2.00 GiB is below the minimum of 'hybrid', 2.31 GiB (2,480,343,040 bytes).
  peak at  backward res4f (tick 211): res4f.diff 49 MiB, workspace 96 MiB, ...
  fits     recompute 1.42 GiB, sublinear 1.38 GiB
"""

from __future__ import annotations

from layermem.errors import BudgetError
from layermem.planning.budget_search import BudgetSearch
from layermem.planning.hints import Hints
from layermem.planning.registry import SAVED_PLAN
from layermem.schedule.ir import Schedule
from layermem.utils.units import format_below, format_bytes, format_exact_bytes

LARGEST = 5  # buffers that a refusal lists


def describe_refusal(error: BudgetError, search: BudgetSearch) -> BudgetError:
    """The refusal with the peak of the smallest program, and the largest buffers there."""
    program = search.min_memory_program
    schedule = max(program.schedules, key=lambda schedule: schedule.max_live_bytes)
    subject = "the saved plan" if search.entry.name == SAVED_PLAN else f"'{program.plan.strategy}'"
    if search.hints.host_budget_bytes:
        subject += f" with {format_bytes(search.hints.host_budget_bytes)} of host memory"
    return BudgetError(
        f"budget {format_below(error.budget_bytes, error.minimum_bytes)} is below the minimum of {subject}, "
        f"{format_exact_bytes(error.minimum_bytes)}.",
        budget_bytes=error.budget_bytes,
        minimum_bytes=error.minimum_bytes,
        details=[("peak at", _peak(schedule, program.train)), *host_budget_facts(search.hints)],
    )


def host_budget_facts(hints: Hints) -> list[tuple[str, str]]:
    """The reason why nothing is offloaded, if that is so."""
    text = "0 bytes, so nothing is offloaded (--host-budget B: to memory; --spill DIR: to a file)"
    return [("host", text)] if hints.host_budget_bytes == 0 else []


def add_suggestions(error: BudgetError, search: BudgetSearch) -> BudgetError:
    """The refusal with the other strategies that fit, and the bytes that they need."""
    fits = ", ".join(
        f"{name} {format_bytes(nbytes)}" for name, nbytes in search.suggestions(error.budget_bytes).items()
    )
    return error.with_detail("fits", fits or "no other strategy fits this budget")


def describe_host_refusal(error: BudgetError, strategy: str) -> BudgetError:
    """The refusal of a program that offloads, or stages, more than the host budget."""
    return BudgetError(
        f"host budget {format_below(error.budget_bytes, error.minimum_bytes)} is below what '{strategy}' needs there, "
        f"{format_exact_bytes(error.minimum_bytes)}; raise --host-budget or choose a strategy that recomputes.",
        budget_bytes=error.budget_bytes,
        minimum_bytes=error.minimum_bytes,
        host=True,
    )


def _peak(schedule: Schedule, train: Schedule) -> str:
    """The instruction at the peak of `schedule`, and the largest buffers there."""
    instruction = schedule.instructions[schedule.peak_tick]
    where = f"tick {instruction.tick}" if schedule is train else f"tick {instruction.tick} of {schedule.graph.name}"
    sizes = (
        f"{r.buffer if r.buffer in schedule.graph.buffers else 'workspace'} {format_bytes(r.nbytes)}"
        for r in schedule.live_at(instruction.tick)[:LARGEST]
    )
    return f"{instruction.kind} {instruction.what} ({where}): {', '.join(sizes)}"
