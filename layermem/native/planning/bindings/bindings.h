// What the module (native/bindings.cpp) calls to bind native planning, and what the bindings share.
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

// Lets Ctrl-C end a search that runs without the GIL: Python's signal handlers run here, and may throw.
inline void raise_pending_signals() {
    pybind11::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

}  // namespace layermem::planning
