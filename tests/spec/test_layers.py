"""L: one function for each type, with help."""

import inspect

import pytest

from layermem import L
from layermem.errors import InputError
from layermem.layers.known_types import known_types


def test_every_type_has_a_function_with_a_signature_and_fields():
    assert dir(L) == known_types()
    assert str(inspect.signature(L.Convolution)).startswith("(*bottoms: 'Top', ntop: 'int' = 1, in_place: 'bool' = Fal")
    assert "    num_output: a whole number from 0 to 4294967295" in L.Convolution.__doc__
    assert "    kernel_size: list of a whole number" in L.Convolution.__doc__
    assert "fields are those of LayerParameter" in L.Silence.__doc__
    assert all(inspect.getdoc(getattr(L, name)) for name in known_types())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Convolutoin", "layermem has no layer type 'Convolutoin'; did you mean 'Convolution'?"),
        ("CONVOLUTION", "layermem has no layer type 'CONVOLUTION'; did you mean 'Convolution'?"),
        ("Toaster", "layermem has no layer type 'Toaster'; it has: AbsVal Accuracy"),
        ("NCCLReduce", "it has: AbsVal"),
    ],
)
def test_an_unknown_type_is_refused_where_it_is_written(name, says):
    with pytest.raises(InputError) as refused:
        getattr(L, name)
    assert says in str(refused.value) and refused.value.path == __file__


def test_names_of_python_are_none_of_its():
    assert not hasattr(L, "__wrapped__") and not hasattr(L, "_repr_html_")
