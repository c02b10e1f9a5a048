"""Fields in a text: their owners, values and ends, and blanks in their place."""

from layermem.proto.blanking import FieldText
from layermem.proto.outline import outline
from layermem.proto.schema import NetParameter

TEXT = """layer { name: "a" relu_param { engine: [CAFFE, CUDNN]; strange: 3 } }
name: "n"
"""


def field_text():
    return FieldText(TEXT, NetParameter.DESCRIPTOR, outline(TEXT))


def field(*path):
    return next(each for each in outline(TEXT).fields if each.path == path)


def test_the_owner_of_a_path_is_its_message_or_none():
    fields = field_text()
    assert fields.owner(("layer", "relu_param")).name == "ReLUParameter"
    assert fields.owner(("layer", "strange")) is None and fields.owner(("layer", "strange", "deep")) is None


def test_a_word_is_a_number_or_a_name_and_no_string():
    fields = field_text()
    assert fields.word(field("layer", "relu_param", "strange")) == "3"
    assert fields.word(field("layer", "relu_param", "engine")) == "CAFFE"
    assert fields.word(field("layer", "name")) == ""


def test_blanks_replace_a_field_with_its_list_and_separator_and_keep_lines():
    fields = field_text()
    spans = [fields.span(field("layer", "relu_param", "engine")), fields.span(field("name"))]
    assert [TEXT[begin:end] for begin, end in spans] == ["engine: [CAFFE, CUDNN];", 'name: "n"']
    blanked = fields.blanked(spans)
    assert len(blanked) == len(TEXT) and blanked.count("\n") == 2 and blanked.split() == [
        "layer", "{", "name:", '"a"', "relu_param", "{", "strange:", "3", "}", "}"
    ]  # fmt: skip
