"""Calls of the user's code: an error in them is one sentence with file and line."""

import numpy as np
import pytest

from layermem.errors import InputError
from layermem.proto.schema import LayerParameter
from layermem.python_layers import UserLayer
from tests.python_layers.modules import MODULE, write_module

BROKEN = """
import caffe
import numpy as np
kept = []
class Stop(BaseException): pass
class Mute(Exception): __str__ = lambda self: 1 / 0
class Final(Exception): __init_subclass__ = lambda cls: 1 / 0

class L(caffe.Layer):
    def setup(self, bottom, top):
        SETUP

    def reshape(self, bottom, top):
        RESHAPE

    def forward(self, bottom, top):
        FORWARD

    def backward(self, top, propagate_down, bottom):
        BACKWARD
"""
GOOD = {
    "SETUP": "pass",
    "RESHAPE": "top[0].reshape(*bottom[0].shape)",
    "FORWARD": "top[0].data[...] = bottom[0].data",
    "BACKWARD": "bottom[0].diff[...] = top[0].diff",
}
LINES = {"SETUP": 11, "RESHAPE": 14, "FORWARD": 17, "BACKWARD": 20}


def python_param(**fields):
    return LayerParameter(python_param=fields).python_param


def layer_of(folder, text, name="L", param_str=""):
    param = python_param(module=write_module(folder, text), layer=name, param_str=param_str)
    return UserLayer("it", param, 0, str(folder / "net.prototxt"))


def run(layer, *, shape=(2, 3)):
    """Setup, forward and backward over ones."""
    layer.prepare([shape], 1)
    x, y, dx = (np.full(shape, value, np.float32) for value in (1, np.nan, np.nan))
    layer.forward({"x0": x, "y0": y})
    layer.backward({"x0": x, "y0": y, "dy0": x, "dx0": dx})
    return y, dx


def broken(where, line):
    text = BROKEN
    for name, good in GOOD.items():
        text = text.replace(name, line if name == where else good)
    return text


@pytest.mark.parametrize(
    "where, line, remedy",
    [
        *(
            (where, "raise ValueError('no\\n  good')", r"fails in \w+ of its .* L: ValueError: no good$")
            for where in GOOD
        ),
        *((where, "exit(3)", r"fails in \w+ of its Python class L: SystemExit: 3$") for where in GOOD),
        *(
            (where, f"raise {error}('no \\x1b[31m good')", rf"fails in \w+ of its .* L: {error}: no \\x1b\[31m good$")
            for where in GOOD
            for error in ("GeneratorExit", "Stop", "StopIteration", "MemoryError", "SyntaxError")
        ),
        ("FORWARD", "import asyncio; raise asyncio.CancelledError", "fails in forward of its .* L: CancelledError$"),
        ("FORWARD", "raise Mute", "fails in forward of its Python class L: Mute$"),
        ("FORWARD", "raise Final", "fails in forward of its Python class L: Final$"),
        ("SETUP", "eval('1 +')", "fails in setup of its Python class L: SyntaxError: invalid syntax$"),
        *((where, "caffe.Nett", "no 'Nett' in module 'caffe', .*; did you mean 'Net'") for where in GOOD),
        ("SETUP", "top[0].reshape(2.5)", "give integers"),
        ("SETUP", "self.blobs.add_blob(-1)", "give sizes from 0"),
        ("RESHAPE", "bottom[0].reshape(7)", "reshape tops alone"),
        ("RESHAPE", "self.blobs.add_blob(1)", "adds a blob after setup"),
        ("FORWARD", "top[0].reshape(2, 4)", r"reshapes top\[0\] from 2x3 to 2x4 during a step; .* give the largest"),
        ("FORWARD", "top[0].data[...] = np.zeros((2, 4))", "ValueError: could not broadcast input"),
        ("FORWARD", "top[0].data[...] = 'text'", "ValueError: could not convert string"),
        ("FORWARD", "top[0].data = np.zeros((2, 3))", r"write into it: top\[0\].data\[...\] = values"),
        ("SETUP", "self.blobs.add_blob(1); self.blobs[0] = 1", r"blobs; .*: blobs\[0\].data\[...\] = values"),
        ("RESHAPE", "top.append(bottom[0])", r"assigns to the list top; write into its blobs: top\[0\].data\[...\]"),
        (
            "FORWARD",
            "top[0] = 2 * bottom[0].data",
            r"the list top; write into its blobs: top\[0\].data\[...\] = values",
        ),
        ("BACKWARD", "bottom[0] = top[0].diff", r"assigns to the list bottom; write into its blobs"),
        ("FORWARD", "bottom[0].data[...] = 0", "ValueError: .*read-only"),
        ("FORWARD", "bottom[0].diff[...] = 0", r"reads bottom\[0\].diff, which only backward has; keep"),
        ("BACKWARD", "top[0].diff[...] = 0", "ValueError: .*read-only"),
        ("BACKWARD", "bottom[1].diff[...] = 0", "IndexError"),
    ],
)
def test_an_exception_of_the_code_is_one_sentence_with_its_file_and_line(tmp_path, where, line, remedy):
    with pytest.raises(InputError, match=remedy) as caught:
        run(layer_of(tmp_path, broken(where, line)))
    assert (caught.value.line, caught.value.layer) == (LINES[where], "it")
    assert caught.value.path.startswith(str(tmp_path)) and len(caught.value.lines) == 1


@pytest.mark.parametrize("where", GOOD)
def test_an_interrupt_of_the_code_stays_one(tmp_path, where):
    with pytest.raises(KeyboardInterrupt):
        run(layer_of(tmp_path, broken(where, "raise KeyboardInterrupt")))


