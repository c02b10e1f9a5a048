"""Plans, the strategies that make them, their costs and bounds."""

from layermem.planning.base import Fate, Gap, Plan

__all__ = ["Fate", "Gap", "Plan"]
