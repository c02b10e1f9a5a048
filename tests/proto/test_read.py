"""Reading nets and solvers: lines, notes, and a sentence for everything that is wrong."""

import random
import re

import pytest

from layermem.errors import InputError
from layermem.proto import read_net, read_net_text, read_solver, read_solver_text, resolve_path
from layermem.proto.text import TEXT_LIMIT, decode, read_bytes

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


WRONG_TEXT = {
    "unknown field, close to one": (
        'layer {\n  name: "c"\n  convolution_parm { }\n}',
        "net:3: 'convolution_parm' (column 3) is not a field of LayerParameter; did you mean 'convolution_param'?",
    ),
    "field of a block, outside it": (
        'layer {\n  type: "Pooling"\n  global_pooling: true\n}',
        "net:3: 'global_pooling' (column 3) is not a field of LayerParameter; it belongs inside 'pooling_param'",
    ),
    "field of a fork": (
        'layer { type: "Permute" permute_param { } }',
        "net:1: 'permute_param' (column 25) is not a field of LayerParameter: it is from the SSD fork of Caffe,"
        " which is not supported",
    ),
    "field that is like no other": (
        "layer { softmax_param { xyzzy: 1 } }",
        "net:1: 'xyzzy' (column 25) is not a field of SoftmaxParameter; its fields are axis, engine",
    ),
    "brace missing before the next layer": (
        'layer {\n  name: "a"\n  dropout_param {\n}\nlayer { }\n}',
        "net:5: 'layer' (column 1) is not a field of LayerParameter; is a '}' missing before it?",
    ),
    "a solver": (
        'net: "x.prototxt"\n',
        "net:1: 'net' (column 1) is not a field of NetParameter but of a solver; give this file to --solver",
    ),
    "enum by a wrong name": (
        "layer {\n pooling_param { pool: AVG }\n}",
        "net:2: 'AVG' is not a value for 'pool' (column 24); it takes one of MAX, AVE, STOCHASTIC",
    ),
    "enum in quotes": (
        'layer { include { phase: "TRAIN" } }',
        "net:1: \"TRAIN\" is not a value for 'phase' (column 26); it takes one of TRAIN, TEST",
    ),
    "enum by a wrong number": (
        "layer { include { phase: 2 } }",
        "net:1: '2' is not a value for 'phase' (column 26); it takes one of TRAIN, TEST",
    ),
    "negative size": (
        "layer {\n  convolution_param {\n    num_output: -3\n  }\n}",
        "net:3: '-3' is not a value for 'num_output' (column 17); it takes a whole number from 0 to 4294967295",
    ),
    "huge size": (
        "layer { convolution_param { num_output: 4294967296 } }",
        "net:1: '4294967296' is not a value for 'num_output' (column 41); it takes a whole number from 0 to 4294967295",
    ),
    "fraction for a whole number": (
        "layer { convolution_param { stride: [1, 1.5] } }",
        "net:1: '1.5' is not a value for 'stride' (column 41); it takes a whole number from 0 to 4294967295",
    ),
    "word for a number": (
        "layer { dropout_param { dropout_ratio: half } }",
        "net:1: 'half' is not a value for 'dropout_ratio' (column 40); it takes a number",
    ),
    "word for a truth": (
        "force_backward: maybe",
        "net:1: 'maybe' is not a value for 'force_backward' (column 17); it takes true or false",
    ),
    "string without quotes": (
        "layer { type: Convolution }",
        "net:1: 'Convolution' is not a value for 'type' (column 15); it takes a UTF-8 string in quotes",
    ),
    "string that is not UTF-8 when unescaped": (
        r'name: "\377"',
        "net:1: the string before column 13 is not UTF-8 after its escapes are decoded; write plain characters",
    ),
    "value for a block": (
        "layer: 3",
        "net:1: '3' is not a value for 'layer' (column 8); it takes a block { ... }",
    ),
    "field twice": (
        'layer {\n name: "a"\n name: "b"\n}',
        "net:3: 'name' is given a second time in this LayerParameter (column 8); keep one",
    ),
    "string not closed": (
        'layer {\n name: "a\n}',
        "net:2: the string at column 8 is not closed on its line; add the quote",
    ),
    "block not closed": (
        'name: "n"\nlayer {\n relu_param {\n negative_slope: 1\n',
        "net:3: the block 'relu_param' that opens here is never closed; add its '}'",
    ),
    "brace too many": (
        "layer { }\n}\n",
        "net:2: the '}' at column 1 closes nothing; remove it, or open the block it belongs to",
    ),
    "no colon": (
        'layer { name "a" }',
        "net:1: 'name' has no ':' before its value (column 14); write 'name: ...'",
    ),
    "no value": (
        "layer {\n  type:\n  name: 'a' }",
        "net:3: 'name' is not a value for 'type' (column 3); it takes a UTF-8 string in quotes",
    ),
    "no value before the block ends": (
        "layer { dropout_param { dropout_ratio: } }",
        "net:1: a value is missing before '}' (column 40)",
    ),
    "a block without braces": (
        "layer\n  name: 'a'",
        "net:2: 'layer' is a block, not a single value (column 3); write 'layer { ... }'",
    ),
    "an extension": (
        "layer { [my.field]: 3 }",
        "net:1: ']' is not the name of a field (column 13); write 'name: value'",
    ),
    "an escape of no kind": (
        r'name: "a\\b\tC:\data"',
        r"net:1: the string at column 7 has the unknown escape '\d'; write '\\d'",
    ),
    "half an escape": (
        r'name: "\u12"',
        r"net:1: the string at column 7 has a '\' that starts no known escape; write '\\' for a backslash",
    ),
    "a list without commas": (
        'layer { bottom: ["a" "b", "c" 3] }',
        "net:1: a ',' or the closing ']' of a list is missing before '3' (column 31)",
    ),
    "a list that goes on": (
        'layer { bottom: ["a"\n name: "b" }',
        "net:2: a ',' or the closing ']' of a list is missing before 'name' (column 2)",
    ),
    "a value without a field": (
        'layer { type: "A", "B" }',
        "net:1: \"B\" is not the name of a field (column 20); write 'name: value'",
    ),
    "required field missing": (
        'layer { type: "ReLU" }\nlayer {\n  type: "Clip" clip_param { min: 0 } }',
        "net:2: 'clip_param' has no 'max', which is required; add it",
    ),
    "no layers": ('name: "empty"', "net: the net has no layers; add at least one 'layer' block"),
    "no type": ('layer {\n name: "a" }', "net:1: layer 'a' has no type; add one, such as type: \"Convolution\""),
    "zero extent": (
        'layer { name: "d" type: "Input"\n input_param { shape { dim: 0 dim: 3 } } }',
        "net:1: layer 'd' asks for shape 0 x 3: every extent must be at least 1",
    ),
    "negative extent": (
        'layer { name: "d" type: "DummyData" dummy_data_param { shape { dim: 2 } shape { dim: -1 } } }',
        "net:1: layer 'd' asks for shape -1: every extent must be at least 1",
    ),
    "zero in the old extents": (
        'layer { name: "d" type: "DummyData" dummy_data_param { num: 1 channels: 3 height: 0 width: 2 } }',
        "net:1: layer 'd' asks for shape 1 x 3 x 0 x 2: every extent must be at least 1",
    ),
    "huge shape": (
        'layer { name: "p" type: "Parameter" parameter_param { shape { dim: 65536 dim: 32768 } } }',
        "net:1: layer 'p' asks for shape 65536 x 32768: that is 2147483648 elements,"
        " and a blob holds at most 2147483647",
    ),
    "too many axes": (
        'layer { name: "p" type: "Parameter" parameter_param { shape { %s } } }' % ("dim: 1 " * 33),
        "net:1: layer 'p' asks for a shape of 33 axes: a blob has at most 32",
    ),
}


