// Placement for Python: int64 arrays in, a Placement out; the GIL is free while it searches.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "planning/placement/place.h"

namespace py = pybind11;

namespace layermem {
namespace {

using Array = py::array_t<int64_t, py::array::c_style>;

std::vector<int64_t> values(const Array& array, const char* name) {
    if (array.ndim() != 1) throw std::invalid_argument(std::string(name) + " must have one dimension");
    return {array.data(), array.data() + array.size()};
}

py::array_t<int64_t> array_of(const std::vector<int64_t>& values) {
    return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

PlaceRequest request_of(const Array& begin, const Array& end, const Array& size, int64_t align) {
    PlaceRequest request;
    request.begin = values(begin, "begin");
    request.end = values(end, "end");
    request.size = values(size, "size");
    request.align = align;
    return request;
}

void raise_on_signal() {
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals()) throw py::error_already_set();
}

PlaceResult place_arrays(const Array& begin, const Array& end, const Array& size, int64_t align, double time_limit,
                         int64_t floor, const std::optional<Array>& fixed, int64_t target) {
    PlaceRequest request = request_of(begin, end, size, align);
    if (fixed) request.fixed = values(*fixed, "fixed");
    request.time_limit = time_limit;
    request.floor = floor;
    request.target = target;
    py::gil_scoped_release free;
    return place(request, raise_on_signal);
}

}  // namespace

void bind_place(py::module_& m) {
    using namespace py::literals;
    py::class_<PlaceResult>(m, "Placement", "Offsets for intervals, and how good they are.")
        .def_property_readonly("offsets", [](const PlaceResult& r) { return array_of(r.offset); })
        .def_readonly("height", &PlaceResult::height, "highest byte that any interval reaches")
        .def_readonly("max_live", &PlaceResult::max_live, "most aligned bytes alive at one tick")
        .def_readonly("bound", &PlaceResult::bound, "no height is below: max_live raised by floor and fixed offsets")
        .def_readonly("method", &PlaceResult::method, "what found this placement")
        .def_readonly("cut_short", &PlaceResult::cut_short, "ended by the clock: another run may differ")
        .def_readonly("seconds", &PlaceResult::seconds)
        .def("__repr__", [](const PlaceResult& r) {
            return "<Placement of " + std::to_string(r.offset.size()) + " intervals: height " +
                   std::to_string(r.height) + ", max live " + std::to_string(r.max_live) + ", " + r.method + ">";
        });
    m.def("place", &place_arrays, "begin"_a, "end"_a, "size"_a, "align"_a = 256, "time_limit"_a = 1.0, "floor"_a = 0,
          "fixed"_a = py::none(), "target"_a = 0,
          R"(Offsets in one arena for half-open tick intervals [begin, end) of `size` bytes.

begin, end, size   int64 arrays of one length; size 0 and begin == end are allowed and conflict with nothing
align              offsets are multiples of it, sizes are rounded up to it
time_limit         seconds to search when the greedy rules miss the bound; counted in steps, so that the same
                   input gives the same offsets on any machine; 0 is greedy only
floor              no interval without a fixed offset lies below it
fixed              int64 array: the offset an interval must have, or -1
target             a height that is good enough to stop at, such as a budget; 0 asks for the least
Raises ValueError for arrays that make no sense, KeyboardInterrupt on Ctrl-C.)");
    m.def(
        "max_live",
        [](const Array& begin, const Array& end, const Array& size, int64_t align) {
            return max_live(request_of(begin, end, size, align));
        },
        "begin"_a, "end"_a, "size"_a, "align"_a = 256, "Most aligned bytes alive at one tick.");
    m.def(
        "peak_profile",
        [](const Array& begin, const Array& end, const Array& size, int64_t align) {
            LiveProfile profile = live_profile(request_of(begin, end, size, align));
            return py::make_tuple(array_of(profile.tick), array_of(profile.live));
        },
        "begin"_a, "end"_a, "size"_a, "align"_a = 256,
        "(tick, live): aligned bytes alive from tick[i] up to tick[i+1], as int64 arrays.");
}

}  // namespace layermem
