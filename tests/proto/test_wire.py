"""The wire format against protobuf's own writer."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layermem.proto.schema import BlobProto, Datum
from layermem.proto.wire import FIXED32, LENGTH, VARINT, WireError, fields, length_head, read_span, varint


@given(st.integers(0, 2**31 - 1))
def test_numbers_are_written_as_protobuf_writes_them(number):
    assert BlobProto(num=number).SerializeToString() == b"\x08" + varint(number)


@given(st.binary(max_size=300))
def test_bytes_are_written_as_protobuf_writes_them(raw):
    assert Datum(data=raw).SerializeToString() == length_head(4, len(raw)) + raw


def walk(raw: bytes):
    return [(field.number, field.kind, raw[field.start : field.stop]) for field in fields(io.BytesIO(raw), 0, len(raw))]


def test_the_fields_of_a_message_are_found_in_order():
    raw = Datum(channels=300, data=b"abc", label=-1).SerializeToString() + b"\x45\x00\x00\x80\x3f"
    assert walk(raw) == [
        (1, VARINT, b"\xac\x02"),
        (4, LENGTH, b"abc"),
        (5, VARINT, b"\xff" * 9 + b"\x01"),
        (8, FIXED32, b"\x00\x00\x80\x3f"),
    ]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\x22\x05abc", "ends after its message"),
        (b"\x22", "does not end"),
        (b"\x08\x80", "does not end"),
        (b"\x80" * 12, "does not end"),
        (b"\x0b", "has kind 3"),
        (b"\x02\x00", "ends after its message"),
    ],
)
def test_bytes_that_are_no_message_are_an_error(raw, words):
    with pytest.raises(WireError, match=words):
        walk(raw)


def test_a_span_beyond_the_file_is_an_error():
    assert read_span(io.BytesIO(b"abcd"), 1, 3) == b"bc"
    with pytest.raises(WireError, match="ends early"):
        read_span(io.BytesIO(b"abcd"), 1, 9)
