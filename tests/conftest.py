"""For every test: random inputs that are the same in every run (tests/numbers.py), the markers `slow` and `emulator`
(tests/speed.py), and the extension under test.

LAYERMEM_NATIVE_DIR names a folder with another build of layermem._native, such as one with sanitizers (make sanitize).
"""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.numbers import SEED, numbers_for
from tests.speed import is_slow, needs_emulator

if os.environ.get("LAYERMEM_NATIVE_DIR"):
    import layermem

    (_built,) = Path(os.environ["LAYERMEM_NATIVE_DIR"]).glob("_native*.so")
    _spec = importlib.util.spec_from_file_location("layermem._native", _built)
    sys.modules["layermem._native"] = layermem._native = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(layermem._native)

# Hypothesis runs the same examples every time unless LAYERMEM_TEST_SEED changes them, and sets no deadline.
settings.register_profile("steady", derandomize=SEED == 0, deadline=None, print_blob=True)
settings.load_profile("steady")

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the file that they are in."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        if needs_emulator(path):
            item.add_marker(pytest.mark.emulator)
        if is_slow(path):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def rng(request) -> np.random.Generator:
    return numbers_for(request.node.nodeid)
