"""Operands of different numbers of axes, of every layer that takes some: emulated kernels against the reference."""

from __future__ import annotations

import re

import pytest

from layermem.backends.cuda.support.strided_index import MAX_AXES
from layermem.errors import InputError
from tests.backends.cuda.harness import Case
from tests.mixed_ranks import KINDS, RANKS, mixed

REFUSED = f"the cuda device (takes|crops up to) {MAX_AXES}: Reshape it first"


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_op_on_mixed_ranks_gives_what_the_reference_gives(kind, rank):
    wrong = []
    for case, layer in mixed(kind, rank):
        try:
            Case(layer, *case.values(layer), bounds={"y0": 1e-5}).check_once()
        except InputError as error:
            assert re.search(REFUSED, str(error)), case
        except AssertionError as error:
            wrong.append(f"{case}: {error}")
    assert not wrong, "\n".join([f"{len(wrong)} cases", *wrong[:5]])
