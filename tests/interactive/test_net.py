"""layermem.Net: the results of passes, under every budget, on nets of every family of layers."""

import warnings
import weakref

import numpy as np
import pytest
from google.protobuf import text_format

import layermem
from layermem.backends.base import get_device
from layermem.errors import InputError
from layermem.graph.train import forward_graph, train_graph
from layermem.interactive.building import build_net, phase_of
from layermem.interactive.solver import Solver
from layermem.proto.read import read_net_text
from layermem.proto.schema import NetParameter
from layermem.runtime.runner import Runner
from layermem.solver.feeds import Feeds
from layermem.solver.parameters import Parameters
from layermem.solver.scoring import Scoring, outputs_of
from tests.compiling import compile
from tests.nets import LOSS, NETS, conv, relu, solver_file

DEPLOY = f"""
    layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: [4, 3, 6, 5] }} }} }}
    {conv("conv1", "data", 4, 3)} {relu("conv1")}
    layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param {{ kernel_size: 2 stride: 2 }} }}
    {conv("conv2", "pool1", 6, 3)} layer {{ name: "act" type: "ReLU" bottom: "conv2" top: "act" }}
    layer {{ name: "score" type: "InnerProduct" bottom: "act" top: "score"
            inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
    layer {{ name: "prob" type: "Softmax" bottom: "score" top: "prob" }}
"""


def net_of(name, phase=None, **options):
    return layermem.Net.from_text(f"name: 'tiny' {NETS.get(name, name)}", phase, **options)


def images(count=4, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3, 6, 5)).astype(np.float32)


