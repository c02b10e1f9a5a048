"""`liveness`: bytes from the first write to the last read, and nothing moved or recomputed."""

from tests.planning.chains import Planned, chain


def test_a_chain_of_n_takes_its_activations_and_two_gradients():
    """At the seed x0 ... xn and dn are live, as in chains.py; `caffe` takes 2 n + 2."""
    assert [Planned("liveness", chain(n)).units for n in (1, 4, 20)] == [3, 6, 22]


def test_it_neither_recomputes_nor_offloads_nor_lays_gradients_over_activations():
    planned = Planned("liveness", chain(4, overlays=True), 1)
    assert planned.repeated == [] and not planned.plan.decisions and planned.units == 6
