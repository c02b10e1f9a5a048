// Rows of a table by index: gathered forward, added to the table's gradient backward.
#pragma once
#include "cpu/kernels/launch.h"
#include "cpu/microkernels/gather.h"

namespace layermem::cpu {

// out[i] = table[index[i]] (+ bias), for i < count; std::invalid_argument for an index outside [0, rows)
Launch gather_rows(const GatherArgs& args);

// out[r] (+)= the sum of x[i] over the i with index[i] == r, in rising order of i
Launch scatter_rows(const ScatterArgs& args);

}  // namespace layermem::cpu
