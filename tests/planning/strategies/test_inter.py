"""`inter`: every activation is on the host from its last forward use to its first backward use."""

from layermem.planning.hints import Hints
from layermem.planning.plan import Decision, Gap
from tests.planning.chains import UNIT, Planned, chain


def test_all_activations_leave_but_those_that_backward_reads_at_once():
    """x3 is read by f4 and, two ops later, by b4; x4 by the seed.  The gaps of x0, x1 and x2 are 8, 6 and 4 ops."""
    planned = Planned("inter", chain(4))
    assert dict(planned.plan.decisions) == dict.fromkeys((Gap("x0", 1), Gap("x1", 1), Gap("x2", 1)), Decision.OFFLOAD)


def test_a_deep_chain_takes_no_more_than_a_short_one():
    """Without a budget copies have no lead: an activation leaves at once, and xi, x(i-1) or three at a turn remain."""
    assert {Planned("inter", chain(n)).units for n in (4, 10, 40)} == {3}


def test_copies_lead_as_far_as_the_budget_permits():
    """A copy takes as long as an op, so a full lead holds one more activation, and then copies cost nothing.  Within
    less, half of the eighteen copies have bytes to spare beside their ops."""
    tight, loose = (Planned("inter", chain(10), units) for units in (3, 4))
    assert (tight.units, tight.plan.copy_limit_bytes) == (3, 3 * UNIT)
    assert (loose.units, loose.plan.copy_limit_bytes) == (4, None)
    assert (tight.seconds, loose.seconds) == (22 + 9, 22)


def test_the_host_budget_goes_to_the_longest_gaps():
    planned = Planned("inter", chain(4), hints=Hints(host_budget_bytes=2 * UNIT))
    assert set(planned.plan.decisions) == {Gap("x0", 1), Gap("x1", 1)}


def test_parameters_stay_on_the_device():
    net = chain(4, parameters=True)
    moved = {gap.buffer for gap in Planned("inter", net, 1).plan.decisions}
    assert moved == {"x0", "x1", "x2"}
