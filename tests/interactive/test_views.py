"""What a net shows cannot be changed: an assignment that would have no effect is an error that says what has one."""

import copy
import pickle

import numpy as np
import pytest

import layermem
import layermem.caffe as caffe
from layermem.errors import InputError
from tests.nets import NETS, solver_file

ASSIGNMENTS = {  # the end of a statement, and what works instead
    "params['conv1'][0] = 0": r"write to params\['conv1'\]\[0\].data\[...\]",
    "params['conv1'][:] = [0, 0]": r"write to params\['conv1'\]\[0\].data\[...\]",
    "params['conv1'].append(0)": r"write to params\['conv1'\]\[0\].data\[...\]",
    "params['conv1'] = 0": r"write to params\['conv1'\]\[0\].data\[...\]",
    "blobs['data'] = 0": r"write to blobs\['data'\].data\[...\]",
    "layers[1].blobs[1] = 0": r"write to params\['conv1'\]\[1\].data\[...\]",
    "layer_dict['conv1'].blobs[1] = 0": r"write to params\['conv1'\]\[1\].data\[...\]",
    "layers[1] = 0": "layers cannot be changed; it follows from the prototxt",
    "layer_dict['conv1'] = 0": "layer_dict cannot be changed; it follows from the prototxt",
    "inputs[:] = []": "inputs cannot be changed; it follows from the prototxt",
    "outputs.append('conv1')": "outputs cannot be changed; it follows from the prototxt",
    "top_names['conv1'] = []": "top_names cannot be changed; it follows from the prototxt",
    "top_names['conv1'].append('x')": r"top_names\['conv1'\] cannot be changed; it follows from the prototxt",
    "bottom_names['conv1'][0] = 'x'": r"bottom_names\['conv1'\] cannot be changed; it follows from the prototxt",
    "blob_loss_weights['loss'] = 2": "blob_loss_weights cannot be changed; it follows from the prototxt",
}


@pytest.mark.parametrize("kind", ["net", "caffe.Net", "net of a solver"])
@pytest.mark.parametrize(("assignment", "advice"), ASSIGNMENTS.items(), ids=ASSIGNMENTS)
def test_an_assignment_without_effect_is_a_type_error_with_what_has_one(kind, assignment, advice, tmp_path):
    (tmp_path / "net.prototxt").write_text(NETS["chain"])
    if kind == "net of a solver":
        net = layermem.Solver(solver_file("chain", tmp_path)).net
    else:
        net = (layermem if kind == "net" else caffe).Net(str(tmp_path / "net.prototxt"))
    with pytest.raises(TypeError, match=f"{advice}") as caught:
        exec(f"net.{assignment}", {"net": net})
    assert isinstance(caught.value, InputError)


def test_the_parameters_of_a_layer_read_like_a_list():
    blobs = layermem.Net.from_text(NETS["chain"]).params["conv1"]
    assert isinstance(blobs, list) and len(blobs) == 2 and blobs == [blobs[0], blobs[1]] and blobs[1] in blobs
    assert blobs[-1:] == [blobs[1]] and [blob.name for blob in blobs] == ["conv1[0]", "conv1[1]"]
    blobs[0].data[...] = 3
    assert np.all(blobs[0].data == 3)


def test_the_test_nets_of_a_solver_cannot_be_replaced(tmp_path):
    solver = layermem.Solver(solver_file("chain", tmp_path, test_iter=1, test_interval=1))
    with pytest.raises(TypeError, match="test_nets cannot be changed"):
        solver.test_nets[0] = solver.net


@pytest.mark.parametrize("name", ["params", "blobs"])
def test_a_copy_of_a_blob_would_be_the_same_memory_and_is_refused(name):
    net = layermem.Net.from_text(NETS["chain"])
    with pytest.raises(TypeError, match=r"cannot be copied or pickled; copy its values: numpy.array\(blob.data\)"):
        copy.deepcopy(getattr(net, name))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_net_or_solver_that_owns_memory_is_not_copied(copied, tmp_path):
    net, solver = layermem.Net.from_text(NETS["chain"]), layermem.Solver(solver_file("chain", tmp_path))
    for made, advice in (
        (net, r"net 'net' owns its memory and cannot be copied or pickled; save its weights with net.save\(path\)"),
        (solver.net, r"save its weights with net.save\(path\), and make another from its prototxt with weights=path"),
        (solver, r"save it with solver.snapshot\(\), and make another from its prototxt with snapshot=path"),
    ):
        with pytest.raises(TypeError, match=advice) as caught:
            copied(made)
        assert isinstance(caught.value, InputError)
