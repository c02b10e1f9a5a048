"""For every test: random inputs that are the same in every run (tests/numbers.py)."""

import numpy as np
import pytest
from hypothesis import settings

from tests.numbers import SEED, numbers_for

# Hypothesis tries the same examples too, unless asked for others, and gives a busy machine time.
settings.register_profile("steady", derandomize=SEED == 0, deadline=None, print_blob=True)
settings.load_profile("steady")


@pytest.fixture
def rng(request) -> np.random.Generator:
    return numbers_for(request.node.nodeid)
