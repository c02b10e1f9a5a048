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
    assert (net_spec.params, net_spec.NetSpec, caffe.layers) == (layermem.P, layermem.NetSpec, net_spec.layers)
    assert all(hasattr(net_spec, name) for name in net_spec.__all__)


def test_modules_that_scripts_import_have_the_names_of_the_package():
    for module in (caffe.pycaffe, caffe.classifier, caffe.detector, caffe._caffe):
        for name in module.__all__:
            assert getattr(module, name) is getattr(caffe, name, getattr(module, name))
    assert {"Classifier", "Detector"} <= {*caffe.classifier.__all__, *caffe.detector.__all__}
    assert {"Net", "Layer", "SolverParameter", "get_solver", "layer_type_list"} <= set(_caffe.__all__)


def test_blocks_of_types_and_fields_of_messages_have_pycaffes_functions():
    assert net_spec.param_name_dict()["InnerProduct"] == "inner_product"
    layer = caffe.proto.caffe_pb2.LayerParameter()
    net_spec.assign_proto(layer, "pooling_param", {"kernel_size": 2, "pool": caffe.params.Pooling.AVE})
    assert (layer.pooling_param.kernel_size, layer.pooling_param.pool) == (2, 1)


def test_parameters_of_a_layer_are_a_blob_vector():
    net = caffe.Net(deploy(), caffe.TEST)
    assert type(net.params["fc"]) is _caffe.BlobVec and isinstance(net.params["fc"][0], _caffe.Blob)
