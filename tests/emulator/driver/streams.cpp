// Streams and events: what runs when.
#include "fake_driver.hpp"

namespace fake_driver {

// ---- queues -------------------------------------------------------------------------------------------------------

Stream* Streams::create(bool blocking) {
    streams_.push_back(std::make_unique<Stream>(Stream{current_context(), blocking, false, {}, nullptr, {}}));
    return streams_.back().get();
}

bool Streams::known(const Stream* stream) const {
    if (stream == nullptr || stream == &default_) return true;
    for (const auto& s : streams_)
        if (s.get() == stream) return !s->destroyed;
    return false;
}

bool Streams::usable(const Stream* stream) const {
    return known(stream) && (stream == nullptr || stream == &default_ || stream->context == current_context());
}

Event* Streams::create_event(bool timed) {
    auto* event = new Event{current_context(), timed, nullptr};
    events_.insert(event);
    return event;
}

void Streams::destroy(Event* event) {
    events_.erase(event);
    delete event;  // those who wait hold its mark
}

// Work left on a destroyed stream still runs; the stream goes when it is done.
void Streams::destroy(Stream* stream) {
    stream->destroyed = true;
    streams_.remove_if([](const auto& s) { return s->destroyed && s->queue.empty(); });
}

CUresult Streams::put(Stream* given, Operation operation) {
    Stream& stream = *or_default(given);
    if (!usable(&stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (operation.waits_for != nullptr && !join_capture(stream, *operation.waits_for)) return CUDA_ERROR_CAPTURED_EVENT;
    if (stream.capture != nullptr) return capture_operation(stream, std::move(operation));
    if (&stream == &default_) {  // the default stream follows all blocking streams, and they follow it; no other does
        if (breaks_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        for (const auto& s : streams_)
            if (s->blocking)
                if (const CUresult result = finish(s.get())) return result;
        stream.queue.push_back(std::move(operation));
        return CUDA_SUCCESS;
    }
    if (stream.blocking)
        if (const CUresult result = finish(&default_)) return result;
    stream.queue.push_back(std::move(operation));
    return driver().settings.order == Order::EAGER ? finish(&stream) : CUDA_SUCCESS;
}

// ---- order --------------------------------------------------------------------------------------------------------

bool Streams::can_go_on(const Stream& stream) const {
    if (stream.queue.empty()) return false;
    const auto& mark = stream.queue.front().waits_for;
    return mark == nullptr || mark->reached;
}

void Streams::run_next(Stream& stream) {
    const Operation next = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (next.work) {
        if (const CUresult result = next.work()) driver().failure = result;
    } else if (next.reaches != nullptr) {
        next.reaches->reached = true;
        next.reaches->when = std::chrono::steady_clock::now();
    }
}

// One of the streams that can go on, or null.
Stream* Streams::random_stream(const Stream* but) {
    std::vector<Stream*> able;
    if (can_go_on(default_) && &default_ != but) able.push_back(&default_);
    for (const auto& s : streams_)
        if (can_go_on(*s) && s.get() != but) able.push_back(s.get());
    return able.empty() ? nullptr : able[driver().random() % able.size()];
}

template <class Done>
void Streams::run_until(Done done, Stream* awaited) {
    const Order order = driver().settings.order;
    while (!done() && driver().failure == CUDA_SUCCESS) {
        Stream* next = nullptr;
        if (awaited != nullptr && order == Order::AWAITED_LAST) next = random_stream(awaited);
        if (awaited == nullptr || order == Order::RANDOM) next = random_stream();
        if (next == nullptr && awaited != nullptr) {  // the awaited stream, or that on which it depends in the end
            next = awaited;
            while (!next->queue.empty() && !can_go_on(*next)) next = next->queue.front().waits_for->stream;
        }
        if (next == nullptr || next->queue.empty()) return;  // all is done
        run_next(*next);
    }
}

CUresult Streams::finish(Stream* stream) {
    run_until([&] { return stream->queue.empty(); }, stream);
    return driver().failure;
}

CUresult Streams::finish(const std::shared_ptr<Mark>& mark) {
    run_until([&] { return mark->reached; }, mark->stream);
    return driver().failure;
}

CUresult Streams::finish_all() {
    run_until([] { return false; }, nullptr);
    return driver().failure;
}

void Streams::nudge() {
    if (driver().random() % 2 == 0) return;
    if (Stream* next = random_stream()) run_next(*next);
}

}  // namespace fake_driver

using namespace fake_driver;

// ---- streams ------------------------------------------------------------------------------------------------------

constexpr unsigned NON_BLOCKING = 1;

FAKE_DRIVER_API cuStreamCreate(CUstream* out, unsigned flags) {
    return guarded([&](Driver& d) {
        if ((flags & ~NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
        *out = d.streams.create((flags & NON_BLOCKING) == 0);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int) { return cuStreamCreate(out, flags); }

FAKE_DRIVER_API cuStreamDestroy_v2(CUstream stream) {
    return guarded([&](Driver& d) {
        if (stream == nullptr || !d.streams.known(stream)) return CUDA_ERROR_INVALID_HANDLE;
        if (stream->capture != nullptr) return break_capture(*stream);
        d.streams.destroy(stream);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuStreamSynchronize(CUstream stream) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(stream)) return CUDA_ERROR_INVALID_HANDLE;
        Stream* s = d.streams.or_default(stream);
        return s->capture != nullptr ? break_capture(*s) : d.streams.finish(s);
    });
}

FAKE_DRIVER_API cuStreamQuery(CUstream stream) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(stream)) return CUDA_ERROR_INVALID_HANDLE;
        if (d.streams.or_default(stream)->capture != nullptr) return break_capture(*stream);
        d.streams.nudge();
        if (d.failure != CUDA_SUCCESS) return d.failure;
        return d.streams.or_default(stream)->queue.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

FAKE_DRIVER_API cuCtxSynchronize(void) {
    return guarded([](Driver& d) {
        return d.streams.breaks_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : d.streams.finish_all();
    });
}

// ---- events -------------------------------------------------------------------------------------------------------

constexpr unsigned BLOCKING_SYNC = 1, DISABLE_TIMING = 2;

FAKE_DRIVER_API cuEventCreate(CUevent* out, unsigned flags) {
    return guarded([&](Driver& d) {
        if ((flags & ~(BLOCKING_SYNC | DISABLE_TIMING)) != 0) return CUDA_ERROR_INVALID_VALUE;
        *out = d.streams.create_event((flags & DISABLE_TIMING) == 0);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuEventDestroy_v2(CUevent event) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(event)) return CUDA_ERROR_INVALID_HANDLE;
        const std::shared_ptr<Mark> mark = event->mark;
        d.streams.destroy(event);
        if (mark == nullptr || !is_open(mark->capture)) return CUDA_SUCCESS;
        complain("an event is destroyed before the capture that recorded it has ended");
        return break_capture(*mark);
    });
}

FAKE_DRIVER_API cuEventRecord(CUevent event, CUstream stream) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(event) || !d.streams.usable(stream)) return CUDA_ERROR_INVALID_HANDLE;
        if (event->context != current_context()) return CUDA_ERROR_INVALID_HANDLE;
        auto mark = std::make_shared<Mark>();
        mark->stream = d.streams.or_default(stream);
        event->mark = mark;
        return d.streams.put(stream, {nullptr, mark, nullptr});
    });
}

