"""tools/traffic.py: bytes that launches move, for a net whose bytes are counted by hand."""

from __future__ import annotations

import pytest

from layermem import api
from layermem.backends.base import get_device
from layermem.utils.units import aligned
from tools import traffic

NET = """
name: "small"
layer { name: "data" type: "Input" top: "data" top: "label"
        input_param { shape { dim: 8 dim: 4 dim: 6 dim: 6 } shape { dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 8 kernel_size: 1 bias_term: false } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer { name: "elu" type: "ELU" bottom: "bn" top: "elu" }
layer { name: "sum" type: "Eltwise" bottom: "elu" bottom: "bn" top: "sum" }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip" inner_product_param { num_output: 4 bias_term: false } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""

X, Y, FILTER = 4 * 8 * 4 * 36, 4 * 8 * 8 * 36, 4 * 8 * 4  # data; conv, bn, elu, sum; filter
C = 4 * 8  # a number of each channel
MOMENTS = 3 * 2 * C  # mean and M2 of 128 rows, of 288
WEIGHTS, SCORES = 4 * 4 * 8 * 36, 4 * 8 * 4  # of ip


@pytest.fixture(scope="module")
def by_kernel(tmp_path_factory) -> dict[str, list[traffic.Traffic]]:
    path = tmp_path_factory.mktemp("net") / "small.prototxt"
    path.write_text(NET, encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda"), strategy="caffe").train
    found: dict[str, list[traffic.Traffic]] = {}
    for each in traffic.step_traffic(schedule):
        found.setdefault(each.kernel, []).append(each)
    return found


def moved(by_kernel: dict[str, list[traffic.Traffic]], kernel: str) -> int:
    return sum(each.moved for each in by_kernel[kernel])


def test_products_move_their_operands_once(by_kernel):
    assert moved(by_kernel, "Conv.forward") == X + FILTER + Y + MOMENTS  # those for the BatchNorm, on its way out
    assert moved(by_kernel, "Conv.wgrad") == Y + X + FILTER
    assert moved(by_kernel, "InnerProduct.dgrad") == SCORES + WEIGHTS + Y


def test_batch_norm_reads_its_input_once_forward_and_both_inputs_twice_backward(by_kernel):
    averages = 2 * (2 * C + 4)  # read and written
    assert moved(by_kernel, "BatchNorm.forward") == (MOMENTS + 2 * C + averages) + (Y + 2 * C + Y)
    parts, sums = aligned(MOMENTS), aligned(2 * C)  # of dy and of dy y, of 128 rows and of all, in a workspace
    assert moved(by_kernel, "BatchNorm.backward") == (2 * Y + 2 * C + parts) + (MOMENTS + 2 * C) + (
        2 * Y + 2 * C + sums + Y
    )
    operands = sum(each.operands for each in by_kernel["BatchNorm.forward"])
    assert operands == Y + MOMENTS + Y + 2 * C + averages


def test_a_convolution_of_large_tiles_leaves_moments_on_its_way_out(tmp_path):
    path = tmp_path / "large.prototxt"
    path.write_text(NET.replace("num_output: 8", "num_output: 128").replace("dim: 6", "dim: 96"), encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda"), strategy="liveness").train
    (product,) = (each for each in traffic.step_traffic(schedule) if each.kernel == "Conv.forward")
    rows = 8 * 96 * 96
    assert product.moved == product.operands == 4 * (rows * 4 + 4 * 128 + rows * 128 + rows // 128 * 2 * 128)
    assert [name for name, _ in product.launches] == ["convolution.conv_fprop_128x64_v4"]


def test_a_batch_norm_reads_its_operands_once_where_a_dgrad_leaves_its_sums(tmp_path):
    path = tmp_path / "two.prototxt"
    second = """layer { name: "elu" type: "Convolution" bottom: "bn" top: "elu"
                        convolution_param { num_output: 8 kernel_size: 1 bias_term: false } }"""
    lines = [line for line in NET.splitlines() if 'name: "sum"' not in line]
    text = "\n".join(second if 'name: "elu"' in line else line for line in lines).replace('"sum"', '"elu"')
    path.write_text(text, encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda"), strategy="caffe").train
    found = {each.kernel: each for each in traffic.step_traffic(schedule)}
    sums, weights = aligned(2 * C), 4 * 8 * 8
    assert found["Conv.dgrad"].moved == Y + weights + Y + (Y + 2 * C + MOMENTS)
    assert found["BatchNorm.backward"].moved == (MOMENTS + 2 * C) + (2 * Y + 2 * C + sums + Y)


def test_a_sum_copies_its_gradient_and_a_gradient_that_is_added_to_is_read_too(by_kernel):
    assert moved(by_kernel, "Eltwise.forward") == 3 * Y
    assert moved(by_kernel, "Eltwise.backward") == 2 * (Y + Y)  # dy to either bottom
    assert moved(by_kernel, "Pointwise.backward") == 2 * Y + 2 * Y  # bn and the gradient of elu, added to that of bn


def test_a_copy_onto_itself_moves_nothing(tmp_path):
    path = tmp_path / "small.prototxt"
    path.write_text(NET, encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda"), strategy="liveness").train
    backward = [each for each in traffic.step_traffic(schedule) if each.kernel == "Eltwise.backward"]
    assert [(each.moved, len(each.launches)) for each in backward] == [(2 * Y, 1)]


def test_an_update_reads_and_writes_weights_and_their_state(tmp_path):
    solver = tmp_path / "solver.prototxt"
    (tmp_path / "small.prototxt").write_text(NET, encoding="utf-8")
    solver.write_text('net: "small.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9', encoding="utf-8")
    schedule = api.compile(solver=solver, device=get_device("cuda"), strategy="caffe").train
    updates = [each for each in traffic.step_traffic(schedule) if each.kernel == "Update.update"]
    assert sum(each.moved for each in updates) == 5 * (FILTER + WEIGHTS)


def test_a_concat_moves_each_bottom_to_its_share_of_the_top(tmp_path):
    path = tmp_path / "concat.prototxt"
    concat = 'layer { name: "both" type: "Concat" bottom: "sum" bottom: "conv" top: "both" }\nlayer { name: "ip"'
    text = NET.replace('bottom: "sum" top: "ip"', 'bottom: "both" top: "ip"').replace('layer { name: "ip"', concat)
    path.write_text(text, encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda"), strategy="liveness").train
    forward = [each for each in traffic.step_traffic(schedule) if each.kernel == "Concat.forward"]
    assert [each.moved for each in forward] == [4 * Y]


def test_the_table_ends_with_all_bytes(by_kernel):
    rows = [each for found in by_kernel.values() for each in found]
    *_, total = traffic.table(rows)
    assert total.split()[0] == "all"
    assert float(total.split()[-2]) == pytest.approx(sum(each.moved for each in rows) / 1e9, abs=5e-4)


def test_sums_of_a_bias_move_their_parts_and_not_the_workspace_of_the_filters(tmp_path):
    path = tmp_path / "wide.prototxt"
    wide = NET.replace("num_output: 8 kernel_size: 1 bias_term: false", "num_output: 64 kernel_size: 1")
    path.write_text(wide.replace("dim: 4 dim: 6 dim: 6", "dim: 64 dim: 48 dim: 48"), encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda"), strategy="caffe").train
    (wgrad,) = (each for each in traffic.step_traffic(schedule) if each.kernel == "Conv.wgrad")
    products, added, sums, merged = (nbytes for _, nbytes in wgrad.launches)
    bias, filters, maps = 4 * 64, 4 * 64 * 64, 4 * 8 * 64 * 48 * 48
    parts = added // filters - 1
    assert parts > 1 and products == 2 * maps + parts * filters and added == (parts + 1) * filters
    of_bias = 8 * 48 * 48 // 128  # parts, of 128 rows each
    assert (sums, merged) == (maps + of_bias * bias, of_bias * bias + bias)


def test_a_convolution_by_warpgroups_moves_no_more_than_others(tmp_path):
    """It also leaves moments for the BatchNorm after it."""
    path = tmp_path / "wide.prototxt"
    path.write_text(NET.replace("num_output: 8", "num_output: 256"), encoding="utf-8")
    schedule = api.compile(path, device=get_device("cuda", precision="tf32"), strategy="liveness").train
    moved = {}
    for capability in ("80", "90"):
        found = traffic.step_traffic(schedule, "tf32", capability)
        (moved[capability],) = (each for each in found if each.kernel == "Conv.forward")
    (others, nbytes), (own, same) = (moved[capability].launches[0] for capability in ("80", "90"))
    assert "_sm90a.conv_fprop_moments_" in own and "_sm90a" not in others
    assert nbytes == same and all(len(each.launches) == 1 for each in moved.values())
