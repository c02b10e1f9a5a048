"""Group: values in the order of ranks, and one error for all of them."""

import pickle

import numpy as np
import pytest

from layermem.distributed.group import Group
from layermem.distributed.loopback import run_ranks
from layermem.errors import BudgetError, DeviceError, InputError, LayermemError


def in_ranks(size, work):
    return run_ranks(size, lambda transport: work(Group(transport)))


def error_of(group, work):
    """(class, text, whether all raise it, whether another rank reports it) of the error raised by `work`."""
    try:
        work()
    except LayermemError as error:
        return type(error), str(error), error.is_agreed, error.is_reported
    return None


def test_one_rank_has_nothing_to_send():
    group = Group()
    assert group.is_first and group.gather(3) == [3] and group.agree(lambda: 4) == 4
    with pytest.raises(InputError, match="is wrong"):
        group.agree(lambda: fail(InputError("is wrong")))


def test_values_come_in_the_order_of_ranks():
    assert in_ranks(3, lambda group: group.gather(group.rank**2)) == [[0, 1, 4]] * 3
    assert in_ranks(3, lambda group: group.agree(lambda: group.rank)) == [0, 1, 2]


def fail(error):
    raise error


ERRORS = [
    InputError("is wrong", path="a.prototxt", line=3, layer="ip"),
    BudgetError("is too small", budget_bytes=3, minimum_bytes=4, details=[("peak at", "ip")]),
    DeviceError("is missing"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("at", [0, 1])
def test_the_error_of_one_rank_is_that_of_all_and_one_reports_it(error, at):
    def work(group):
        return error_of(group, lambda: group.agree(lambda: fail(error) if group.rank == at else 1))

    assert in_ranks(2, work) == [(type(error), str(error), True, rank != at) for rank in range(2)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_itself_in_another_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and vars(copy) == vars(error) and copy.lines == error.lines


def test_the_first_of_two_errors_is_reported():
    def work(group):
        return error_of(group, lambda: group.agree(lambda: fail(InputError(f"is wrong on {group.rank}"))))

    assert [(text, reported) for _, text, _, reported in in_ranks(2, work)] == [
        ("is wrong on 0", False),
        ("is wrong on 0", True),
    ]


def test_an_error_that_is_no_input_ends_the_other_ranks_too():
    def work(group):
        try:
            group.agree(lambda: 1 // group.rank)
        except (ZeroDivisionError, LayermemError) as error:
            return type(error).__name__
        return None

    assert in_ranks(2, work) == ["ZeroDivisionError", "LayermemError"]


def test_a_difference_between_ranks_is_an_error_of_all():
    def work(group):
        return error_of(group, lambda: group.check_same([("seed", 1), ("weights", group.rank // 2)], "give the same"))

    assert {text for _, text, _, _ in in_ranks(3, work)} == {"rank 2 has other weights than rank 0; give the same"}
    assert in_ranks(2, lambda group: group.check_same([("seed", 1)], "give the same")) == [None, None]


def test_rows_of_other_ranks_come_to_the_first():
    whole = np.arange(15, dtype=np.float32).reshape(5, 3)
    parts = [((0, 1),), (), ((1, 1), (3, 2)), ((2, 1),)]

    def work(group):
        part = parts[group.rank]
        if not group.is_first:
            rows = [whole[first : first + count] for first, count in part]
            return group.send_rows(np.concatenate(rows or [whole[:0]]))
        out = np.zeros_like(whole)
        out[:1] = whole[:1]
        group.receive_rows(out, parts)
        return out

    assert np.array_equal(in_ranks(4, work)[0], whole)
