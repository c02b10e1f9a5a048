"""The micro-batches and rows of a rank."""

import pytest

from layermem.distributed.ranks import Ranks


def test_micro_batches_go_round_the_ranks():
    ranks = [Ranks(rank, 2, 4) for rank in range(2)]
    assert [[each.micro_batch(k) for k in range(each.sub_steps)] for each in ranks] == [[0, 2], [1, 3]]


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 64, 1000])
def test_every_row_has_one_owner(rows):
    owned = [row for rank in range(4) for row in Ranks(rank, 4, 4).own(rows)]
    assert owned == list(range(rows))


def test_rows_are_shared_alike():
    shares = [len(Ranks(rank, 3, 3).own(64)) for rank in range(3)]
    assert max(shares) - min(shares) <= 1 and sum(shares) == 64


def test_one_rank_has_all():
    assert Ranks().own(5) == range(5) and Ranks(micro_batches=4).sub_steps == 4
