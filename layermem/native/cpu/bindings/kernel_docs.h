// The kernels and their arguments on one page: the docstring of layermem._native.cpu.
#pragma once

namespace layermem::cpu {

extern const char* const kKernelDocs;

}  // namespace layermem::cpu
