"""--allow-python, and what verbs do without it."""

import pytest

from tests.cli.conftest import layermem  # noqa: F401
from tests.nets import solver_text
from tests.python_layers.modules import MODULE, SHAPES, net_of

INPUTS = [word for name, shape in SHAPES.items() for word in ("--input", f"{name}={','.join(map(str, shape))}")]


@pytest.fixture
def files(tmp_path):
    """A net and its solver."""
    net, solver = tmp_path / "net.prototxt", tmp_path / "solver.prototxt"
    net.write_text(f"name: 'python' {net_of(tmp_path, text=MODULE)}")
    settings = solver_text(base_lr=0.001, test_iter=None, test_interval=None, max_iter=2, net=str(net))
    solver.write_text(settings)
    return net, solver


def verbs(net, solver, weights="w"):
    return (
        ("show", "--net", net),
        ("show", "--solver", solver),
        ("plan", "--net", net),
        ("plan", "--solver", solver),
        ("compare", "--net", net, "--strategies", "caffe,auto"),
        ("time", "--net", net, "--iterations", 1),
        ("fit", "--net", net, "--budget", "1MiB", "--max", 2, "--strategies", "liveness"),
        ("train", "--solver", solver),
        ("test", "--net", net, "--weights", weights, "--iterations", 1),
    )


def test_every_verb_names_the_layer_and_the_option(layermem, files):  # noqa: F811
    net, solver = files
    for words in verbs(net, solver):
        ended = layermem(*words)
        assert ended.code == 2, words
        assert f"{net}:2: layer 'data' runs the class 'Numbers' of the Python module" in ended.sentence
        assert "a net executes no code unasked; if you trust it, add --allow-python" in ended.sentence
        advised = words[0] not in ("train", "test")
        assert ("give the shapes of its tops, --input data=N,C,H,W --input t=..." in ended.sentence) == advised


def test_with_it_every_verb_works(layermem, files, tmp_path):  # noqa: F811
    net, solver = files
    trained = layermem("train", "--solver", solver, "--allow-python", "--snapshot", "gone")
    assert trained.code == 2 and "no such file" in trained.sentence
    solver.write_text(
        f"{solver.read_text()} snapshot_after_train: true snapshot_prefix: '{tmp_path}/run'\n".replace(
            "snapshot_after_train: false\n", ""
        )
    )
    for words in (*verbs(net, solver, tmp_path / "run_iter_2.caffemodel"),):
        if words[0] == "test":
            assert layermem("train", "--solver", solver, "--allow-python").code == 0
        ended = layermem(*words, "--allow-python")
        if words[0] == "fit":
            assert "has the batch size that its Python class Numbers gives it, and no other" in ended.sentence
        else:
            assert ended.code == 0, (words, ended.err)


def test_with_shapes_whatever_plans_works_and_what_runs_is_refused(layermem, files):  # noqa: F811
    net, solver = files
    for words in verbs(net, solver):
        if words[0] in ("show", "plan", "compare", "fit"):
            ended = layermem(*words, *INPUTS)
            assert ended.code == 0, (words, ended.err)
    for words in (("time", "--net", net), ("train", "--solver", solver, "--data", "noise")):
        ended = layermem(*words, *INPUTS)
        assert ended.code == 2 and "layer 'cubes' runs the class 'Cubes'" in ended.sentence
        assert "it is planned with the shapes given, and runs with --allow-python" in ended.sentence


def test_a_source_in_python_is_trained_on_noise_without_its_code(layermem, tmp_path):  # noqa: F811
    net = (
        'layer { name: "data" type: "Python" top: "data" top: "t" python_param { module: "m" layer: "L" } }'
        + """
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 5 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "t" top: "loss" }
    """
    )
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f"{solver_text(test_iter=None, test_interval=None)} net_param {{ {net} }}")
    shapes = ("--input", "data=4,3,6,6", "--input", "t=4")
    assert layermem("train", "--solver", solver, "--data", "noise", *shapes).code == 0
    refused = layermem("train", "--solver", solver, "--data", "noise")
    assert refused.code == 2 and "--input data=... --input t=..." in refused.sentence


def test_an_error_in_the_code_is_a_sentence_and_exit_code_2(layermem, tmp_path):  # noqa: F811
    solver = tmp_path / "solver.prototxt"
    net = net_of(tmp_path, text=MODULE.replace("10 * top[0].diff", "undefined"))
    solver.write_text(f"{solver_text(test_iter=None, test_interval=None)} net_param {{ {net} }}")
    ended = layermem("train", "--solver", solver, "--allow-python")
    assert ended.code == 2
    assert (
        ".py:17: layer 'ten' fails in backward of its Python class Ten: NameError: name 'undefined'" in ended.sentence
    )
