"""Jobs by size, which strategies share: those of the last sizes, and that of the largest one that fits.

What combines other strategies begins at the largest size of these: the job holds what they have computed there.
"""

from __future__ import annotations

from collections.abc import Callable

from layermem.job import Job

JOBS_KEPT = 12  # of the last sizes


class SizedJobs:
    """`make` as a function that remembers."""

    def __init__(self, make: Callable[[int], Job]):
        self._make = make
        self._recent: dict[int, Job] = {}  # the most recent one is last
        self._largest: tuple[int, Job] | None = None

    def __call__(self, size: int) -> Job:
        job = self._recent.pop(size, None)
        if job is None and self._largest is not None and size == self._largest[0]:
            job = self._largest[1]
        self._recent[size] = job = job or self._make(size)
        if len(self._recent) > JOBS_KEPT:
            del self._recent[next(iter(self._recent))]
        return job

    def keep(self, size: int) -> None:
        """Keep the job of this size, unless that of a larger one is kept."""
        if self._largest is None or size > self._largest[0]:
            self._largest = size, self(size)
