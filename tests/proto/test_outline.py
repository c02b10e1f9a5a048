"""The lines of fields, in every way the text format lets a field be written."""

from hypothesis import given
from hypothesis import strategies as st

from layermem.proto.outline import outline, tokens


def test_each_block_begins_where_its_name_stands():
    text = 'name: "n"\n\nlayer {\n  name: "a"\n}\nlayer\n{\n}\nlayer: <>\n'
    assert outline(text).lines("layer") == [3, 6, 9]


def test_braces_in_comments_and_strings_open_nothing():
    text = """layer {            # layer { in a comment
  name: "a { \\" } layer {"  # an escaped quote
  type: 'it"s {'
}
layer { name: "b" }"""
    layout = outline(text)
    assert layout.lines("layer") == [1, 5]
    assert layout.lines("layer", "name") == [2, 5]
    assert layout.unclosed == ()


def test_nested_blocks_of_the_same_name_are_told_apart():
    text = "layers {\n  layer { name: 'old' }\n}\nlayer {}\n"
    layout = outline(text)
    assert layout.lines("layer") == [4]
    assert layout.lines("layers", "layer") == [2]
    assert layout.lines("layers", "layer", "name") == [2]


def test_a_list_of_blocks_has_a_line_for_each():
    text = "layer: [\n  { name: 'a'\n    bottom: ['x', 'y'] },\n  {\n name: 'b' } ]\nlayer { }"
    layout = outline(text)
    assert layout.lines("layer") == [2, 4, 6]
    assert layout.lines("layer", "bottom") == [3, 3]


def test_fields_may_be_separated_by_commas_semicolons_or_nothing():
    layout = outline("a: 1, b: 2; c: 3 d { e: -4.5e-3f } f: 0x10")
    assert [field.path for field in layout.fields] == [("a",), ("b",), ("c",), ("d",), ("d", "e"), ("f",)]


def test_a_value_is_found_by_its_place():
    layout = outline("layer {\n  top: 'x'\n  loss_weight: 7\n}")
    field = layout.at(3, 16)
    assert field is not None and field.path == ("layer", "loss_weight")
    assert layout.at(3, 3) is None


def test_blocks_left_open_are_named_outermost_first():
    layout = outline("layer {\n  pooling_param {\n  pool: MAX\n")
    assert layout.unclosed == (("layer", 1), ("pooling_param", 2))


@given(st.text())
def test_no_character_is_lost_and_nothing_fails(text):
    covered = sum(len(token.text) for token in tokens(text)) + sum(c.isspace() for c in text)
    inside = sum(c.isspace() for token in tokens(text) for c in token.text)
    assert covered - inside == len(text)
    outline(text)


@given(st.text(alphabet="{}<>[]:;, \n\"'#ab1"))
def test_an_outline_of_any_brackets_is_made(text):
    layout = outline(text)
    last = text.count("\n") + 1
    assert all(1 <= field.line <= last for field in layout.fields)
