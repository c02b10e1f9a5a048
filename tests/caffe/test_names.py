"""Modules of pycaffe that scripts import by their names."""

import layermem.io
from layermem import caffe
from layermem.caffe import _caffe, io, net_spec
from tests.caffe.nets import deploy


def test_io_has_the_functions_of_layermem_and_an_older_name():
    assert all(getattr(io, name) is getattr(layermem.io, name) for name in layermem.io.__all__)
    assert set(io.__all__) - set(layermem.io.__all__) == {"arraylist_to_blobprotovecor_str", "caffe_pb2"}
    assert caffe.io is io


def test_net_spec_has_the_names_of_layermem():
    assert (net_spec.layers, net_spec.params, net_spec.NetSpec) == (layermem.L, layermem.P, layermem.NetSpec)
    assert all(hasattr(net_spec, name) for name in net_spec.__all__)


def test_parameters_of_a_layer_are_a_blob_vector():
    net = caffe.Net(deploy(), caffe.TEST)
    assert type(net.params["fc"]) is _caffe.BlobVec and isinstance(net.params["fc"][0], _caffe.Blob)
