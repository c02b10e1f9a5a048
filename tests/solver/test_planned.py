"""Inputs whose shapes change from batch to batch: images of several sizes, and Python layers that reshape tops."""

import numpy as np
import pytest
from PIL import Image

import layermem
from layermem import caffe
from layermem.cli.main import main
from layermem.errors import BudgetError, InputError

SIZES = [(8, 8), (10, 6), (8, 8), (12, 9), (10, 6), (7, 11)]  # height, width
CONV = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
        convolution_param { num_output: 3 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""
IMAGES = """layer { name: "d" type: "ImageData" top: "data" top: "label"
    image_data_param { source: "list.txt" batch_size: 1 } transform_param { scale: 0.01 } }"""
MODULE = """
import numpy as np
import caffe

class {name}(caffe.Layer):
    def setup(self, bottom, top):
        self.number = 0
        top[1].reshape(1)
        {setup}

    def reshape(self, bottom, top):
        {reshape}

    def forward(self, bottom, top):
        {forward}
        top[0].data[...] = self.image()
        top[1].data[...] = self.number % 2
        self.number += 1

    def image(self):
        images = np.load("images.npz")
        return images[f"image{{self.number % len(images.files)}}"]
"""
RESHAPES = "top[0].reshape(*self.image().shape)"
SOURCES = {  # as the data layers of FCN do, and those of Faster R-CNN
    "InReshape": {"setup": "pass", "reshape": RESHAPES, "forward": "pass"},
    "InForward": {"setup": "top[0].reshape(1, 3, 5, 5)", "reshape": "pass", "forward": RESHAPES},
}
KINDS = ["ImageData", *SOURCES]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Images of all sizes as files, and as arrays that are the blobs of a net."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    blobs = {}
    for index, (height, width) in enumerate(SIZES):
        pixels = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(f"{index}.png")
        blobs[f"image{index}"] = np.float32(0.01) * pixels[None, :, :, ::-1].transpose(0, 3, 1, 2).astype(np.float32)
    np.savez("images.npz", **blobs)
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {i % 2}\n" for i in range(len(SIZES))))
    for name, parts in SOURCES.items():
        (tmp_path / f"source_{name.lower()}.py").write_text(MODULE.format(name=name, **parts))
    return tmp_path


def data_layer(kind):
    if kind == "ImageData":
        return IMAGES
    return f"""layer {{ name: "d" type: "Python" top: "data" top: "label"
        python_param {{ module: "source_{kind.lower()}" layer: "{kind}" }} }}"""


def write_solver(kind, rest=""):
    with open("net.prototxt", "w") as file:
        file.write(data_layer(kind) + CONV)
    with open("s.prototxt", "w") as file:
        file.write(
            f'net: "net.prototxt" base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 12 random_seed: 3 {rest}'
        )
    return "s.prototxt"


def by_input(folder, count, iter_size=1):
    """Losses and parameters of a solver of Input layers for each size, which gets the images in turn."""
    images = np.load("images.npz")
    solvers = {}
    for size in dict.fromkeys(SIZES):
        shape = f"shape {{ dim: [1, 3, {size[0]}, {size[1]}] }} shape {{ dim: 1 }}"
        data = f'layer {{ name: "d" type: "Input" top: "data" top: "label" input_param {{ {shape} }} }}'
        (folder / "input.prototxt").write_text(data + CONV)
        (folder / "i.prototxt").write_text(
            'net: "input.prototxt" base_lr: 0.1 momentum: 0.9 lr_policy: "fixed" max_iter: 12 random_seed: 3'
        )
        solvers[size] = layermem.Solver("i.prototxt")
    losses, before = [], None
    for number in range(count):
        solver = solvers[SIZES[number % len(SIZES)]]
        if before is not None:
            for name in solver.runner.persistent:
                solver.runner.write(name, before.runner.read(name))
        solver.give("d", images[f"image{number % len(SIZES)}"], np.float32([number % 2]))
        solver.step(1)
        losses.append(float(solver.outputs["loss"]))
        before = solver
    return losses, before.parameters()


@pytest.mark.parametrize("strategy", [None, "sublinear"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_step_is_that_of_a_net_of_its_shapes(kind, strategy, folder):
    expected, parameters = by_input(folder, 9)
    with layermem.Solver(write_solver(kind), allow_python=True, strategy=strategy, poison=True) as solver:
        losses = []
        for _ in range(9):
            solver.step(1)
            losses.append(float(solver.outputs["loss"]))
            assert solver.runner.measured_peak_bytes <= solver.report.peak_bytes == solver.program.arena_bytes
        assert losses == expected
        for layer, blobs in solver.parameters().items():
            assert all(one.tobytes() == other.tobytes() for one, other in zip(blobs, parameters[layer]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_nets_of_a_solver_show_the_shapes_of_the_last_step(kind, folder):
    write_solver(kind)
    caffe.configure(allow_python=True)
    try:
        solver = caffe.SGDSolver("s.prototxt")
    finally:
        caffe.configure(allow_python=None)
    weight = solver.net.params["conv"][0]
    for number, (height, width) in enumerate(SIZES):
        solver.step(1)
        assert solver.net.blobs["data"].data.shape == (1, 3, height, width) == solver.net.blobs["data"].shape
        assert solver.net.blobs["conv"].diff.shape == (1, 3, height - 2, width - 2)
        np.testing.assert_array_equal(solver.net.blobs["data"].data, np.load("images.npz")[f"image{number}"])
        assert weight.diff.any() and np.array_equal(weight.data, solver.parameters()["conv"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_net_by_hand_follows_its_data(kind, folder):
    (folder / "net.prototxt").write_text(data_layer(kind) + CONV)
    net = layermem.Net("net.prototxt", "TRAIN", allow_python=True, seed=4)
    images = np.load("images.npz")
    sums = 0
    for number in range(2 * len(SIZES)):
        image = images[f"image{number % len(SIZES)}"]
        (folder / "input.prototxt").write_text(
            f"""layer {{ name: "d" type: "Input" top: "data" top: "label"
                         input_param {{ shape {{ dim: {[*image.shape]} }} shape {{ dim: 1 }} }} }} {CONV}"""
        )
        alone = layermem.Net("input.prototxt", "TRAIN", seed=4)
        loss = alone.forward(data=image, label=np.float32([number % 2]))["loss"]
        alone.backward()
        assert net.forward()["loss"].tobytes() == loss.tobytes()
        net.backward()
        sums = sums + alone.params["conv"][0].diff
        np.testing.assert_allclose(net.params["conv"][0].diff, sums, rtol=1e-3, atol=1e-6)  # gradients add up
        assert net.blobs["conv"].data.shape == (1, 3, image.shape[2] - 2, image.shape[3] - 2)
    assert len(net._reports) <= 1 + len(set(SIZES))


def test_the_budget_holds_for_each_shape(folder):
    path = write_solver("ImageData")
    with layermem.Solver(path) as solver:
        peaks = []
        for _ in SIZES:
            solver.step(1)
            peaks.append(solver.report.peak_bytes)
    with layermem.Solver(path, budget=max(peaks)) as solver:
        solver.step(len(SIZES))
        assert solver.report.budget_bytes == max(peaks) and solver.runner.arena.nbytes <= max(peaks)
    with layermem.Solver(path, budget=min(peaks)) as solver, pytest.raises(BudgetError):
        solver.step(len(SIZES))


def test_tests_and_snapshots_go_on_with_other_shapes(folder):
    rest = 'test_iter: 6 test_interval: 5 snapshot_prefix: "run" snapshot: 4 snapshot_after_train: false'
    path = write_solver("ImageData", rest)
    with layermem.Solver(path) as whole:
        whole.solve()
        means = whole.test()
    with layermem.Solver(path, snapshot="run_iter_4.solverstate") as resumed:
        resumed.solve()
        assert resumed.test() == means
        for layer, blobs in whole.parameters().items():
            assert all(np.array_equal(one, other) for one, other in zip(blobs, resumed.parameters()[layer]))


def test_iter_size_adds_gradients_of_several_shapes(folder):
    path = write_solver("ImageData", "iter_size: 3")
    with layermem.Solver(path) as held, layermem.Solver(path, strategy="sublinear") as other:
        for solver in (held, other):
            solver.step(4)
        for layer, blobs in held.parameters().items():
            assert all(one.tobytes() == more.tobytes() for one, more in zip(blobs, other.parameters()[layer]))


def test_shapes_that_change_parameters_or_a_given_plan_are_refused(folder):
    fixed = CONV.replace("pool: AVE global_pooling: true", "kernel_size: 2")
    (folder / "net.prototxt").write_text(IMAGES + fixed)
    (folder / "s.prototxt").write_text('net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 12')
    with layermem.Solver("s.prototxt") as solver, pytest.raises(InputError, match="would need a parameter of"):
        solver.step(2)
    plan = layermem.plan(solver=write_solver("ImageData")).program.plan
    with (
        layermem.Solver("s.prototxt", plan=plan) as solver,
        pytest.raises(InputError, match=r"another shape than planned \(1x3x10x6 for 'data'\)"),
    ):
        solver.step(2)


def test_the_command_plans_for_each_size_too(folder):
    write_solver("ImageData", 'snapshot_prefix: "run"')
    assert main(["train", "--solver", "s.prototxt", "--iterations", "5", "-q"]) == 0
    weights = folder / "run_iter_5.caffemodel"
    by_command = weights.read_bytes()
    weights.unlink()
    with layermem.Solver("s.prototxt") as solver:
        solver.step(5)
        solver.snapshot()
    assert weights.read_bytes() == by_command
