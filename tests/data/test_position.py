import pytest

from layermem.data.position import bytes_in, number_in
from layermem.errors import InputError


def test_counts_and_keys_are_read():
    state = {"sample": 2**62, "key": "00ff"}
    assert number_in(state, "sample") == 2**62 and bytes_in(state, "key") == b"\x00\xff"


@pytest.mark.parametrize("value", [None, -1, 2**63, 1.0, "1", True, [1]])
def test_an_invalid_count_is_refused(value):
    with pytest.raises(InputError, match=r"the position has the sample .*, not a count from 0"):
        number_in({"sample": value}, "sample")


@pytest.mark.parametrize("value", [None, 5, "", "f", "no", b"ff"])
def test_an_invalid_key_is_refused(value):
    with pytest.raises(InputError, match="not a record's key in hexadecimal digits"):
        bytes_in({"key": value}, "key")


def test_a_value_of_many_digits_is_not_printed_whole():
    with pytest.raises(InputError) as caught:
        number_in({"sample": 10**5000}, "sample")
    assert len(str(caught.value)) < 120
