"""P: values of enums by the names of Caffe's messages."""

import pytest

from layermem import P


def test_values_are_those_of_the_schema():
    assert (P.Pooling.MAX, P.Pooling.AVE, P.Eltwise.SUM, P.Data.LMDB, P.Filler.FAN_OUT) == (0, 1, 1, 1, 1)
    assert "MAX" in dir(P.Pooling) and "Pooling" in dir(P)
    assert repr(P.Eltwise).startswith("<P.Eltwise: PROD SUM MAX")


def test_a_name_that_is_not_there_is_answered_with_the_one_that_is_meant():
    with pytest.raises(AttributeError, match=r"P has no 'Poling'; did you mean 'Pooling'\?"):
        P.Poling  # noqa: B018
    with pytest.raises(AttributeError, match=r"P\.Pooling has no 'MEDIAN'; it has AVE CAFFE"):
        P.Pooling.MEDIAN  # noqa: B018
