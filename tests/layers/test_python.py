"""Python layers in nets: values, gradients, memory, plans, parameters, sources, and refusals."""

import numpy as np
import pytest

from layermem import api
from layermem.backends.base import get_device
from layermem.backends.cpu.python import workspace_bytes
from layermem.errors import BudgetError, InputError
from layermem.graph.net import Net, NetOptions
from layermem.interactive.solver import Solver
from layermem.layers.base import Tensor
from layermem.layers.python import Python
from layermem.ops import Python as Record
from layermem.planning.strategies import STRATEGIES
from layermem.proto.read import read_net_text
from layermem.proto.schema import LayerParameter
from layermem.solver.scoring import Scoring
from tests.cases.base import ROWS_AND_IMAGES
from tests.layers.harness import check_gradients, forward, layer_of, wants_of
from tests.nets import DATA, solver_file
from tests.planning.settings import change
from tests.python_layers.modules import MODULE, NET, SHAPES, net_of, write_module


def made(folder, name, *shapes, param_str=""):
    param = LayerParameter(name="it", type="Python", bottom=[f"x{i}" for i in range(len(shapes))], top=["y"])
    param.python_param.module, param.python_param.layer = write_module(folder, MODULE), name
    param.python_param.param_str = param_str
    return Python(param, 0, [Tensor(s) for s in shapes], path=str(folder / "net.prototxt"), allowed=True)


def solver_of(folder, net=NET, text=MODULE, **settings):
    fields = {name: settings.pop(name) for name in ("iter_size", "clip_gradients") if name in settings}
    file = solver_file(net_of(folder, net, text), folder, base_lr=0.001, test_iter=None, test_interval=None, **fields)
    return Solver(file, allow_python=True, **settings)


def bits(solver):
    return [blob.tobytes() for blobs in solver.parameters().values() for blob in blobs]


# -- values and gradients ------------------------------------------------------------------------------------------


def test_forward_runs_the_class(tmp_path):
    x = np.arange(24.0).reshape(1, 2, 3, 4)
    assert np.array_equal(forward(made(tmp_path, "Ten", x.shape), x).arrays["y0"], 10 * x)
    loss = forward(made(tmp_path, "Loss", (2, 2), (2, 2)), np.eye(2), np.array([[3, 0], [0, 1.0]])).arrays["y0"]
    assert loss.tolist() == [1.0]


@pytest.mark.parametrize("shape", ROWS_AND_IMAGES)
def test_gradients_through_the_class_are_those_of_central_differences(tmp_path, shape):
    layer = made(tmp_path, "Cubes", shape, param_str="0.5")
    rng = np.random.default_rng(0)
    check_gradients(layer, rng.standard_normal(shape), ws=[np.array([0.7])], wants=wants_of(layer))


def test_a_class_declares_what_backward_reads_and_whether_forward_is_recomputed(tmp_path):
    cubes, ten = made(tmp_path, "Cubes", (2, 3)), made(tmp_path, "Ten", (2, 3))
    assert cubes.backward(("dx0", "dw0"))[0].reads == ("x0", "dy0", "w0") and cubes.recompute() is not None
    assert ten.backward(("dx0",))[0].reads == ("x0", "y0", "dy0") and ten.recompute() is None
    assert ten.backward(()) == () and cubes.stash == {}


def test_the_workspace_holds_gradients_and_blobs_of_another_order():
    record = Record((Tensor((4, 8, 6, 6)), Tensor((3, 5))), (Tensor((4, 1, 6, 6)),), (Tensor((7,)),))
    image = 4 * 8 * 36 * 4
    assert workspace_bytes(record, ("x0", "x1", "y0", "w0")) == image
    assert workspace_bytes(record, ("x0", "y0", "dy0", "dx0", "dx1", "dw0")) == 2 * image + 256 + 256


# -- nets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("iter_size", [1, 2])
def test_no_strategy_and_no_budget_changes_a_bit_and_the_measured_peak_is_the_predicted_one(tmp_path, iter_size):
    kept = set()
    for strategy in STRATEGIES:
        with solver_of(tmp_path, strategy=strategy, poison=True, iter_size=iter_size) as solver:
            solver.step(3)
            kept.add((solver.loss, *bits(solver)))
            assert solver.runner.measured_peak_bytes == solver.program.arena_bytes
    for budget in ("95%", "85%", "75%"):
        try:
            solver = solver_of(tmp_path, budget=budget, poison=True, iter_size=iter_size)
        except BudgetError:
            continue
        with solver:
            solver.step(3)
            kept.add((solver.loss, *bits(solver)))
    assert len(kept) == 1 and np.isfinite(next(iter(kept))[0])


