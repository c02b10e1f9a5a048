"""The examples in the help of every verb, run as they stand, in the order of the verbs."""

import os
import re
import shlex
from pathlib import Path

import pytest

from layermem.cli import (
    compare,
    convert,
    curves,
    draw,
    fit,
    plan,
    plan_graph,
    show,
    time,
    train,
)

EXAMPLES = {
    "train": train.TRAIN_EXAMPLE,
    "test": train.TEST_EXAMPLE,
    "curves": curves.EXAMPLE,
    "plan": plan.EXAMPLE,
    "plan-graph": plan_graph.EXAMPLE,
    "compare": compare.COMPARE_EXAMPLE,
    "fit": fit.EXAMPLE,
    "show": show.EXAMPLE,
    "draw": draw.EXAMPLE,
    "time": time.TIME_EXAMPLE,
    "devices": time.DEVICES_EXAMPLE,
    "convert": convert.EXAMPLE,
}


def commands(text: str) -> list[list[str]]:
    return [words for line in text.replace("\\\n", " ").splitlines() if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_help_of_every_verb_shows_its_example(layermem, verb):
    ended = layermem(verb, "--help")
    assert ended.code == 0 and ended.out.split("example:\n")[1].startswith(EXAMPLES[verb])
    assert all(len(line) <= 100 for line in ended.out.splitlines())
    assert any(command[:2] == ["layermem", verb] for command in commands(EXAMPLES[verb]))


def test_every_example_works(layermem, tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    pytest.importorskip("igraph")
    for folder in ("prototxt", "docs"):
        (tmp_path / folder).symlink_to(Path(folder).resolve())
    monkeypatch.chdir(tmp_path)
    for text in EXAMPLES.values():
        for name, *words in commands(text):
            assert name == "layermem"
            ended = layermem(*words)
            assert ended.code == 0, (words, ended.err)
    assert {
        "arena.html",
        "step.json",
        "unet.txt",
        "memory.html",
        "costs.csv",
        "caffenet.prototxt",
        "digits.svg",
    } <= set(os.listdir())


@pytest.mark.parametrize("page", ["prototxt/README.md"])
def test_every_command_of_a_page_works_without_a_data_set(layermem, tmp_path, monkeypatch, page):
    blocks = re.findall(r"```\n(layermem .*?)```", Path(page).read_text(), re.DOTALL)
    (tmp_path / "prototxt").symlink_to(Path("prototxt").resolve())
    monkeypatch.chdir(tmp_path)
    lines = [words for block in blocks for words in commands(block)]
    assert lines
    for _, *words in lines:
        ended = layermem(*words)
        assert ended.code == 0, (words, ended.err)


def test_the_readme_says_where_the_command_is_after_make():
    start = Path("README.md").read_text().split("## Start")[1].split("The commands:")[0]
    assert "`.venv/bin/layermem`" in start and "`source .venv/bin/activate`" in start
