"""Helpers of the kernel tests: random numbers, addresses, and comparisons."""

import numpy as np


def normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def at(array):
    return array.ctypes.data


def close(got, want, bound=2e-6):
    """Compare by relative error over the whole array, with no element far worse than the rest."""
    assert np.isfinite(got).all()
    want = np.asarray(want, np.float64)
    error = np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30)
    assert error < bound, f"relative error {error:.2e}"
    assert np.abs(got - want).max() <= 50 * bound * max(np.sqrt(np.mean(want**2)), 1e-30)
