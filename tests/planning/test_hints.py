"""Hints in a file beside the net."""

import pytest

from layermem.errors import InputError
from layermem.planning.hints import Hints, check_hints, hints_beside, merge_hints, read_hints


def test_a_glob_of_a_file_that_matches_nothing_is_named_with_its_line(tmp_path):
    path = tmp_path / "it.hints"
    path.write_text("keep conv*\n\nrecompute relu* fc*\n")
    with pytest.raises(InputError, match=r"it\.hints:3: recompute 'fc\*' matches no layer"):
        check_hints(merge_hints(Hints(keep=("conv1",)), read_hints(path)), ["conv1", "relu1"])


def test_a_line_is_a_word_and_globs(tmp_path):
    path = tmp_path / "hints"
    path.write_text("# all of them\nstage res*c  # ends\n\nkeep pool1 fc*\nrecompute *_relu\nkeep conv1\n")
    assert read_hints(path) == Hints(segment_ends=("res*c",), keep=("pool1", "fc*", "conv1"), recompute=("*_relu",))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stage res*\nforget relu1\n", ":2: 'forget' is not a hint; use one of segment-ends, keep, recompute"),
        ("keep\n", ":1: 'keep' has no layers; add globs"),
        ("", "is empty"),
    ],
)
def test_a_line_that_is_no_hint_is_refused_with_its_number(tmp_path, text, says):
    path = tmp_path / "hints"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_hints(path)
    assert says in str(error.value)


def test_the_earlier_word_for_segment_ends_is_read_too(tmp_path):
    path = tmp_path / "hints"
    path.write_text("segment-ends res*\nstage pool1\n")
    assert read_hints(path).segment_ends == ("res*", "pool1")


def test_a_net_has_the_hints_of_the_file_beside_it(tmp_path):
    net = tmp_path / "net.prototxt"
    assert hints_beside(net) == Hints()
    (tmp_path / "net.prototxt.hints").write_text("keep conv*\n")
    assert hints_beside(net) == Hints(keep=("conv*",))


def test_globs_add_up_and_the_first_host_budget_holds():
    first, second = (
        Hints(segment_ends=("a",), host_budget_bytes=5),
        Hints(segment_ends=("b",), recompute=("c",), host_budget_bytes=7),
    )
    assert merge_hints(first, second) == Hints(segment_ends=("a", "b"), recompute=("c",), host_budget_bytes=5)
    assert merge_hints(Hints(), second).host_budget_bytes == 7


def test_a_glob_that_no_layer_matches_is_refused():
    check_hints(Hints(keep=("conv*",)), ["conv1"])
    with pytest.raises(InputError, match="recompute 'relu\\*' matches no layer"):
        check_hints(Hints(recompute=("relu*",)), ["conv1"])
