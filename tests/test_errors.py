"""The location in errors."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import layermem
from layermem.errors import ArgumentError, BudgetError, InputError, input_error_of

WRONG = InputError("is wrong")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (WRONG, "is wrong"),
        (WRONG.at(path="n.prototxt"), "n.prototxt: is wrong"),
        (WRONG.at(path="n.prototxt", line=3), "n.prototxt:3: is wrong"),
        (WRONG.at(path="n.prototxt", line=3, layer="a"), "n.prototxt:3: layer 'a' is wrong"),
        (WRONG.at(layer="a").at(path="n.prototxt", layer="b"), "n.prototxt: layer 'a' is wrong"),
    ],
)
def test_an_error_names_file_line_and_layer_as_far_as_they_are_known(error, says):
    assert str(error) == says


def test_a_line_never_goes_with_another_file():
    assert str(WRONG.at(path="data.mdb").at(path="n.prototxt", line=3, layer="a")) == "data.mdb: layer 'a' is wrong"
    assert str(WRONG.at(path="list.txt", line=7).at(path="n.prototxt", line=3)) == "list.txt:7: is wrong"
    assert str(WRONG.at(path="n.prototxt").at(path="n.prototxt", line=3)) == "n.prototxt:3: is wrong"


class Strange(Exception):
    def __init__(self, code, more):
        super().__init__(f"{code} {more}")
        self.code = code


@pytest.mark.parametrize(
    "kind", [ValueError, KeyError, AttributeError, OSError, UnicodeDecodeError, SyntaxError, StopIteration, Strange]
)
def test_an_input_error_may_be_of_another_class_too(kind):
    error = input_error_of(kind)("is wrong", path="a.py", line=3)
    for each in (error, error.at(layer="x")):
        assert isinstance(each, InputError) and isinstance(each, kind) and isinstance(each, RuntimeError)
        assert str(each).startswith("a.py:3: ") and each.what == "is wrong"
    error.is_agreed, error.own = True, lambda: "no other process has this"
    restored = pickle.loads(pickle.dumps(error))
    assert type(restored) is InputError and str(restored) == str(error) and restored.is_agreed


def test_what_is_no_exception_class_or_permits_no_subclass_leaves_an_input_error():
    class Final(Exception):
        def __init_subclass__(cls):
            raise TypeError("it is final")

    assert all(input_error_of(kind) is InputError for kind in (SystemExit, RuntimeError, Exception, Final))
    assert isinstance(ArgumentError("a"), ValueError) and isinstance(
        BudgetError("b", budget_bytes=1, minimum_bytes=2), RuntimeError
    )


REMEDY = re.compile(
    r";|\b(use|give|set|write|remove|add|copy|make|reduce|correct|change|rename|install|create|must|takes|store|restore"
    r"|convert|resume|needs|keep|choose|leave|did you mean|it has|reads)\b"
)
WITHOUT = {  # a sentence whose end comes from elsewhere, or which is followed by lines that say what fits
    "backends/base.py", "planning/registry.py", "cli/plan_graph.py", "report/refusal.py", "proto/read.py",
    "data/layer_files.py", "data/hdf5_source.py",
    "distributed/mpi.py", "proto/blobs.py", "proto/weights_hdf5.py", "solver/state_file.py",
    "runtime/executor.py", "data/databases.py", "backends/reference/loss.py",
}  # fmt: skip


CLASSES = ("InputError", "ArgumentError", "CannotCrop", "UnknownField", "WrongValue")


def test_every_refusal_says_what_to_do():
    package = Path(layermem.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in CLASSES and call.args:
                words = [part.value for part in ast.walk(call.args[0]) if isinstance(part, ast.Constant)]
                text = "".join(word for word in words if isinstance(word, str))
                ends = len(text.split()) > 3  # else the words are those of an inner error
                if ends and not REMEDY.search(text) and name not in WITHOUT:
                    found.append(f"{name}:{call.lineno}: {text}")
    assert not found, "\n".join(found)
