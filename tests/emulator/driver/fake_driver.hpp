// The fake driver's state: one device, its memory, its streams.
//
// Work put on a stream is an operation.  `eager` runs it at once; the lazy orders keep it until someone waits:
//      random          draws the next stream among those that can go on
//      awaited-first   runs only what the awaited stream needs: what the program does not wait for is yet to happen
//      awaited-last    runs all that other streams can do: what the program does not hold back has happened
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cuda.hpp"

namespace fake_driver {

// ---- settings, from the environment (README.md lists them) --------------------------------------------------------

enum class Order { EAGER, RANDOM, AWAITED_FIRST, AWAITED_LAST };

// A number for the kernels that a pattern such as "*_sm90a.*" names as "module.function"; set as PATTERN=NUMBER.
struct OfKernels {
    std::string pattern;
    unsigned number;
};

struct Settings {
    Order order;
    std::uint64_t seed;
    std::size_t memory;  // bytes of device memory,
    std::size_t taken;   // of which other processes have so many
    std::size_t pinned;  // bytes of host memory that may be pinned
    int devices;
    int capability;  // 90 for 9.0
    int multiprocessors;
    int clock;              // kHz; 0: the driver does not say
    int version;            // 13000 for CUDA 13.0
    bool exclusive;         // another process has the devices for itself
    std::uint32_t threads;  // LmOrder and LmCopies of emulated launches
    std::uint32_t copies;
    bool counts_static;  // static shared memory against the 48 KiB of a block without an opt-in, as a GPU does
    std::string hang, fault, flip;  // patterns of kernels that never end, that end in an error, that write a wrong bit
    std::string name;               // of each device
    OfKernels registers, static_shared;  // of a thread and of a block, instead of what Function finds
    Settings();
};

// ---- contexts: the primary ones of the devices --------------------------------------------------------------------

struct Context {
    int device;
    int users = 0;
    std::size_t used = 0;  // bytes of the device's memory

    // Takes so many more; false where there are not as many.
    bool take(std::size_t bytes);
};

// The calling thread's, or null.
Context* current_context();

// ---- memory -------------------------------------------------------------------------------------------------------

// One allocation, ending (but for 255 bytes of alignment) at an unmapped page, and beginning after one.
struct Block {
    enum Kind { DEVICE, PINNED };
    Kind kind;
    Context* context;
    std::size_t bytes;
    void* mapping;  // null for a variable of a module
    std::size_t mapped;
};

class Memory {
  public:
    void* allocate(std::size_t bytes, Block::Kind kind);  // filled with 0xFF: NaN; null when no memory is left
    void adopt(const void* start, std::size_t bytes);     // a variable of a module: never freed, not counted as used
    void forget(const void* start);
    bool free(const void* start, Block::Kind kind);  // its addresses are not given out again for a while
    bool freed(const void* at) const;                // whether it lies in what was one till then
    // The block that holds the first byte, or null.
    const Block* find(const void* at, Block::Kind kind, const std::byte** start = nullptr) const;
    // Does one block hold all of the range?
    bool holds(const void* at, std::size_t bytes, Block::Kind kind) const;

    // A copy of every allocation on the devices.
    using Snapshot = std::map<const std::byte*, std::vector<std::byte>>;
    Snapshot device_bytes() const;
    // Flips bit 22, of the mantissa in fp32 and bf16, in the middle one of the words that differ from `before`.
    void flip_a_changed_bit(const Snapshot& before);

  private:
    void* map(std::size_t bytes, Block::Kind kind);  // fresh memory of the host
    void forget(const std::byte* start);

    std::map<const std::byte*, Block> blocks_, freed_;
    std::deque<const std::byte*> order_;  // of freed_, the oldest first
    std::size_t pinned_ = 0;
};

// ---- streams ------------------------------------------------------------------------------------------------------

struct Capture;

// A place in a stream: what an event stands for once it is recorded.
struct Mark {
    bool reached = false;
    Stream* stream = nullptr;
    std::chrono::steady_clock::time_point when;
    std::shared_ptr<Capture> capture;  // if recorded while capturing,
    std::vector<int> nodes;            // the nodes that it comes after
};

struct Operation {
    std::function<CUresult()> work;  // one of these three
    std::shared_ptr<Mark> reaches;
    std::shared_ptr<Mark> waits_for;
};

struct Stream {
    Context* context;
    bool blocking;  // with respect to the default stream
    bool destroyed = false;
    std::deque<Operation> queue;
    std::shared_ptr<Capture> capture;
    std::vector<int> captured_after;  // nodes that the next captured operation comes after
};

struct Event {
    Context* context;
    bool timed;
    std::shared_ptr<Mark> mark;  // null until recorded
};

class Streams {
  public:
    Stream* create(bool blocking);
    bool known(const Stream* stream) const;
    bool usable(const Stream* stream) const;  // known, and of the current context
    void destroy(Stream* stream);
    Event* create_event(bool timed);
    bool known(const Event* event) const { return events_.count(event) != 0; }
    void destroy(Event* event);
    Stream* or_default(Stream* stream) { return stream != nullptr ? stream : &default_; }

    CUresult put(Stream* stream, Operation operation);
    CUresult finish(Stream* stream);
    CUresult finish(const std::shared_ptr<Mark>& mark);
    CUresult finish_all();
    void nudge();  // a query: something may happen meanwhile
    // What may wait for the GPU may not be called by a thread that captures a stream, nor by another one while a stream
    // is captured for all threads: was it?
    bool breaks_captures();

  private:
    bool can_go_on(const Stream& stream) const;
    void run_next(Stream& stream);
    Stream* random_stream(const Stream* but = nullptr);
    template <class Done>
    void run_until(Done done, Stream* awaited);

    std::list<std::unique_ptr<Stream>> streams_;
    std::set<const Event*> events_;
    Stream default_{nullptr, true, false, {}, nullptr, {}};
};

// ---- everything ---------------------------------------------------------------------------------------------------

struct Driver {
    Settings settings;
    std::recursive_mutex lock;
    std::mt19937_64 random{settings.seed};
    int process = 0;               // that has called cuInit; 0 before
    std::vector<Context> primary;  // by device
    Memory memory;
    Streams streams;
    CUresult failure = CUDA_SUCCESS;  // an operation has failed: every later call says so, as on a GPU
};

Driver& driver();
std::vector<Context*>& context_stack();  // of the calling thread

void complain(const std::string& what);  // to standard error

// Whether cuInit has been called, by this process: a copy that fork makes has no driver.
bool is_usable();

// Runs a function of the interface: one at a time, after cuInit, with a context, unless an operation has failed.
template <class Body>
CUresult guarded(Body body) {
    Driver& d = driver();
    const std::lock_guard<std::recursive_mutex> hold(d.lock);
    if (!is_usable()) return CUDA_ERROR_NOT_INITIALIZED;
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (d.failure != CUDA_SUCCESS) return d.failure;
    return body(d);
}

// ---- images (images.cpp) ------------------------------------------------------------------------------------------

std::size_t library_bytes(const void* image);  // 0 if it is no library for this machine
bool is_newer_ptx(const void* image);          // than the driver takes

// ---- capture (graphs.cpp) -----------------------------------------------------------------------------------------

CUresult capture_operation(Stream& stream, Operation operation);
// A call that is refused while the stream is captured: its capture can only be ended.
CUresult break_capture(Stream& stream);
CUresult break_capture(const Mark& mark);
bool is_open(const std::shared_ptr<Capture>& capture);
// A stream that is to wait for a captured mark joins its capture; false if that capture has ended.
bool join_capture(Stream& stream, const Mark& mark);

}  // namespace fake_driver
