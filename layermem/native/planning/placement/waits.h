// The instructions of other streams that each instruction of a schedule waits for, once residencies have offsets.
//
//     bytes     0      256      512         segments between the edges of residencies, each with the tick of the last
//     compute   | 4    |  4     | -         access of every stream; a write orders all earlier ones before itself, so it
//     d2h       | 5    |  -     | 2         alone stands for them
//
// An instruction that writes waits for the last accesses of its bytes; one that reads waits for the instruction that
// wrote the residency.  Waits that its own stream or another wait implies are left out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::placement {

constexpr int kStreams = 4;

struct TimedAccesses {
    struct Instruction {
        int stream;                          // 0 to kStreams - 1
        Tick last;                           // last tick of its launch, whose ticks are consecutive
        std::vector<int32_t> reads, writes;  // residencies
    };
    struct Residency {
        Bytes begin, end;  // in its arena; equal where it has no bytes
        bool host;
    };
    std::vector<Instruction> instructions;
    std::vector<Residency> residencies;
};

// Returns the first tick of each launch that waits, with the ticks that it waits for, ascending.  Throws
// std::invalid_argument for unknown streams, ticks and residencies.
std::vector<std::pair<Tick, std::vector<Tick>>> find_waits(const TimedAccesses& accesses);

}  // namespace layermem::planning::placement
