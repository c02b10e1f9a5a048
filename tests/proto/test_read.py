"""Reading nets and solvers: lines, notes, and a sentence for everything that is wrong."""

import random
import re

import pytest

from layermem.errors import InputError
from layermem.proto import read_net, read_net_text, read_solver_text, resolve_path

NET = """name: "tiny"
layer {
  name: "data"  type: "Input"  top: "data"
  input_param { shape { dim: 2 dim: 3 } }
}

# a comment with layer { in it
layer {
  name: "ip"
  type: "InnerProduct"
  bottom: "data" top: "ip"
  inner_product_param { num_output: 4 }
}
"""


def refusal(read, *arguments):
    """The InputError that reading raises; its sentence is one line and ends in no stop."""
    with pytest.raises(InputError) as caught:
        read(*arguments)
    sentence = str(caught.value)
    assert "\n" not in sentence and not sentence.endswith(".")
    return caught.value


def test_a_net_knows_the_line_of_each_layer(tmp_path):
    path = tmp_path / "tiny.prototxt"
    path.write_text(NET)
    net = read_net(path)
    assert net.message.name == "tiny"
    assert [layer.name for layer in net.message.layer] == ["data", "ip"]
    assert net.lines == (2, 8)
    assert net.line_of(1) == 8
    assert net.notes == ()
    assert str(net.error(1, "is odd")) == f"{path}:8: layer 'ip' is odd"


def test_random_bytes_end_in_one_sentence(tmp_path):
    path = tmp_path / "random"
    for seed in range(50):
        path.write_bytes(random.Random(seed).randbytes(300))
        refusal(read_net, path)


PIECES = [
    "{",
    "}",
    "[",
    "]",
    "<",
    ":",
    ",",
    "'",
    '"',
    "#",
    "\n",
    "\\",
    "-",
    "1e99",
    "layer",
    "name",
    "TRAIN",
    "9" * 20,
    "\x01",
]


@pytest.mark.parametrize("seed", range(200))
def test_a_net_with_random_mistakes_is_read_or_refused_in_one_sentence_at_a_line_it_has(seed):
    rng, text = random.Random(seed), NET
    for _ in range(rng.randint(1, 4)):
        begin = rng.randrange(len(text))
        end = min(len(text), begin + rng.choice([0, 1, 5, 30]))
        text = text[:begin] + rng.choice(["", *PIECES, text[begin:end] * 2]) + text[end:]
    for read in (read_net_text, read_solver_text):
        try:
            read(text)
        except InputError as error:
            assert "\n" not in str(error) and not str(error).endswith(".")
            assert error.line is None or 1 <= error.line <= text.count("\n") + 1


def test_old_inputs_become_an_input_layer_at_the_line_of_the_first():
    net = read_net_text(
        'name: "n"\ninput: "data"\ninput_dim: 10 input_dim: 3 input_dim: 5 input_dim: 7\n'
        'input: "label" input_dim: 10 input_dim: 1 input_dim: 1 input_dim: 1\n'
        'layer { name: "r" type: "ReLU" bottom: "data" top: "r" }'
    )
    made, relu = net.message.layer
    assert (made.name, made.type, list(made.top)) == ("input", "Input", ["data", "label"])
    assert [list(shape.dim) for shape in made.input_param.shape] == [[10, 3, 5, 7], [10, 1, 1, 1]]
    assert relu.name == "r" and net.lines == (2, 5)
    assert not net.message.input and not net.message.input_dim
    assert net.notes == ("rewrote 'input' data, label as a layer of type Input",)


def test_a_solver_keeps_the_lines_of_the_nets_inside_it():
    solver = read_solver_text(
        "base_lr: 0.1\nnet_param {\n  layer { type: 'Input' name: 'a' }\n  layer { type: 'ReLU' name: 'b' }\n}\n"
        "test_net_param {\n layer { type: 'TanH' name: 'c' } }\ntest_net_param { layer { type: 'Silence' } }\n",
        "dir/s.prototxt",
    )
    assert solver.nets["net_param"][0].lines == (3, 4)
    assert [net.lines for net in solver.nets["test_net_param"]] == [(7,), (8,)]
    assert solver.nets["train_net_param"] == ()
    assert solver.message.snapshot_prefix == "dir/s"


def test_a_wrong_net_inside_a_solver_is_found_at_its_line():
    error = refusal(read_solver_text, "net_param {\n\n layer { name: 'x' } }", "s")
    assert str(error) == "s:3: layer 'x' has no type; add one, such as type: \"Convolution\""


def test_paths_are_taken_from_the_working_directory_first_and_then_from_beside_the_file(tmp_path, monkeypatch):
    work, folder = tmp_path / "work", tmp_path / "folder"
    work.mkdir()
    folder.mkdir()
    solver = folder / "solver.prototxt"
    solver.write_text("")
    (folder / "net").write_text("beside")
    monkeypatch.chdir(work)
    assert resolve_path("net", solver).read_text() == "beside"
    assert resolve_path("net", folder).read_text() == "beside"
    (work / "net").write_text("working")
    assert resolve_path("net", solver).read_text() == "working"
    assert resolve_path(str(folder / "net"), solver).read_text() == "beside"
    sentence = str(refusal(resolve_path, "nothing", solver))
    assert sentence == f"there is no 'nothing' in the working directory or in {folder}"
    assert re.fullmatch("there is no '/nowhere/x'", str(refusal(resolve_path, "/nowhere/x", solver)))
    refusal(resolve_path, "", solver)


