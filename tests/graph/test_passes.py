"""Parts of a pass: which items they have, where their operands begin, and what they carry of sums."""

from dataclasses import replace

from layermem.graph.passes import Operand, Pass
from layermem.ops import CARRY, BatchSlice, InnerProduct, Tensor
from tests.layers.harness import layer_of

RECORD = layer_of('type: "InnerProduct" inner_product_param { num_output: 5 }', (6, 8)).record
PART = layer_of('type: "InnerProduct" inner_product_param { num_output: 5 }', (2, 8)).record
X, DY, DW = Tensor((2, 8)), Tensor((2, 5)), Tensor((5, 8))
CARRIED = Tensor((160,), "uint8")


def wgrad(**fields: object) -> Pass:
    """dw0 = dy^T x of six items in parts of two: x is in 16 bits, dy is not."""
    assert isinstance(RECORD, InnerProduct)
    operands = {
        "x0": Operand("x0", X, X.of("bfloat16"), divided=True, place=0, reads=True),
        "dy0": Operand("dy0", DY, DY, divided=True, reads=True),
        "dw0": Operand("dw0", DW, DW, writes=True),
        "dw0" + CARRY: Operand("", CARRIED, CARRIED, place=256),
    }
    made = Pass(RECORD, PART, "wgrad", BatchSlice(0, 6, 6), 2, operands, sums=frozenset({"dw0"}), workspace_place=512)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_the_parts_are_the_items_in_order():
    assert [str(part.record.part) for part in wgrad().parts()] == [
        "items 0..1 of 6",
        "items 2..3 of 6",
        "items 4..5 of 6",
    ]


def test_operands_begin_where_the_items_of_the_part_are_stored():
    parts = list(wgrad().parts())
    assert [part.begins["x0"] for part in parts] == [0, 2 * 8 * 2, 4 * 8 * 2]
    assert [part.begins["dy0"] for part in parts] == [0, 2 * 5 * 4, 4 * 5 * 4]
    assert [part.begins["dw0" + CARRY] for part in parts] == [0, 0, 0]


def test_only_the_last_part_has_the_result_of_a_sum():
    assert [part.begins.get("dw0") for part in wgrad().parts()] == [None, None, 0]
    assert [part.accumulates for part in wgrad().parts()] == [(), (), ()]


def test_a_sum_that_is_added_to_what_is_there_is_added_by_the_last_part():
    assert [part.accumulates for part in wgrad(accumulates=("dw0",)).parts()] == [(), (), ("dw0",)]


def test_sums_in_place_begin_with_what_the_result_held():
    """The first part reads it into what is carried, to which the result's own form is added in the last one."""
    made = wgrad(accumulates=("dw0",), in_place=frozenset({"dw0"}), begins=frozenset({"dw0"}))
    parts = list(made.parts())
    assert ["dw0" in part.begins for part in parts] == [True, False, True]
    assert [part.accumulates for part in parts] == [(), (), ("dw0", "dw0" + CARRY)]


def test_parts_of_a_slice_have_its_items_of_the_batch():
    made = wgrad(items=BatchSlice(6, 6, 18))
    parts = list(made.parts())
    assert [str(part.record.part) for part in parts] == ["items 6..7 of 18", "items 8..9 of 18", "items 10..11 of 18"]
    assert [part.begins["x0"] for part in parts] == [0, 32, 64]
    assert not any("dw0" in part.begins for part in parts)  # the slice behind it makes the result


def test_all_items_in_one_part_are_the_op_itself():
    (part,) = wgrad(count=6, accumulates=("dw0",)).parts()
    assert part.record is RECORD and part.accumulates == ("dw0",)
    assert part.begins == dict.fromkeys(("x0", "dy0", "dw0", "dw0" + CARRY), 0)


def test_the_workspace_ends_behind_that_of_the_kernel():
    assert wgrad().workspace_end == 512 and wgrad(workspace_bytes=100).workspace_end == 612
