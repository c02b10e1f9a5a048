// The vocabulary of placement: each alias is one line with its unit.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "planning/types.h"

namespace layermem::planning::placement {

using Granules = int64_t;                // sizes, offsets and heights, in multiples of the alignment
using Section = int32_t;                 // index of a maximal set of residencies that are alive together (problem.h)
using ResidencyId = int32_t;             // index in Problem::residencies
using Order = std::vector<ResidencyId>;  // a permutation of the residencies
using Poll = std::function<void()>;      // called now and then during a search; throws to end it (Ctrl-C)

}  // namespace layermem::planning::placement
