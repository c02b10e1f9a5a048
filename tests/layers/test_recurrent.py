"""LSTM, RNN and LSTMUnit: numbers by hand, Caffe's parameters, and an independent LSTM and RNN in NumPy."""

import numpy as np
import pytest

from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.net import Net
from layermem.graph.train import forward_graph, train_graph
from layermem.proto.read import read_net_text
from layermem.runtime.runner import Runner
from tests.compiling import compile
from tests.layers.harness import backward, forward, layer_of

STEPS, ITEMS, INPUTS, CELLS = 4, 2, 3, 5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- LSTMUnit -------------------------------------------------------------------------------------------------------


def unit():
    return layer_of('type: "LSTMUnit"', (1, 1, 2), (1, 1, 8), (1, 1))


@pytest.mark.parametrize("cont", [0.0, 1.0])
def test_a_unit_keeps_and_adds_as_its_gates_say(cont):
    gates = [0.0, np.log(3), np.log(3), 0.0, 0.0, -np.log(3), np.arctanh(0.5), np.arctanh(-0.5)]
    i, f, o, g = np.array([[1 / 2, 3 / 4], [3 / 4, 1 / 2], [1 / 2, 1 / 4], [1 / 2, -1 / 2]])
    c = np.array([2.0, -4.0])
    run = forward(unit(), c.reshape(1, 1, 2), np.reshape(gates, (1, 1, 8)), np.full((1, 1), cont))
    expected = cont * f * c + i * g  # 1.5 + 0.25 and -2 - 0.375 where the sequence goes on
    np.testing.assert_allclose(expected, [1.75, -2.375] if cont else [0.25, -0.375])
    np.testing.assert_allclose(run.arrays["y0"].ravel(), expected, rtol=1e-12)
    np.testing.assert_allclose(run.arrays["y1"].ravel(), o * np.tanh(expected), rtol=1e-12)


def test_a_unit_at_a_beginning_passes_no_gradient_to_the_step_before():
    run = forward(unit(), np.ones((1, 1, 2)), np.ones((1, 1, 8)), np.zeros((1, 1)))
    backward(run, ("dx0", "dx1"), np.ones((1, 1, 2)), np.ones((1, 1, 2)))
    assert not run.arrays["dx0"].any() and not run.arrays["dx1"][..., 2:4].any() and run.arrays["dx1"][..., :2].all()


def test_a_unit_of_other_shapes_is_refused():
    with pytest.raises(InputError, match="has bottoms of 1x2x3, 1x2x9 and 1x2; give 1 x N x D, 1 x N x 4D and 1 x N"):
        layer_of('type: "LSTMUnit"', (1, 2, 3), (1, 2, 9), (1, 2))


# ---- nets -----------------------------------------------------------------------------------------------------------


def text(kind, *, static=False, exposed=False, more=""):
    """A net of one layer over time, and the mean square of its top."""
    hidden = {"LSTM": ("h", "c"), "RNN": ("h",)}[kind] if exposed else ()
    shapes = {"x": (STEPS, ITEMS, INPUTS), "cont": (STEPS, ITEMS)}
    shapes |= {"static": (ITEMS, 2)} if static else {}
    shapes |= {f"{name}0": (1, ITEMS, CELLS) for name in hidden}
    tops = "".join(f' top: "{name}"' for name in shapes)
    dims = " ".join("shape { " + " ".join(f"dim: {d}" for d in shape) + " }" for shape in shapes.values())
    bottoms = "".join(f' bottom: "{name}"' for name in shapes)
    outputs = 'top: "y"' + "".join(f' top: "{name}T"' for name in hidden)
    return f"""
        force_backward: true
        layer {{ name: "in" type: "Input" {tops} input_param {{ {dims} }} }}
        layer {{ name: "it" type: "{kind}" {bottoms} {outputs} {more}
                recurrent_param {{ num_output: {CELLS} expose_hidden: {str(exposed).lower()}
                    weight_filler {{ type: "uniform" min: -0.7 max: 0.7 }}
                    bias_filler {{ type: "uniform" min: -0.5 max: 0.5 }} }} }}
        layer {{ name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1
                reduction_param {{ operation: SUMSQ }} }}
    """


