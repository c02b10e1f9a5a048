// The axis that a kernel looks along: x is [outer][size][inner].
#pragma once
#include <cstdint>

namespace layermem::cpu {

struct Axis {
    int64_t outer, size, inner;
    int64_t positions() const { return outer * inner; }
    void check() const;
};

}  // namespace layermem::cpu
