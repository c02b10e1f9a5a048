// layermem._native: what the planners count and what the cpu device computes, translated for Python.
// Each room binds itself; nothing here but the list of rooms.
#include <pybind11/pybind11.h>

namespace layermem {
void bind_recompute(pybind11::module_& m);  // planning/bindings/bind_recompute.cpp: lower sets, the dynamic program
void bind_layout(pybind11::module_& m);     // planning/bindings/bind_layout.cpp: when each buffer is resident
void bind_place(pybind11::module_& m);      // planning/bindings/bind_placement.cpp: offsets in one arena
void bind_cpu(pybind11::module_& m);        // cpu/bind_cpu.cpp: kernels on pointers
}  // namespace layermem

PYBIND11_MODULE(_native, m) {
    m.doc() = "native planning and CPU kernels of layermem";
    layermem::bind_recompute(m);
    layermem::bind_layout(m);
    layermem::bind_place(m);
    layermem::bind_cpu(m);
}
