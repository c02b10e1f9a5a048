// Blocks, the order of threads, barriers and shared memory.
#include "machine.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "block.hpp"
#include "race.hpp"

namespace lm_emu {

Machine machine;

namespace {

// Every thread starts here, on its own stack.
void thread_main() {
    Fiber::arrived();
    machine.kernel->enter(machine.args);
    machine.leave();
}

}  // namespace

// ---- words --------------------------------------------------------------------------------------------------------

std::string text(const char* format, ...) {
    char line[512];
    va_list values;
    va_start(values, format);
    std::vsnprintf(line, sizeof line, format, values);
    va_end(values);
    return line;
}

const char* base_name(const char* path) {
    const char* slash = std::strrchr(path, '/');
    return slash != nullptr ? slash + 1 : path;
}

std::string name_of(const Thread& thread) {
    const Index& b = machine.block;
    return text("thread (%u,%u,%u) of block (%u,%u,%u)", thread.index.x, thread.index.y, thread.index.z, b.x, b.y, b.z);
}

// ---- places -------------------------------------------------------------------------------------------------------

Index thread_index() { return machine.now->index; }
Index block_index() { return machine.block; }
Index block_size() { return {machine.launch.block[0], machine.launch.block[1], machine.launch.block[2]}; }
Index grid_size() { return {machine.launch.grid[0], machine.launch.grid[1], machine.launch.grid[2]}; }
int lane() { return static_cast<int>(machine.now->lane()); }

long long clock_cycles() {
    static long long now = 0;
    return now += 1000;
}

void misaligned(const void* address, int bytes) {
    machine.fail(
        text("misaligned: %s reads or writes %d bytes at once at %p", name_of(*machine.now).c_str(), bytes, address));
}

// ---- turns --------------------------------------------------------------------------------------------------------

std::uint64_t Machine::draw() {  // xorshift64*
    random ^= random >> 12;
    random ^= random << 25;
    random ^= random >> 27;
    return random * 0x2545F4914F6CDD1Dull;
}

void Machine::queue(unsigned id) {
    threads[id].state = Thread::READY;
    unsigned slot = head + queued++;
    if (slot >= ready.size()) slot -= static_cast<unsigned>(ready.size());
    ready[slot] = id;
}

void Machine::queue_all(unsigned first, unsigned count) {
    for (unsigned i = 0; i < count; ++i) queue(launch.order == LM_REVERSE ? first + count - 1 - i : first + i);
}

Thread* Machine::take() {
    while (queued == 0 && !late.empty())
        land_next(launch.order == LM_SHUFFLED ? static_cast<std::size_t>((draw() >> 32) * late.size() >> 32) : 0);
    if (queued == 0) return nullptr;
    const auto size = static_cast<unsigned>(ready.size());
    if (launch.order == LM_SHUFFLED) {
        const auto chosen = head + static_cast<unsigned>((draw() >> 32) * queued >> 32);
        std::swap(ready[head], ready[chosen < size ? chosen : chosen - size]);
    }
    Thread* next = &threads[ready[head]];
    if (++head == size) head = 0;
    --queued;
    return next;
}

void Machine::fail_stuck() {
    std::string why = "no thread can go on;";
    for (const Thread& t : threads) {
        if (t.state == Thread::GONE) continue;
        why += text(" %s waits at %s:%d,", name_of(t).c_str(), base_name(t.site.file), t.site.line);
        if (why.size() > 400) break;
    }
    why.back() = '.';
    fail(why + missing_bytes());
}

void Machine::pause() {
    Thread* me = now;
    Thread* next = take();
    if (next == nullptr) fail_stuck();
    if (next == me) return;
    now = next;
    Fiber::go(me->fiber, next->fiber);
}

void Machine::leave() {
    Thread& me = *now;
    check_copies(me);
    check_products(me);
    me.state = Thread::GONE;
    ++gone;
    ++me.warp->gone;
    if (gone == threads.size()) check_landed();
    if (waiting > 0 || me.warp->waiting > 0)
        for (const Thread& t : threads)
            if (t.state == Thread::AT_BLOCK || (t.state == Thread::AT_WARP && t.warp == me.warp))
                fail(text("divergent: %s has left the kernel while another waits for it at %s:%d", name_of(me).c_str(),
                          base_name(t.site.file), t.site.line));
    Thread* next = take();
    if (next == nullptr && gone < threads.size()) fail_stuck();
    now = next;
    Fiber::go(me.fiber, next != nullptr ? next->fiber : launcher);
    __builtin_unreachable();
}

void Machine::fail(std::string why) {
    message = std::move(why);
    failed = true;
    Thread* me = now;
    now = nullptr;
    Fiber::go(me->fiber, launcher);
    __builtin_unreachable();
}

// ---- barriers -----------------------------------------------------------------------------------------------------

namespace {

bool meet(bool mine, Site site) {
    Machine& m = machine;
    Thread& me = *m.now;
    if (m.gone > 0)
        m.fail(text("divergent: %s waits at %s:%d for threads that have left the kernel", name_of(me).c_str(),
                    base_name(site.file), site.line));
    me.state = Thread::AT_BLOCK;
    me.site = site;
    m.any |= mine;
    if (++m.waiting == m.threads.size()) {
        for (const Thread& t : m.threads)
            if (t.site.line != site.line || std::strcmp(t.site.file, site.file) != 0)
                m.fail(text("divergent: %s is at the barrier of %s:%d, %s at that of %s:%d", name_of(me).c_str(),
                            base_name(site.file), site.line, name_of(t).c_str(), base_name(t.site.file), t.site.line));
        m.answer = m.any;
        m.any = false;
        m.waiting = 0;
        race::block_met();
        ++m.epoch;
        m.queue_all(0, static_cast<unsigned>(m.threads.size()));
    }
    m.pause();
    return m.answer;  // it stays until the next barrier, which needs this thread
}

}  // namespace

bool block_any(bool mine, Site site) { return race::leaves_out(__builtin_return_address(0)) ? mine : meet(mine, site); }

void block_sync(Site site) {
    if (!race::leaves_out(__builtin_return_address(0))) meet(false, site);
}

// ---- shared memory ------------------------------------------------------------------------------------------------

void* dynamic_shared() { return machine.dynamic; }

void shared_variable(void* start, size_t bytes, const char* name) {
    Machine& m = machine;
    SharedVariable* found = nullptr;
    for (SharedVariable& v : m.variables)
        if (v.start == start) found = &v;
    if (found == nullptr) {
        m.variables.push_back({static_cast<std::byte*>(start), bytes, name, 0});
        found = &m.variables.back();
        std::size_t total = 0;
        for (const SharedVariable& v : m.variables) total += (v.bytes + 15) / 16 * 16;
        if (total > m.kernel->static_shared) m.kernel->static_shared = total;
        if (total > MAX_STATIC_SHARED) m.fail(text("%zu bytes of static shared memory; CUDA takes 49152", total));
        if (total + m.launch.shared > MAX_SHARED)
            m.fail(text("%zu bytes of shared memory; the largest GPUs have 232448", total + m.launch.shared));
    }
    if (found->block != m.block_number) {
        found->block = m.block_number;
        std::memset(start, 0xFF, bytes);
    }
}

bool Machine::is_shared(const void* start, std::size_t bytes) const {
    const auto* at = static_cast<const std::byte*>(start);
    if (dynamic != nullptr && at >= dynamic && at + bytes <= dynamic + launch.shared) return true;
    for (const SharedVariable& v : variables)
        if (at >= v.start && at + bytes <= v.start + v.bytes) return true;
    return false;
}

// ---- blocks -------------------------------------------------------------------------------------------------------

void Machine::run_block() {
    const auto count = static_cast<unsigned>(threads.size());
    ++block_number;
    epoch = waiting = gone = 0;
    any = false;
    head = queued = 0;
    barriers.clear();
    late.clear();
    if (launch.shared > 0) std::memset(dynamic, 0xFF, launch.shared);
    for (unsigned w = 0; w < warps.size(); ++w) {
        Warp& warp = warps[w];
        warp.first = w * LANES;
        warp.size = count - warp.first < LANES ? count - warp.first : LANES;
        warp.waiting = warp.gone = warp.turn = 0;
        warp.epoch = 0;
    }
    for (Thread& t : threads) {
        t.copies.clear();
        t.copies_started = t.commits = 0;
        t.products.clear();
        t.sums.clear();
        t.products_closed = t.products_started = 0;
        t.fiber.prepare(&thread_main, stacks.at(t.id), Stacks::BYTES, t.id);
    }
    queue_all(0, count);
    now = take();
    Fiber::go(launcher, now->fiber);
}

void Machine::run() {
    const auto [x, y, z] = launch.block;
    threads.resize(static_cast<std::size_t>(x) * y * z);
    warps.resize((threads.size() + LANES - 1) / LANES);
    ready.resize(threads.size());
    for (unsigned id = 0; id < threads.size(); ++id) {
        threads[id].id = id;
        threads[id].index = {id % x, id / x % y, id / (x * y)};
        threads[id].warp = &warps[id / LANES];
    }
    const unsigned blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
    std::vector<unsigned> order(blocks);
    for (unsigned i = 0; i < blocks; ++i) order[i] = launch.order == LM_REVERSE ? blocks - 1 - i : i;
    if (launch.order == LM_SHUFFLED)
        for (unsigned i = blocks; i > 1; --i) std::swap(order[i - 1], order[draw() % i]);
    for (unsigned b : order) {
        linear_block = b;
        block = {b % launch.grid[0], b / launch.grid[0] % launch.grid[1], b / (launch.grid[0] * launch.grid[1])};
        run_block();
        if (failed) return;
        message = divergent_warpgroup();
        if (!message.empty()) return;
        race::block_ends();
    }
}

}  // namespace lm_emu
