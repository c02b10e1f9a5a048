"""Buffers whose rows ranks divide, gathered one by one when the first rank reads them."""

import numpy as np
import pytest

from layermem.distributed.group import Group
from layermem.distributed.loopback import run_ranks
from layermem.errors import InputError
from layermem.solver.shared_state import SharedState

WHOLE = np.arange(12, dtype=np.float32).reshape(4, 3)
ONE = np.float32([[7, 8]])


class Rows:
    """The part of a runner that SharedState needs: of `h` each rank has two rows, or one, of `banded` every second or
    fourth row, and the last rank all of `one`."""

    class device:
        real = "float32"

    def __init__(self, rank, size):
        begin, end = 4 * rank // size, 4 * (rank + 1) // size
        self.parts = {
            "w": (((0, 4),), WHOLE),
            "h": (((begin, end - begin),), WHOLE[begin:end]),
            "banded": (tuple((row, 1) for row in range(rank, 4, size)), WHOLE[rank::size]),
        }
        if rank == size - 1:
            self.parts["one"] = (((0, len(ONE)),), ONE)
        self.persistent = self.parts

    def rows(self, name):
        return self.parts[name][0]

    def shape(self, name):
        return ONE.shape if name == "one" else WHOLE.shape

    def read(self, name):
        return self.parts[name][1].copy()


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_first_rank_reads_all_rows_while_the_others_send_theirs(size):
    def run(transport):
        state = SharedState(Rows(transport.rank, size), Group(transport))
        assert "h" in state and "one" in state and "none" not in state
        return state.collect(lambda: [state.read(name) for name in ("h", "w", "banded", "one", "h")])

    first, *others = run_ranks(size, run)
    assert all(map(np.array_equal, first, (WHOLE, WHOLE, WHOLE, ONE, WHOLE)))
    assert others == [None] * (size - 1)


def test_an_error_while_rows_are_collected_is_that_of_all_ranks():
    def run(transport):
        state = SharedState(Rows(transport.rank, 2), Group(transport))

        def fail():
            state.read("h")
            raise InputError("cannot be written")

        with pytest.raises(InputError, match="cannot be written") as caught:
            state.collect(fail)
        return caught.value.is_reported

    assert run_ranks(2, run) == [False, True]
