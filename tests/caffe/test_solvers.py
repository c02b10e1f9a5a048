"""Solvers by pycaffe's names."""

import numpy as np
import pytest

import layermem
from layermem import caffe
from layermem.caffe import modes
from layermem.errors import InputError
from layermem.planning.strategies import STRATEGIES
from tests.nets import NETS

NET = """
layer { name: "data" type: "DummyData" top: "x" top: "y" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 } data_filler { type: "gaussian" std: 1 } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
  num_output: 1 weight_filler { type: "gaussian" std: 1 } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(modes, "_seed", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    return tmp_path


def write_solver(folder, rest=""):
    (folder / "s.prototxt").write_text(f'net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 5 {rest}')
    return "s.prototxt"


def test_a_class_is_a_type_whatever_the_file_names_and_get_solver_reads_it(folder):
    path = write_solver(folder, 'type: "Adam" momentum: 0.9 momentum2: 0.99')
    assert caffe.SGDSolver(path).param.type == "SGD"
    assert type(caffe.get_solver(path)) is caffe.AdamSolver
    names = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")
    assert [getattr(caffe, f"{name}Solver").kind for name in names] == list(names)


def test_steps_train_and_write_the_lines_of_caffe(folder, capsys):
    solver = caffe.SGDSolver(write_solver(folder, "display: 1 random_seed: 1"))
    solver.step(3)
    assert solver.iteration == 3 and "solver.cpp:239] Iteration 2" in capsys.readouterr().err


def test_solve_resumes_from_a_snapshot(folder):
    solver = caffe.SGDSolver(write_solver(folder, 'snapshot_prefix: "s"'))
    solver.step(2)
    state = solver.snapshot()
    solver.solve()
    resumed = caffe.SGDSolver("s.prototxt")
    resumed.solve(state)
    assert resumed.iter == 5 and resumed.resumed_from == state
    np.testing.assert_array_equal(resumed.net.params["ip"][0].data, solver.net.params["ip"][0].data)
    with pytest.raises(InputError, match=r"none\.solverstate: no such file"):
        resumed.solve("none.solverstate")


def test_the_seed_is_that_of_the_file_or_of_set_random_seed(folder):
    def loss(rest, seed):
        caffe.set_random_seed(seed)
        solver = caffe.SGDSolver(write_solver(folder, rest))
        solver.step(1)
        return float(np.asarray(solver.outputs["loss"]))

    assert loss("", 1) == loss("", 1) != loss("", 2)
    assert loss("random_seed: 4", 1) == loss("random_seed: 4", 2)


def test_gradients_of_the_last_step_are_those_of_its_update(folder):
    solver = caffe.SGDSolver(write_solver(folder, "random_seed: 1"))
    weight, bias = solver.net.params["ip"]
    assert not np.any(weight.diff) and solver.net.blobs["ip"].data.tolist() == [[0]] * 4
    before = np.array(weight.data), np.array(bias.data)
    solver.step(1)
    for blob, value in zip((weight, bias), before):
        np.testing.assert_allclose(blob.data, value - 0.01 * blob.diff, rtol=1e-6)
        assert np.any(blob.diff)
    assert np.any(solver.net.blobs["ip"].data) and np.any(solver.net.blobs["ip"].diff)


def test_passes_by_hand_change_nothing_of_the_training(folder):
    path = write_solver(folder, "random_seed: 1 test_iter: 1 test_interval: 100")
    plain, watched = caffe.SGDSolver(path), caffe.SGDSolver(path)
    for _ in range(3):
        plain.step(1)
        watched.step(1)
        after_step = np.array(watched.net.blobs["x"].data)
        watched.net.forward()
        watched.net.backward()
        assert np.any(watched.net.params["ip"][0].diff)
        watched.net.forward(start="ip")
        watched.test_nets[0].forward()
        shared = watched.test_nets[0].params["ip"][0].data
        assert np.array_equal(shared, watched.net.params["ip"][0].data)
    assert np.array_equal(plain.net.params["ip"][0].data, watched.net.params["ip"][0].data)
    assert np.array_equal(plain.net.blobs["x"].data, after_step)


def test_within_a_budget_there_is_one_arena(folder):
    solver = caffe.SGDSolver(write_solver(folder), budget="1MiB")
    solver.step(1)
    with pytest.raises(InputError, match="of a solver goes backward and updates as one; use"):
        solver.net.backward()


# -- loops that feed and update a solver by hand -------------------------------------------------------------------

FED = """
layer {{ name: "x" type: "{kind}" top: "x" top: "y" {block} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {{ num_output: 1
        weight_filler {{ value: 0.5 }} bias_filler {{ value: 0.25 }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }}
"""
SHAPES = "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 1 }"
SOURCES = {
    "Input": f"input_param {{ {SHAPES} }}",
    "DummyData": f"dummy_data_param {{ {SHAPES} data_filler {{ value: 0 }} }}",
}
RATE = 0.1


class Regression:
    """Linear regression by hand: what each loop below must compute."""

    def __init__(self, momentum=0.0):
        self.weight, self.bias, self.momentum = np.full(3, 0.5), 0.25, momentum
        self.steps = np.zeros(3), 0.0

    def gradients(self, x, y):
        error = (x @ self.weight + self.bias - y[:, 0]) / len(x)
        return error @ x, error.sum()

    def update(self, gradients):
        self.steps = tuple(self.momentum * step + RATE * g for step, g in zip(self.steps, gradients))
        self.weight, self.bias = self.weight - self.steps[0], self.bias - self.steps[1]

    def agrees(self, net):
        weight, bias = (blob.data for blob in net.params["ip"])
        np.testing.assert_allclose(weight[0], self.weight, rtol=1e-5)
        np.testing.assert_allclose(bias[0], self.bias, rtol=1e-5)


def batches(count, seed=0):
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(4, 3)), rng.normal(size=(4, 1))) for _ in range(count)]


def fed_solver(folder, kind, rest="", **options):
    (folder / "net.prototxt").write_text(FED.format(kind=kind, block=SOURCES[kind]))
    text = f'net: "net.prototxt" base_lr: {RATE} lr_policy: "fixed" momentum: 0.5 {rest}'
    (folder / "s.prototxt").write_text(text)
    return caffe.SGDSolver("s.prototxt", **options)


@pytest.mark.parametrize("budget", [None, "1MiB"])
@pytest.mark.parametrize("kind", SOURCES)
def test_a_step_reads_what_a_user_wrote_to_the_blobs(folder, kind, budget):
    solver, expected = fed_solver(folder, kind, budget=budget), Regression(momentum=0.5)
    for x, y in batches(4):
        solver.net.blobs["x"].data[...] = x
        solver.net.blobs["y"].data[...] = y
        solver.step(1)
        expected.update(expected.gradients(x, y))
        expected.agrees(solver.net)
        np.testing.assert_allclose(solver.net.blobs["x"].data, x, rtol=1e-6)
    assert solver.runner.measured_peak_bytes <= solver.program.arena_bytes


@pytest.mark.parametrize("kind", SOURCES)
def test_passes_by_hand_and_tests_read_what_a_user_wrote_to_the_blobs(folder, kind):
    solver = fed_solver(folder, kind, "test_iter: 2 test_interval: 100 test_initialization: false")
    (x, y), (u, v) = batches(2)
    for net, data, label in ((solver.net, x, y), (solver.test_nets[0], u, v)):
        net.blobs["x"].data[...], net.blobs["y"].data[...] = data, label
        loss = np.mean((data.sum(axis=1) * 0.5 + 0.25 - label[:, 0]) ** 2) / 2
        assert net.forward()["loss"] == pytest.approx(loss, rel=1e-5)
        assert np.array_equal(net.forward(start="ip")["loss"], net.forward()["loss"])
    assert solver.test()["loss"] == pytest.approx(loss, rel=1e-5)  # of u, v
    solver.net.blobs["x"].data[...], solver.net.blobs["y"].data[...] = u, v
    expected = Regression()
    expected.update(expected.gradients(u, v))
    solver.step(1)
    expected.agrees(solver.net)


@pytest.mark.parametrize("kind", SOURCES)
def test_forward_backward_and_apply_update_are_a_step(folder, kind):
    solver, expected = fed_solver(folder, kind), Regression(momentum=0.5)
    assert solver.lr == pytest.approx(RATE)
    kept = solver.net.params["ip"][0].diff
    for index, (x, y) in enumerate(batches(3)):
        solver.net.blobs["x"].data[...], solver.net.blobs["y"].data[...] = x, y
        solver.net.forward()
        solver.net.clear_param_diffs()
        solver.net.backward()
        np.testing.assert_allclose(kept[0], expected.gradients(x, y)[0], rtol=1e-5)  # one array for all passes
        solver.apply_update()
        expected.update(expected.gradients(x, y))
        expected.agrees(solver.net)
        assert solver.iter == index + 1
    (x, y), (u, v) = batches(2, seed=1)
    solver.net.clear_param_diffs()
    for each in ((x, y), (u, v)):  # gradients add up
        solver.net.blobs["x"].data[...], solver.net.blobs["y"].data[...] = each
        solver.net.forward()
        solver.net.backward()
    solver.apply_update()
    expected.update([a + b for a, b in zip(expected.gradients(x, y), expected.gradients(u, v))])
    expected.agrees(solver.net)
    solver.step(1)  # begins with gradients of zero, on what the blobs hold
    expected.update(expected.gradients(u, v))
    expected.agrees(solver.net)


def test_an_update_takes_gradients_that_a_user_wrote_before_any_pass(folder):
    solver = fed_solver(folder, "Input")
    weight = solver.net.layers[1].blobs[0].data
    solver.net.layers[1].blobs[0].diff[...] = 1
    solver.apply_update()
    np.testing.assert_allclose(weight, 0.5 - RATE, rtol=1e-6)
    assert solver.net.params["ip"][1].data == 0.25


def test_gradients_that_a_callback_changes_are_those_of_the_update(folder):
    solver, expected = fed_solver(folder, "Input"), Regression(momentum=0.5)
    solver.add_callback(lambda: None, lambda: solver.net.params["ip"][0].diff.__imul__(2))
    for x, y in batches(3):
        solver.net.blobs["x"].data[...], solver.net.blobs["y"].data[...] = x, y
        solver.step(1)
        weight, bias = expected.gradients(x, y)
        expected.update((2 * weight, bias))
        expected.agrees(solver.net)
        np.testing.assert_allclose(solver.net.params["ip"][0].diff[0], 2 * weight, rtol=1e-5)


def test_within_a_budget_such_a_callback_is_warned_of_and_apply_update_is_refused(folder):
    solver = fed_solver(folder, "Input", budget="1MiB")
    with pytest.warns(UserWarning, match="what it writes to a diff has no effect") as warned:
        solver.add_callback(lambda: None, lambda: None)
    assert warned[0].filename == __file__
    with pytest.raises(InputError, match="holds none for apply_update; use"):
        solver.apply_update()


@pytest.mark.parametrize("rest", ["", "clip_gradients: 0.01", "iter_size: 2", "iter_size: 2 clip_gradients: 0.01"])
def test_blobs_and_gradients_are_there_after_a_step(folder, rest):
    solver = fed_solver(folder, "Input", rest)
    ((x, y),) = batches(1)
    solver.net.blobs["x"].data[...], solver.net.blobs["y"].data[...] = x, y
    solver.step(1)
    np.testing.assert_allclose(solver.net.blobs["ip"].data[:, 0], x.sum(axis=1) * 0.5 + 0.25, rtol=1e-5)
    gradient = Regression().gradients(x, y)[0] * (2 if "iter_size" in rest else 1)  # the sum of both batches
    np.testing.assert_allclose(solver.net.params["ip"][0].diff[0], gradient, rtol=1e-5)


def test_arrays_of_a_memory_data_layer_are_those_of_passes_by_hand_and_of_steps(folder):
    block = "memory_data_param { batch_size: 4 channels: 3 height: 1 width: 1 }"
    data = f'layer {{ name: "d" type: "MemoryData" top: "x" top: "y" {block} }}'
    (folder / "net.prototxt").write_text(data + FED.format(kind="Input", block="").split("\n", 2)[2])
    (folder / "s.prototxt").write_text(
        f'net: "net.prototxt" base_lr: {RATE} lr_policy: "fixed" test_iter: 1 test_interval: 9'
    )
    solver = caffe.SGDSolver("s.prototxt")
    x, y = np.float32(np.random.default_rng(0).normal(size=(8, 3, 1, 1))), np.float32(np.arange(8))
    for net in (solver.net, solver.test_nets[0]):
        net.set_input_arrays(x, y)
        for part in (slice(0, 4), slice(4, 8), slice(0, 4)):
            net.forward()
            assert np.array_equal(net.blobs["y"].data.ravel(), y[part])
            assert np.array_equal(net.blobs["x"].data, x[part])
    expected = Regression()
    solver.step(1)
    expected.update(expected.gradients(x[:4, :, 0, 0], y[:4, None]))
    expected.agrees(solver.net)


def test_a_net_of_its_own_shares_the_weights_of_a_solver(folder):
    solver = fed_solver(folder, "Input")
    net = caffe.Net("net.prototxt", caffe.TEST)
    solver.share_weights(net)
    solver.net.params["ip"][0].data[...] = [1, 2, 3]
    assert np.all(net.forward(x=np.ones((4, 3)), y=np.zeros((4, 1)))["loss"] == 6.25**2 / 2)


def test_a_net_of_a_solver_keeps_its_shapes(folder):
    solver = fed_solver(folder, "Input")
    solver.net.blobs["x"].reshape(4, 3)  # as it is
    with pytest.raises(InputError, match=r"shape follows; reshape an input|is planned for its shapes"):
        solver.net.blobs["x"].reshape(2, 3)


def test_training_goes_on_with_a_loss_that_is_not_finite_as_in_caffe(folder):
    solver = fed_solver(folder, "Input")
    solver.net.blobs["x"].data[...] = np.inf
    solver.step(2)
    assert solver.iter == 2 and not np.isfinite(solver.outputs["loss"])


def test_a_net_of_a_solver_has_the_private_names_of_pycaffe_and_saves_to_hdf5(folder):
    solver = fed_solver(folder, "DummyData", "test_iter: 1 test_interval: 100")
    for net in (solver.net, solver.test_nets[0]):
        assert net._layer_names == ["x", "ip", "loss"] and net._blob_names == list(net.blobs)
        net.save_hdf5("weights")
        net.load_hdf5("weights")
        net.after_backward(caffe.NCCL(solver, caffe.NCCL.new_uid()))
    solver.add_callback(caffe.NCCL(solver, b""))
    solver.step(1)


@pytest.mark.exhaustive(6)
@pytest.mark.parametrize("rest", ["", "clip_gradients: 0.3 iter_size: 2"])
@pytest.mark.parametrize("name", ["chain", "unreached", "shared"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_held_gradients_change_no_bit_under_any_strategy(folder, strategy, name, rest):
    """The solver of layermem updates within the step."""
    (folder / "net.prototxt").write_text(NETS[name])
    path = write_solver(folder, f"momentum: 0.9 weight_decay: 0.01 random_seed: 5 {rest}")
    plain, held = layermem.Solver(path, keep="*"), caffe.SGDSolver(path, strategy=strategy, poison=True)
    for solver in (plain, held):
        solver.step(3)
    for layer, blobs in plain.parameters().items():
        assert [blob.tobytes() for blob in blobs] == [blob.tobytes() for blob in held.parameters()[layer]], layer
    assert held.runner.measured_peak_bytes == held.runner.arena.nbytes == held.program.arena_bytes


@pytest.mark.parametrize("name", ["bn", "residual", "shared"])
def test_a_loop_by_hand_trains_as_steps_do_averages_included(folder, name):
    (folder / "net.prototxt").write_text(NETS[name])
    path = write_solver(folder, "momentum: 0.9 weight_decay: 0.01 random_seed: 5")
    stepped, by_hand = caffe.SGDSolver(path), caffe.SGDSolver(path)
    stepped.step(4)
    for _ in range(4):
        by_hand.net.clear_param_diffs()
        by_hand.net.forward()
        by_hand.net.backward()
        by_hand.apply_update()
    for layer, blobs in stepped.parameters().items():
        for one, other in zip(blobs, by_hand.parameters()[layer]):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
