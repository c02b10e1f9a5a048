"""Options that several verbs share, and their values."""

from argparse import Namespace

import pytest

from layermem.cli.options import device_of, hints_of, read_shapes, strategies_text
from layermem.errors import InputError
from layermem.planning.strategies import STRATEGIES


def test_shapes_are_read_by_name():
    assert read_shapes(["data=64,3,224,224", "label=64"]) == {"data": (64, 3, 224, 224), "label": (64,)}
    assert read_shapes(["a=b=2x3"]) == {"a=b": (2, 3)}


@pytest.mark.parametrize("texts", [["data"], ["data="], ["=1,2"], ["data=1,two"], ["data=1", "data=2"]])
def test_shapes_that_cannot_be_read_are_refused(texts):
    with pytest.raises(InputError, match="--input"):
        read_shapes(texts)


def options(**given) -> Namespace:
    return Namespace(**{"segment_ends": [], "keep": [], "recompute": [], "host_budget": None, "hints": None, **given})


def test_globs_are_separated_by_commas_or_given_again():
    hints = hints_of(options(keep=["conv*,pool1", "ip1"], segment_ends=["res*"], host_budget="2KiB"))
    assert (
        hints.keep == ("conv*", "pool1", "ip1") and hints.segment_ends == ("res*",) and hints.host_budget_bytes == 2048
    )


def test_a_hints_file_is_added_to_the_options(tmp_path):
    path = tmp_path / "hints"
    path.write_text("keep ip2\nsegment-ends pool1\n")
    hints = hints_of(options(keep=["ip1"], hints=str(path)))
    assert hints.keep == ("ip1", "ip2") and hints.segment_ends == ("pool1",)


def test_an_option_of_another_device_is_refused():
    assert device_of(Namespace(device=None)).name == "cpu"
    assert device_of(Namespace(device="reference", threads=None)).name == "reference"
    with pytest.raises(InputError, match="--cuda-graph needs --device cuda, and the device is cpu"):
        device_of(Namespace(device="cpu", cuda_graph=True))


def test_the_help_lists_every_strategy_within_the_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    lines = strategies_text().splitlines()
    assert all(len(line) <= 70 for line in lines)
    assert {line.split()[0] for line in lines[1:] if not line.startswith("   ")} == set(STRATEGIES)
