// Python's view of placement: int64 arrays in, a Placement out.  The GIL is released during the search.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <optional>

#include "planning/bindings/bindings.h"
#include "planning/placement/place.h"
#include "planning/placement/waits.h"

namespace py = pybind11;

namespace layermem::planning {
namespace {

using placement::LiveProfile;
using placement::Placement;
using placement::PlacementRequest;

using Array = py::array_t<int64_t, py::array::c_style>;

// Both directions copy: the arrays of a schedule take little time compared with the search.
std::vector<int64_t> to_vector(const Array& array, const char* name) {
    if (array.ndim() != 1) throw std::invalid_argument(std::string(name) + " must have one dimension");
    return {array.data(), array.data() + array.size()};
}

py::array_t<int64_t> to_array(const std::vector<int64_t>& values) {
    return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

PlacementRequest make_request(const Array& begin, const Array& end, const Array& size, Bytes align) {
    PlacementRequest request;
    request.begin = to_vector(begin, "begin");
    request.end = to_vector(end, "end");
    request.size = to_vector(size, "size");
    request.align = align;
    return request;
}

Placement place_arrays(const Array& begin, const Array& end, const Array& size, Bytes align, Seconds step_seconds,
                       Bytes floor, const std::optional<Array>& fixed, Bytes target) {
    PlacementRequest request = make_request(begin, end, size, align);
    if (fixed) request.fixed = to_vector(*fixed, "fixed");
    request.step_seconds = step_seconds;
    request.floor = floor;
    request.target = target;
    // No Python object is touched from here on, except by raise_pending_signals, which takes the GIL itself.
    const ReleaseGil unlocked;
    return placement::place(request, raise_pending_signals);
}

Bytes max_live(const Array& begin, const Array& end, const Array& size, Bytes align) {
    return placement::max_live(make_request(begin, end, size, align));
}

py::tuple peak_profile(const Array& begin, const Array& end, const Array& size, Bytes align) {
    LiveProfile profile = placement::live_profile(make_request(begin, end, size, align));
    return py::make_tuple(to_array(profile.tick), to_array(profile.live));
}

std::string describe(const Placement& p) {
    return "<Placement of " + std::to_string(p.offset.size()) + " intervals: height " + std::to_string(p.height) +
           ", max live " + std::to_string(p.max_live) + ", " + p.method + ">";
}

using Ids = std::vector<std::vector<int32_t>>;
using Spans = std::vector<std::tuple<Bytes, Bytes, bool>>;

std::vector<std::pair<Tick, std::vector<Tick>>> find_waits(const std::vector<int>& streams,
                                                           const std::vector<Tick>& last, const Ids& reads,
                                                           const Ids& writes, const Spans& residencies) {
    if (streams.size() != last.size() || streams.size() != reads.size() || streams.size() != writes.size())
        throw std::invalid_argument("streams, last, reads and writes have one entry per instruction");
    placement::TimedAccesses accesses;
    for (size_t tick = 0; tick < streams.size(); ++tick)
        accesses.instructions.push_back({streams[tick], last[tick], reads[tick], writes[tick]});
    for (const auto& [begin, end, host] : residencies) accesses.residencies.push_back({begin, end, host});
    return placement::find_waits(accesses);
}

}  // namespace

void bind_placement(py::module_& m) {
    using namespace py::literals;
    py::class_<Placement>(m, "Placement", "Offsets of intervals, and how good they are.")
        .def_property_readonly("offsets", [](const Placement& p) { return to_array(p.offset); })
        .def_readonly("height", &Placement::height, "highest byte that any interval reaches")
        .def_readonly("max_live", &Placement::max_live, "most aligned bytes alive at one tick")
        .def_readonly("bound", &Placement::bound, "lower bound of the height: max_live, floor and fixed offsets")
        .def_readonly("method", &Placement::method, "which algorithm produced the offsets")
        .def_readonly("seconds", &Placement::seconds)
        .def("__repr__", &describe);
    m.def("place", &place_arrays, "begin"_a, "end"_a, "size"_a, "align"_a = 256, "step_seconds"_a = 1.0, "floor"_a = 0,
          "fixed"_a = py::none(), "target"_a = 0,
          R"(Offsets in one arena for half-open tick intervals [begin, end) of `size` bytes.

begin, end, size   int64 arrays of one length; size 0 and begin == end are allowed and conflict with nothing
align              offsets are multiples of it, sizes are rounded up to it
step_seconds       limit of the search when the greedy rules miss the bound; counted in steps, so that the same
                   input gives the same offsets on any machine; 0 is greedy only
floor              least offset of an interval without a fixed offset
fixed              int64 array: the offset an interval must have, or -1
target             a height at which the search stops, such as a budget; 0: the least
Raises ValueError for inconsistent arrays, KeyboardInterrupt on Ctrl-C.)");
    m.def("max_live", &max_live, "begin"_a, "end"_a, "size"_a, "align"_a = 256,
          "Most aligned bytes alive at one tick.");
    m.def("peak_profile", &peak_profile, "begin"_a, "end"_a, "size"_a, "align"_a = 256,
          "(tick, live): aligned bytes alive from tick[i] up to tick[i+1], as int64 arrays.");
    m.def("find_waits", &find_waits, "streams"_a, "last"_a, "reads"_a, "writes"_a, "residencies"_a,
          "(tick, ticks of other streams that it waits for) of each launch that waits.  Per instruction: its stream, 0 "
          "to 3, the last tick of those that are launched together with it, the residencies that it reads and writes; "
          "residencies are (begin, end, in the host arena), in bytes.");
}

}  // namespace layermem::planning
