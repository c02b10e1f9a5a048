import time

from layermem.utils.stopwatch import SHORTEST, seconds_since


def test_seconds_pass_even_where_the_clock_stands_still(monkeypatch):
    assert 0 < seconds_since(time.perf_counter() - 2) < 1000
    monkeypatch.setattr(time, "perf_counter", lambda: 5.0)
    assert seconds_since(5.0) == SHORTEST > 0
