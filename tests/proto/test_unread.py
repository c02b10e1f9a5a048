"""What the schema does not have is set aside where the shapes of a layer may be known without it."""

import pytest

from layermem.data.probing import probe
from layermem.errors import InputError
from layermem.graph.net import Net, NetOptions
from layermem.graph.warnings import net_warnings
from layermem.proto import read_net_text, read_solver_text
from layermem.proto.filter import filter_net

READER = 'layer { name: "r" type: "ReLU" bottom: "data" top: "y" }'
READ = 'layer { name: "in" type: "Input" top: "x" }'
SHAPES = {"data": (2, 3, 8, 8), "label": (2,)}
STATED = "data_param { source: 'gone' batch_size: 4 } transform_param { crop_size: 8 force_color: true %s }"


def source(kind="Data", fields="", more=READER):
    return f'layer {{ name: "d" type: "{kind}" top: "data" top: "label" {fields} }}\n{more}'


def built(text, inputs=None):
    return Net(read_net_text(text, "n"), 0, NetOptions(inputs=inputs or {}), probe=probe)


@pytest.mark.parametrize(
    "text",
    [
        source("MyData", "my_data_param { source: 'x' deep { x: [1, 2] } }"),
        source("MyData", "data_param { shards: 3 backend: PARQUET }"),
        source("Data", "transform_param { noise_param { prob: 1 } } my_data_param { }"),
        source("ImageData", "image_data_param { label_type: PIXEL } transform_param { crop_h: 3 crop_w: 3 }"),
        source("VideoData", "video_data_param { source: 'x' }"),
        'layers { name: "d" type: VIDEO_DATA top: "data" top: "label" video_data_param { }\n}'
        'layers { name: "r" type: RELU bottom: "data" top: "y" }',
    ],
)
def test_a_source_whose_shapes_are_given_is_planned_as_without_what_is_unread(text):
    net = built(text, SHAPES)
    assert {name: blob.shape for name, blob in net.blobs.items()} == SHAPES | {"y": (2, 3, 8, 8)}
    with pytest.raises(InputError) as caught:
        built(text)
    assert caught.value.line == 1
    with pytest.raises(InputError, match="n:1: "):
        read_net_text(text, "n").check_read()


@pytest.mark.parametrize(
    "field",
    [
        "noise_param { prob: 0.1 saltpepper_param { fraction: 0.1 value: 3 } }",
        "random_resize_param { min_size: 3 }",
        "multi_scale: true",
        "scale_ratios: [1, 0.8]",
        "original_image: true",
        "max_rotation_angle: 30",
        "vertical_mirror: true",
        "pad: 4",
    ],
)
def test_a_field_that_only_augments_stops_no_plan_whose_shapes_are_stated(field):
    net = built(source("Data", STATED % field))
    assert net.blobs["data"].shape == (4, 3, 8, 8)
    name = field.split(" ")[0].rstrip(":")
    (warning,) = (each for each in net_warnings(net) if name in each)
    assert warning.startswith("the net can be planned, but its data cannot be read: n:1: ")


@pytest.mark.parametrize("field", ["crop_h: 4", "crop_sise: 4", "upper_size: 9", "num_labels: 2", "short_edge: 4"])
def test_a_field_that_may_decide_shapes_stops_a_plan_whose_shapes_are_not_given(field):
    with pytest.raises(InputError, match=rf"n:1: .*'{field.split(':')[0]}' .column [0-9]+. is not a field of Transf"):
        built(source("Data", STATED % field))


def test_of_several_sizes_the_largest_is_planned():
    size = "resize_param {{ height: {0} width: {0} }}"
    for order in [(8, 16, 12), (16, 8), (4, 16)]:
        sizes = " ".join(size.format(n) for n in order)
        text = source(
            "AnnotatedData", f"data_param {{ batch_size: 2 }} transform_param {{ force_color: true {sizes} }}"
        )
        net = built(text)
        assert net.blobs["data"].shape == (2, 3, 16, 16)
        with pytest.raises(InputError, match=r"several are from the MobileNet-YOLO fork of Caffe, .*; keep one"):
            net.file.check_read()


@pytest.mark.parametrize(
    "text",
    [
        source("Data", "my_data_parm: 3"),
        source("Data", "data_parm { }"),
        source("Data", "tpo: 'x'"),
        'layer { name: "r" type: "ReLU" bottom: "data" top: "y" relu_param { slope: 1 } }',
        'layer { name: "d" top: "data" my_data_param { } }',
    ],
)
def test_what_may_be_a_mistake_is_refused_when_the_net_is_read(text):
    with pytest.raises(InputError, match=r"n:1: .* is not a field of "):
        read_net_text(text, "n")


def test_a_known_type_with_a_block_of_its_own_is_refused_when_the_net_is_built():
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }\n'
    file = read_net_text(text + 'layer { name: "r" type: "ReLU" bottom: "x" top: "y" fancy_relu_param { } }', "n")
    with pytest.raises(InputError, match=r"n:2: layer 'r' 'fancy_relu_param' \(column 53\) is not a field"):
        Net(file, 0)


def test_it_stays_with_its_layer_behind_inputs_and_rules():
    text = "input: 'z' input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1\n"
    text += "layer { name: 'a' type: 'ReLU' bottom: 'z' top: 'a' include { phase: TEST } }\n"
    file = read_net_text(text + source("MyData", "my_data_param { }"), "n")
    assert list(file.unread) == [2] and list(filter_net(file, "TRAIN").unread) == [1]
    assert file.message.layer[2].type == "MyData"


def test_an_error_of_another_kind_behind_it_is_reported():
    with pytest.raises(InputError, match="n:3: 'x' is not a value for 'bottom'"):
        read_net_text(source("MyData", "my_data_param { }") + "\nlayer { bottom: x }", "n")


@pytest.mark.parametrize("block", ["net_param", "train_net_param", "test_net_param"])
@pytest.mark.parametrize(
    "fields",
    [
        STATED % "noise_param { prob: 1 }",
        "data_param { source: 'gone' batch_size: 4 transform_param { crop_size: 8 force_color: true is_flow: true } }",
    ],
)
def test_a_net_inside_a_solver_is_read_as_one_in_a_file(block, fields):
    first = 'net: "n.prototxt"' if block == "test_net_param" else ""
    solver = read_solver_text(f"{first}\n{block} {{ {READ}\n{source(fields=fields)} }}\nbase_lr: 0.1", "s")
    (file,) = solver.nets[block]
    net = Net(file, 0, NetOptions(inputs={"x": (4, 3, 8, 8)}), probe=probe)
    assert net.blobs["data"].shape == (4, 3, 8, 8) and list(file.unread) == [1] and file.lines == (2, 3, 4)
    with pytest.raises(InputError, match=r"s:3: '(noise_param|is_flow)' .* is not a field of TransformationParameter"):
        file.check_read()


def test_each_net_of_a_solver_has_what_is_set_aside_of_it():
    nets = (f"test_net_param {{ {source(fields=STATED % field)} }}" for field in ("", "noise_param { }", "pad: 1"))
    first, second, third = read_solver_text('net: "n"\n' + "\n".join(nets), "s").nets["test_net_param"]
    assert not first.unread and list(second.unread) == list(third.unread) == [0]
    assert "noise_param" in str(second.unread[0][0].error) and "pad" in str(third.unread[0][0].error)
