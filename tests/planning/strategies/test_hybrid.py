"""`hybrid`: gradients over activations, activations on the host, and where that is too much, state too."""

from layermem.graph.ops import HISTORY, PARAMETER
from tests.planning.chains import Planned, chain

NET = chain(6, parameters=True, overlays=True)


def state_on_host(planned):
    """Kinds of the buffers that are on the host between two steps."""
    return {NET.buffers[gap.buffer].kind for gap in planned.plan.decisions if gap.use == -1}


def test_hybrid_needs_no_more_bytes_than_either_of_its_parts():
    net = chain(6, overlays=True)
    assert Planned("hybrid", net, 0).units <= min(Planned(name, net, 0).units for name in ("intra", "inter"))
    assert Planned("hybrid", net, 0).units < Planned("inter", net, 0).units


def test_state_leaves_only_as_far_as_the_budget_requires_optimizer_state_first():
    """w and h are 12 units, and three more are live at a time: 15.  Without h it is 9, and without both, 4."""
    kinds = {units: state_on_host(Planned("hybrid", NET, units)) for units in (16, 15, 14, 9, 8, 4)}
    assert kinds[16] == kinds[15] == set()
    assert kinds[14] == kinds[9] == {HISTORY}
    assert kinds[8] == kinds[4] == {HISTORY, PARAMETER}
    assert [Planned("hybrid", NET, units).units for units in (15, 9, 4)] == [15, 9, 4]
