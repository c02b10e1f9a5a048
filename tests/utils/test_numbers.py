"""Numbers in texts of users."""

import pytest

from layermem.utils.numbers import is_count, parse_float, parse_integer


@pytest.mark.parametrize("text", ["1_0", "\u0663", "1\u0663", "\uff11", "", "x", "1 0"])
def test_numbers_in_notations_of_python_alone_are_none(text):
    for parse in (parse_integer, parse_float):
        with pytest.raises(ValueError):
            parse(text)
    assert not is_count(text)


def test_numbers_are_read():
    assert [parse_integer("12"), parse_integer("-3"), parse_float("1e-3"), parse_float(".5")] == [12, -3, 1e-3, 0.5]
    assert is_count("10") and not is_count("-1") and not is_count("1.0")
