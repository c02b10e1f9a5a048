"""The location in errors."""

import ast
import re
from pathlib import Path

import pytest

import layermem
from layermem.errors import InputError

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


def test_every_refusal_says_what_to_do():
    package = Path(layermem.__file__).parent
    found = []
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "InputError" and call.args:
                words = [part.value for part in ast.walk(call.args[0]) if isinstance(part, ast.Constant)]
                text = "".join(word for word in words if isinstance(word, str))
                ends = len(text.split()) > 3  # else the words are those of an inner error
                if ends and not REMEDY.search(text) and name not in WITHOUT:
                    found.append(f"{name}:{call.lineno}: {text}")
    assert not found, "\n".join(found)
