"""Prototxt files as text: what can be read, and errors for what cannot."""

import subprocess
import sys

import pytest

from layermem.errors import InputError
from layermem.proto import read_net, read_solver
from layermem.proto.read import read_net_text
from layermem.proto.text import decode
from layermem.utils.input_files import TEXT_LIMIT_BYTES, read_bytes

NET = """name: "tiny"
layer {
  name: "data"  type: "Input"  top: "data"
  input_param { shape { dim: 2 dim: 3 } }
}

# a comment with layer { in it
layer {
  name: "ip"
  type: "InnerProduct"
  bottom: "data" top: "ip"
  inner_product_param { num_output: 4 }
}
"""


def refusal(read, *arguments):
    """The InputError that reading raises; its sentence is one line and ends in no stop."""
    with pytest.raises(InputError) as caught:
        read(*arguments)
    sentence = str(caught.value)
    assert "\n" not in sentence and not sentence.endswith(".")
    return caught.value


def test_a_missing_file_a_folder_and_an_unreadable_name_are_told_apart(tmp_path):
    assert str(refusal(read_net, tmp_path / "no.prototxt")) == (
        f"{tmp_path / 'no.prototxt'}: no such file; give an existing prototxt net"
    )
    assert str(refusal(read_solver, tmp_path)) == f"{tmp_path}: is a folder; give the prototxt solver inside it"
    assert "cannot be read as a prototxt net" in str(refusal(read_net, "a\0b"))
    assert "cannot be read as a prototxt net" in str(refusal(read_net, "x" * 5000))


JUNK = {
    "empty": (b"", "is empty; a prototxt net is a text file"),
    "blank": (b" \n\t\n", "is empty; a prototxt net is a text file"),
    "binary": (
        b"\x0a\x05hello\0\x12",
        "is binary; a prototxt net is a text file (give weights, .caffemodel, to --weights)",
    ),
    "UTF-16": ("layer {}".encode("utf-16"), "is UTF-16 text; save it as UTF-8"),
    "Latin-1": (
        b'layer {\n  name: "caf\xe9" }',
        "has bytes that are not UTF-8 (column 9); save the prototxt net as UTF-8",
    ),
}


@pytest.mark.parametrize("case", JUNK)
def test_junk_is_called_what_it_is(case, tmp_path):
    raw, sentence = JUNK[case]
    path = tmp_path / "junk.prototxt"
    path.write_bytes(raw)
    error = refusal(read_net, path)
    assert error.what == sentence and error.path == str(path)


def test_comments_may_be_in_any_encoding(tmp_path):
    path = tmp_path / "gbk.prototxt"
    path.write_bytes(NET.encode() + '# \u7f51\u7edc "{'.encode("gbk") + b"\n# caf\xe9\n")
    assert read_net(path).lines == (2, 8)


def test_a_byte_order_mark_is_no_part_of_the_net():
    assert decode(b"\xef\xbb\xbf" + NET.encode(), "n", what="net") == NET


def test_a_device_is_not_read():
    error = refusal(lambda: read_bytes("/dev/zero", what="prototxt net", limit=2**20))
    assert str(error) == "/dev/zero: is a device; save the prototxt net in a regular file"
    assert TEXT_LIMIT_BYTES == 64 * 2**20


# -- texts that are made to be expensive -----------------------------------------------------------------------

EXPENSIVE = {
    "open blocks": ("layer { " * 40_000, "opens more than 64 blocks inside each other; check its brackets"),
    "a long string": ('name: "' + "a" * 30_000_000 + '"', "has a string of more than 1,048,576 letters"),
    "a string without an end": ("name: '" + "\\'" * 10_000_000, "has a string of more than 1,048,576 letters"),
    "backslashes": ('name: "' + "\\" * 100_000 + '"', "has too many backslashes in its strings (column 7)"),
    "backslashes in many strings": ('name: "' + "\\" * 1000 + '"\n', "has too many backslashes"),
    "lines": ("\n" * 5_000_000, "has more than 4,000,000 lines"),
    "marks": ("[" * 5_000_000, "has more than 3,500,000 words and marks"),
    "a long word": ("x" * 30_000_000, "'xxxxxxxxx"),
}
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from layermem.errors import InputError
from layermem.proto.read import read_net
try:
    read_net(sys.argv[1])
except InputError as error:
    assert len(str(error)) < 1000
    sys.exit(str(error))
"""


@pytest.mark.samples(4)
@pytest.mark.parametrize("case", EXPENSIVE)
def test_an_expensive_text_is_refused_within_a_gibibyte(case, tmp_path):
    text, says = EXPENSIVE[case]
    path = tmp_path / "net.prototxt"
    path.write_text(text * 200 if case.endswith("many strings") else text + "\nlayer {}")
    words = [sys.executable, "-c", LIMITED, str(path)]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 1 and says in ended.stderr and str(path) in ended.stderr, ended.stderr[-300:]


def test_a_string_with_escapes_that_a_net_may_have_is_read():
    net = read_net_text('name: "' + "\\\\" * 1000 + "x" * 100_000 + "\" layer { name: 'a\\'b' type: \"ReLU\" }")
    assert net.message.name == "\\" * 1000 + "x" * 100_000 and net.message.layer[0].name == "a'b"


def test_a_file_whose_lines_end_in_carriage_returns_alone_has_lines():
    text = decode(NET.replace("\n", "\r").encode(), "n", what="prototxt net")
    assert [layer.name for layer in read_net_text(text).message.layer] == ["data", "ip"]
    assert decode(b"a\r\nb\rc", "n", what="net") == "a\r\nb\rc"
