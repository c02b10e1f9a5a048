"""Plans with other search settings."""

import pytest

from layermem.planning.settings import SETTINGS


def change(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """Other search settings until the end of a test."""
    for name, value in values.items():
        assert hasattr(SETTINGS, name), name
        monkeypatch.setitem(vars(SETTINGS), name, value)
