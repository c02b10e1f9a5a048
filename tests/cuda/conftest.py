import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    seed = np.random.SeedSequence().entropy
    print(f"seed {seed}")  # shown when a test fails
    return np.random.default_rng(seed)