class Trial:
    """A net with gradients on a device, over random values."""

    def __init__(self, kind, device="reference", strategy="liveness", **more):
        self.net = Net(read_net_text(text(kind, **more)), 0)
        self.layer = next(each for each in self.net.layers if each.name == "it")
        made = get_device(device)
        graph = train_graph(self.net, made, outputs=["loss", "y"], force_backward=True)
        self.context = {"seed": 1, "step": 0, "iteration": 0, "rate": 0.0}
        self.runner = Runner(compile([graph], strategy=strategy), made, self.context, poison=True)
        rng = np.random.default_rng(3)
        self.weights = {name: rng.uniform(-0.7, 0.7, param.shape) for name, param in self.layer.params}
        for name, value in self.weights.items():
            self.runner.write(name, value)
        self.inputs = [rng.uniform(-1, 1, top.shape) for top in self.net.nodes[0].layer.tops]
        self.inputs[1] = np.array([[0, 1], [1, 1], [1, 0], [1, 1]], float)

    def step(self):
        for name in self.weights:
            self.runner.zero(f"{name}.diff")
        self.context["batch"] = {"in": [value.astype(np.float32) for value in self.inputs]}
        return self.runner.run()

    def gradients(self):
        return {name: self.runner.read(f"{name}.diff").reshape(w.shape) for name, w in self.weights.items()}


def lstm(weights, x, cont, static=None, h=0.0, c=0.0):
    """[h_1, ..], h_T and c_T, written from the papers' formulas."""
    w_xc, b_c, *w_static, w_hc = weights
    hidden = []
    h, c = (np.zeros((x.shape[1], w_hc.shape[1])) + each for each in (h, c))
    for x_t, cont_t in zip(x, cont):
        go = cont_t[:, None]
        gates = x_t @ w_xc.T + b_c + (go * h) @ w_hc.T + (static @ w_static[0].T if w_static else 0)
        i, f, o, g = np.split(gates, 4, axis=1)
        c = go * c * sigmoid(f) + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        hidden.append(h)
    return np.array(hidden), h, c


def rnn(weights, x, cont, static=None, h=0.0):
    """[o_1, ..] and h_T."""
    w_xh, b_h, *w_static, w_hh, w_ho, b_o = weights
    outputs = []
    h = np.zeros((x.shape[1], w_hh.shape[0])) + h
    for x_t, cont_t in zip(x, cont):
        h = np.tanh(x_t @ w_xh.T + b_h + (cont_t[:, None] * h) @ w_hh.T + (static @ w_static[0].T if w_static else 0))
        outputs.append(np.tanh(h @ w_ho.T + b_o))
    return np.array(outputs), h


