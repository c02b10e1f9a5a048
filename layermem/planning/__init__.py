"""Plans, the strategies that make them, and what they cost."""

from layermem.planning.plan import Decision, Gap, Plan

__all__ = ["Decision", "Gap", "Plan"]
