"""Random numbers of all tests: the same in every run, and others on demand.

LAYERMEM_TEST_SEED=7 pytest tests/backends/cuda    draws other inputs; bounds must hold for all of them
"""

from __future__ import annotations

import os

import numpy as np

from layermem.utils.seeds import generator

SEED = int(os.environ.get("LAYERMEM_TEST_SEED", "0"))


def numbers_for(name: str) -> np.random.Generator:
    """Numbers that belong to one test: its name and LAYERMEM_TEST_SEED decide them, not the tests before it."""
    return generator(SEED, name)
