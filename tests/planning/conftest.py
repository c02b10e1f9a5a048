"""Fixtures of planner tests."""

import pytest

from tests.planning.settings import change


@pytest.fixture(params=["nodes", "groups"])
def nodes_or_groups(request, monkeypatch):
    """Short nets are planned op by op, long ones in groups of ops: here as if 5 ops were long."""
    if request.param == "groups":
        change(monkeypatch, most_nodes=4, groups=3)
