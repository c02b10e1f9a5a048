"""Kernels that take operands in 16 bits have the bits of those in fp32 between conversions (graph/storage.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.products import gemm_tiles
from layermem.backends.cuda.products.gemm_tiles import ENGINES, PACKED_BF16, WIDENING, takes_narrow
from layermem.backends.cuda.products.weight_tiles import rounded_weights_bytes
from layermem.ops import NARROW, ConvProblem, Window
from tests.backends.cuda.harness import PLAIN, Way
from tests.backends.cuda.narrow_steps import TAKING, Taken, taken_steps
from tests.backends.cuda.strict import BOUNDS_AT_LEAST
from tests.cases import CASES
from tests.cases.convolution import OCTETS, conv_case, conv_text
from tests.op_case import OpCase


def assert_same(taken: Taken, way: Way, why: str, **how: object) -> None:
    direct, converted = (taken.run(direct, way, **how) for direct in (True, False))  # type: ignore[arg-type]
    for role, value in converted.items():
        assert direct[role].tobytes() == value.tobytes(), f"{taken.step.step}{why}: another {role}"


def check(name: str | OpCase, word: str, way: Way = PLAIN, *, exact: bool = False) -> int:
    """The number of steps that are taken in 16 bits."""
    case = CASES[name] if isinstance(name, str) else name
    steps = list(taken_steps(case, word, way.precision, exact=exact))
    for taken in steps:
        assert_same(taken, way, "")
        for overlay in taken.step.overlays:
            if (overlay.out in taken.narrow) == (overlay.over in taken.narrow):
                assert_same(taken, way, f" over {overlay.over}", over={overlay.out: overlay.over})
        gradients = [role for role in taken.step.writes if role.startswith("d") and role in taken.narrow]
        if gradients:
            assert_same(taken, way, " added", adds=gradients)
    return len(steps)


@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("name", TAKING)
def test_a_kernel_in_16_bits_has_the_bits_of_the_converted_operands(name, word):
    assert check(name, word) > 0


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", TAKING)
def test_a_kernel_in_16_bits_stays_in_bounds_and_has_no_races(name, way):
    """In bfloat16: one template makes the kernels of both types, which differ in the conversion of an element alone;
    test_half.py runs both conversions in every way."""
    check(name, "bf16", way)


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("precision", [name for name in WIDENING if name != "fp32"])
@pytest.mark.parametrize("name", ["Convolution by quads", "Convolution", "InnerProduct + ReLU"])
def test_a_product_on_tensor_cores_in_16_bits_has_the_bits_of_the_converted_operands(name, precision, word):
    assert check(name, word, replace(PLAIN, precision=precision)) > 0


@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["Convolution by quads", "Convolution, wide and odd"])
def test_every_tile_in_16_bits_has_the_bits_of_the_converted_operands(name, tile, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    assert check(name, "bf16") > 0


# -- products of packed tiles ------------------------------------------------------------------------------------------

BF16 = replace(PLAIN, precision="bf16")
OF_OCTETS = ["Convolution by octets", "Deconvolution by octets", "InnerProduct by octets + ReLU"]


@pytest.mark.parametrize("name", OF_OCTETS)
def test_a_product_of_packed_tiles_is_that_of_its_operands(name):
    """Sums of whole numbers are exact, so their order is no matter."""
    assert check(name, "bf16", BF16, exact=True) >= 3


@pytest.mark.exhaustive(12)
@pytest.mark.parametrize("tile", PACKED_BF16.tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", OCTETS)
def test_every_packed_tile_is_that_of_its_operands(name, tile, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    assert check(conv_case(OCTETS[name]), "bf16", BF16, exact=True) >= 3


@pytest.mark.whole
@pytest.mark.exhaustive(4)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", PACKED_BF16.tiles, ids=lambda tile: tile.name)
def test_packed_tiles_stay_in_bounds_and_have_no_races(tile, way, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    assert check("Convolution by octets", "bf16", replace(way, precision="bf16"), exact=True) >= 3


def test_a_weight_gradient_of_packed_tiles_sums_in_the_order_of_fp32_tiles():
    """Slices of a batch sum the windows that they leave each other in fp32 tiles."""
    case = OpCase("", conv_text(24, "kernel_size: 3 pad: 1"), {"small": [(3, 16, 7, 7)]})
    wgrads = [taken for taken in taken_steps(case, "bf16", "bf16") if taken.step.step == "wgrad"]
    assert wgrads
    for taken in wgrads:
        assert_same(taken, BF16, "")


def test_a_convolution_of_data_rounds_as_that_of_blobs_in_fp32():
    steps = [taken for taken in taken_steps(CASES["Convolution"], "bf16", "bf16") if "x0" not in taken.narrow]
    assert {taken.step.step for taken in steps} == {"forward", "wgrad"}
    for taken in steps:
        assert_same(taken, BF16, "")


@pytest.mark.parametrize(
    "why, word, case",
    [
        ("channels are no multiples of eight", "bf16", CASES["Convolution by quads"]),
        ("they are in float16", "fp16", CASES["Convolution by octets"]),
    ],
)
def test_other_products_in_bf16_are_converted(why, word, case):
    assert all("x0" not in taken.narrow for taken in taken_steps(case, word, "bf16")), why


def test_a_product_of_many_weights_rounds_none_ahead():
    """Their rounding would take more bytes, in memory and of its traffic, than the blobs of a product have."""
    few, many = (ConvProblem(8, 2048, outputs, Window(1, 1), Window(1, 1)) for outputs in (6144, 6152))
    for step, product in (("forward", "conv_fprop"), ("dgrad", "conv_dgrad")):
        assert rounded_weights_bytes("bf16", few, product, "bf16") == 2 * few.filter.count
        assert rounded_weights_bytes("bf16", many, product, "bf16") == 0
        assert not takes_narrow("bf16", many, step, "bf16", wide_image=False)
    assert takes_narrow("bf16", many, "wgrad", "bf16", wide_image=False)
    assert rounded_weights_bytes("tf32", few, "conv_fprop", "bf16") == 0


def test_all_kernels_but_those_of_single_layers_are_among_them():
    families = {CASES[name].layer("small").record.family for name in TAKING}
    assert families >= {
        "BatchNorm", "BatchNormScale", "Concat", "Conv", "Deconv", "Dropout", "Eltwise", "InnerProduct", "LRN",
        "Pointwise", "Pool", "Reshape", "Slice", "Split",
    }  # fmt: skip


def test_a_convolution_of_data_in_fp32_has_its_maps_in_16_bits():
    record, dtypes = CASES["Convolution"].layer("small").record, {"x0": "float32", "y0": "float16", "w0": "float32"}
    assert cuda_kernels.takes(record, "forward", dtypes, ()) == {"y0"}
    assert cuda_kernels.takes(record, "forward", {**dtypes, "x0": "float16"}, ()) == {"x0", "y0"}
    assert not cuda_kernels.takes(record, "forward", {**dtypes, "y0": "float32"}, ())
    assert cuda_kernels.takes(record, "forward", {**dtypes, "moments": "float32"}, ()) == {"y0"}


def test_operands_of_which_one_is_in_fp32_are_not_taken():
    record, dtypes = CASES["Concat"].layer("small").record, dict.fromkeys(("x0", "x1", "y0"), "bfloat16")
    assert cuda_kernels.takes(record, "forward", dtypes, ()) == dtypes.keys()
    assert not cuda_kernels.takes(record, "forward", {**dtypes, "x1": "float32"}, ())
    assert not cuda_kernels.takes(record, "forward", dict.fromkeys(dtypes, "float32"), ())
