"""Names of other commands on the command line."""

import pytest

from layermem.cli.other_names import CAFFE_OPTIONS, refuse_other_names
from layermem.errors import InputError


@pytest.mark.parametrize("flag", CAFFE_OPTIONS)
def test_every_flag_of_caffe_is_answered_with_the_option_here(flag):
    with pytest.raises(InputError, match=f"is written {CAFFE_OPTIONS[flag]} here"):
        refuse_other_names(["train", f"-{flag}=x"])


def test_current_names_and_values_that_look_like_options_pass():
    refuse_other_names([])
    refuse_other_names(["caffe", "train", "-solver", "s", "-weights", "w"])
    refuse_other_names(["train", "--solver", "s", "--weights", "w", "--stage", "a", "--level", "1"])
    refuse_other_names(["compare", "--run", "-1"])
    refuse_other_names(["plan-graph", "g.txt", "--model", "paper"])