FAKE_DRIVER_API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(event) || !d.streams.usable(stream)) return CUDA_ERROR_INVALID_HANDLE;
        if (event->mark == nullptr) return CUDA_SUCCESS;  // never recorded: nothing to wait for
        return d.streams.put(stream, {nullptr, nullptr, event->mark});
    });
}

FAKE_DRIVER_API cuEventSynchronize(CUevent event) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(event)) return CUDA_ERROR_INVALID_HANDLE;
        if (event->mark == nullptr) return CUDA_SUCCESS;
        return event->mark->capture != nullptr ? break_capture(*event->mark) : d.streams.finish(event->mark);
    });
}

FAKE_DRIVER_API cuEventQuery(CUevent event) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(event)) return CUDA_ERROR_INVALID_HANDLE;
        if (event->mark == nullptr) return CUDA_SUCCESS;
        if (event->mark->capture != nullptr) return break_capture(*event->mark);
        d.streams.nudge();
        if (d.failure != CUDA_SUCCESS) return d.failure;
        return event->mark->reached ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}

FAKE_DRIVER_API cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(from) || !d.streams.known(to)) return CUDA_ERROR_INVALID_HANDLE;
        if (from->mark == nullptr || to->mark == nullptr || !from->timed || !to->timed)
            return CUDA_ERROR_INVALID_HANDLE;
        if (from->mark->capture != nullptr || to->mark->capture != nullptr) return CUDA_ERROR_INVALID_HANDLE;
        if (!from->mark->reached || !to->mark->reached) return CUDA_ERROR_NOT_READY;
        *milliseconds = std::chrono::duration<float, std::milli>(to->mark->when - from->mark->when).count();
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
    return cuEventElapsedTime_v2(milliseconds, from, to);
}
