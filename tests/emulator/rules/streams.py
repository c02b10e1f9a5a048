"""Rules of streams and events."""

from __future__ import annotations

from ctypes import byref, c_float, c_void_p

from tests.emulator.rules.calls import UNTIMED, call, event, rule, stream


@rule
def a_stream_that_is_none() -> None:
    call("cuStreamSynchronize", c_void_p(12345))


@rule
def a_stream_is_used_after_it_was_destroyed() -> None:
    queue = stream()
    call("cuStreamDestroy_v2", queue)
    call("cuEventRecord", event(), queue)


@rule
def a_stream_is_destroyed_twice() -> None:
    queue = stream()
    call("cuStreamDestroy_v2", queue)
    call("cuStreamDestroy_v2", queue)


@rule
def the_default_stream_is_destroyed() -> None:
    call("cuStreamDestroy_v2", None)


@rule
def a_stream_has_an_unknown_flag() -> None:
    stream(4)


@rule
def an_event_has_an_unknown_flag() -> None:
    event(8)


@rule
def an_event_that_is_none() -> None:
    call("cuEventRecord", None, stream())


@rule
def an_event_is_recorded_after_it_was_destroyed() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuEventRecord", mark, stream())


@rule
def an_event_is_awaited_after_it_was_destroyed() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuStreamWaitEvent", stream(), mark, 0)


@rule
def an_event_is_queried_after_it_was_destroyed() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuEventQuery", mark)


@rule
def an_event_is_destroyed_twice() -> None:
    mark = event()
    call("cuEventDestroy_v2", mark)
    call("cuEventDestroy_v2", mark)


@rule
def an_event_may_be_destroyed_before_it_is_reached() -> None:
    mark, queue, other = event(), stream(), stream()
    call("cuEventRecord", mark, queue)
    call("cuStreamWaitEvent", other, mark, 0)
    call("cuEventDestroy_v2", mark)
    call("cuStreamSynchronize", other)


def elapsed(begin: c_void_p, end: c_void_p) -> None:
    call("cuEventElapsedTime", byref(c_float()), begin, end)


@rule
def time_between_events_of_which_one_was_not_recorded() -> None:
    begin, queue = event(0), stream()
    call("cuEventRecord", begin, queue)
    call("cuStreamSynchronize", queue)
    elapsed(begin, event(0))


@rule
def time_between_events_that_have_none() -> None:
    begin, queue = event(UNTIMED), stream()
    call("cuEventRecord", begin, queue)
    call("cuStreamSynchronize", queue)
    elapsed(begin, begin)


@rule
def time_between_events_that_are_not_reached() -> None:
    begin, queue = event(0), stream()
    call("cuEventRecord", begin, queue)
    elapsed(begin, begin)
