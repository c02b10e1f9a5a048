"""Eltwise: sums, products and maxima of any number of bottoms."""

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.train import train_graph
from layermem.ops import Eltwise
from layermem.proto.read import read_net_text
from layermem.solver.benchmark import Benchmark
from tests.cases import select
from tests.cases.base import ROWS_AND_IMAGES
from tests.compiling import compile
from tests.layers.harness import backward, check_gradients, forward, layer_of

SHAPE = (2, 3, 2, 4)


def eltwise(settings, count, shape=SHAPE):
    return layer_of(f'type: "Eltwise" eltwise_param {{ {settings} }}', *[shape] * count)


def inputs(count, shape=SHAPE):
    """Values that all differ, so that no maximum is near a tie."""
    size = int(np.prod(shape))
    return list(np.random.default_rng(1).permutation(count * size).reshape(count, *shape) * 0.01 - 0.2)


CASES = [case for case in select("medium", formula=True) if isinstance(case.layer().record, Eltwise) and not case.relu]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("shape", ROWS_AND_IMAGES)
def test_y_is_the_formula_of_the_bottoms(case, shape):
    xs = inputs(len(case.shapes("medium")), shape)
    layer = case.at(*[shape] * len(xs)).layer()
    np.testing.assert_allclose(forward(layer, *xs).arrays["y0"], case.formula(*xs))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients(case):
    xs = inputs(len(case.shapes("medium")))
    check_gradients(case.at(*[SHAPE] * len(xs)).layer(), *xs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_gradient_alone_is_the_one_computed_with_the_others(case):
    xs = inputs(len(case.shapes("medium")))
    layer = case.at(*[SHAPE] * len(xs)).layer()
    wants = [f"dx{i}" for i in range(len(xs))]
    together = backward(forward(layer, *xs), wants, xs[0])
    for role in wants:
        alone = backward(forward(layer, *xs), [role], xs[0])
        np.testing.assert_array_equal(alone.arrays[role], together.arrays[role])


@pytest.mark.parametrize(
    ("values", "winner"), [((1, 1, 1), 2), ((1, 1, 0), 1), ((1, 0, 1), 2), ((0, 1, 1), 2), ((2, 1, 1), 0)]
)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_the_last_of_equal_largest_bottoms_gets_the_gradient(device, values, winner):
    text = "".join(
        f"""layer {{ name: "w{i}" type: "DummyData" top: "d{i}" dummy_data_param {{ shape {{ dim: 1 dim: 1 }} }} }}
            layer {{ name: "ip{i}" type: "InnerProduct" bottom: "d{i}" top: "x{i}" inner_product_param {{
                     num_output: 1 bias_filler {{ type: "constant" value: {value} }} }} }}"""
        for i, value in enumerate(values)
    )
    bottoms = " ".join(f'bottom: "x{i}"' for i in range(3))
    text += (
        f'layer {{ name: "m" type: "Eltwise" {bottoms} top: "y" eltwise_param {{ operation: MAX }} loss_weight: 1 }}'
    )
    net, target = Net(read_net_text(text), 0), get_device(device)
    runner = Benchmark(net, compile([train_graph(net, target)]), target).runner
    runner.run()
    assert [float(runner.read(f"ip{i}.w1.diff")[0]) for i in range(3)] == [float(i == winner) for i in range(3)]


def test_a_sum_reads_no_activation_for_its_gradient():
    (step,) = eltwise("", 3).backward(["dx0", "dx2"])
    assert (step.reads, step.writes) == (("dy0",), ("dx0", "dx2"))


@pytest.mark.parametrize("wants, reads", [(["dx0"], ("x1", "x2")), (["dx0", "dx1"], ("x0", "x1", "x2"))])
def test_a_product_reads_the_factors_of_the_wanted_gradients_only(wants, reads):
    (step,) = eltwise("operation: PROD", 3).backward(wants)
    assert step.reads == (*reads, "dy0")


def test_a_product_with_a_zero_still_has_its_gradient():
    run = forward(eltwise("operation: PROD stable_prod_grad: false", 2, (2,)), np.array([0.0, 3]), np.array([5.0, 7]))
    backward(run, ["dx0", "dx1"], np.ones(2))
    assert run.arrays["dx0"].tolist() == [5, 7] and run.arrays["dx1"].tolist() == [0, 3]


def test_the_last_of_equal_largest_gets_the_gradient():
    a, b, c = np.array([1.0, 2, 3]), np.array([1.0, 2, 1]), np.array([1.0, 0, 3])
    run = backward(forward(eltwise("operation: MAX", 3, (3,)), a, b, c), ["dx0", "dx1", "dx2"], np.ones(3))
    assert run.arrays["winner"].tolist() == [2, 1, 2]
    assert [run.arrays[f"dx{i}"].tolist() for i in range(3)] == [[0, 0, 0], [0, 1, 0], [1, 0, 1]]


def test_the_winner_takes_a_byte_while_there_are_at_most_256_bottoms():
    assert eltwise("operation: MAX", 256, (1,)).stash["winner"].dtype == "uint8"
    assert eltwise("operation: MAX", 257, (1,)).stash["winner"].dtype == "int32"
    assert eltwise("operation: SUM", 2).stash == {}


def test_bottoms_of_other_shapes_are_refused_by_name():
    with pytest.raises(InputError, match="'x0' of shape 2x3 with 'x1' of shape 3x2; make the shapes equal"):
        layer_of('type: "Eltwise"', (2, 3), (3, 2))


@pytest.mark.parametrize(
    "settings, remedy",
    [("operation: PROD coeff: 1 coeff: 1", "remove the 'coeff:'"), ("coeff: 1", "give one for each")],
)
def test_coefficients_that_fit_nothing_are_refused(settings, remedy):
    with pytest.raises(InputError, match=remedy):
        eltwise(settings, 2)


def test_one_bottom_is_too_few():
    with pytest.raises(InputError, match="at least 2"):
        eltwise("", 1)
