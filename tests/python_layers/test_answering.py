"""`import caffe` imports layermem.caffe, in a block or permanently."""

import subprocess
import sys
from types import ModuleType

import pytest

from layermem.python_layers.answering import answered

NAMES = {"caffe", "caffe.io", "caffe.proto", "caffe.proto.caffe_pb2", "caffe.net_spec"}


def loaded():
    return {name for name in sys.modules if name.partition(".")[0] == "caffe"}


def test_modules_are_those_of_layermem_in_the_block_alone():
    with answered():
        import caffe as inside
        import caffe.io
        import caffe.proto.caffe_pb2
        from caffe import layers, params
        from caffe.net_spec import NetSpec
        from caffe.proto import caffe_pb2

        assert inside is sys.modules["layermem.caffe"] and caffe.io.__name__ == "layermem.caffe.io"
        assert caffe_pb2 is sys.modules["layermem.caffe.proto.caffe_pb2"]
        assert (layers, params, NetSpec) == (inside.layers, inside.params, inside.NetSpec)
        assert loaded() == NAMES
    assert not loaded()


def test_a_caffe_that_is_installed_is_back_afterwards_with_its_modules(monkeypatch):
    theirs = {name: ModuleType(name) for name in ("caffe", "caffe.io", "caffe._theirs")}
    for name, module in theirs.items():
        monkeypatch.setitem(sys.modules, name, module)
    with answered():
        import caffe.io  # noqa: F401

        assert sys.modules["caffe.io"].__name__ == "layermem.caffe.io" and "caffe._theirs" not in sys.modules
    assert {name: sys.modules[name] for name in loaded()} == theirs


def test_a_module_that_layermem_does_not_have_is_not_found():
    with (
        answered(),
        pytest.raises(ModuleNotFoundError, match=r"No module named 'caffe.model_libs' here: layermem answ"),
    ):
        import caffe.model_libs  # noqa: F401


def test_an_installed_answer_stays_also_while_a_python_layer_runs():
    script = """
import layermem.caffe, sys
layermem.caffe.install()
layermem.caffe.install()
from layermem.python_layers.answering import answered
with answered():
    import caffe
assert caffe is layermem.caffe is sys.modules["caffe"]
from caffe.proto import caffe_pb2
print(caffe_pb2.NetParameter(name="n").name, caffe.Layer.__name__)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "n PythonLayer\n"
