"""The ranks that a solver's training can have."""

import pytest

from layermem.distributed.ranks import Ranks
from layermem.errors import InputError
from layermem.solver.sharing import check_keep_shareable, check_measurable, ranks_of, ranks_of_net, with_iter_size
from tests.nets import solver_file


def test_ranks_share_the_micro_batches_of_a_solver(tmp_path):
    file = solver_file("chain", tmp_path, iter_size=8)
    assert ranks_of(file) == Ranks(0, 1, 8) and ranks_of(file, 4, 3) == Ranks(3, 4, 8)


@pytest.mark.parametrize("count, size, fitting", [(1, 4, 4), (6, 4, 8), (3, 2, 4)])
def test_a_number_that_ranks_do_not_divide_is_refused_with_the_next_one(count, size, fitting, tmp_path):
    file = solver_file("chain", tmp_path, iter_size=count)
    with pytest.raises(InputError) as caught:
        ranks_of(file, size)
    assert caught.value.what == (
        f"iter_size {count} cannot be shared by {size} ranks; --iter-size {fitting} trains as iter_size: {fitting} "
        "does on one machine"
    )


def test_another_iter_size_leaves_the_solver_as_it_was(tmp_path):
    file = solver_file("chain", tmp_path)
    assert with_iter_size(file, 4).message.iter_size == 4 and file.message.iter_size == 1
    assert with_iter_size(file, None) is file
    with pytest.raises(InputError, match="give 1 or more"):
        with_iter_size(file, 0)


def test_ranks_of_a_net_have_a_micro_batch_each():
    assert ranks_of_net(4) == Ranks(0, 4, 4) and ranks_of_net(2, 8) == Ranks(0, 2, 8) and ranks_of_net(1) == Ranks()
    for size, count in ((0, None), (5000, None), (2, 3), (2, 0)):
        with pytest.raises(InputError):
            ranks_of_net(size, count)


def test_gradients_that_ranks_hold_by_rows_cannot_be_kept_or_measured():
    for check in (lambda ranks: check_keep_shareable(["ip.w0.diff"], ranks), check_measurable):
        check(Ranks())
        with pytest.raises(InputError):
            check(Ranks(0, 2, 2))
    check_keep_shareable(["ip"], Ranks(0, 2, 2))
