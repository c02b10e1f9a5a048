"""Old names on the command line."""

import pytest

from layermem.cli.old_names import CAFFE_OPTIONS, RENAMED, objective, refuse_old_names, stages
from layermem.errors import InputError


@pytest.mark.parametrize("option", RENAMED)
def test_every_renamed_option_is_refused_with_its_new_name(option):
    for words in (["plan", option], ["fit", "--net", "n", f"{option}=1"]):
        with pytest.raises(InputError) as caught:
            refuse_old_names(words)
        assert str(caught.value) == f"option {option} was renamed; use {RENAMED[option]}"


@pytest.mark.parametrize("flag", CAFFE_OPTIONS)
def test_every_flag_of_caffe_is_answered_with_the_option_here(flag):
    with pytest.raises(InputError, match=f"is written {CAFFE_OPTIONS[flag]} here"):
        refuse_old_names(["train", f"-{flag}=x"])


def test_current_names_and_values_that_look_like_options_pass():
    refuse_old_names([])
    refuse_old_names(["caffe", "train", "-solver", "s", "-weights", "w"])
    refuse_old_names(["train", "--solver", "s", "--weights", "w", "--stage", "a", "--level", "1"])
    refuse_old_names(["compare", "--run", "-1"])
    refuse_old_names(["plan-graph", "g.txt", "--objective", "time", "--model", "paper"])


def test_objectives_and_stages_are_values_of_today():
    assert objective("time") == "time" and stages(["a,b", "c"]) == ["a", "b", "c"]
    with pytest.raises(InputError, match="use --objective memory"):
        objective("M")
    with pytest.raises(InputError, match="use --segment-ends"):
        stages(["res[1-3]"])
