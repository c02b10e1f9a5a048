// A pool of threads that shares the tasks of one kernel.
//
// How a kernel is divided into tasks depends on shapes only, and every number is computed by exactly one task.  So
// neither the number of threads nor the assignment of tasks to threads changes a bit of any result.
#pragma once
#include <algorithm>
#include <cstdint>

namespace layermem::cpu {

using Task = void (*)(const void* context, int64_t index);

int threads();
void set_threads(int count);  // the calling thread included; at least 1

// Runs task(context, i) once for every i in [0, count) and returns when all are done.  Tasks must not throw.  From any
// thread: one caller at a time has the pool, and others work on their own threads until it is free.
void run_tasks(int64_t count, Task task, const void* context);

// body(i) for every i in [0, count)
template <class Body>
void parallel_for(int64_t count, const Body& body) {
    run_tasks(count, [](const void* context, int64_t i) { (*static_cast<const Body*>(context))(i); }, &body);
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }  // a >= 0, b > 0

// body(begin, end) for [0, total) in ranges of `step`, the last one maybe shorter
template <class Body>
void parallel_for_ranges(int64_t total, int64_t step, const Body& body) {
    parallel_for(ceil_div(total, step), [&](int64_t i) { body(i * step, std::min(total, (i + 1) * step)); });
}

// [0, total) in `parts` nearly equal chunks: the i-th is [chunk_begin(total, parts, i), chunk_begin(total, parts, i +
// 1)).
inline int64_t chunk_begin(int64_t total, int64_t parts, int64_t i) {
    return total / parts * i + (total % parts) * i / parts;
}

}  // namespace layermem::cpu