LAYER_PATHS = {
    "data_param { source": "Data",
    "data_param { mean_file": "Data",
    "transform_param { mean_file": "Data",
    "image_data_param { root_folder": "ImageData",
    "image_data_param { source": "ImageData",
    "dense_image_data_param { root_folder": "DenseImageData",
    "dense_image_data_param { source": "DenseImageData",
    "hdf5_data_param { source": "HDF5Data",
    "hdf5_output_param { file_name": "HDF5Output",
    "window_data_param { source": "WindowData",
    "infogain_loss_param { source": "InfogainLoss",
    "annotated_data_param { label_map_file": "AnnotatedData",
    "detection_evaluate_param { name_size_file": "DetectionEvaluate",
}


@pytest.mark.parametrize("escape", [r"\t", r"\r", r"\n", r"\b", r"\001", r"\x1f"])
@pytest.mark.parametrize("field", LAYER_PATHS)
def test_a_path_of_a_layer_with_an_escape_in_it_is_refused(field, escape):
    text = f'\nlayer {{\n name: "x" type: "{LAYER_PATHS[field]}" top: "x" {field}: "data{escape}rain" }} }}\n'
    with pytest.raises(
        InputError, match=r"layer 'x' has a control character in \w+, 'data\\.*rain'; write / or"
    ) as caught:
        read_net_text(text)
    assert caught.value.line == 2


@pytest.mark.parametrize("field", ["net", "train_net", "test_net", "snapshot_prefix", "weights"])
def test_a_path_of_a_solver_with_an_escape_in_it_is_refused(field):
    with pytest.raises(InputError, match=rf"has a control character in {field}, 'out\\run'; write / or") as caught:
        read_solver_text(f'base_lr: 1\n{field}: "out\\run"\n')
    assert caught.value.line == 2


def test_other_texts_may_have_control_characters():
    text = 'layer { type: "Python" name: "x" top: "x" python_param { module: "m" layer: "L" param_str: "{\\n\\t}" } }'
    assert read_net_text(text).message.layer[0].python_param.param_str == "{\n\t}"


SOLVER = 'net: "n" base_lr: 0.1 lr_policy: "multistep" stepvalue: 5 stepvalue: 9 max_iter: 3 snapshot_prefix: "s"'


@pytest.mark.parametrize(
    "change, field, value",
    [
        ("base_lr=0.001", "base_lr", pytest.approx(0.001)),
        ("max_iter = 7", "max_iter", 7),
        ("stepvalue=100,200", "stepvalue", [100, 200]),
        ("snapshot_format=HDF5", "snapshot_format", 0),
        ("test_initialization=false", "test_initialization", False),
        ('snapshot_prefix=out "a"\\b', "snapshot_prefix", 'out "a"\\b'),
        ("type=Adam", "type", "Adam"),
    ],
)
def test_a_field_of_a_solver_is_changed_by_its_name(change, field, value):
    found = getattr(read_solver_text(SOLVER, changes=[change]).message, field)
    assert ([*found] if isinstance(value, list) else found) == value


@pytest.mark.parametrize(
    "change, says",
    [
        ("base_lrr=1", r"'base_lrr=1' sets no field of a solver; did you mean 'base_lr'\?"),
        ("base_lr", "sets no field of a solver; write it as base_lr=0.001"),
        ("=3", "sets no field of a solver; write it as base_lr=0.001"),
        ("net_param=1", "sets no field of a solver"),
        ("max_iter=many", "'max_iter=many' does not set max_iter; it takes a whole number from"),
        ("base_lr=0.1,0.2", "'base_lr=0.1,0.2' does not set base_lr; it takes a number"),
        ("base_lr=0.1 momentum: 3", "does not set base_lr; it takes a number"),
        ("base_lr=", "does not set base_lr; it takes a number"),
        ("base_lr=0_1", "does not set base_lr; it takes a number"),
        ("stepvalue=1,\u0663", "does not set stepvalue; it takes a whole number"),
        ("snapshot_prefix=l\udce9", "does not set snapshot_prefix; it takes UTF-8 text"),
        ("snapshot_format=ZIP", "does not set snapshot_format"),
        ("snapshot_prefix=a\tb", "^--set snapshot_prefix=a\tb: has a control character in snapshot_prefix"),
        ("snapshot_prefix=a\nb", "^--set snapshot_prefix=a\nb: has a control character in snapshot_prefix"),
        ("solver_type=ADAM", "^--set solver_type=ADAM: the solver has both 'type' and the old 'solver_type'"),
    ],
)
def test_what_changes_no_field_is_refused(change, says):
    with pytest.raises(InputError, match=says):
        read_solver_text(f"{SOLVER} type: 'SGD'", changes=[change])


def test_an_error_about_a_changed_field_names_the_change_and_no_line_of_the_file():
    solver = read_solver_text(SOLVER, "s.prototxt", ["base_lr=7", "base_lr=nan"])
    assert str(solver.error("base_lr", "is wrong")) == "--set base_lr=nan: is wrong"
    assert str(solver.error("max_iter", "is wrong")) == "s.prototxt:1: is wrong"
