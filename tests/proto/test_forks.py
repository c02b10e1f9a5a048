"""Fields of forks: harmless ones are removed with a note, others are refused."""

import pytest

from layermem.errors import InputError
from layermem.layers.data import FEEDS
from layermem.proto import read_net_text, read_solver_text
from layermem.proto.filter import filter_net
from layermem.proto.forks import HARMLESS, LAYER_FIELDS, REFUSED, TYPES
from layermem.proto.schema import LayerParameter, message_class

LAYER = 'layer { name: "a" type: "ReLU" bottom: "x" top: "y" %s }\n'
DATA = 'layer { name: "d" type: "Data" top: "x" %s }\n'
VALUES = (": 3", ": CUDNN", ': "a" "b"', '{ deep { x: [1, 2] } y: "}" }', ": [ { a: 1 }, { a: 2 } ],")


def blocks_of(owner, message=LayerParameter.DESCRIPTOR):
    """The fields of a message that lead to a message of the type `owner`, at most two blocks deep."""
    blocks = [field for field in message.fields if field.message_type]
    if direct := next((field.name for field in blocks if field.message_type.name == owner), None):
        return (direct,)
    if message is not LayerParameter.DESCRIPTOR:
        return ()
    return next((field.name, *inner) for field in blocks if (inner := blocks_of(owner, field.message_type)))


def text_inside(blocks, field):
    """`field` inside `blocks`."""
    return text_inside(blocks[:-1], f"{blocks[-1]} {{ {field} }}") if blocks else field


def text_with(owner, field):
    """A net or solver with `field` in a message of the type `owner`, and the function that reads it."""
    if owner == "SolverParameter":
        return f'net: "n"\n{field}\n', read_solver_text
    if owner == "NetParameter":
        return f"\n{field}\n{LAYER % ''}", read_net_text
    return "\n" + LAYER % (field if owner == "LayerParameter" else text_inside(blocks_of(owner), field)), read_net_text


@pytest.mark.parametrize(("owner", "name"), HARMLESS)
def test_a_field_that_changes_nothing_is_removed_with_a_note(owner, name):
    known = HARMLESS[owner, name]
    for value in [f": {value};" for value in known.values] or VALUES:
        text, read = text_with(owner, f"{name} {value}")
        file = read(text, "n.prototxt")
        assert file.message == read(text_with(owner, "")[0], "n.prototxt").message
        (note,) = file.ignored if read is read_net_text else [note for note in file.notes if name in note]
        assert note.startswith(f"n.prototxt:2: '{name}' of {owner}, from ") and note.endswith(known.reason)


@pytest.mark.parametrize(("owner", "name"), REFUSED)
def test_a_field_that_decides_something_is_refused_with_its_fork_and_a_remedy(owner, name):
    value = "false" if name == "scale_train" else "true"
    text, read = text_with(owner, f"{name}: {value}")
    fork, remedy = REFUSED[owner, name]
    with pytest.raises(InputError) as caught:
        read(text, "n.prototxt")
    assert caught.value.line == 2 and fork in caught.value.what and caught.value.what.endswith(remedy)


@pytest.mark.parametrize(
    ("fork", "field"),
    [
        ("Intel Caffe", "transform_param { random_resize_param { } }"),
        ("Intel Caffe", "transform_param { random_aspect_ratio_param { } }"),
        ("the LRCN and Intel forks of Caffe", "transform_param { flow: true }"),
        ("the C3D, yjxiong/caffe and SSD forks of Caffe", "video_data_param { }"),
        ("Intel Caffe", "eval_detection_param { }"),
        ("the Faster R-CNN fork of Caffe", "dropout_param { scale_train: false }"),
        ("the yjxiong/caffe fork of Caffe", "seg_data_param { }"),
        ("the yjxiong/caffe fork of Caffe", "batch_reduction_param { }"),
    ],
)
def test_a_field_is_refused_with_the_fork_whose_schema_has_it(fork, field):
    with pytest.raises(InputError, match=f"it is from {fork}, "):
        read_net_text(LAYER % field).check_read()


