// The emulated machine as kernels and launchers see it.
//
// A launch runs its blocks one after another.  In a block every CUDA thread is a fiber with a stack of its own, all on
// one operating-system thread; a fiber runs until it must wait for others, so an interleaving is chosen, not met by
// chance.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <type_traits>

namespace lm_emu {

// Where in the source a primitive was called: distinguishes barriers.
struct Site {
    const char* file;
    int line;
};

struct Index {
    unsigned x, y, z;
};

// A thread's own place never changes while it runs, so the compiler may ask once (const) though fibers switch.
Index thread_index() __attribute__((const));
Index block_index() __attribute__((const));
Index block_size() __attribute__((const));
Index grid_size() __attribute__((const));
int lane() __attribute__((const));

void block_sync(Site site);
bool block_any(bool mine, Site site);
void warp_sync(Site site);

unsigned shuffle_word(unsigned value, int source, Site site);
unsigned ballot(bool mine, Site site);

void async_copy(void* shared, const void* global, int bytes, bool inside);
void async_commit();
void async_wait(int groups);

void load_matrix(unsigned* out, int matrices, const void* row, bool transposed, Site site);
void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site);
void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site);

void barrier_init(void* address, int arrivals);
void barrier_arrive(void* address);
void barrier_arrive_behind_copies(void* address);
void barrier_expect(void* address, int bytes);
void barrier_wait(void* address, unsigned parity, Site site);
void proxy_fence();
void bulk_copy(void* shared, const void* global, int bytes, void* barrier);

unsigned shared_offset(const void* address);  // stands for an address of shared memory in 18 bits
void product_tf32(float* sums, int blocks, const unsigned (&a)[4], unsigned long long rows);
void product_bf16(float* sums, int blocks, const unsigned (&a)[4], unsigned long long rows);
void product_bf16(float* sums, int blocks, unsigned long long a, unsigned long long b, bool a_columns, bool b_columns);
void products_commit(Site site);
void products_wait(int groups, Site site);

long long clock_cycles();                                      // goes on by a fixed number with every call
[[noreturn]] void misaligned(const void* address, int bytes);  // an access to as many bytes at once

void* dynamic_shared();
void shared_variable(void* start, size_t bytes, const char* name);

template <class T>
inline T shuffle(T value, int source, Site site) {
    static_assert(sizeof(T) == 4 && std::is_trivially_copyable<T>::value, "shuffles move 32-bit values");
    unsigned word;
    memcpy(&word, &value, 4);
    word = shuffle_word(word, source, site);
    memcpy(&value, &word, 4);
    return value;
}

// One kernel of this module, in the list that launches search.
struct Kernel {
    using Enter = void (*)(const void* args);
    Kernel(const char* name, Enter enter, size_t bytes, int threads, int blocks = 1);

    const char* name;
    Enter enter;   // unpacks the struct and runs one thread; without one the module does not have the kernel
    size_t bytes;  // of the struct
    int threads;   // most threads of a block
    int blocks;    // least blocks per multiprocessor: a promise to the compiler
    Kernel* next;
    size_t static_shared = 0;  // most that a launch has met
};

constexpr size_t MAX_ARGUMENT_BYTES = 4096;  // what CUDA takes on every architecture

template <class Args, void (*kernel)(const Args)>
__attribute__((no_sanitize("thread"))) void enter(const void* bytes) {
    static_assert(std::is_trivially_copyable<Args>::value, "a kernel takes one plain struct by value");
    static_assert(sizeof(Args) <= MAX_ARGUMENT_BYTES, "kernel arguments exceed 4096 bytes");
    kernel(*static_cast<const Args*>(bytes));
}

constexpr bool ends_with(const char* text, const char* end) {
    const size_t length = __builtin_strlen(text), of_end = __builtin_strlen(end);
    if (of_end > length) return false;
    for (size_t i = 0; i < of_end; ++i)
        if (text[length - of_end + i] != end[i]) return false;
    return true;
}

}  // namespace lm_emu

// ---- for launchers: Python through ctypes, the sanitizer worker, the fake driver ------------------------------

extern "C" {

enum LmOrder : uint32_t { LM_FORWARD = 0, LM_REVERSE = 1, LM_SHUFFLED = 2 };  // in which threads and blocks run
enum LmCopies : uint32_t { LM_EARLY = 0, LM_LATE = 1, LM_EITHER = 2 };        // when asynchronous copies land

struct LmLaunch {
    uint32_t grid[3];
    uint32_t block[3];
    uint64_t shared;  // bytes of dynamic shared memory
    uint64_t seed;
    uint32_t order;   // LmOrder
    uint32_t copies;  // LmCopies
    uint32_t banks;   // 1: count the wavefronts of shared memory accesses (race builds)
    uint32_t unused;
};

struct LmKernelInfo {
    uint64_t bytes;          // of the argument struct
    uint64_t static_shared;  // seen so far: arrays are met as launches reach them
    uint32_t threads;        // most threads of a block
    uint32_t blocks;         // that are to share a multiprocessor
};

// 0, or 1 with lm_emu_message() saying what went wrong.  The message stays until the next launch.
__attribute__((visibility("default"))) int lm_emu_launch(const char* kernel, const LmLaunch* launch, const void* args,
                                                         uint64_t bytes);
__attribute__((visibility("default"))) const char* lm_emu_message(void);
__attribute__((visibility("default"))) const char* lm_emu_banks(void);  // lines of banks.hpp, of the last launch
// The places, as lines @offset@, from which launches so far have called barriers, waits and fences; and those from which
// the next launches do not (race builds).
__attribute__((visibility("default"))) const char* lm_emu_reached(void);
__attribute__((visibility("default"))) void lm_emu_leave_out(const uint32_t* places, uint64_t count);
__attribute__((visibility("default"))) void lm_emu_close_stacks(void);  // until the next launch
__attribute__((visibility("default"))) const char* lm_emu_source();     // the file that the kernels were compiled from
__attribute__((visibility("default"))) const char* lm_emu_kernel_name(int index);  // null after the last
__attribute__((visibility("default"))) int lm_emu_kernel_info(const char* kernel,
                                                              LmKernelInfo* info);  // 0, or 1: unknown
}
