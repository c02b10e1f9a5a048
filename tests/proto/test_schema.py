"""The descriptor compared with the fields of Caffe's schema in fields.tsv."""

import gc
import importlib.util
import weakref
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, text_format

from layermem.proto import schema

HERE = Path(__file__).parent
Field = descriptor_pb2.FieldDescriptorProto
LABEL = {Field.LABEL_OPTIONAL: "optional", Field.LABEL_REQUIRED: "required", Field.LABEL_REPEATED: "repeated"}


def rows_of_fixture():
    lines = (HERE / "fields.tsv").read_text().splitlines()
    return {tuple((line + "\t" * 5).split("\t")[:6]) for line in lines if not line.startswith("#")}


def rows_of_descriptor():
    file = schema.shipped_file()
    rows = set(rows_of_enums("", file.enum_type))
    for message in file.message_type:
        rows |= set(rows_of_enums(message.name + ".", message.enum_type))
        rows |= {row_of_field(message.name, field) for field in message.field}
    return rows


def rows_of_enums(prefix, enums):
    for enum in enums:
        values = " ".join(f"{value.name}={value.number}" for value in enum.value)
        yield (prefix + enum.name, "enum", values, "", "", "")


def row_of_field(message, field):
    kind = field.type_name.removeprefix(".caffe.") or Field.Type.Name(field.type).removeprefix("TYPE_").lower()
    return (message, field.name, str(field.number), LABEL[field.label], kind, option_of(field))


def option_of(field):
    if field.options.packed:
        return "packed"
    if not field.HasField("default_value"):
        return ""
    return "default=" + (f'"{field.default_value}"' if field.type == Field.TYPE_STRING else field.default_value)


def test_every_field_has_the_number_label_type_and_default_of_caffe():
    fixture, descriptor = rows_of_fixture(), rows_of_descriptor()
    assert sorted(fixture - descriptor) == [], "in fields.tsv only"
    assert sorted(descriptor - fixture) == [], "in caffe.bin only"


def test_the_fixture_is_whole():
    rows = rows_of_fixture()
    fields = [row for row in rows if row[1] != "enum"]
    lines = (HERE / "fields.tsv").read_text().split("# forks\n")
    of_caffe = [line.split("\t") for line in lines[0].splitlines() if not line.startswith("#")]
    assert len([row for row in of_caffe if row[1] == "enum"]) == 26
    assert len({row[0] for row in of_caffe if row[1] != "enum"}) == 63  # messages of BVLC
    assert len([row for row in of_caffe if row[1] != "enum"]) == 423
    assert len(fields) == len({(row[0], row[2]) for row in fields}), "a number is used twice in one message"


def test_the_shipped_descriptor_is_what_the_proto_file_says():
    pytest.importorskip("grpc_tools")
    path = HERE.parents[1] / "tools" / "make_descriptor.py"
    spec = importlib.util.spec_from_file_location("make_descriptor", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.compile_descriptor() == (tool.PROTO / "caffe.bin").read_bytes()
    assert tool.main(["--check"]) == 0


def test_the_classes_know_presence_defaults_and_nested_enums():
    layer = schema.LayerParameter()
    assert not layer.HasField("pooling_param") and layer.pooling_param.stride == 1
    text_format.Parse("pooling_param { pool: AVE kernel_size: 3 }", layer)
    assert layer.HasField("pooling_param")
    assert layer.pooling_param.pool == schema.message_class("PoolingParameter").AVE
    assert schema.enum_name(layer.pooling_param, "pool") == "AVE"
    assert schema.enum_name(layer.pooling_param, "round_mode") == "CEIL"
    assert (schema.TRAIN, schema.TEST) == (0, 1)


@pytest.mark.parametrize("net", [schema.NetParameter, schema.FastNetParameter])
def test_the_garbage_collector_deletes_no_class_of_a_message(net):
    """It would while another thread makes a message of the class, and that thread would end the process."""
    of_fields = [field for field in type(net().layer.add()).DESCRIPTOR.fields if field.name.endswith("_param")]
    classes = [weakref.ref(type(getattr(net().layer.add(), field.name))) for field in of_fields]
    gc.collect()
    assert len(classes) > 60 and all(each() is not None for each in classes)


def test_our_pool_leaves_the_default_pool_to_others():
    from google.protobuf import descriptor_pool

    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("caffe.NetParameter")


def test_packed_floats_and_the_bytes_variant_are_the_same_file():
    plain = schema.NetParameter(name="n")
    blob = plain.layer.add(name="ip", type="InnerProduct").blobs.add(data=[1.5, -2.0], double_diff=[0.25])
    blob.shape.dim.extend([1, 2])
    fast = schema.FastNetParameter()
    fast.ParseFromString(plain.SerializeToString())
    assert fast.layer[0].blobs[0].data[:] == [b"\x00\x00\xc0\x3f\x00\x00\x00\xc0"]
    assert fast.SerializeToString() == plain.SerializeToString()
