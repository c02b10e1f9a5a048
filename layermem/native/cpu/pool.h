// A team of threads that shares the tasks of one kernel.
//
// How a kernel is cut into tasks depends on shapes only, and each number is computed by one task, so the count
// of threads, and which of them takes which task, never changes a bit.
#pragma once
#include <cstdint>

namespace layermem::cpu {

using Task = void (*)(const void* context, int64_t index);

int threads();
void set_threads(int count);  // the calling thread included; at least 1

// Runs task(context, 0..count-1), each once, and returns when all are done.  Tasks must not throw.
void run_tasks(int64_t count, Task task, const void* context);

template <class Body>
void parallel(int64_t count, const Body& body) {
    run_tasks(count, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
}

// The i-th of `parts` nearly equal pieces of [0, total) is [cut(total, parts, i), cut(total, parts, i + 1)).
inline int64_t cut(int64_t total, int64_t parts, int64_t i) { return total / parts * i + (total % parts) * i / parts; }

}  // namespace layermem::cpu
