import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from layermem.data import prefetch
from layermem.data.feed import Feed
from layermem.data.prefetch import Prefetch
from layermem.errors import InputError

ROOT = Path(__file__).parents[2]


class Counting(Feed):
    """Yields 0, 1, 2, ...; fails at `bad`; notes how far it was read."""

    shapes = ((1,),)

    def __init__(self, bad: int | None = None):
        self.number, self.bad, self.closed = 0, bad, False

    def _next(self):
        if self.number == self.bad:
            raise InputError("is bad")
        self.number += 1
        return [np.array([self.number - 1], np.float32)]

    def state(self):
        return {"number": self.number}

    def restore(self, state):
        self.number = state["number"]

    def check(self, state):
        pass

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def _no_feeds_of_other_tests():
    """Nets that earlier tests dropped have feeds until the collector finds them."""
    gc.collect()
    for thread in ours():
        thread.join(timeout=60)


def wait_until(true) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.005)


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "layermem-prefetch"]


def test_batches_come_in_order_and_the_thread_stays_depth_ahead():
    inner = Counting()
    feed = Prefetch(inner, 3)
    assert [feed.next()[0][0] for _ in range(20)] == list(range(20))
    wait_until(lambda: inner.number == 24)  # 20 taken, 3 ready, 1 in hand
    time.sleep(0.1)
    assert inner.number == 24
    feed.close()


def test_nothing_is_read_before_the_first_batch_is_wanted():
    inner = Counting()
    feed = Prefetch(inner, 3)
    time.sleep(0.05)
    assert inner.number == 0 and not ours()
    feed.close()


def test_the_state_is_that_of_the_next_batch_not_yet_taken():
    inner = Counting()
    feed = Prefetch(inner, 4)
    assert feed.state() == {"number": 0}
    for _ in range(5):
        feed.next()
    wait_until(lambda: inner.number > 7)
    assert feed.state() == {"number": 5}
    feed.close()


def test_restoring_forgets_what_was_read_ahead():
    feed = Prefetch(Counting(), 4)
    for _ in range(5):
        feed.next()
    feed.restore({"number": 2})
    assert [feed.next()[0][0] for _ in range(3)] == [2, 3, 4]
    feed.close()


def test_an_error_is_raised_where_its_batch_would_have_come_and_ever_after():
    feed = Prefetch(Counting(bad=2), 4)
    assert [feed.next()[0][0] for _ in range(2)] == [0, 1]
    for _ in range(2):
        with pytest.raises(InputError, match="is bad"):
            feed.next()
    assert feed.state() == {"number": 2}
    feed.restore({"number": 0})
    assert feed.next()[0][0] == 0
    feed.close()


def test_closing_ends_the_thread_and_closes_the_feed():
    inner = Counting()
    feed = Prefetch(inner, 1)
    feed.next()
    assert len(ours()) == 1
    feed.close()
    assert not ours() and inner.closed


def test_a_forgotten_feed_ends_its_thread():
    feed = Prefetch(Counting(), 1)
    feed.next()
    (thread,) = ours()
    del feed
    gc.collect()
    thread.join(timeout=60)
    assert not thread.is_alive()


def test_without_a_thread_batches_are_read_when_they_are_wanted(monkeypatch):
    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    inner = Counting(bad=3)
    feed = Prefetch(inner, 4)
    assert feed.next()[0][0] == 0 and feed.state() == {"number": 1} == inner.state()
    feed.restore({"number": 2})
    assert feed.next()[0][0] == 2
    for _ in range(2):
        with pytest.raises(InputError, match="is bad"):
            feed.next()
    monkeypatch.undo()
    inner.bad = None
    feed.restore({"number": 1})
    assert feed.next()[0][0] == 1 and len(ours()) == 1
    feed.close()
    assert inner.closed and not ours()


FORK = """
import os, signal, sys
from tests.data.test_prefetch import Counting
from layermem.data.prefetch import Prefetch

feed = Prefetch(Counting(), 3)
assert [feed.next()[0][0] for _ in range(5)] == [0, 1, 2, 3, 4]
child = os.fork()
if child == 0:
    signal.alarm(20)  # ends a child that waits for ever
    assert [feed.next()[0][0] for _ in range(9)] == list(range(5, 14))
    feed.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert feed.next()[0][0] == 5
feed.close()
"""


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_reads_on_with_a_thread_of_its_own():
    # In a separate process: a child that waits for a thread of its parent would stop this one as well.
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=30, cwd=ROOT)


def test_a_thread_that_waits_with_a_full_queue_ends_at_once(monkeypatch):
    monkeypatch.setattr(prefetch, "POLL_SECONDS", 60.0)
    inner = Counting()
    feed = Prefetch(inner, 2)
    feed.next()
    wait_until(lambda: inner.number == 4)
    began = time.monotonic()
    feed.close()
    assert time.monotonic() - began < 30 and not ours()


def test_a_feed_that_fills_reads_all_that_it_may_hold_before_the_first_batch():
    inner = Counting()
    feed = Prefetch(inner, 3, fills=True)
    assert feed.next()[0][0] == 0 and inner.number == 5  # one in use, 3 that wait, and the one that would be in hand
    time.sleep(0.1)
    assert inner.number == 5
    assert feed.next()[0][0] == 1
    wait_until(lambda: inner.number == 6)
    feed.close()


def test_a_feed_that_fills_gives_the_batches_before_an_error():
    feed = Prefetch(Counting(bad=2), 4, fills=True)
    assert [feed.next()[0][0] for _ in range(2)] == [0, 1]
    with pytest.raises(InputError, match="is bad"):
        feed.next()
    feed.close()
