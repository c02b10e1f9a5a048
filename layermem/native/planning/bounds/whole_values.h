// The least seconds at one op of a step when each value is held whole or not at all.
//
//     relaxation      73 ms       holds a share of a value                 Moment, by prices
//        conv2 again  75 ms       holds a share of another value           branches: the dearest op in doubt runs again,
//        conv2 never  76 ms       whole values: reached                    or does not
//
// Branch and bound visits the lowest relaxation first, so at any time that relaxation is a bound, and the result if the
// search ends early; its steps are counted, so the same input gives the same bound on every machine.
//
// source  Land and Doig, "An automatic method of solving discrete programming problems", Econometrica 1960
#pragma once

#include "planning/bounds/moment.h"

namespace layermem::planning::bounds {

// Returns at least Moment::least_seconds().  A result that is not above `known_seconds` may be too small.  The search
// visits at most about `steps` edges of the network.
Seconds least_seconds_of_whole_values(Moment& moment, Bytes budget_bytes, std::optional<Bytes> host_bytes,
                                      Seconds known_seconds, int64_t steps);

}  // namespace layermem::planning::bounds
