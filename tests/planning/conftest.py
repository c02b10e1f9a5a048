"""Fixtures of planner tests."""

import pytest

from layermem.planning import lower_sets


@pytest.fixture(params=["nodes", "groups"])
def nodes_or_groups(request, monkeypatch):
    """Short nets are planned op by op, long ones in groups of ops: here as if 5 ops were long."""
    if request.param == "groups":
        monkeypatch.setattr(lower_sets, "MAX_NODES", 4)
        monkeypatch.setattr(lower_sets, "GROUPS", 3)
