"""Plans and the strategies that make them.  Importing this package registers every strategy."""

from layermem.plan import auto, offload, recompute, reuse, sublinear
from layermem.plan.base import STRATEGIES, Fate, Gap, Plan, get_strategy
from layermem.verbs import callable_room

__all__ = ["STRATEGIES", "Fate", "Gap", "Plan", "auto", "get_strategy", "offload", "recompute", "reuse", "sublinear"]

callable_room(__name__)