def test_no_table_has_a_field_of_the_schema_or_a_type_of_an_input_layer():
    for owner, name in (*HARMLESS, *REFUSED):
        assert name not in message_class(owner).DESCRIPTOR.fields_by_name
    assert not LAYER_FIELDS.keys() & LayerParameter.DESCRIPTOR.fields_by_name.keys()
    assert not FEEDS & TYPES.keys()


def test_a_field_that_changes_nothing_with_some_values_is_refused_with_others():
    assert {key for key, known in HARMLESS.items() if known.values} == HARMLESS.keys() & REFUSED.keys()


def test_an_engine_of_a_fork_is_removed_and_one_of_bvlc_caffe_stays():
    own, foreign, new = (
        read_net_text(LAYER % block)
        for block in ("relu_param { engine: CAFFE }", "relu_param { engine: MKLDNN }", "scale_param { engine: CUDNN }")
    )
    assert own.message.layer[0].relu_param.HasField("engine") and not own.ignored
    assert not foreign.message.layer[0].relu_param.HasField("engine") and len(foreign.ignored) == 1
    assert "'engine' of ScaleParameter, from several forks of Caffe, has no effect here" in new.ignored[0]


def test_one_note_stands_for_all_fields_of_a_name_and_stays_in_the_net_of_a_phase():
    file = read_net_text((LAYER % 'engine: "MKL"') * 3, "n.prototxt")
    (note,) = file.ignored
    assert note.startswith("n.prototxt:1: ") and note.endswith("(and on 2 more lines)")
    assert filter_net(file, "TRAIN").ignored == file.ignored


def test_an_error_behind_a_removed_field_keeps_its_line_and_column():
    with pytest.raises(InputError, match=r"n:2: 'tpo' \(column 25\) is not a field of LayerParameter"):
        read_net_text('layer { quantization_param { bw: 1 # }\n} debug: true engine: 1 tpo: "y" }', "n")


@pytest.mark.parametrize("block", ["data_param", "image_data_param", "memory_data_param", "window_data_param"])
def test_a_transform_param_inside_the_data_block_is_that_of_the_layer(block):
    inside = read_net_text(LAYER % "" + DATA % f"{block} {{ transform_param {{ crop_size: 8 }} }}").message
    outside = read_net_text(LAYER % "" + DATA % f"{block} {{ }} transform_param {{ crop_size: 8 }}").message
    assert inside == outside and inside.layer[1].transform_param.crop_size == 8


def test_two_transform_params_of_a_layer_must_be_equal_and_errors_inside_have_their_place():
    twice = "data_param {\n transform_param { crop_size: %s } }\n transform_param { crop_size: 8 }"
    assert read_net_text(DATA % (twice % 8)).message.layer[0].transform_param.crop_size == 8
    with pytest.raises(InputError, match=r"n:1: layer 'd' has a transform_param, and another one inside data_param"):
        read_net_text(DATA % (twice % 9), "n")
    with pytest.raises(InputError, match=r"n:2: 'x' is not a value for 'crop_size' \(column 31\)"):
        read_net_text(DATA % (twice % "x"), "n")


def test_a_moved_transform_param_is_that_of_its_layer_in_a_net_of_either_format():
    old = 'layers { name: "r" type: RELU } layers { name: "d" type: DATA data_param { transform_param { scale: 2 } } }'
    assert read_net_text(old).message.layer[1].transform_param.scale == 2
    listed = "layer [ { type: 'ReLU' }, { type: 'Data' data_param { transform_param { scale: 2 } } } ]"
    assert read_net_text(listed).message.layer[1].transform_param.scale == 2
    with pytest.raises(InputError, match="both 'layer' and 'layers'"):
        read_net_text(LAYER % "" + old)


def test_many_fields_of_forks_in_one_line_are_removed_in_linear_steps():
    block = "data_param { " + "shuffle: true " * 2000 + "debug: 1 " * 2000 + "}"
    with pytest.raises(InputError, match=r"n:1: 'debug' \(column 28054\) is not a field of DataParameter"):
        read_net_text(DATA % block, "n").check_read()
    assert read_net_text(LAYER % ("debug: 1 " * 2000)).ignored[0].endswith("(and on 1999 more lines)")
