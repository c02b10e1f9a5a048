"""Rates between ranks, in one process."""

import layermem.distributed.network_rates as network_rates
from layermem.distributed.loopback import run_ranks
from layermem.distributed.network_rates import measure_network


def test_all_ranks_find_the_rates_of_the_slowest(monkeypatch):
    monkeypatch.setattr(network_rates, "MESSAGES", 5)
    monkeypatch.setattr(network_rates, "ROUNDS", 3)
    for size in (2, 3):
        rates = run_ranks(size, measure_network)
        assert len({*rates}) == 1
        assert 0 < rates[0].latency < 10 and 0 < rates[0].net < 1e12
