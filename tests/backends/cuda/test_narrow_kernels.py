"""Kernels that take operands in 16 bits have the bits of those in fp32 between conversions (graph/storage.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layermem.backends.cuda import cuda_kernels, implicit_gemm
from layermem.backends.cuda.implicit_gemm import NARROW_PRECISIONS, TILES
from layermem.ops import NARROW
from tests.backends.cuda.harness import PLAIN, Way
from tests.backends.cuda.narrow_steps import TAKING, Taken, taken_steps
from tests.cases import CASES
from tests.emulator.emulate import WAYS

STRICT = [Way(*way) for way in WAYS if way[0] != "plain"]


def assert_same(taken: Taken, way: Way, why: str, **how: object) -> None:
    direct, converted = (taken.run(direct, way, **how) for direct in (True, False))  # type: ignore[arg-type]
    for role, value in converted.items():
        assert direct[role].tobytes() == value.tobytes(), f"{taken.step.step}{why}: another {role}"


def check(name: str, word: str, way: Way = PLAIN) -> int:
    """The number of steps that are taken in 16 bits."""
    steps = list(taken_steps(CASES[name], word))
    for taken in steps:
        assert_same(taken, way, "")
        for overlay in taken.step.overlays:
            if (overlay.out in taken.narrow) == (overlay.over in taken.narrow):
                assert_same(taken, way, f" over {overlay.over}", over={overlay.out: overlay.over})
        gradients = [role for role in taken.step.writes if role.startswith("d") and role in taken.narrow]
        if gradients:
            assert_same(taken, way, " added", adds=gradients)
    return len(steps)


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("name", TAKING)
def test_a_kernel_in_16_bits_has_the_bits_of_the_converted_operands(name, word):
    assert check(name, word) > 0


@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", TAKING)
def test_a_kernel_in_16_bits_stays_in_bounds_and_has_no_races(name, way):
    """In bfloat16: one template makes the kernels of both types, which differ in the conversion of an element alone;
    test_half.py runs both conversions in every way."""
    check(name, "bf16", way)


@pytest.mark.parametrize("word", NARROW)
@pytest.mark.parametrize("precision", [name for name in NARROW_PRECISIONS if name != "fp32"])
@pytest.mark.parametrize("name", ["Convolution by quads", "Convolution", "InnerProduct + ReLU"])
def test_a_product_on_tensor_cores_in_16_bits_has_the_bits_of_the_converted_operands(name, precision, word):
    assert check(name, word, replace(PLAIN, precision=precision)) > 0


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
@pytest.mark.parametrize("name", ["Convolution by quads", "Convolution, wide and odd"])
def test_every_tile_in_16_bits_has_the_bits_of_the_converted_operands(name, tile, monkeypatch):
    monkeypatch.setattr(implicit_gemm, "TILES", (tile,))
    assert check(name, "bf16") > 0


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
    assert not cuda_kernels.takes(record, "forward", {**dtypes, "moments": "float32"}, ())


def test_operands_of_which_one_is_in_fp32_are_not_taken():
    record, dtypes = CASES["Concat"].layer("small").record, dict.fromkeys(("x0", "x1", "y0"), "bfloat16")
    assert cuda_kernels.takes(record, "forward", dtypes, ()) == dtypes.keys()
    assert not cuda_kernels.takes(record, "forward", {**dtypes, "x1": "float32"}, ())
    assert not cuda_kernels.takes(record, "forward", dict.fromkeys(dtypes, "float32"), ())
