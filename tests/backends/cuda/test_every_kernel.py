"""Every kernel in every mode of the emulator; and none that no case launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from layermem.backends.cuda import cuda_kernels
from layermem.backends.cuda.base import CudaCall
from layermem.backends.cuda.kernel_images.sources import modules
from layermem.backends.cuda.products import gemm_tiles, narrow_products
from layermem.backends.cuda.products.gemm_tiles import ENGINES, TILES
from layermem.ops import NARROW, OpRecord
from tests.backends.cuda.harness import Way, case_of, first_step, kernel_names, record_of
from tests.backends.cuda.strict import BOUNDS_AT_LEAST, STRICT
from tests.cases import CASES, select
from tests.emulator.emulate import WAYS
from tests.layers.harness import wants_of
from tests.op_case import OpCase

ORDERS = [Way(*way) for way in WAYS if way[0] == "plain"]


BESIDE = {
    "channel_sums.sum_splits_v1", "communication.ordered_sum", "delay.delay", "fill.fill", "fill.fill_scaled",
    "half.narrow_bf16_v1", "half.narrow_bf16_v4", "half.widen_bf16_v1", "half.widen_bf16_v4",
    "half.narrow_fp16_v1", "half.narrow_fp16_v4", "half.widen_fp16_v1", "half.widen_fp16_v4",
    "images.transform_images", "im2col.gather_windows", "im2col.gather_windows_bf16", "im2col.gather_windows_fp16",
    "normalization.move_averages", "update.accumulate", "update.square_root", "update.square_sums",
    "weight_tiles.tile_columns", "weight_tiles.tile_rows",
}  # and update rules  # fmt: skip


def ways_to_store(
    record: OpRecord, step: str, roles: Sequence[str], precision: str
) -> Iterator[tuple[str, frozenset[str]]]:
    """The word of the type of 16 bits and the roles that kernels take so: none, all blobs, all but the bottoms."""
    yield "", frozenset()
    for word, dtype in NARROW.items():
        all_narrow = {role: "float32" if role == "moments" else dtype for role in roles}
        of_data = {role: "float32" if role.startswith("x") else each for role, each in all_narrow.items()}
        for dtypes in (all_narrow, of_data):
            taken = narrow_products.takes(precision, record, step, dtypes, ())
            if taken:
                yield word, taken


def launched(case: OpCase, precision: str = "fp32") -> set[str]:
    """The kernels of a layer's ops, module and name."""
    layer = case.layer("small")
    wants = wants_of(layer)
    steps = [first_step(layer, wants), layer.recompute(), *layer.backward(wants)]
    found = set()
    for step in filter(None, steps):
        roles, record = (*step.reads, *step.writes, *step.updates), record_of(layer, step)
        for word, narrow in ways_to_store(record, step.step, roles, precision):
            addresses = {role: 256 * (i + 1) for i, role in enumerate(roles)}
            call = CudaCall(addresses, storage=word, narrow=narrow, precision=precision)
            launches = cuda_kernels.bind(record, step.step, call)
            found |= {f"{launch.module}.{launch.function}" for launch in launches}
    return found


def test_the_small_cases_launch_every_kernel(monkeypatch):
    found, products = set(), []
    for case in select("small"):
        kernels = launched(case, "fp32")
        found |= kernels
        if any(kernel.startswith("convolution") for kernel in kernels):  # which depend on tiles and precision
            products.append(case)
    for tile in TILES:
        monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
        for precision in ENGINES:
            found |= set().union(*(launched(case, precision) for case in products))
    of_every_gpu = [module for module in modules() if not module.endswith("_sm90a")]  # else test_warpgroup.py
    declared = {f"{module}.{name}" for module in of_every_gpu for name in kernel_names(module)}
    rules = {name for name in declared if name.startswith("update.update_")}
    assert len(rules) == 7
    checking = {name for name in declared if name.startswith("check.")}  # test_check.py
    with_sums = {name for name in declared if ".conv_dgrad_sums_" in name}  # test_norm_sums.py
    by_patch = {name for name in declared if "_patch_" in name}  # test_conv_patch.py
    assert found | rules | with_sums | by_patch | checking | BESIDE == declared


@pytest.mark.exhaustive(8)
@pytest.mark.parametrize("way", STRICT, ids=lambda way: way.mode)
@pytest.mark.parametrize("tile", ENGINES["fp32"].tiles, ids=lambda tile: tile.name)
@pytest.mark.parametrize(
    "name", ["Convolution by quads", "Convolution", "Convolution, wide and odd", "Convolution + residual + ReLU"]
)
def test_every_tile_stays_in_bounds_and_has_no_races(name, tile, way, monkeypatch):
    monkeypatch.setattr(gemm_tiles, "TILES", (tile,))
    case_of(CASES[name], way).check()


@pytest.mark.whole
@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("precision", [name for name in ENGINES if name != "fp32"])
@pytest.mark.parametrize(
    "name", ["Convolution by quads", "Convolution", "InnerProduct", "Convolution + residual + ReLU"]
)
def test_products_on_tensor_cores_stay_in_bounds_and_have_no_races(name, precision, way):
    case_of(CASES[name], replace(way, precision=precision)).check()


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("way", ORDERS, ids=lambda way: f"{way.order}-{way.copies}")
@pytest.mark.parametrize("name", [case.name for case in select("small")])
def test_a_kernel_is_right_in_any_order_of_its_threads(name, way):
    case_of(CASES[name], way).check()


@pytest.mark.exhaustive(3)
@pytest.mark.parametrize("way", BOUNDS_AT_LEAST, ids=lambda way: way.mode)
@pytest.mark.parametrize("name", [case.name for case in select("small")])
def test_a_kernel_stays_in_bounds_and_has_no_races(name, way):
    case_of(CASES[name], way).check()
