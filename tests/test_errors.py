"""How an error says where it is."""

import pytest

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
