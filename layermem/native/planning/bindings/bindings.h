// The functions that bind native planning, for the module (native/bindings.cpp), and shared parts of the bindings.
#pragma once

#include <pybind11/pybind11.h>

#include "release_gil.h"

namespace layermem::planning {

void bind_recompute(pybind11::module_& m);  // StepGraph, LowerSetPlanner, ChainReport
void bind_layout(pybind11::module_& m);     // LayoutGraph
void bind_nested(pybind11::module_& m);     // NestedPlanner, NestedPlan
void bind_bounds(pybind11::module_& m);     // StepBounds
void bind_polish(pybind11::module_& m);     // polish_order, EditableOrder
void bind_placement(pybind11::module_& m);  // place, max_live, peak_profile, Placement

// Lets Ctrl-C end a search that runs without the GIL: Python's signal handlers run here, and may throw.  They run only
// in the main thread, and a thread may wait for the GIL as long as another one computes in Python: so other threads do
// not take it, and the main thread does now and then.
void raise_pending_signals();
void find_main_thread();  // before the first search

}  // namespace layermem::planning
