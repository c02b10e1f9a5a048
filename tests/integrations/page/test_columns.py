"""Columns and values in the form for a page."""

from hypothesis import given, settings
from hypothesis import strategies as st

from layermem.integrations.page.columns import Strings, deltas, pack, unpack


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-(10**12), 10**12), max_size=20))
def test_deltas_sum_to_the_numbers(numbers):
    total, found = 0, []
    for delta in deltas(numbers):
        total += delta
        found.append(total)
    assert found == numbers


def test_texts_are_kept_once():
    strings = Strings()
    assert [strings.add(text) for text in ("a", "b", "a")] == [0, 1, 0] and strings.values == ["a", "b"]


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_packed_values_have_no_letter_of_markup_and_come_back(values):
    text = pack(values)
    assert text.isascii() and not set(text) & set("<>&\"'{}")
    assert unpack(text) == values