@pytest.mark.parametrize("case", WRONG_TEXT)
def test_a_wrong_net_gets_place_cause_and_remedy(case):
    text, sentence = WRONG_TEXT[case]
    assert str(refusal(read_net_text, text, "net")) == sentence


def test_a_net_given_as_a_solver_is_recognized():
    error = refusal(read_solver_text, NET.replace('name: "tiny"', ""), "s.prototxt")
    assert str(error) == (
        "s.prototxt:2: 'layer' (column 1) is not a field of SolverParameter but of a net;"
        " give this file to --net, or name it in the solver's 'net'"
    )


def test_deep_nesting_is_refused_like_any_other_mistake():
    refusal(read_net_text, "layer {" * 5000)
    refusal(read_net_text, "layer: [" * 5000)


def test_a_missing_file_a_folder_and_an_unreadable_name_are_told_apart(tmp_path):
    assert str(refusal(read_net, tmp_path / "no.prototxt")) == (
        f"{tmp_path / 'no.prototxt'}: no such file; give an existing prototxt net"
    )
    assert str(refusal(read_solver, tmp_path)) == f"{tmp_path}: is a folder; give the prototxt solver inside it"
    assert "cannot be read as a prototxt net" in str(refusal(read_net, "a\0b"))
    assert "cannot be read as a prototxt net" in str(refusal(read_net, "x" * 5000))


JUNK = {
    "empty": (b"", "is empty; a prototxt net is a text file"),
    "blank": (b" \n\t\n", "is empty; a prototxt net is a text file"),
    "binary": (
        b"\x0a\x05hello\0\x12",
        "is binary; a prototxt net is a text file (give weights, .caffemodel, to --weights)",
    ),
    "UTF-16": ("layer {}".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "Latin-1": (
        b'layer {\n  name: "caf\xe9" }',
        "has bytes that are not UTF-8 (column 9); save the prototxt net as UTF-8",
    ),
}


@pytest.mark.parametrize("case", JUNK)
def test_junk_is_called_what_it_is(case, tmp_path):
    raw, sentence = JUNK[case]
    path = tmp_path / "junk.prototxt"
    path.write_bytes(raw)
    error = refusal(read_net, path)
    assert error.what == sentence and error.path == str(path)


def test_comments_may_be_in_any_encoding(tmp_path):
    path = tmp_path / "gbk.prototxt"
    path.write_bytes(NET.encode() + '# \u7f51\u7edc "{'.encode("gbk") + b"\n# caf\xe9\n")
    assert read_net(path).lines == (2, 8)


def test_a_byte_order_mark_is_no_part_of_the_net():
    assert decode(b"\xef\xbb\xbf" + NET.encode(), "n", what="net") == NET


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


def test_a_file_beyond_the_limit_is_not_read_to_its_end():
    error = refusal(lambda: read_bytes("/dev/zero", what="prototxt net", limit=2**20))
    assert str(error) == "/dev/zero: is larger than 1.00 MiB, the limit of a prototxt net"
    assert TEXT_LIMIT == 64 * 2**20


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
