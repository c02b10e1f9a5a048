// The schedule of a search's checks for pending Python signals: the clock determines it, but no result depends on it.
#include <chrono>

#include "planning/bindings/bindings.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPollInterval = std::chrono::milliseconds(20);
unsigned long main_thread = 0;

}  // namespace

void find_main_thread() {
    main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
}

void raise_pending_signals() {
    if (PyThread_get_thread_ident() != main_thread) return;
    static Clock::time_point next_poll;  // of the main thread
    const auto now = Clock::now();
    if (now < next_poll) return;
    next_poll = now + kPollInterval;
    const py::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace layermem::planning
