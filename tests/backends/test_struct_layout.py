"""Declarations of kernel arguments, as C++ lays them out."""

import struct

import pytest

from layermem.backends.struct_layout import Declarations, Later

SOURCE = """
constexpr int MOST = 3;

enum class Kind { first, second };
enum class Code : int64_t { kOne = 1, kNine = 9, kTen };

struct Pair {  // two sizes
    int64_t h, w = 0;

    int64_t area() const { return h * w; }
};

struct Args {
    bool flag;
    Code code;
    float *y, scale;
    OrNull<const float> x;
    Pair pads[MOST];
};

struct Unpacked {
    std::map<int, int> table;
};

// a * b (c);  is no declaration
Launch run(const Args& args, Pair size, Kind kind, const std::vector<const float*>& xs,
           const std::optional<int64_t>& label, const std::string& name, double last = 0);
int64_t run_bytes(Pair size, Kind kind = Kind::second);
"""


@pytest.fixture
def declared():
    return Declarations([SOURCE])


ARGS = {"code": "kTen", "y": 16, "scale": 0.5, "pads": [(1, 2), (3,), {"w": 6, "h": 5}]}


def test_a_struct_has_the_offsets_of_c(declared):
    layout = declared.struct("Args")
    assert [(member.name, member.offset) for member in layout.members] == [
        ("flag", 0),
        ("code", 8),
        ("y", 16),
        ("scale", 24),
        ("x", 32),
        ("pads", 40),
    ]
    assert (layout.nbytes, layout.align) == (88, 8)
    assert layout.pack(ARGS) == (struct.pack("?7xqQf4xQ6q", False, 10, 16, 0.5, 0, 1, 2, 3, 0, 5, 6), ())


def test_structs_with_other_members_are_left_out(declared):
    assert {layout.name for layout in declared.structs()} == {"Pair", "Args"}
    with pytest.raises(KeyError):
        declared.struct("Unpacked")


def test_parameters_are_packed_as_a_struct_with_the_elements_of_vectors_behind(declared):
    given = {"args": ARGS, "size": (7, 8), "kind": "second", "xs": [32, 48], "label": 4, "name": "ab"}
    packed, _ = declared.parameters("run").pack(given)
    head = declared.struct("Args").pack(ARGS)[0] + struct.pack("2qi4x4q", 7, 8, 1, 168, 2, 1, 4)
    assert packed == head + struct.pack("2qd2q", 184, 2, 0, 32, 48) + b"ab"
    alone = {**given, **ARGS, "h": 7, "w": 8}
    del alone["args"], alone["size"]
    assert declared.parameters("run").pack(alone)[0] == packed, "members by their own names"


def test_members_that_are_left_out_are_zero(declared):
    packed, _ = declared.parameters("run").pack({"args": ARGS, "h": 7, "kind": "", "xs": (), "label": None, "name": ""})
    assert packed[88:] == struct.pack("2qi4x6qd", 7, 0, 0, 168, 0, 0, 0, 168, 0, 0)
    with pytest.raises(TypeError, match=r"run: missing \['kind', 'xs', 'name'\]"):
        declared.parameters("run").pack({"args": ARGS, "h": 7})


def test_an_initializer_that_is_not_zero_is_refused(declared):
    with pytest.raises(AssertionError, match="kind must begin as zero"):
        declared.parameters("run_bytes")


def test_errors_name_the_place(declared):
    with pytest.raises(TypeError, match=r"^Args.pads\[1\].h must be an integer, but is 'a'$"):
        declared.struct("Args").pack({**ARGS, "pads": [(1, 2), ("a", 2)]})
    with pytest.raises(ValueError, match=r"^Args.code: unknown Code 2$"):
        declared.struct("Args").pack({**ARGS, "code": 2})


def test_a_value_of_the_context_is_patched_later(declared):
    packed, (patch,) = declared.struct("Args").pack({**ARGS, "scale": Later(lambda context: context["rate"])})
    data = bytearray(packed)
    patch.write(data, {"rate": 0.5})
    assert bytes(data) == declared.struct("Args").pack(ARGS)[0]