def blobs_of(net):
    """Copies of all blobs; freed blobs are recomputed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return {name: np.array(blob.data) for name, blob in net.blobs.items()}


def same(a, b):
    assert a.keys() == b.keys()
    assert [name for name in a if a[name].tobytes() != b[name].tobytes()] == []


@pytest.mark.parametrize("name", NETS)
def test_the_least_budget_leaves_the_same_outputs_and_parameters_and_holds(name):
    with net_of(name) as free, net_of(name, keep=[]) as lean:
        least = lean.report.minimum_bytes
        with net_of(name, budget=least) as net:
            for _ in range(2):
                same(free.forward(), net.forward())
            for layer, blobs in free.params.items():
                assert all(np.array_equal(a.data, b.data) for a, b in zip(blobs, net.params[layer])), layer
            assert net.measured_peak_bytes <= net.report.peak_bytes <= least


@pytest.mark.parametrize("name", ["residual", "inception", "shared"])
@pytest.mark.parametrize("strategy", ["sublinear", "caffe"])
def test_every_blob_has_the_same_bits_whether_it_is_held_or_made_again(name, strategy):
    with net_of(name) as free, net_of(name, strategy=strategy, keep=[]) as net:
        free.forward()
        net.forward()
        same(blobs_of(free), blobs_of(net))
        assert net.measured_peak_bytes <= net.report.peak_bytes


@pytest.mark.parametrize("name", ["chain", "residual", "dropout", "recurrent"])
def test_a_train_net_computes_what_the_solver_does(name, tmp_path):
    with Solver(solver_file(name, tmp_path, random_seed=5)) as solver, net_of(name, seed=5) as net:
        outputs = net.forward()
        solver.step(1)
        same(outputs, {key: np.asarray(value) for key, value in solver.outputs.items()})


def test_data_layers_read_what_they_read_for_a_test():
    path, device = "prototxt/digits/train_val.prototxt", get_device("cpu")
    with layermem.Net(path, "TEST", seed=3) as net:
        wanted = [output.version for output in outputs_of(net.definition)]
        program = compile([forward_graph(net.definition, device, wanted)])
        with Scoring(net.definition, program, device, seed=3) as scoring:
            for _, outputs in scoring.run(2):
                same(net.forward(), dict(outputs))


def test_blobs_are_views_of_the_arena_in_caffes_order():
    with net_of(DEPLOY) as net:
        net.forward(data=images())
        conv1 = net.blobs["conv1"].data
        assert conv1.shape == (4, 4, 6, 5) and (conv1 >= 0).all()  # after the ReLU in place
        before = conv1.copy()
        net.forward(data=images(seed=1))
        assert not np.array_equal(conv1, before)
        assert (net.blobs["conv2"].data < 0).any() and (net.blobs["act"].data >= 0).all()  # not fused: both are there
        assert net.blobs["prob"].data.sum(axis=1) == pytest.approx(np.ones(4))


def test_what_a_net_does_not_take_is_refused_with_what_works(tmp_path):
    with net_of(DEPLOY) as net:
        with pytest.raises(
            InputError, match=r"is not a weight file by its name; use a name that ends in \.caffemodel, "
        ):
            net.save(tmp_path / "x.foo")
        assert not list(tmp_path.iterdir())
        for blob in (net.blobs["conv1"], net.params["conv1"][0]):
            for name in ("data", "diff"):
                with pytest.raises(AttributeError, match=rf"use blob.{name}\[...\] = x"):
                    setattr(blob, name, 1)
    assert phase_of(read_net_text(DEPLOY), "test") == phase_of(read_net_text(DEPLOY), "TEST")
    with pytest.raises(InputError, match="unknown phase 'tst'"):
        phase_of(read_net_text(DEPLOY), "tst")


def test_kept_blobs_are_held_within_the_budget_and_others_say_that_they_are_made_again():
    with net_of(DEPLOY) as free:
        free.forward(data=images())
        expected = blobs_of(free)
    with net_of(DEPLOY, keep=[]) as net:
        least = net.report.minimum_bytes
    with net_of(DEPLOY, keep=["conv*"]) as net:
        assert net.report.minimum_bytes > least
        assert net.measured_peak_bytes <= net.report.peak_bytes
        net.forward(data=images())
        assert np.array_equal(net.blobs["conv2"].data, expected["conv2"])
        with pytest.warns(UserWarning, match=r"the data of blob 'pool1' away.*keep=\['pool1'\] holds it"):
            pool1 = net.blobs["pool1"].data
        assert np.array_equal(pool1, expected["pool1"])
        net.forward(data=images())
        assert np.array_equal(net.blobs["pool1"].data, expected["pool1"])  # the note appears only once


def test_a_pass_that_is_repeated_moves_no_state_and_draws_the_same_numbers():
    for name in ("residual", "recurrent", "dropout"):
        with net_of(name, keep=[]) as net, net_of(name) as free:
            for _ in range(2):
                net.forward()
                free.forward()
                same(blobs_of(free), blobs_of(net))
            for layer, blobs in free.params.items():
                assert all(np.array_equal(a.data, b.data) for a, b in zip(blobs, net.params[layer])), layer


def test_inputs_are_arrays_that_a_user_writes():
    x = images()
    with net_of(DEPLOY) as net:
        given = net.forward(data=x)["prob"]
        net.blobs["data"].data[...] = 0
        assert not np.array_equal(net.forward()["prob"], given)
        net.blobs["data"].data[...] = x
        assert np.array_equal(net.forward(blobs=["act"])["prob"], given)


def test_predict_takes_any_number_of_items():
    x = images(11)
    with net_of(DEPLOY) as net:
        prob = net.predict(x)
        assert prob.shape == (11, 5)
        assert np.array_equal(prob[:4], net.forward(data=x[:4])["prob"])
        assert np.array_equal(net.predict(x[6]), prob[6:7])
        act = net.predict(x, blob="act")
        assert act.shape == (11, 6, 3, 3) and np.array_equal(act[:4], net.forward(["act"], data=x[:4])["act"])
        assert {name: value.shape for name, value in net.forward_all(["pool1"], data=x).items()} == {
            "prob": (11, 5),
            "pool1": (11, 4, 3, 3),
        }


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_parameters_are_live_in_caffes_shapes(device):
    x = images()
    with net_of(DEPLOY, device=device) as net:
        weight, inner = net.params["conv1"][0].data, net.params["score"][0].data
        assert weight.shape == (4, 3, 3, 3) and inner.shape == (5, 54) and net.params["score"][1].data.shape == (5,)
        weight[...], inner[...] = 0, 0
        assert net.forward(data=x)["prob"] == pytest.approx(np.full((4, 5), 0.2))
        inner[0] = 1  # kept from before: still the parameter
        net.params["conv2"][1].data[:] = 1
        prob = net.forward(data=x)["prob"]
        assert (prob[:, 0] > 0.99).all()


@pytest.mark.parametrize("ending", [".caffemodel", ".caffemodel.h5", ".safetensors", ".npz"])
def test_weights_are_saved_and_read_back(ending, tmp_path):
    path, x = tmp_path / f"tiny{ending}", images()
    with net_of(DEPLOY, seed=1) as net:
        net.params["score"][0].data[...] *= 2
        net.save(path)
        expected = net.forward(data=x)["prob"]
    with net_of(DEPLOY, weights=path) as net:
        assert np.array_equal(net.forward(data=x)["prob"], expected)
    with net_of(DEPLOY) as net:
        assert not np.array_equal(net.forward(data=x)["prob"], expected)
        net.copy_from(path)
        assert np.array_equal(net.forward(data=x)["prob"], expected)


def test_a_net_shares_the_parameters_of_another():
    x = images()
    with net_of(DEPLOY, seed=1) as lender, net_of(DEPLOY, seed=2) as net:
        net.share_with(lender)
        assert np.array_equal(net.predict(x), lender.predict(x))
        net.params["score"][0].data[...] *= 3
        assert np.array_equal(net.predict(x), lender.predict(x))


def test_attributes_of_a_net_have_pycaffes_names():
    with net_of(DEPLOY) as net:
        assert (net.inputs, net.outputs, net.phase) == (["data"], ["prob"], "TEST")
        assert [layer.type for layer in net.layers][:3] == ["Input", "Convolution", "ReLU"]
        assert list(net.params) == ["conv1", "conv2", "score"]
        assert net.bottom_names["score"] == ["act"] and net.top_names["score"] == ["score"]
        assert len(net.layer_dict["score"].blobs) == 2
        data = net.blobs["data"]
        assert (data.num, data.channels, data.height, data.width, data.count) == (4, 3, 6, 5, 360)
        assert repr(data) == "<Blob 'data': 4x3x6x5>" and len(repr(net)) < 200
    assert net_of("chain").phase == "TRAIN" and net_of("chain").blob_loss_weights["loss"] == 1


def test_a_net_still_plans_and_compiles():
    net = net_of("chain")
    assert layermem.plan(net).peak_bytes == layermem.compile(net).arena_bytes


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda net: net.blobs["conv3"], "no blob 'conv3'; did you mean 'conv1'"),
        (lambda net: net.params["scores"], "did you mean 'score'"),
        (lambda net: net.forward(end="pool"), "no layer 'pool'; did you mean 'pool1'"),
        (lambda net: net.forward(start="score", end="conv1"), "'score' comes after layer 'conv1'"),
        (lambda net: net.forward(["fc7"], data=images()), "no blob 'fc7'"),
        (lambda net: net.forward(image=images()), "takes inputs data, and no 'image' among them"),
        (lambda net: net.forward(data=images(3)), r"has the shape 4x3x6x5, and was given 3x3x6x5; call net.reshape"),
        (lambda net: net.forward(data=[["a"]]), "holds <U1, and a net takes numbers"),
        (lambda net: net.predict(np.zeros((0, 3, 6, 5))), "has no items"),
        (lambda net: net.predict(np.zeros((2, 3, 7, 5))), "any number of items of 3x6x5, and was given 2x3x7x5; give"),
        (lambda net: net.forward_all(data=images()[0]), r"was given 3x6x5, one item; give data=data\[np.newaxis\]"),
        (lambda net: net.blobs["conv1"].reshape(1, 2), "is no input of the net"),
        (lambda net: net.load("tests/nets.py"), "weight file"),
    ],
)
def test_a_mistake_is_one_sentence(wrong, says):
    with net_of(DEPLOY) as net, pytest.raises(layermem.InputError, match=says) as caught:
        wrong(net)
    assert "\n" not in str(caught.value)


def test_a_budget_that_is_too_small_is_refused_when_the_net_first_runs():
    net = net_of(DEPLOY, budget="1KiB")
    with pytest.raises(layermem.BudgetError, match="is below the minimum"):
        net.forward(data=images())


def test_a_blob_to_keep_must_be_there(tmp_path):
    with pytest.raises(layermem.InputError, match=r"keep names 'conv3', .*; did you mean 'conv1'"):
        net_of(DEPLOY, keep=["conv*", "conv3"])
    with pytest.raises(layermem.InputError, match="keep names 'fc\\*', and no blob"):
        Solver(solver_file("chain", tmp_path), keep="fc*")


def test_the_arena_of_a_net_that_was_dropped_is_freed_before_another_is_allocated(monkeypatch):
    monkeypatch.setattr("layermem.runtime.runner.LARGE_BYTES", 0)
    net = net_of("chain")
    net.forward()
    arena = weakref.ref(net._ready()[0].runner.arena)
    del net
    with net_of("chain") as other:
        other.forward()
    assert arena() is None


def test_weights_of_another_net_are_refused(tmp_path):
    path = tmp_path / "other.caffemodel"
    with net_of(f"{NETS['chain'].replace(LOSS % 'conv2', '')}", "TEST") as net:
        net.save(path)
    other = DEPLOY.replace("conv1", "a").replace("conv2", "b")
    with pytest.raises(layermem.InputError, match=r"has no layer of net 'tiny' \(its layers are conv1, conv2\)"):
        net_of(other, weights=path)


# -- backward ----------------------------------------------------------------------------------------------------------

FLOAT64 = get_device("reference", real="float64")


def diffs_of(net):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return {name: np.array(blob.diff) for name, blob in net.blobs.items()}


def gradients_of(net):
    return {f"{layer}[{i}]": np.array(b.diff) for layer, blobs in net.params.items() for i, b in enumerate(blobs)}


@pytest.mark.parametrize("name", ["residual", "inception", "recurrent", "shared", "dropout"])
def test_gradients_are_those_of_a_training_step(name):
    device = get_device("cpu")
    definition = build_net(text_format.Parse(NETS[name], NetParameter()))
    runner = Runner(compile([train_graph(definition, device)]), device, {"seed": 0, "step": 0})
    Parameters((definition,), runner, 0).fill(0)
    feeds = Feeds((definition,), 0)
    with net_of(name) as net:
        runner.context["batch"] = feeds.next(0)
        runner.run()
        net.forward()
        net.backward()
        for layer in definition.layers:
            for index, (parameter, param) in enumerate(layer.params):
                if param.learned:
                    expected = runner.read(f"{parameter}.diff").reshape(param.shape)
                    assert np.array_equal(net.params[layer.name][index].diff, expected), layer.name
        once = gradients_of(net)
        net.backward()  # added up, from the same forward pass
        assert all(
            value == pytest.approx(2 * once[key], rel=1e-3, abs=1e-5) for key, value in gradients_of(net).items()
        )
        net.clear_param_diffs()
        assert not any(value.any() for value in gradients_of(net).values())


@pytest.mark.parametrize("name", ["residual", "inception"])
def test_every_gradient_has_the_same_bits_under_every_budget(name):
    with net_of(name) as free, net_of(name, keep=[]) as lean, net_of(name, budget=lean.report.minimum_bytes) as net:
        for each in (free, net):
            each.forward()
            each.backward()
        same(gradients_of(free), gradients_of(net))
        same(diffs_of(free), diffs_of(net))
        same(blobs_of(free), blobs_of(net))
        same(gradients_of(free), gradients_of(net))  # reading blobs adds nothing
        assert net.measured_peak_bytes <= net.report.peak_bytes


@pytest.mark.samples(4)
@pytest.mark.parametrize("strategy", ["sublinear", "recompute", "recompute-exact", "recompute-approx", "auto"])
def test_strategies_that_recompute_hold_and_hand_out_gradients(strategy):
    """Gradients that several branches write, which are read where the step ends or as soon as they are final."""
    found = []
    for options in ({}, {"strategy": strategy}, {"strategy": strategy, "keep": ["pool*"]}):
        with net_of("inception", **{"keep": [], **options}) as lean:
            least = lean.report.minimum_bytes if options else None
        with net_of("inception", budget=least, **options) as net:
            net.forward()
            found.append((net.backward(), diffs_of(net), gradients_of(net)))
    for other in found[1:]:
        for expected, actual in zip(found[0], other):
            same(expected, actual)


@pytest.mark.parametrize("name", ["stem", "a", "sum"])
def test_the_diff_of_a_blob_is_the_gradient_before_the_first_layer_in_place(name):
    """This holds as in Caffe, even if the in-place layers are fused on one device but not on another."""
    with (
        net_of("residual", keep=[name]) as kept,
        net_of("residual") as free,
        net_of("residual", device=FLOAT64) as other,
    ):
        found = []
        for net in (kept, free, other):
            net.forward()
            net.backward()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                found.append(np.array(net.blobs[name].diff))
    assert found[0].any() and np.array_equal(found[0], found[1])
    assert found[2] == pytest.approx(found[0], rel=1e-3, abs=1e-5)


def slopes(function, x, step=1e-5):
    """Central differences of a number at every element of x."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            ends.append(function(moved))
        result[index] = (ends[0] - ends[1]) / (2 * step)
    return result


