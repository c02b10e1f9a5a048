// Limits and thresholds of the search for nested recomputation and offloads: every number that was chosen by trial,
// with its unit.  Work is counted in steps, never in seconds, so one input has one plan on every machine.
//
// A file that includes this one defines SETTING(type, name, default value): settings.h makes a struct of the list, and
// the binding its attributes in Python.

// ---- walks (nested/lookahead.h): one step is one value looked at
SETTING(int, walk_halvings, 8)       // budgets of walks that are bisected for each pair of exponents
SETTING(double, walk_lowest, 0.6)    // least budget of a walk, times the one asked for; most needs are met above it
SETTING(double, walk_highest, 1.25)  // most: a walk's own count of bytes may be this far above the exact one
SETTING(int64_t, walk_steps, 160'000'000)    // steps of all walks for one budget, some tenths of a second
SETTING(size_t, improved_walks, 6)           // results from which needless recomputations are removed
SETTING(int64_t, improve_steps, 80'000'000)  // steps of these removals
SETTING(size_t, bisected_exponents, 5)       // pairs for which the fewest bytes of a walk are always bisected
SETTING(double, much_less, 0.998)            // times the fewest bytes so far: other pairs have to fit these first
SETTING(int, lower_walks, 16)  // walks below the fewest bytes for each pair: one may succeed where more failed
SETTING(int64_t, lower_walk_steps, 10'000'000)  // steps of these

// ---- the dynamic program over blocks (nested/chain_program.h)
SETTING(double, blocks_from, 0.02)    // of the ops' seconds: where walks recompute less, the program has little to gain
SETTING(int32_t, least_blocks, 4)     // a shorter chain leaves nothing to choose
SETTING(int32_t, chain_units, 400)    // of bytes, in which the program counts; its time grows with their square
SETTING(double, chain_lowest, 0.9)    // least of its bytes, times the budget: its count of bytes is an estimate
SETTING(double, chain_highest, 1.12)  // most

// ---- plans with offloads (nested/local_search.h)
SETTING(std::vector<double>, levels, {1.0, 1.1, 1.2})       // live bytes of walks before offloads, times the budget
SETTING(std::vector<double>, high_levels, {1.5, 2.0, 3.0})  // the same where these lead to no plan
SETTING(size_t, mixed_exponents, 5)                         // pairs that are walked
SETTING(int, mixed_halvings, 5)                             // budgets of walks for each
SETTING(size_t, fitted_per_level, 2)                        // plans per level that offloads make fit
SETTING(size_t, improved_mixed, 3)                          // plans that are improved
SETTING(double, hopeless, 1.08)                   // times the best plan's seconds: a slower one is not made to fit
SETTING(int64_t, mixed_walk_steps, 20'000'000)    // steps of the walks
SETTING(int64_t, mixed_fit_steps, 8'000'000)      // steps of making plans fit
SETTING(int64_t, mixed_improve_steps, 8'000'000)  // steps of improving them
SETTING(size_t, tried_per_peak, 8)                // offloads measured for one peak, those of most bytes x ops first
SETTING(int, improve_rounds, 4)                   // over all changes: a further one seldom gains
SETTING(double, chain_ratio, 4)                   // an exchange takes along at most so many times its own recomputation

// ---- annealing (nested/polish.h)
SETTING(double, hottest, 0.5)  // first temperature, in mean seconds of a recomputation; a fifth of it at the end
SETTING(int, repairs, 6)       // values recomputed to bring an edit back within the budget
SETTING(size_t, repair_candidates, 8)  // values compared for each, at most: the fewer, the less greedy
SETTING(int, repair_draws, 64)         // values drawn to find these
SETTING(int, repair_depth, 4)          // recomputations in a row that the cost of one counts
SETTING(size_t, exchange_percent, 30)  // of all edits
SETTING(size_t, shift_percent, 75)     // of all edits, where the order is free
SETTING(double, hottest_peak, 0.003)   // first temperature where only the peak counts, in peaks
SETTING(double, exchange_ratio, 8)     // that an exchange may add at first, in mean seconds of a recomputation
SETTING(int, fill_draws, 100)          // recomputations drawn for those that an exchange makes needless
SETTING(int, fill_failures, 6)         // after which enough were taken out

#undef SETTING
