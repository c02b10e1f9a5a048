"""Messages and enums by the names of caffe_pb2."""

import google.protobuf
import pytest

from layermem import caffe
from layermem.caffe.proto import caffe_pb2
from layermem.proto.schema import NetParameter

NAMES = ("NetParameter", "SolverParameter", "BlobProto", "BlobProtoVector", "Datum", "LayerParameter", "SolverState")


def test_messages_are_those_that_layermem_reads():
    assert caffe_pb2.NetParameter is NetParameter and caffe.proto.caffe_pb2 is caffe_pb2
    assert all(getattr(caffe_pb2, name).DESCRIPTOR.name == name for name in NAMES)
    assert set(NAMES) <= set(dir(caffe_pb2))


def test_a_net_is_merged_from_text_and_changed():
    net = caffe_pb2.NetParameter()
    google.protobuf.text_format.Merge('name: "n" layer { type: "Pooling" pooling_param { pool: AVE } }', net)
    assert net.layer[0].pooling_param.pool == caffe_pb2.PoolingParameter.AVE
    net.layer.add(name="added", type="ReLU").include.add(phase=caffe_pb2.TEST)
    assert "phase: TEST" in str(net)
    assert caffe_pb2.BlobProto.FromString(caffe_pb2.BlobProto(data=[1, 2]).SerializeToString()).data == [1, 2]


def test_enums_have_names_and_values():
    assert (caffe_pb2.TRAIN, caffe_pb2.TEST, caffe_pb2.Phase.Value("TEST"), caffe_pb2.Phase.Name(0)) == (
        0,
        1,
        1,
        "TRAIN",
    )
    assert caffe_pb2.V1LayerParameter.LayerType.Name(4) == "CONVOLUTION"


def test_a_name_that_is_not_in_the_schema_is_answered_with_the_one_that_is_meant():
    with pytest.raises(AttributeError, match=r"Caffe's schema has no 'NetParamter'; did you mean 'NetParameter'\?"):
        caffe_pb2.NetParamter  # noqa: B018
