"""Parse errors: place, cause and remedy."""

import pytest

from layermem.errors import InputError
from layermem.proto import read_net_text, read_solver_text

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
        'layer { type: "VideoData" video_data_param { } }',
        "net:1: 'video_data_param' (column 27) is not a field of LayerParameter: it is from the C3D,"
        " yjxiong/caffe and SSD forks of Caffe, which is not supported",
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
    "enum by a name of a fork": (
        "layer {\n loss_param { normalization: PRE_FIXED }\n}",
        "net:2: 'PRE_FIXED' is a value for 'normalization' of Intel Caffe (column 30); write"
        " normalization: NONE and a loss_weight, 1 / pre_fixed_normalizer",
    ),
    "a value for each axis": (
        "layer {\n pooling_param { kernel_size: 1 kernel_size: 2 kernel_size: 2 }\n}",
        "net:2: 'kernel_size' is given a second time in this PoolingParameter (column 46); it has one value for both"
        " axes: write kernel_h and kernel_w for two (more axes are of forks of Caffe)",
    ),
    "a list for each axis": (
        "layer {\n pooling_param { stride: [ # of\n 1, 2, 2] }\n}",
        "net:2: 'stride' takes one value, and no list (column 26); it has one value for both axes: write stride_h and"
        " stride_w for two (more axes are of forks of Caffe)",
    ),
    "a list of one value": (
        "layer {\n crop_param { axis: [1, 2] }\n}",
        "net:2: 'axis' takes one value, and no list (column 21); write one value",
    ),
    "a number of Python": (
        "layer {\n concat_param { axis: 0_1 }\n}",
        "net:2: '0_1' is not a value for 'axis' (column 23); it takes a whole number from -2147483648 to 2147483647",
    ),
    "a number in other digits": (
        "layer {\n dropout_param { dropout_ratio: \u0663 }\n}",
        "net:2: '\u0663' is not a value for 'dropout_ratio' (column 33); it takes a number",
    ),
    "a number in a list": (
        "layer {\n input_param { shape { dim: [1, 0b11] } }\n}",
        "net:2: '0b11' is not a value for 'dim' (column 33); it takes a whole number of 64 bits",
    ),
    "a comment of C++": (
        'layer { name: "a" // of C++\n}',
        "net:1: '//' begins no comment (column 19); write '#' before each line of it",
    ),
    "a type of the current format in an old block": (
        'layers { type: "Softmax" }',
        "net:1: type \"Softmax\" (column 16) is of a 'layer' block; rename all 'layers' to 'layer'",
    ),
    "an unknown field of an old block": (
        "layers { type: SOFTMAX softmax_parm { } }",
        "net:1: 'softmax_parm' (column 24) is not a field of LayerParameter; did you mean 'softmax_param'?",
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
    "value for a block": ("layer: 3", "net:1: '3' is not a value for 'layer' (column 8); it takes a block { ... }"),
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
    "no colon": ('layer { name "a" }', "net:1: 'name' has no ':' before its value (column 14); write 'name: ...'"),
    "no value": (
        "layer {\n  type:\n  name: 'a' }",
        "net:3: 'name' is not a value for 'type' (column 3); it takes a UTF-8 string in quotes",
    ),
    "no value before the block ends": (
        "layer { dropout_param { dropout_ratio: } }",
        "net:1: a value is missing before '}' (column 40); write it, or remove the field",
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
        r"net:1: the string at column 7 has the unknown escape '\d'; write '\\d', or / in a path",
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
