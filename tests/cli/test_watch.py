"""A progress bar on a terminal, nothing elsewhere."""

import io
import sys

import pytest

from layermem.cli.watch import show_progress, track_progress


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