def test_the_cpu_computes_what_the_reference_computes(tmp_path):
    losses = []
    for device in ("cpu", "reference"):
        with solver_of(tmp_path, device=device) as solver:
            solver.step(3)
            losses.append(solver.loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_class_that_may_run_again_is_recomputed_and_another_never(tmp_path):
    layer = (
        'layer {{ name: "{0}" type: "Python" bottom: "{1}" top: "{0}" python_param {{ module: "$M" layer: "{2}" }} }}'
    )
    names = ["a", "b", "c", "d", "e", "f"]
    for kind, again in (("Cubes", True), ("Ten", False)):
        chain = "".join(layer.format(name, below, kind) for name, below in zip(names, ["conv", *names]))
        begin, end = NET.index('layer { name: "cubes"'), NET.index('layer { name: "pool"')
        net = NET[:begin] + chain + NET[end:].replace('bottom: "ten"', 'bottom: "f"')
        with solver_of(tmp_path, net, strategy="sublinear") as solver:
            runs = [op for op in solver.program.train.plan.order if op.split(".")[0] in names and "forward" in op]
            assert (len(runs) > len(names)) == again


def test_python_layers_meet_hints_and_long_nets(tmp_path, monkeypatch):
    change(monkeypatch, most_nodes=4, groups=3)
    with solver_of(tmp_path, strategy="recompute") as grouped, solver_of(tmp_path, strategy="caffe") as plain:
        grouped.step(2)
        plain.step(2)
        assert bits(grouped) == bits(plain)


IN_PLACE = """

class InPlace(Ten):
    def forward(self, bottom, top):
        np.tanh(bottom[0].data, out=bottom[0].data)

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] *= 1 - bottom[0].data ** 2
"""


def test_in_place_bottom_and_top_are_one_blob_as_in_caffe(tmp_path):
    begin, end = NET.index('layer { name: "relu"'), NET.index('layer { name: "pool"')
    net = NET[:begin] + 'layer { name: "tanh" bottom: "sum" top: "sum" %s }' + NET[end:].replace('"ten"', '"sum"')
    python = 'type: "Python" python_param { module: "$M" layer: "InPlace" }'
    kept, losses = set(), []
    for strategy in ("caffe", "liveness", "sublinear"):
        with solver_of(tmp_path, net % python, MODULE + IN_PLACE, strategy=strategy, poison=True) as solver:
            solver.step(2)
            kept.add((solver.loss, *bits(solver)))
            assert not solver.job.graphs[0].warnings
            losses.append(solver.loss)
    with solver_of(tmp_path, net % 'type: "TanH"') as solver:
        solver.step(2)
        assert len(kept) == 1 and losses[0] == pytest.approx(solver.loss, rel=1e-5)


def test_parameters_begin_as_setup_left_them_and_are_learned_saved_and_restored(tmp_path):
    with solver_of(tmp_path) as solver, solver_of(tmp_path) as resumed:
        assert [blob.tolist() for blob in solver.parameters()["cubes"]] == [[0.5]]
        solver.step(2)
        assert solver.parameters()["cubes"][0] != 0.5
        notes = []
        resumed.log = notes.append
        resumed.restore(solver.snapshot())
        assert bits(resumed) == bits(solver)
        assert "layer 'data' is a Python source, whose place a snapshot does not hold" in str(notes)


def test_the_classes_of_the_train_net_and_a_test_net_count_batches_of_their_own(tmp_path):
    text = MODULE.replace("self.batch += 1", "self.batch += 1; top.data[...] = 1000 * self.phase + self.batch")
    net = net_of(
        tmp_path,
        """
        layer { name: "d" type: "Python" top: "x" top: "t" python_param { module: "$M" layer: "Numbers" } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 5 } }
        layer { name: "l" type: "Python" bottom: "y" bottom: "t" top: "l" loss_weight: 1
                python_param { module: "$M" layer: "Loss" } }
    """,
        text,
    )
    file = solver_file(net, tmp_path, base_lr=0, test_iter=2, test_interval=100)
    with Solver(file, allow_python=True, iterations=3) as solver:
        solver.step(3)
        assert solver.outputs["l"] == 5 * 3**2 / 2  # the third batch: five targets of 3 and scores of 0
        means = solver.test(0)
        assert means is not None and means["l"] == pytest.approx(
            5 / 2 * (1003**2 + 1004**2) / 2
        )  # before iteration 0: two


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_layer_may_have_no_top_a_scalar_or_no_elements(tmp_path, device):
    text = (
        MODULE
        + """

class Watch(caffe.Layer):
    def reshape(self, bottom, top):
        if top:
            top[0].reshape()
            top[1].reshape(0, 3)

    def forward(self, bottom, top):
        print("watched", bottom[0].shape)
        if top:
            top[0].data[()] = 2 + self.phase

    def backward(self, top, propagate_down, bottom):
        pass
"""
    )
    watch = 'layer { name: "w%d" type: "Python" bottom: "ip" %s python_param { module: "$M" layer: "Watch" } }'
    net = NET + watch % (0, "") + watch % (1, 'top: "two" top: "none"')
    with solver_of(tmp_path, net, text, device=device) as solver:
        solver.step(1)
        assert solver.outputs["two"] == 2 and solver.outputs["none"].shape == (0, 3)


def test_a_loss_in_python_is_that_of_the_layer_in_caffe(tmp_path):
    text = f"""
        {DATA}
        layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {{ num_output: 1
                 weight_filler {{ type: "gaussian" std: 0.1 }} }} }}
        layer {{ name: "loss" type: "%s" bottom: "ip" bottom: "label" top: "loss" loss_weight: 2 %s }}
    """
    python = net_of(tmp_path, text % ("Python", 'python_param { module: "$M" layer: "Loss" }'))
    losses = []
    for net in (python, text % ("EuclideanLoss", "")):
        with Solver(solver_file(net, tmp_path, base_lr=0.001), allow_python=True) as solver:
            solver.step(3)
            losses.append(float(solver.loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_source_is_replaced_by_noise_of_its_shapes(tmp_path):
    with solver_of(tmp_path, data="noise") as solver, solver_of(tmp_path, data="noise", strategy="caffe") as other:
        assert solver.nets.train.nodes[0].layer.type == "Input"
        solver.step(2)
        other.step(2)
        assert bits(solver) == bits(other)


def test_nan_that_the_class_writes_is_a_loss_of_nan(tmp_path):
    text = MODULE.replace("10 * bottom[0].data", "np.nan")
    with solver_of(tmp_path, text=text) as solver, pytest.raises(Exception, match="the loss of iteration 0 is nan"):
        solver.step(1)


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_an_error_of_the_class_during_training_has_its_file_and_line(tmp_path, device):
    text = MODULE.replace("self.batch += 1", "self.batch += 1; assert self.batch < 3, 'no more batches'")
    with solver_of(tmp_path, text=text, device=device) as solver:
        solver.step(2)
        with pytest.raises(
            InputError, match=r"user_layers_\d+.py:\d+: layer 'data' fails in forward .*no more batches"
        ):
            solver.step(1)


def test_a_class_without_backward_is_refused_where_a_gradient_needs_it(tmp_path):
    text = MODULE.partition("    def backward")[0]
    text += MODULE[MODULE.index("class Loss") :]
    net = """
        layer { name: "data" type: "Python" top: "x" top: "t" python_param { module: "$M" layer: "Numbers" } }
        layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 5 } }
        layer { name: "ten" type: "Python" bottom: "ip" top: "ten" %s python_param { module: "$M" layer: "Ten" } }
        layer { name: "loss" type: "Python" bottom: "ten" bottom: "t" top: "loss" loss_weight: 1
                python_param { module: "$M" layer: "Loss" } }
    """
    with pytest.raises(InputError, match=r"layer 'ten' is part of the gradient, and .* Ten has no backward; define it"):
        solver_of(tmp_path, net % "", text)
    solver_of(tmp_path, net % "propagate_down: false", text).close()


# -- without permission --------------------------------------------------------------------------------------------


def test_no_code_runs_without_permission(tmp_path):
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\n{MODULE}"
    net = net_of(tmp_path, NET, text)
    file = solver_file(net, tmp_path, test_iter=None, test_interval=None)
    refused = (
        lambda: Net(read_net_text(net, str(tmp_path / "net.prototxt")), 0, NetOptions(inputs={})),
        lambda: Solver(file),
        lambda: Solver(file, data="noise"),
        lambda: api.plan(solver=file),
        lambda: layer_of('type: "Python" top: "y" python_param { module: "m" layer: "L" }', (2, 3)),
    )
    for make in refused:
        with pytest.raises(
            InputError, match=r"runs the class '.*, and a net executes no code unasked; if you trust it"
        ):
            make()
    assert not (tmp_path / "ran").exists()


def test_with_shapes_it_is_planned_and_refused_before_it_runs(tmp_path):
    net = Net(read_net_text(net_of(tmp_path)), 0, NetOptions(inputs=SHAPES))
    report = api.plan(net, budget="80%")
    assert report.feasible and {node.layer.type for node in net.nodes} >= {"Input", "Python"}
    with pytest.raises(InputError, match=r"layer 'cubes' runs the class 'Cubes'.*it is planned with the shapes given"):
        net.check_runnable("cpu", get_device("cpu").implements)
    with pytest.raises(InputError, match="layer 'cubes' is given the shape 0x2 for 'cubes'; give positive sizes"):
        Net(read_net_text(net_of(tmp_path)), 0, NetOptions(inputs={**SHAPES, "cubes": (0, 2)}))


def test_shapes_that_the_class_contradicts_are_refused(tmp_path):
    text, path = net_of(tmp_path), str(tmp_path / "net.prototxt")
    with pytest.raises(
        InputError, match="is given the shape 4x8x6x7 for 'cubes', which its Python class makes 4x8x6x6"
    ):
        Net(read_net_text(text, path), 0, NetOptions(inputs={"cubes": (4, 8, 6, 7)}, allow_python=True))
    with pytest.raises(InputError, match="layer 'data' has the batch size that its Python class Numbers gives it"):
        Net(read_net_text(text, path), 0, NetOptions(batch=3, inputs={}, allow_python=True))


def test_a_test_of_weights_runs_its_classes(tmp_path):
    net = Net(read_net_text(net_of(tmp_path), str(tmp_path / "net.prototxt")), 1, NetOptions(allow_python=True))
    program = api.compile(net, device="cpu")
    with Scoring(net, program, get_device("cpu")) as scoring:
        values = [float(outputs["loss"][0]) for _, outputs in scoring.run(2)]
    assert np.isfinite(values).all() and values[0] != values[1]
