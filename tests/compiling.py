"""Programs of graphs, without a job."""

from collections.abc import Sequence

from layermem.graph.ops import Graph
from layermem.planning.costs import Costs, model_costs
from layermem.planning.hints import Hints
from layermem.planning.pipeline import Compiler
from layermem.planning.registry import Choice, default_strategy
from layermem.schedule.arena_planner import ArenaPlanner
from layermem.schedule.program import Program


def compile(
    graphs: Sequence[Graph],
    strategy: Choice | None = None,
    budget_bytes: int | None = None,
    costs: Costs | None = None,
    hints: Hints = Hints(),
) -> Program:
    """The fastest program of `graphs`, the first of which trains; BudgetError if none fits."""
    arena = ArenaPlanner(graphs, costs or model_costs(graphs[0].device))
    return Compiler(arena, strategy or default_strategy(budget_bytes), hints).compile(budget_bytes)