def test_the_gradient_of_an_input_from_one_that_a_user_sets():
    """A saliency map: the gradient of the score of a class, from the middle of the net."""
    x = images(1)
    with net_of(DEPLOY, batch=1, device=FLOAT64) as net:
        net.forward(data=x)
        net.blobs["score"].diff[0, 3] = 1
        found = net.backward(start="score")["data"]
        assert np.array_equal(found, net.blobs["data"].diff)
        few = np.zeros_like(found)
        few[0, 1, 2:4, 2:4] = 1

        def score(part):
            net.blobs["data"].data[...] = x
            net.blobs["data"].data[0, 1, 2:4, 2:4] = part
            return float(net.forward(["score"])["score"][0, 3])

        expected = slopes(score, x[0, 1, 2:4, 2:4], 1e-2)
        assert found[0, 1, 2:4, 2:4] == pytest.approx(expected, rel=1e-3)


def test_a_step_of_deepdream():
    x = images(1)
    with net_of(DEPLOY, batch=1, device=FLOAT64) as net:
        source, target = net.blobs["data"], net.blobs["act"]
        for _ in range(2):
            source.data[...] = x
            assert list(net.forward(end="act")) == ["act"]
            target.diff[:] = target.data
            net.backward(start="act")
            gradient = np.array(source.diff[0])

        def objective(part):
            net.blobs["data"].data[0, 0, 0, :2] = part
            return float((net.forward(end="act")["act"].astype(np.float64) ** 2).sum() / 2)

        assert gradient[0, 0, :2] == pytest.approx(slopes(objective, x[0, 0, 0, :2], 1e-2), rel=1e-2)


