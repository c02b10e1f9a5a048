#include "distributed/ordered_sum.h"

#include <algorithm>
#include <cstring>

namespace layermem::distributed {
namespace {

constexpr int64_t kBlock = 1024;  // elements of a sum in the first-level cache, while all parts are added

void add(float* __restrict block, const float* part, int64_t count) {
    for (int64_t i = 0; i < count; ++i) block[i] += part[i];
}

}  // namespace

void add_parts(const std::vector<float*>& sums, const std::vector<const float*>& own,
               const std::vector<int64_t>& counts, const std::vector<const float*>& received, int64_t rank,
               bool continues) {
    const auto ranks = static_cast<int64_t>(received.size()) + 1;
    float block[kBlock];
    int64_t done = 0;  // elements of the chunks before
    for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
        for (int64_t begin = 0; begin < counts[chunk]; begin += kBlock) {
            const int64_t count = std::min(kBlock, counts[chunk] - begin);
            const size_t nbytes = static_cast<size_t>(count) * sizeof(float);
            if (continues)
                std::memcpy(block, sums[chunk] + begin, nbytes);
            else
                std::memset(block, 0, nbytes);
            for (int64_t each = 0; each < ranks; ++each) {
                if (each == rank)
                    add(block, own[chunk] + begin, count);
                else
                    add(block, received[static_cast<size_t>(each - (each > rank))] + done + begin, count);
            }
            std::memcpy(sums[chunk] + begin, block, nbytes);
        }
        done += counts[chunk];
    }
}

}  // namespace layermem::distributed
