"""A progress bar on a terminal, nothing elsewhere."""

import io
import sys

import pytest

from layermem.cli.watch import track_progress


@pytest.mark.parametrize("terminal", [False, True])
def test_all_items_pass_and_only_a_terminal_shows_a_bar(monkeypatch, capsys, terminal):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(track_progress(iter("abc"), "planning")) == ["a", "b", "c"]
    assert capsys.readouterr().out == "" and bool(stream.getvalue()) == terminal
