// A kernel with its pointers and geometry bound: made once, when a schedule is bound, and then only called.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace layermem::cpu {

using Launch = std::function<void()>;
using Address = uint64_t;  // a pointer as Python passes it; 0 is none

template <class T>
T* at(Address address) {
    return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

inline int64_t padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }  // parts of a workspace stay aligned

}  // namespace layermem::cpu
