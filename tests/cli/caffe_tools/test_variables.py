"""Variables of the environment, in command lines and in texts."""

import pytest

from layermem.cli.caffe_tools.variables import environment_words, in_words_of_caffe


def test_variables_are_options_of_the_verbs_that_have_them(monkeypatch):
    for name, value in (("BUDGET", "1GiB"), ("SLICES", "auto"), ("ALLOW_PYTHON", "1"), ("PRECISION", "bf16")):
        monkeypatch.setenv(f"LAYERMEM_{name}", value)
    assert environment_words("train", "cpu") == ["--budget", "1GiB", "--allow-python", "--slices", "auto"]
    assert environment_words("test", "cuda") == ["--budget", "1GiB", "--precision", "bf16", "--allow-python"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("(--host-budget B: to memory; --spill DIR)", "(LAYERMEM_HOST_BUDGET=B: to memory; LAYERMEM_SPILL=DIR)"),
        ("raise --host-budget or choose", "raise LAYERMEM_HOST_BUDGET or choose"),
        ("no plan fits with --slices auto either", "no plan fits with LAYERMEM_SLICES=auto either"),
        ("add --slices whole/4, or --storage bf16", "add LAYERMEM_SLICES=whole/4, or LAYERMEM_STORAGE=bf16"),
        ("run them with --allow-python", "run them with LAYERMEM_ALLOW_PYTHON=1"),
        ("without a GPU use --device cpu", "without a GPU leave -gpu out"),
        ("give it to --net F", "give it to -model F"),
        ("a--budget --budgets runs/--budget", "a--budget --budgets runs/--budget"),
    ],
)
def test_texts_name_variables_and_flags_instead_of_options(ours, theirs):
    assert in_words_of_caffe(ours) == theirs
