"""`intra`: gradients over the activations that are read for the last time with them."""

from tests.planning.chains import Planned, chain


def test_gradients_take_no_bytes_of_their_own_where_each_may_lie_over_an_activation():
    """dn over xn, d(n-1) over x(n-1): no more is live at any time than the n + 1 activations."""
    assert [Planned("intra", chain(n, overlays=True)).units for n in (1, 4, 20)] == [2, 5, 21]


def test_intra_takes_the_bytes_of_liveness_if_no_op_permits_an_overlay():
    assert Planned("intra", chain(4)).units == Planned("liveness", chain(4)).units
