// Python's view of what ranks compute together: addresses in.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <vector>

#include "distributed/ordered_sum.h"
#include "release_gil.h"

namespace py = pybind11;

namespace layermem::distributed {
namespace {

template <class Element>
std::vector<Element*> pointers(const std::vector<uintptr_t>& addresses) {
    std::vector<Element*> result;
    for (const uintptr_t address : addresses) result.push_back(reinterpret_cast<Element*>(address));
    return result;
}

void add_parts_at(const std::vector<uintptr_t>& sums, const std::vector<uintptr_t>& own,
                  const std::vector<int64_t>& counts, const std::vector<uintptr_t>& received, int64_t rank,
                  bool continues) {
    if (sums.size() != counts.size() || own.size() != counts.size())
        throw std::invalid_argument("as many sums and own parts as counts");
    if (rank < 0 || rank > static_cast<int64_t>(received.size())) throw std::invalid_argument("no such rank");
    const auto sum_pointers = pointers<float>(sums);
    const auto own_pointers = pointers<const float>(own), received_pointers = pointers<const float>(received);
    const ReleaseGil unlocked;
    add_parts(sum_pointers, own_pointers, counts, received_pointers, rank, continues);
}

}  // namespace

void bind_distributed(py::module_& m) {
    using namespace py::literals;
    m.def(
        "add_parts", &add_parts_at, "sums"_a, "own"_a, "counts"_a, "received"_a, "rank"_a, "continues"_a,
        "Add float32 parts in the order of ranks: addresses of the chunks of the sum and of this rank's own part, and "
        "of the received parts of the other ranks.");
}

}  // namespace layermem::distributed
