"""What pieces carry of sums: its bytes, which piece has the result, and to what pieces add."""

import pytest

from layermem.graph.carries import Carries, Uncarried
from layermem.layers.base import Layer
from layermem.ops import BatchSlice
from tests.layers.harness import layer_of

FIRST, NEXT, LAST = (BatchSlice(first, 2, 6) for first in (0, 2, 4))


class Summing:
    """Carries dw0 in 64 bytes, and 16 beside them; nothing of dw1, which is made from the same; and has no sum of x."""

    def __init__(self, in_place: tuple[str, ...] = ()):
        self.in_place = in_place

    def carry_bytes(self, record, step, role):  # type: ignore[no-untyped-def]
        return {"dw0": 64, "dw1": 0, "dw2": 8}.get(role)

    def open_bytes(self, record, step, role):  # type: ignore[no-untyped-def]
        return 16 if role == "dw0" else 0

    def sums_in_place(self, record, step, role, accumulates):  # type: ignore[no-untyped-def]
        return role in self.in_place


@pytest.fixture
def layer() -> Layer:
    return layer_of('type: "InnerProduct" inner_product_param { num_output: 5 }', (2, 8))


def carries(layer: Layer, *sums: str, accumulates: tuple[str, ...] = (), in_place: tuple[str, ...] = ()) -> Carries:
    return Carries.of(layer.record, "wgrad", sums, accumulates, Summing(in_place))


def test_what_has_no_bytes_is_not_carried(layer):
    assert carries(layer, "dw0", "dw1").sizes == {"dw0.carry": 64, "dw0.open": 16}


def test_a_sum_that_the_device_does_not_have_is_named(layer):
    with pytest.raises(Uncarried) as raised:
        carries(layer, "dw0", "y0")
    assert raised.value.role == "y0"


def test_only_the_last_piece_has_the_result(layer):
    made = carries(layer, "dw0", in_place=("dw0",))
    assert [made.has("dw0", part) for part in (FIRST, NEXT, LAST)] == [False, False, True]
    assert all(made.has("x0", part) for part in (FIRST, NEXT, LAST))


def test_the_first_piece_reads_what_a_sum_in_place_is_added_to(layer):
    made = carries(layer, "dw0", "dw2", accumulates=("dw0", "dw2"), in_place=("dw0",))
    assert [made.has("dw0", part) for part in (FIRST, NEXT, LAST)] == [True, False, True]
    assert [made.has("dw2", part) for part in (FIRST, NEXT, LAST)] == [False, False, True]
    assert made.begins == ("dw0",)


def test_what_is_made_from_the_carry_of_another_sum_is_not_in_place(layer):
    assert carries(layer, "dw0", "dw1", in_place=("dw0", "dw1")).in_place == ("dw0",)


def test_the_last_piece_adds_to_results_and_each_one_to_what_is_no_sum(layer):
    made = carries(layer, "dw0", "dw2", accumulates=("dw0", "dw2", "dx0"), in_place=("dw0",))
    added = [made.accumulates(("dw0", "dw2", "dx0"), part) for part in (FIRST, NEXT, LAST)]
    assert added == [("dx0",), ("dx0",), ("dw0", "dw2", "dx0", "dw0.carry")]
