"""Plans, the strategies that make them, their costs and bounds."""

from layermem.planning.base import Decision, Gap, Plan

__all__ = ["Decision", "Gap", "Plan"]
