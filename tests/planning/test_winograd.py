"""The arithmetic of convolutions in Winograd's form: the choice of the kernels, and what slices take longer."""

from dataclasses import replace
from itertools import product

import pytest

from layermem.api import build_net, job_of
from layermem.backends.cpu.convolution import conv_problem
from layermem.backends.cpu.support.launch import query
from layermem.ops import Conv, ConvProblem, Window
from layermem.planning.costs import Costs, Rates, model_costs
from layermem.planning.winograd import winograd_tile, winograd_work
from tests.schedule.small_graphs import op

RATES = Rates(flops=100.0, memory=10.0, d2h=4.0, h2d=8.0, launch=0.0, winograd=50.0)


def problem_of(n, c, size, k, *, kernel=3, stride=1, pad=1, dilation=1, groups=1):
    window = Window(size, kernel, stride, pad, dilation)
    return ConvProblem(n, c, k, window, window, groups)


def conv(problem, step="forward", batch_slice=None, **facts):
    return replace(
        op("conv", "forward", flops=2 * problem.macs, **facts), record=Conv(problem, batch_slice=batch_slice), step=step
    )


def test_the_form_is_the_one_that_the_kernels_choose():
    shapes = product((1, 2, 4, 16), (16, 32, 64), (3, 7, 14, 28), (31, 32), (1, 3), (1, 2), (0, 1, 3), (1, 2), (1, 2))
    forms = set()
    for n, c, size, k, kernel, stride, pad, dilation, groups in shapes:
        if k % groups or size + 2 * pad < dilation * (kernel - 1) + 1:
            continue
        problem = problem_of(n, c, size, k, kernel=kernel, stride=stride, pad=pad, dilation=dilation, groups=groups)
        native = conv_problem(
            n=n,
            c=c,
            h=size,
            w=size,
            k=k,
            kernel=(kernel,) * 2,
            stride=(stride,) * 2,
            pad=(pad,) * 2,
            dilation=(dilation,) * 2,
            groups=groups,
            first=0,
            items=n,
        )
        forms.add(winograd_tile(problem, n))
        assert winograd_tile(problem, n) == query("winograd_tile", native), problem
    assert forms == {0, 2, 4}


def test_tiles_of_16_outputs_take_36_products_and_each_launch_transforms_the_weights():
    problem = problem_of(16, 64, 56, 32)
    tiles = 16 * 14 * 14
    assert winograd_work(conv(problem)) == (2 * 36 * tiles * 64 * 32, 2 * 4 * 36 * 64 * 32)
    assert winograd_work(conv(problem, "wgrad")) == (2 * 36 * tiles * 64 * 32, 0)


def test_a_direct_convolution_and_the_gradient_of_a_bias_have_no_such_work():
    assert winograd_work(conv(problem_of(16, 64, 56, 32, kernel=5, pad=2))) is None
    assert winograd_work(replace(conv(problem_of(16, 64, 56, 32), "wgrad"), flops=16 * 56 * 56 * 32)) is None


def test_a_launch_takes_its_products_or_traffic_and_transforms_the_weights_before():
    forward = conv(problem_of(16, 64, 56, 32), nbytes=20)
    flops, nbytes = winograd_work(forward)
    assert Costs(RATES).op(forward) == flops / 50 + nbytes / 10
    assert Costs(replace(RATES, winograd=0.0)).op(forward) == forward.flops / 100


@pytest.mark.parametrize("step", ["forward", "dgrad"])
def test_slices_transform_the_weights_of_a_convolution_once_each(step):
    """Their products add up to those of the batch."""
    net = build_net("prototxt/vgg16/train_val.prototxt", batch=8, stages=["dummy"])
    job, costs = job_of(net, device="cpu"), model_costs("cpu")
    whole, sliced = (each.graphs[0].by_name for each in (job, job.with_slices("whole/8")))
    name = f"conv4_2+relu4_2.{step}"
    once = costs.op(whole[name])
    flops, nbytes = winograd_work(whole[name])
    parts = [winograd_work(sliced[f"{name}@{number}/8"]) for number in range(1, 9)]
    assert sum(each[0] for each in parts) == flops and {each[1] for each in parts} == {nbytes}
    longer = sum(costs.op(sliced[f"{name}@{number}/8"]) for number in range(1, 9)) - once
    assert longer == pytest.approx(7 * (nbytes / costs.rates.memory + costs.rates.launch), rel=1e-6)


def test_slices_of_one_image_read_the_weights_of_an_inner_product_for_each():
    net = build_net("prototxt/vgg16/train_val.prototxt", batch=8, stages=["dummy"])
    job = job_of(net, device="cpu")
    whole, sliced = (each.graphs[0].by_name for each in (job, job.with_slices("whole/8")))
    names = [f"fc6+relu6.forward@{number}/8" for number in range(1, 9)]
    modelled = model_costs("cpu")
    once = modelled.op(whole["fc6+relu6.forward"])
    assert sum(modelled.op(sliced[name]) for name in names) > 7.9 * once
    measured = replace(modelled, measured={"fc6+relu6.forward": 0.02})
    assert sum(measured.op(sliced[name]) for name in names) == pytest.approx(8 * 0.02)