@pytest.mark.parametrize("name", ["recomputable", "backward_reads"])
def test_what_a_class_computes_about_itself_may_fail_like_its_methods(tmp_path, name):
    text = broken("SETUP", "pass") + f"\n    @property\n    def {name}(self):\n        raise GeneratorExit('no')\n"
    with pytest.raises(InputError, match=f"fails in {name} of its Python class L: GeneratorExit: no$") as caught:
        getattr(layer_of(tmp_path, text), name)
    assert caught.value.line == 24 and caught.value.path.startswith(str(tmp_path))


def test_a_class_that_takes_no_attributes_is_one_sentence(tmp_path):
    text = broken("SETUP", "pass") + "\n    blobs = property(lambda self: [])\n"
    with pytest.raises(InputError, match="fails in __init__ of its Python class L: AttributeError: "):
        layer_of(tmp_path, text)


@pytest.mark.parametrize(
    "where, line, remedy",
    [
        ("RESHAPE", "pass", r"gives top\[0\] no shape; call top\[0\].reshape"),
        ("RESHAPE", "top[0].reshape(2); top[0].data[0] = 1", r"writes top\[0\] in setup or reshape"),
        ("FORWARD", "kept.append(bottom[0].data[:, 1:])", r"keeps a view .* after forward, .*\.copy\(\)"),
        ("FORWARD", "self.y = top[0].data.reshape(-1)", r"keeps a view .* after forward"),
        ("BACKWARD", "self.dy = top[0].diff", r"keeps a view .* after backward"),
    ],
)
def test_wrong_results_of_the_code_are_one_sentence_with_its_file(tmp_path, where, line, remedy):
    with pytest.raises(InputError, match=remedy) as caught:
        run(layer_of(tmp_path, broken(where, line)))
    assert caught.value.path.startswith(str(tmp_path)) and caught.value.layer == "it"


@pytest.mark.parametrize(
    "text, line, remedy",
    [
        ("import caffe\nclass L(caffe.Layer:\n", 2, "fails in the import of its Python class L: SyntaxError: "),
        ("x = 1\nimport no_such_module\n", 2, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import caffe\n\n\nclass M(caffe.Layer):\n    pass", None, "which has M; correct the name"),
        ("import caffe\nclass L(caffe.Layer):\n    def __init__(self, p):\n        p.x", 4, "fails in __init__"),
        ("import caffe\nclass L(caffe.Layer):\n  backward_reads = 'all'", None, 'use "bottom" and "top"'),
    ],
)
def test_a_module_that_cannot_be_imported_is_one_sentence(tmp_path, text, line, remedy):
    with pytest.raises(InputError, match=remedy) as caught:
        _ = layer_of(tmp_path, text).backward_reads
    assert caught.value.line == line and caught.value.path.startswith(str(tmp_path))


@pytest.mark.parametrize("module, layer", [("no_such_module", "L"), ("no_such.module", "L"), ("", "L"), ("os", "")])
def test_a_module_that_is_not_there_is_one_sentence(tmp_path, module, layer):
    remedy = r"there is no 'no_such(_module)?' in PYTHONPATH" if "no" in module else "needs a module and a layer"
    with pytest.raises(InputError, match=remedy):
        UserLayer("it", python_param(module=module, layer=layer), 0, str(tmp_path / "net.prototxt"))


def test_it_has_its_text_and_phase_and_the_name_of_old_forks(tmp_path):
    text = broken("SETUP", "assert (self.phase, self.param_str, self.param_str_) == (0, \"{'a': 1}\", self.param_str)")
    y, dx = run(layer_of(tmp_path, text, param_str="{'a': 1}"))
    assert (y == 1).all() and (dx == 1).all()


def test_tops_and_gradients_that_the_code_does_not_write_are_0(tmp_path):
    text = broken("FORWARD", "top[0].data[0] = 3").replace(GOOD["BACKWARD"], "pass")
    y, dx = run(layer_of(tmp_path, text))
    assert y.tolist() == [[3, 3, 3], [0, 0, 0]] and not dx.any()


def test_a_gradient_that_is_not_wanted_may_be_written_all_the_same(tmp_path):
    layer = layer_of(tmp_path, MODULE, "Ten")
    layer.prepare([(2,)], 1)
    ones = np.ones(2, np.float32)
    layer.backward({"x0": ones, "y0": ones, "dy0": ones})


def test_in_place_bottom_and_top_are_one_array_and_the_gradient_begins_as_that_of_the_top(tmp_path):
    text = broken("FORWARD", "top[0].data[...] += 1; assert (bottom[0].data == 2).all()")
    text = text.replace(GOOD["BACKWARD"], "assert (bottom[0].data == 2).all(); bottom[0].diff[...] *= 2")
    param = python_param(module=write_module(tmp_path, text), layer="L")
    y, dx = run(UserLayer("it", param, 0, str(tmp_path / "net.prototxt"), inplace=[(0, 0)]))
    assert (y == 2).all() and (dx == 2).all()


def test_blobs_are_out_of_reach_between_calls(tmp_path):
    layer = layer_of(tmp_path, MODULE, "Cubes")
    layer.prepare([(2,)], 1)
    assert [each.tolist() for each in layer.initial_values] == [[0.5]] and layer.recomputable
    with pytest.raises(Exception, match=r"reads blobs\[0\].data, which only its methods may read"):
        _ = layer.instance.blobs[0].data
