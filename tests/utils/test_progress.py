"""A progress bar on a terminal, nothing elsewhere."""

import io
import logging
import sys

import pytest

from layermem.utils import progress
from layermem.utils.progress import announce, show_progress, track_progress
from layermem.utils.steps import LOGGER


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "DELAY_SECONDS", 0)


@pytest.mark.parametrize("terminal", [False, True])
def test_all_items_pass_and_only_a_terminal_shows_a_bar(monkeypatch, capsys, terminal):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(track_progress(iter("abc"), "planning")) == ["a", "b", "c"]
    assert capsys.readouterr().out == "" and bool(stream.getvalue()) == terminal


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_shows_what_is_done_now(monkeypatch, terminal):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress(3, "fitting") as show:
        show("auto: depth [b]8", 2)
    assert ("fitting auto: depth [b]8" in stream.getvalue()) == ("2/3" in stream.getvalue()) == terminal


def test_quick_work_shows_no_bar_and_work_without_a_count_shows_a_bar_without_one(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress(None, "planning LeNet") as show:
        show("auto", 0)
    assert "planning LeNet auto" in stream.getvalue() and "/" not in stream.getvalue()
    stream.truncate(0)
    monkeypatch.setattr(progress, "DELAY_SECONDS", 3600)
    assert list(track_progress("ab", "planning")) == ["a", "b"] and stream.getvalue() == ""


def test_a_bar_within_another_one_shares_its_display(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    with show_progress(None, "planning LeNet"), show_progress(12, "compiling kernels") as show:
        show("pooling", 3)
        stream.truncate(0)
        show("softmax", 4)
    together = stream.getvalue()
    assert "planning LeNet" in together and "4/12" in together and "compiling kernels softmax" in together


@pytest.mark.parametrize("level, lines", [(logging.ERROR, 0), (logging.WARNING, 1)])
def test_long_work_is_announced_unless_quiet(capsys, level, lines):
    before = LOGGER.level
    LOGGER.setLevel(level)
    try:
        announce("compiling 2 kernel modules")
    finally:
        LOGGER.setLevel(before)
    assert capsys.readouterr().err.splitlines() == ["compiling 2 kernel modules"] * lines