NUMPY = {"LSTM": lstm, "RNN": rnn}


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("kind", NUMPY)
def test_values_and_gradients_are_those_of_numpy_and_its_central_differences(kind, static, device):
    trial = Trial(kind, device, static=static)
    found = trial.step()
    weights = [*trial.weights.values()]

    def objective():
        return np.square(NUMPY[kind](weights, *trial.inputs)[0]).sum()

    np.testing.assert_allclose(found["y"], NUMPY[kind](weights, *trial.inputs)[0], rtol=2e-5, atol=1e-6)
    for name, analytic in trial.gradients().items():
        flat, numeric = trial.weights[name].reshape(-1), np.empty(trial.weights[name].size)
        for i, center in enumerate(flat.copy()):
            values = []
            for flat[i] in (center + 1e-5, center - 1e-5):
                values.append(objective())
            flat[i], numeric[i] = center, (values[0] - values[1]) / 2e-5
        np.testing.assert_allclose(analytic.ravel(), numeric, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", NUMPY)
def test_hidden_states_go_from_step_to_step_until_cont_is_0(kind):
    trial = Trial(kind, "cpu")
    trial.inputs[1][0, 0] = 1
    states = ()
    for _ in range(3):
        y, *states = NUMPY[kind]([*trial.weights.values()], *trial.inputs, None, *states)
        np.testing.assert_allclose(trial.step()["y"], y, rtol=1e-4, atol=1e-6)
    kept = [trial.runner.read(f"it/{name}.state")[0] for name in ("h", "c")[: len(states)]]
    np.testing.assert_allclose(kept, states, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", NUMPY)
def test_exposed_states_are_bottoms_and_tops_and_nothing_is_carried(kind):
    net = Net(read_net_text(text(kind, exposed=True)), 1)
    device = get_device("cpu")
    made = forward_graph(net, device, ["y", "hT", *["cT"][: kind == "LSTM"]])
    runner = Runner(compile([made]), device, {"seed": 1, "step": 0})
    rng = np.random.default_rng(1)
    weights = {name: rng.uniform(-0.7, 0.7, param.shape) for name, param in net.layers[1].params}
    for name, value in weights.items():
        runner.write(name, value)
    inputs = [rng.uniform(0, 1, top.shape).astype(np.float32) for top in net.nodes[0].layer.tops]
    expected = NUMPY[kind]([*weights.values()], *inputs[:2], None, *(each[0] for each in inputs[2:]))
    assert net.state_bytes == 0
    for _ in range(2):
        runner.context["batch"] = {"in": inputs}
        found = runner.run()
        for name, value in zip(("y", "hT", "cT"), expected):
            np.testing.assert_allclose(found[name].reshape(value.shape), value, rtol=1e-4, atol=1e-6)


def test_no_gradient_goes_to_exposed_states_or_to_cont_as_in_caffe():
    net = Net(read_net_text(text("LSTM", exposed=True)), 0)
    buffers = train_graph(net, get_device("reference"), force_backward=True).buffers
    assert "x.diff" in buffers
    assert not {"cont.diff", "h0.diff", "c0.diff", "hT.diff", "cT.diff"} & set(buffers)


@pytest.mark.parametrize(
    ("kind", "static", "shapes"),
    [
        ("LSTM", False, [(20, 3), (20,), (20, 5)]),
        ("LSTM", True, [(20, 3), (20,), (20, 2), (20, 5)]),
        ("RNN", False, [(5, 3), (5,), (5, 5), (5, 5), (5,)]),
        ("RNN", True, [(5, 3), (5,), (5, 2), (5, 5), (5, 5), (5,)]),
    ],
)
def test_a_layer_has_the_parameters_of_caffe_in_its_order(kind, static, shapes):
    net = Net(read_net_text(text(kind, static=static)), 0)
    assert [param.shape for _, param in net.layers[1].params] == shapes
    assert [owned.param.shape for owned in net.params.values() if not owned.param.carried] == shapes
    assert net.parameter_count == sum(int(np.prod(shape)) for shape in shapes)


def test_a_param_block_holds_in_every_step():
    blocks = 'param { lr_mult: 2 } param { lr_mult: 0 } param { name: "mine" lr_mult: 3 decay_mult: 0 }'
    params = Net(read_net_text(text("LSTM", more=blocks)), 0).params
    stated = {name: (owned.param.lr_mult, owned.param.decay_mult) for name, owned in params.items()}
    assert stated == {
        "it/h.state": (0, 0),
        "it/c.state": (0, 0),
        "it/W_xc.shared": (2, 1),
        "it/b_c.shared": (0, 1),
        "mine.shared": (3, 0),
    }


def test_every_step_is_ops_of_its_own_and_all_inputs_are_one_inner_product():
    net = Net(read_net_text(text("LSTM")), 0)
    names = [op.name for op in train_graph(net, get_device("reference")).ops]
    assert all(f"it/unit_{t}.forward" in names and f"it/unit_{t}.backward" in names for t in range(1, STEPS + 1))
    assert sum(name.startswith("it/W_xc_x.") for name in names) == 3  # fprop, wgrad, dgrad


def test_a_state_is_of_its_net_and_in_no_count_of_parameters():
    first, second = (Net(read_net_text(text("RNN")), 1, number=n) for n in (1, 2))
    assert [name for name in first.params if "state" in name] == ["it/h.state.test1"]
    assert [name for name in second.params if "state" in name] == ["it/h.state.test2"]
    assert first.state_bytes == 4 * ITEMS * CELLS


@pytest.mark.parametrize("strategy", ["caffe", "recompute", "sublinear"])
def test_a_state_moves_on_once_a_step_whatever_runs_again(strategy):
    trials = [Trial("LSTM", "cpu", each) for each in ("liveness", strategy)]
    for _ in range(2):
        a, b = (trial.step() for trial in trials)
        assert a["y"].tobytes() == b["y"].tobytes()
    for name in ("it/h.state", "it/c.state", *(f"{name}.diff" for name in trials[0].weights)):
        assert trials[0].runner.read(name).tobytes() == trials[1].runner.read(name).tobytes()


# ---- errors ---------------------------------------------------------------------------------------------------------

NET = """
    layer {{ name: "x" type: "Input" top: "x" top: "cont" top: "s" input_param {{
        shape {{ {} }} shape {{ dim: 4 dim: 2 }} shape {{ dim: 2 dim: 7 }} }} }}
    layer {{ name: "it" type: "LSTM" {} recurrent_param {{ {} }} }}
"""
SHAPE = "dim: 4 dim: 2 dim: 3"


@pytest.mark.parametrize(
    ("shape", "more", "settings", "remedy"),
    [
        (SHAPE, 'bottom: "x" bottom: "cont" top: "y"', "", "set recurrent_param { num_output } to at least 1"),
        (SHAPE, 'bottom: "x" top: "y"', "num_output: 5", "has 1 bottom; LSTM takes 2 or 3"),
        (SHAPE, 'bottom: "x" bottom: "cont" top: "y" top: "h"', "num_output: 5", "has 2 tops; LSTM takes 1"),
        (
            SHAPE,
            'bottom: "x" bottom: "cont" top: "y"',
            "num_output: 5 expose_hidden: true",
            "has 2 bottoms; LSTM with expose_hidden takes 4 or 5",
        ),
        (
            SHAPE,
            'bottom: "x" bottom: "cont" bottom: "s" bottom: "s" top: "y" top: "h" top: "c"',
            "num_output: 5 expose_hidden: true",
            "has a bottom h_0 of 2x7; give 1x2x5",
        ),
        ("dim: 4 dim: 2", 'bottom: "x" bottom: "cont" top: "y"', "num_output: 5", "of 4x2 and 4x2; give T x N x K"),
        ("dim: 4 dim: 3 dim: 3", 'bottom: "x" bottom: "cont" top: "y"', "num_output: 5", "give T x N x K, steps first"),
        (SHAPE, 'bottom: "x" bottom: "cont" bottom: "x" top: "y"', "num_output: 5", "static bottom of 4x2x3 .* 2 x S"),
        (
            SHAPE,
            'bottom: "x" bottom: "cont" top: "y" param { } param { } param { } param { }',
            "num_output: 5",
            "has 4 'param' blocks for 3 parameters",
        ),
        (
            SHAPE,
            'bottom: "x" bottom: "cont" top: "y" propagate_down: true',
            "num_output: 5",
            "gives 1 propagate_down values for 2 blobs",
        ),
    ],
)
def test_an_impossible_sequence_is_refused_with_a_remedy(shape, more, settings, remedy):
    with pytest.raises(InputError, match=f"layer 'it' .*{remedy}"):
        Net(read_net_text(NET.format(shape, more, settings)), 0)


def test_parts_of_other_layers_are_in_no_list_of_types():
    with pytest.raises(InputError) as caught:
        Net(read_net_text('layer { name: "it" type: "Nothing" top: "y" }'), 0)
    assert "StateRead" not in str(caught.value) and " LSTM LSTMUnit " in str(caught.value)


def test_a_sequence_of_more_steps_than_can_be_planned_is_refused_at_once():
    text = """
        layer { name: "x" type: "Input" top: "x" top: "cont" input_param {
            shape { dim: 1000000 dim: 1 dim: 3 } shape { dim: 1000000 dim: 1 } } }
        layer { name: "it" type: "RNN" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 5 } }
    """
    with pytest.raises(InputError, match="layer 'it' has 1,000,000 time steps, each of which is planned; give at most"):
        Net(read_net_text(text), 0)
