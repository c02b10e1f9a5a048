"""Lists that cannot be changed."""

import copy
import pickle
from collections.abc import MutableSequence, Sequence

import pytest

from layermem.errors import InputError
from layermem.utils.fixed import Fixed

ARGUMENTS = {"__setitem__": (0, 9), "__delitem__": (0,), "__iadd__": ([9],), "__imul__": (2,), "append": (9,)}
ARGUMENTS |= {"extend": ([9],), "insert": (0, 9), "remove": (1,)}
CHANGES = {*dir(MutableSequence)} - {*dir(Sequence)} | {"sort", "__imul__"}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_every_change_is_refused_and_changes_nothing(change):
    items = Fixed("net.outputs", [1, 2])
    with pytest.raises(TypeError, match=r"net\.outputs cannot be changed; it follows from the prototxt") as caught:
        getattr(items, change)(*ARGUMENTS.get(change, ()))
    assert isinstance(caught.value, InputError) and items == [1, 2]


def test_the_refusal_says_where_the_values_of_the_item_are():
    items = Fixed("params['a']", [1, 2], ".data[...]")
    with pytest.raises(TypeError, match=r"write to params\['a'\]\[1\].data\[...\]$"):
        items[1] = 0
    with pytest.raises(TypeError, match=r"write to params\['a'\]\[0\].data\[...\]$"):
        items[:] = [0, 0]


def test_it_reads_like_any_list():
    items = Fixed("x", [1, 2, 3])
    assert items == [1, 2, 3] and len(items) == 3 and items[-1] == 3 and list(items) == items and 2 in items
    assert items[1:] == [2, 3] and items + items == [1, 2, 3] * 2 and items.index(2) == 1 and repr(items) == "[1, 2, 3]"


@pytest.mark.parametrize("made", [copy.copy, copy.deepcopy, list.copy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_is_a_list_that_can_be_changed(made):
    items = made(Fixed("x", [1]))
    items.append(2)
    assert items == [1, 2]
