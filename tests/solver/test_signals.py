"""Effects of SIGINT, SIGHUP and SIGTERM."""

import os
import signal
import threading

import pytest

from layermem.errors import InputError
from layermem.solver import signals
from layermem.solver.signals import EFFECTS, Signals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


class Requests(list):
    """The effects requested so far; a stop is pending once it was requested."""

    def pending(self) -> bool:
        return "stop" in self


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("effect", EFFECTS)
def test_a_signal_requests_its_effect(number, effect):
    requests = Requests()
    with Signals(requests.append, requests.pending, sigint=effect, sighup=effect, sigterm=effect) as handled:
        os.kill(os.getpid(), number)
    assert requests == ([] if effect == "none" else [effect])
    assert handled.received == (number if effect == "stop" else None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_to_stop_interrupts_a_stop_that_is_pending(number):
    requests = Requests()
    effects = {"sigint": "stop", "sighup": "none", "sigterm": "stop"}
    with pytest.raises(KeyboardInterrupt), Signals(requests.append, requests.pending, **effects):
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert requests == ["stop"]


def test_sigterm_is_left_alone_unless_it_has_an_effect():
    before = signal.getsignal(signal.SIGTERM)
    with Signals(lambda effect: None, lambda: False, sigint="stop", sighup="stop"):
        assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("of_ranks", [False, True])
@pytest.mark.parametrize("sigusr1", [None, "budget"])
def test_sigusr1_has_its_effect_and_of_ranks_that_of_sighup_too(sigusr1, of_ranks):
    requests, before = Requests(), signal.getsignal(signal.SIGUSR1)
    with Signals(requests.append, requests.pending, "stop", "snapshot", sigusr1=sigusr1, of_ranks=of_ranks):
        if sigusr1 is None and not of_ranks:
            assert signal.getsignal(signal.SIGUSR1) == before
            return
        os.kill(os.getpid(), signal.SIGUSR1)
    assert requests == ["budget"] * (sigusr1 is not None) + ["snapshot"] * of_ranks
    assert signal.getsignal(signal.SIGUSR1) == before


def test_the_handlers_from_before_are_restored():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)]
    with Signals(lambda effect: None, lambda: False, sigint="stop", sighup="snapshot"):
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)] == before


def test_in_another_thread_no_handler_is_set():
    before, inside = signal.getsignal(signal.SIGINT), []

    def run():
        with Signals(lambda effect: None, lambda: False, sigint="stop", sighup="stop"):
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert inside == [before]


def test_an_unknown_effect_is_refused():
    with pytest.raises(InputError, match=r"unknown signal effect 'explode' .choose from stop, snapshot, none"):
        Signals(lambda effect: None, lambda: False, sigint="explode", sighup="none")


def test_one_rank_obeys_a_request_at_once():
    requests = signals.Requests()
    requests.add("stop")
    assert "stop" in requests and requests.is_pending("stop")
    requests.discard("stop")
    assert "stop" not in requests and not requests.pending


def test_several_ranks_obey_what_one_of_them_has_sent_to_all():
    first, second = signals.Requests(2), signals.Requests(2)
    second.add("snapshot")
    assert "snapshot" not in second and second.is_pending("snapshot")
    sent = [first.pending, second.pending]
    for requests in (first, second):
        requests.agree(sent)
        assert "snapshot" in requests
        requests.discard("snapshot")
        assert "snapshot" not in requests and not requests.pending


def test_a_request_that_does_not_exist_is_refused():
    for what in ("none", "explode"):
        with pytest.raises(InputError, match=rf"no request '{what}' \(choose from stop, snapshot, budget\)"):
            signals.Requests().add(what)