def test_top_gradients_are_arguments_and_ranges_give_the_diffs_of_bottoms():
    with net_of(DEPLOY) as net:
        net.forward(data=images())
        d = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
        whole = net.backward(["pool1"], prob=d)
        assert list(whole) == ["data", "pool1"]
        part = net.backward(end="conv2", prob=d)
        assert list(part) == ["pool1"] and np.array_equal(part["pool1"], whole["pool1"])
        net.forward()
        with net_of(DEPLOY, keep=[]) as lean:
            lean.forward(data=images())
            same(whole, {**lean.backward(prob=d), "pool1": lean.backward(end="conv2", prob=d)["pool1"]})


def test_a_pass_goes_on_from_blobs_that_a_user_changes():
    with net_of(DEPLOY) as a, net_of(DEPLOY) as b:
        expected = a.forward(data=images(seed=1))["prob"]
        b.forward(data=images(seed=2))
        b.blobs["pool1"].data[...] = a.blobs["pool1"].data
        assert np.array_equal(b.forward(start="conv2")["prob"], expected)
        assert np.array_equal(b.blobs["pool1"].data, a.blobs["pool1"].data)
        before = b.blobs["conv1"].data  # of the pass before
        assert np.array_equal(before, b.forward(["conv1"], data=images(seed=2))["conv1"])
        assert list(b.backward(prob=np.ones((4, 5)))) == ["data"]


