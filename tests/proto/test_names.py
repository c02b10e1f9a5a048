"""Names for layers without a name or with a repeated one."""

from layermem.proto.names import FreeNames, name_nameless, number_repeated
from layermem.proto.schema import NetParameter


def net(*names, types=()):
    message = NetParameter()
    for index, name in enumerate(names):
        message.layer.add(name=name, type=types[index] if types else "ReLU")
    return message


def names_of(message):
    return [layer.name for layer in message.layer]


def test_a_free_name_is_the_name_itself_or_the_first_number_that_is_free():
    names = FreeNames(["a", "a(2)", "b"])
    assert [names.take(name) for name in ("c", "c", "a", "a", "b")] == ["c", "c(2)", "a(3)", "a(4)", "b(2)"]


def test_nameless_layers_are_called_by_their_types():
    message = net("", "TanH", "", "", types=("TanH", "ReLU", "TanH", ""))
    name_nameless(message)
    assert names_of(message) == ["TanH(2)", "TanH", "TanH(3)", ""]


def test_the_first_layer_of_a_name_keeps_it():
    message = net("a", "b", "a", "a", "a(2)")
    number_repeated(message)
    assert names_of(message) == ["a", "b", "a(3)", "a(4)", "a(2)"]


def test_many_layers_of_one_name_are_numbered_in_order():
    message = net(*["a"] * 5000)
    number_repeated(message)
    assert names_of(message)[:3] == ["a", "a(2)", "a(3)"] and names_of(message)[-1] == "a(5000)"
