"""The programs that upgrade files of old versions."""

import pytest
from google.protobuf import text_format

from layermem.proto.read import read_net_text
from layermem.proto.schema import NetParameter, SolverParameter

V1 = """name: "old"
input: "data" input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 5
layers { name: "ip" type: INNER_PRODUCT bottom: "data" top: "ip" blobs_lr: 2 inner_product_param { num_output: 2 } }
"""
SOLVER = 'net: "a.prototxt" base_lr: 0.1 lr_policy: "fixed" solver_type: ADAM'


def test_a_net_in_text_is_rewritten(caffe, tmp_path):
    (tmp_path / "old").write_text(V1)
    run = caffe("upgrade_net_proto_text", tmp_path / "old", tmp_path / "new")
    assert run.code == 0 and f"Wrote upgraded NetParameter text proto to {tmp_path / 'new'}" in run.text
    found = text_format.Parse((tmp_path / "new").read_text(), NetParameter())
    assert found == read_net_text(V1).message and [layer.type for layer in found.layer] == ["Input", "InnerProduct"]
    run = caffe("upgrade_net_proto_text", tmp_path / "new", tmp_path / "again")
    assert run.code == 0 and f"File already in latest proto format: {tmp_path / 'new'}" in run.text
    assert (tmp_path / "again").read_text() == (tmp_path / "new").read_text()


def test_text_is_that_of_caffes_programs_byte_for_byte(caffe, tmp_path):
    (tmp_path / "old").write_text(
        'name: "\\303\\251 \\"q\\"" layer { type: "Power" power_param { power: 1 scale: 0.1234567 shift: 1e10 } } '
        'layer { name: "é" type: "Power" power_param { power: 1234567 scale: 0.30000001192092896 shift: -0.0 } }'
    )
    assert caffe("upgrade_net_proto_text", tmp_path / "old", tmp_path / "new").code == 0
    assert (tmp_path / "new").read_text() == (
        'name: "\\303\\251 \\"q\\""\n'
        'layer {\n  type: "Power"\n  power_param {\n    power: 1\n    scale: 0.123456702\n    shift: 1e+10\n  }\n}\n'
        'layer {\n  name: "\\303\\251"\n  type: "Power"\n'
        "  power_param {\n    power: 1234567\n    scale: 0.3\n    shift: -0\n  }\n}\n"
    )


def test_a_net_in_bytes_keeps_types_connections_and_weights(caffe, tmp_path):
    old = text_format.Parse(V1, NetParameter())
    old.layers[0].blobs.add(num=1, channels=1, height=2, width=60, data=[0.5] * 120)
    (tmp_path / "old.caffemodel").write_bytes(old.SerializeToString())
    assert caffe("upgrade_net_proto_binary", tmp_path / "old.caffemodel", tmp_path / "new.caffemodel").code == 0
    new = NetParameter.FromString((tmp_path / "new.caffemodel").read_bytes())
    assert [layer.type for layer in new.layer] == ["Input", "InnerProduct"] and not new.layers
    layer = new.layer[1]
    assert (list(layer.bottom), list(layer.top), layer.param[0].lr_mult) == (["data"], ["ip"], 2)
    assert layer.blobs[0] == old.layers[0].blobs[0]


def test_of_a_solver_the_type_alone_is_rewritten(caffe, tmp_path):
    (tmp_path / "old").write_text(SOLVER)
    assert caffe("upgrade_solver_proto_text", tmp_path / "old", tmp_path / "new").code == 0
    expected = text_format.Parse(SOLVER.replace("solver_type: ADAM", 'type: "Adam"'), SolverParameter())
    assert text_format.Parse((tmp_path / "new").read_text(), SolverParameter()) == expected


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("upgrade_net_proto_text", b"layer {", 2),
        ("upgrade_net_proto_text", b'layer { name: "a" } layers { name: "b" }', 134),
        ("upgrade_net_proto_text", b'layers { layer { name: "x" type: "foo" } }', 134),
        ("upgrade_net_proto_binary", b"\xff\xff", 2),
        ("upgrade_solver_proto_text", b"layer { }", 2),
        ("upgrade_solver_proto_text", b'type: "SGD" solver_type: ADAM', 134),
    ],
)
def test_files_that_cannot_be_upgraded_have_caffes_exit_codes(caffe, tmp_path, name, content, code):
    (tmp_path / "old").write_bytes(content)
    run = caffe(name, tmp_path / "old", tmp_path / "new")
    assert run.code == code and run.log[-1][0] == ("E" if code == 2 else "F") and not (tmp_path / "new").exists()
    assert caffe(name, tmp_path / "absent", tmp_path / "new").code == 134
    assert caffe(name, tmp_path / "old").code == 1


def test_a_block_that_the_schema_does_not_have_is_refused_and_not_left_out(caffe, tmp_path):
    (tmp_path / "old").write_text('layer { name: "d" type: "MyData" top: "x" my_data_param { source: "y" } }')
    run = caffe("upgrade_net_proto_text", tmp_path / "old", tmp_path / "new")
    assert run.code == 2 and "'my_data_param' (column" in run.text and not (tmp_path / "new").exists()