def test_any_number_of_items_forward_and_backward():
    x, d = images(7), np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    with net_of(DEPLOY) as net:
        outs, diffs = net.forward_backward_all(["act"], data=x, prob=d)
        assert {name: len(value) for name, value in {**outs, **diffs}.items()} == {"prob": 7, "act": 7, "data": 7}
        net.forward(data=x[:4])
        assert np.array_equal(net.backward(prob=d[:4])["data"], diffs["data"][:4])


# -- shapes ------------------------------------------------------------------------------------------------------------


def test_inputs_of_another_shape_are_reshaped_and_parameters_stay():
    x = images(2)
    with net_of(DEPLOY) as net:
        expected = net.predict(x)
        data = net.blobs["data"]
        net.reshape(data=(2, 3, 6, 5))
        assert data.shape == (2, 3, 6, 5) == data.data.shape and net.blobs["act"].shape[0] == 2
        assert np.array_equal(net.forward(data=x)["prob"], expected)
        data.reshape(1, 3, 6, 5)  # as in Caffe, the next pass reshapes the net
        data.data[...] = x[1:]
        assert np.array_equal(net.forward()["prob"], expected[1:])
        with pytest.raises(layermem.InputError, match=r"layer 'score' would need .* 5x72 .* has one of 5x54"):
            net.reshape(data=(1, 3, 8, 6))
        assert np.array_equal(net.forward()["prob"], expected[1:])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda net: net.backward(), "needs what a forward pass leaves; call net.forward"),
        (lambda net: net.forward(end="pool1") and net.backward(start="conv2"), "not among those of the last forward"),
        (lambda net: net.forward() and net.backward(start="pool1", end="conv2"), "'conv2' comes after layer 'pool1'"),
        (lambda net: net.forward() and net.backward(probs=np.ones((4, 5))), "starts from prob, and 'probs' is none"),
        (lambda net: net.forward() and net.backward(prob=np.ones((4, 4))), "has the shape 4x5, and its gradient"),
        (lambda net: net.reshape(data=(0, 3, 6, 5)), "cannot have the shape 0x3x6x5"),
        (lambda net: net.set_input_arrays(images(), np.zeros(4)), "needs a MemoryData layer"),
    ],
)
def test_a_mistake_around_backward_is_one_sentence(wrong, says):
    with net_of(DEPLOY) as net, pytest.raises(layermem.InputError, match=says) as caught:
        wrong(net)
    assert "\n" not in str(caught.value)
