"""Seconds that have passed, never none: a clock may be coarse, or stand still."""

from __future__ import annotations

import time

SHORTEST = 1e-9  # seconds


def seconds_since(began: float) -> float:
    """Seconds since `began`, a value of time.perf_counter(); at least SHORTEST, so that rates can be divided."""
    return max(time.perf_counter() - began, SHORTEST)
