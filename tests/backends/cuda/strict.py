"""The ways to run a kernel in which the emulator checks more than results.

STRICT            bounds and undefined behaviour, by sanitizers; and races
BOUNDS_AT_LEAST   the same, but `make check` leaves out the race checker, whose compilations take longest
"""

from __future__ import annotations

import pytest

from tests.backends.cuda.harness import Way
from tests.emulator.emulate import WAYS

STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]
BOUNDS_AT_LEAST = [pytest.param(way, marks=[pytest.mark.whole] if way.mode == "race" else []) for way in STRICT]
