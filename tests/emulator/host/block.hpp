// The inside of the machine: one block of threads, its warps, and who waits for whom.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "fiber.hpp"
#include "machine.hpp"

namespace lm_emu {

constexpr unsigned LANES = 32;
constexpr unsigned MAX_THREADS = 1024;
constexpr std::size_t MAX_STATIC_SHARED = 48 * 1024;  // CUDA's limit for arrays declared in a kernel
constexpr std::size_t MAX_SHARED = 227 * 1024;        // and for both kinds together, on the largest GPUs

// An asynchronous copy that has not landed.
struct Copy {
    void* shared;
    const void* global;
    int bytes;
    bool inside;
    bool landed;      // early: the bytes are there, but no thread may rely on it
    unsigned group;   // the commit that closes it
    unsigned number;  // of the thread's copies
};

// One of warpgroup.cuh, which its warp has not done yet.
struct Product {
    float* sums;  // this lane's registers: four for each of the blocks of eight columns
    unsigned blocks;
    const unsigned* a;          // registers too, or null where A is in shared memory
    std::uint64_t shared_a;     // then: a matrix descriptor,
    std::uint64_t b;            // as is this one
    bool a_columns, b_columns;  // whether they name columns, along m or n, or rows, along k
    bool bf16;
    unsigned group;    // the commit that closes it
    const void* code;  // where it was called
};

// Sums that are being computed, poisoned where the kernel has them.
struct Sums {
    float* registers;
    std::vector<float> values;
    unsigned last_group = 0;  // of the products that add to them
};

struct Warp;

struct Thread {
    enum State : std::uint8_t { READY, AT_BLOCK, AT_WARP, AT_BARRIER, GONE };

    Fiber fiber;
    Index index;
    unsigned id;  // in the block, x fastest
    Warp* warp;
    State state;
    Site site;  // where it waits
    std::vector<Copy> copies;
    unsigned copies_started;  // in this block
    unsigned commits;         // groups closed so far
    std::vector<Product> products;
    std::vector<Sums> sums;
    unsigned products_closed;   // groups of products
    unsigned products_started;  // in this block

    unsigned lane() const { return id % LANES; }
};

// What a lane brings to an exchange, and what a product leaves for it.
struct Deposit {
    unsigned word[8];
};

struct Exchange {
    Deposit from[LANES];
    const void* row[LANES];
    union {
        double product[16][8];      // of mma, exact in nearly all cases
        unsigned loaded[LANES][4];  // by load_matrix
    };
};

struct Warp {
    unsigned first;    // id of lane 0
    unsigned size;     // lanes there are: fewer than 32 in a ragged last warp
    unsigned waiting;  // lanes at the current primitive
    unsigned gone;     // lanes that have left the kernel
    unsigned turn;     // primitives completed: exchanges alternate between two tables, since a lane may run one ahead
    std::uint64_t epoch;  // warp_syncs completed
    Exchange table[2];
};

// A barrier in shared memory: arrivals that end a phase, how many are missing, the number of this phase, bytes that are
// missing.
struct Barrier {
    unsigned arrivals, missing, phase;
    std::size_t bytes;
    std::vector<unsigned> waiting;  // ids of threads
};

// An arrival that happens when copies land; or a bulk copy, of `bytes`, that is to land.
struct LateArrival {
    Thread* thread;
    unsigned copies;  // of the thread, started before it
    const void* barrier;
    void* shared = nullptr;
    const void* global = nullptr;
    std::size_t bytes = 0;
    const void* code = nullptr;  // where it was called
};

// A shared array that this launch has met.
struct SharedVariable {
    std::byte* start;
    std::size_t bytes;
    const char* name;
    std::uint64_t block;  // the last block that poisoned it
};

struct Machine {
    // the launch
    Kernel* kernel = nullptr;
    LmLaunch launch{};
    const void* args = nullptr;
    std::byte* dynamic = nullptr;
    std::vector<SharedVariable> variables;
    std::uint64_t random = 0;
    std::string message;
    bool failed = false;

    // the block that runs
    Index block{};
    std::uint64_t block_number = 0;  // counts blocks over all launches
    unsigned linear_block = 0;       // in the grid
    std::uint64_t epoch = 0;         // block barriers completed
    unsigned waiting = 0;            // threads at a block barrier
    unsigned gone = 0;               // threads that have left the kernel
    bool any = false;                // what block_any has gathered,
    bool answer = false;             // and what it returns
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<unsigned> ready;  // a ring of thread ids
    unsigned head = 0, queued = 0;
    std::unordered_map<const void*, Barrier> barriers;
    std::vector<LateArrival> late;  // in their order

    Thread* now = nullptr;  // the running thread; null outside a block
    Fiber launcher;
    Stacks stacks;

    std::uint64_t draw();  // the next random number
    void queue(unsigned id);
    void queue_all(unsigned first, unsigned count);
    Thread* take();
    void pause();                                 // the running thread has said for what it waits; others run
    void leave();                                 // the running thread has finished
    void fail_stuck() __attribute__((noreturn));  // all that are left wait
    void fail(std::string why) __attribute__((noreturn));
    bool is_shared(const void* start, std::size_t bytes) const;

    void run();  // all blocks, in the launch's order
    void run_block();
};

extern Machine machine;

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string name_of(const Thread& thread);
const char* base_name(const char* path);

// The running lane brings a deposit and waits for its warp; `complete` runs once, when all have come.
Exchange& exchange(const Deposit& mine, const void* row, Site site, void (*complete)(Exchange&) = nullptr);

bool copies_land_early();                                              // the next one does
void land_started(Thread& thread, unsigned copies, const void* code);  // its first copies, so many, oldest first
void land_next(std::size_t index);                                     // of the late arrivals
void arrive_behind_landed(Thread& thread);                             // all of its arrivals whose copies have landed
void check_copies(const Thread& thread);                               // none is under way when a thread leaves,
bool arrives_late(const Thread& thread);                               // and no arrival behind them
void check_landed();                                                   // no bulk copy is in flight when a block ends
std::string missing_bytes();                                           // of barriers that lack nothing else

// A sum in fp32 as tensor cores leave it: what does not fit is cut off, not rounded.
// source  Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021), V100 to A100
inline float cut_sum(float sum, double more) {
    const double exact = static_cast<double>(sum) + more;
    const auto nearest = static_cast<float>(exact);
    return std::fabs(nearest) <= std::fabs(exact) || std::isinf(nearest) ? nearest : std::nextafter(nearest, 0.0f);
}

void check_products(const Thread& thread);  // none is in flight when a thread leaves
std::string divergent_warpgroup();          // what is wrong with the products of a block that has ended, if anything

}  // namespace lm_emu
