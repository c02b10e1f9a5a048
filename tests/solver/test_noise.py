"""Training on noise: ranges of labels, determinism, resuming, and absent sources."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.interactive.solver import Solver
from layermem.proto.read import read_net_text
from layermem.solver.noise import index_limits, noise_seed
from tests.nets import ABSENT, INNER, SHAPES, SOFTMAX, absent_net, solver_file


def limits(text: str) -> dict[str, int]:
    return index_limits(Net(read_net_text(text), 0))


def test_labels_end_where_the_classes_of_the_layers_that_read_them_do():
    source = (
        'layer { name: "in" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 6 } shape { dim: 4 } } }'
    )
    accuracy = 'layer { name: "a" type: "Accuracy" bottom: "x" bottom: "t" top: "a" }'
    assert limits(source + INNER + SOFTMAX) == {"t": 5}
    assert limits(source + INNER + accuracy) == {"t": 6}
    assert limits(source + INNER + SOFTMAX + accuracy) == {"t": 5}
    assert limits(source + INNER + SOFTMAX.replace("SoftmaxWithLoss", "HingeLoss")) == {"t": 5}
    assert limits(source + INNER + SOFTMAX.replace("SoftmaxWithLoss", "MultinomialLogisticLoss")) == {"t": 5}


def test_labels_that_pass_through_layers_which_only_move_them_keep_their_range():
    text = """
        layer { name: "in" type: "Input" top: "x" top: "t"
                input_param { shape { dim: 4 dim: 6 } shape { dim: 8 dim: 1 } } }
        layer { name: "cut" type: "Slice" bottom: "t" top: "u" top: "v" slice_param { axis: 0 } }
        layer { name: "flat" type: "Reshape" bottom: "v" top: "w" reshape_param { shape { dim: -1 } } }
    """
    found = limits(text + INNER + SOFTMAX.replace('"t"', '"w"'))
    assert found == {"w": 5, "v": 5, "t": 5}


def test_whether_a_sequence_goes_on_is_0_or_1():
    text = """
        layer { name: "in" type: "Input" top: "x" top: "cont"
                input_param { shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 } } }
        layer { name: "l" type: "LSTM" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 2 } }
    """
    assert limits(text)["cont"] == 2


def test_whether_a_pair_is_the_same_is_0_or_1():
    text = """
        layer { name: "in" type: "Input" top: "a" top: "b" top: "s"
                input_param { shape { dim: 4 dim: 6 } shape { dim: 4 dim: 6 } shape { dim: 4 } } }
        layer { name: "l" type: "ContrastiveLoss" bottom: "a" bottom: "b" bottom: "s" top: "l" }
    """
    assert limits(text) == {"s": 2}


@pytest.mark.parametrize(("text", "seed"), [(None, None), ("noise", 0), ("noise:0", 0), ("noise:17", 17)])
def test_the_seed_of_the_noise_is_behind_its_name(text, seed):
    assert noise_seed(text) == seed


@pytest.mark.parametrize("text", ["", "noise:", "noise:-1", "noise:x", "zeros", "noise:" + "9" * 40])
def test_other_data_are_refused(text):
    with pytest.raises(InputError, match="use noise or noise:SEED"):
        noise_seed(text)


@pytest.mark.parametrize("kind", ABSENT)
def test_a_net_trains_on_noise_whatever_its_source_is(kind, tmp_path):
    file = solver_file(absent_net(ABSENT[kind]), tmp_path, test_iter=None, test_interval=None)
    runs = []
    for data in ("noise", "noise", "noise:1"):
        with Solver(file, device="reference", data=data, inputs=SHAPES) as solver:
            solver.step(3)
            runs.append((solver.loss, solver.parameters()["ip"][0].tobytes()))
    assert runs[0] == runs[1] != runs[2]


def test_a_run_on_noise_resumes_with_the_same_bits_and_only_on_the_same_noise(tmp_path):
    net = absent_net(ABSENT["LMDB"])
    file = solver_file(net, tmp_path, snapshot=3, max_iter=6)
    with Solver(file, device="reference", data="noise:5", inputs=SHAPES) as whole:
        whole.solve()
    snapshot = tmp_path / "run_iter_3.solverstate"
    with Solver(file, device="reference", data="noise:5", inputs=SHAPES, snapshot=snapshot) as resumed:
        resumed.solve()
    for name, blobs in whole.parameters().items():
        assert all(np.array_equal(a, b) for a, b in zip(blobs, resumed.parameters()[name], strict=True))
    with pytest.raises(InputError, match=r"layer 'src' cannot resume .* written with noise:5, not with noise:0"):
        Solver(file, device="reference", data="noise", inputs=SHAPES, snapshot=snapshot)


def test_data_that_need_no_files_stay(tmp_path):
    with Solver(solver_file("chain", tmp_path), device="reference") as own:
        own.step(2)
    with Solver(solver_file("chain", tmp_path), device="reference", data="noise") as noise:
        noise.step(2)
    assert own.loss == noise.loss  # DummyData


@pytest.mark.parametrize("stated", ["shape { dim: 4 dim: 3 dim: 6 dim: 5 }", "num: 4 channels: 3 height: 6 width: 5"])
def test_dummy_data_have_the_shapes_that_are_given(tmp_path, stated):
    dummy = f'layer {{ name: "d" type: "DummyData" top: "x" dummy_data_param {{ {stated} }} }}'
    labels = 'layer { name: "t" type: "DummyData" top: "t" dummy_data_param { shape { dim: 4 } } }'
    with Solver(
        solver_file(dummy + labels + INNER + SOFTMAX, tmp_path),
        device="reference",
        data="noise",
        batch=2,
        inputs={"x": (2, 3, 2, 2)},
    ) as solver:
        solver.step(1)
        assert solver.parameters()["ip"][0].shape == (5, 12)


def test_shapes_without_noise_and_shapes_that_are_missing_are_refused(tmp_path):
    file = solver_file(absent_net(ABSENT["LMDB"]), tmp_path)
    with pytest.raises(InputError, match="add data='noise'"):
        Solver(file, inputs=SHAPES)
    with pytest.raises(InputError, match="or give --input x=4,C,H,W --input t=4"):
        Solver(file, data="noise")
