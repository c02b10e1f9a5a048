// What cuda/warpgroup.cuh adds: barriers in shared memory that count arrivals and bytes, bulk copies, and products of
// warpgroups.
//
// An arrival behind asynchronous copies happens with them: early, at once; late, when its thread waits for them, or when no
// thread can go on without it.  So does the landing of a bulk copy, whose destination is poisoned until then.
// Products are done a quarter at a time, by the warp that has these rows: early, when it closes their group; late, when
// it waits for it.  Until then sums are poisoned, and what the product reads may not change.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "block.hpp"
#include "race.hpp"

namespace lm_emu {

namespace {

constexpr std::uintptr_t PATTERN_BYTES = 1024;  // in which the longest swizzle repeats
constexpr unsigned WARPS_OF_GROUP = 4;
constexpr int MAX_ARRIVALS = (1 << 20) - 1;
constexpr std::size_t MAX_BYTES = (1 << 20) - 1;  // of a phase
constexpr int BULK_BYTES = 16;                    // addresses and sizes of bulk copies are multiples of it

// ---- barriers -------------------------------------------------------------------------------------------------------

Barrier& barrier_at(const void* address, const char* what) {
    Machine& m = machine;
    const auto found = m.barriers.find(address);
    if (found == m.barriers.end())
        m.fail(text("%s: %s names a barrier that barrier_init has not made", what, name_of(*m.now).c_str()));
    race::barrier_used(address);
    return found->second;
}

void end_if_complete(const void* address, Barrier& barrier) {
    if (barrier.missing > 0 || barrier.bytes > 0) return;
    barrier.missing = barrier.arrivals;
    ++barrier.phase;
    race::phase_ended(address);
    for (unsigned id : barrier.waiting) machine.queue(id);
    barrier.waiting.clear();
}

void arrive(const void* address, Barrier& barrier) {
    if (barrier.missing == 0)
        machine.fail(text("barrier_arrive: an arrival beyond the %u of a phase, which lacks %zu bytes",
                          barrier.arrivals, barrier.bytes));
    --barrier.missing;
    end_if_complete(address, barrier);
}

void land(const LateArrival& copy) {
    Machine& m = machine;
    Barrier& barrier = m.barriers.find(copy.barrier)->second;
    if (barrier.bytes < copy.bytes)
        m.fail(
            text("bulk_copy: %zu bytes land, and the phase of their barrier expects %zu", copy.bytes, barrier.bytes));
    std::memcpy(copy.shared, copy.global, copy.bytes);
    race::bulk_landed(copy);
    barrier.bytes -= copy.bytes;
    end_if_complete(copy.barrier, barrier);
}

}  // namespace

void barrier_init(void* address, int arrivals) {
    Machine& m = machine;
    if (reinterpret_cast<std::uintptr_t>(address) % 8 != 0 || !m.is_shared(address, 8))
        m.fail("barrier_init: a barrier is 8 aligned bytes of shared memory");
    if (arrivals < 1 || arrivals > MAX_ARRIVALS) m.fail(text("barrier_init: %d arrivals", arrivals));
    race::barrier_made(address, __builtin_return_address(0));
    const auto expected = static_cast<unsigned>(arrivals);
    m.barriers[address] = {expected, expected, 0, 0, {}};
}

void barrier_arrive(void* address) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    Barrier& barrier = barrier_at(address, "barrier_arrive");
    race::arrived(address);
    arrive(address, barrier);
}

void barrier_arrive_behind_copies(void* address) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    Machine& m = machine;
    barrier_at(address, "barrier_arrive_behind_copies");
    m.late.push_back({m.now, m.now->copies_started, address});
    if (copies_land_early()) land_next(m.late.size() - 1);
}

void barrier_wait(void* address, unsigned parity, Site site) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    Machine& m = machine;
    Barrier& barrier = barrier_at(address, "barrier_wait");
    while ((barrier.phase & 1u) == (parity & 1u)) {
        m.now->state = Thread::AT_BARRIER;
        m.now->site = site;
        barrier.waiting.push_back(m.now->id);
        m.pause();
    }
    race::passed(address);
}

void barrier_expect(void* address, int bytes) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    Barrier& barrier = barrier_at(address, "barrier_expect");
    const auto more = static_cast<std::size_t>(bytes);
    if (bytes < 1 || barrier.bytes + more > MAX_BYTES) machine.fail(text("barrier_expect: %d bytes", bytes));
    if (barrier.missing == 0) machine.fail("barrier_expect: all have arrived, so the phase might have ended before");
    barrier.bytes += more;
}

void bulk_copy(void* shared, const void* global, int bytes, void* barrier) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    Machine& m = machine;
    const auto size = static_cast<std::size_t>(bytes);
    const auto is_aligned = [](const void* address) {
        return reinterpret_cast<std::uintptr_t>(address) % BULK_BYTES == 0;
    };
    if (bytes < 1 || bytes % BULK_BYTES != 0) m.fail(text("bulk_copy: %d bytes are no multiple of 16", bytes));
    if (!is_aligned(shared) || !m.is_shared(shared, size))
        m.fail(text("bulk_copy: the destination of %s is not %d bytes of shared memory, aligned to 16",
                    name_of(*m.now).c_str(), bytes));
    if (!is_aligned(global)) m.fail(text("bulk_copy: the source of %s is not aligned to 16", name_of(*m.now).c_str()));
    barrier_at(barrier, "bulk_copy");
    const LateArrival copy = {m.now, 0, barrier, shared, global, size, __builtin_return_address(0)};
    race::bulk_issued(copy);
#if defined(__SANITIZE_ADDRESS__)
    std::vector<std::byte> probe(size);  // a source out of bounds is to be reported here, not where it lands
    std::memcpy(probe.data(), global, size);
    asm volatile("" : : "r"(probe.data()) : "memory");
#endif
    if (copies_land_early()) {
        land(copy);
        return;
    }
    std::memset(shared, 0xFF, size);
    m.late.push_back(copy);
}

void check_landed() {
    for (const LateArrival& late : machine.late)
        if (late.bytes > 0) machine.fail(text("bulk_copy: the block ends before %zu bytes have landed", late.bytes));
}

std::string missing_bytes() {
    std::string found;
    for (const auto& [address, barrier] : machine.barriers)
        if (barrier.missing == 0) found += text(" A barrier lacks %zu bytes.", barrier.bytes);
    return found;
}

// The bulk copy number `index` of what is late lands; or, of the arrivals behind copies, this one or the first one of the
// same thread happens.
void land_next(std::size_t index) {
    Machine& m = machine;
    std::size_t first = m.late[index].bytes > 0 ? index : 0;
    while (m.late[first].thread != m.late[index].thread || (m.late[first].bytes > 0 && first != index)) ++first;
    const LateArrival next = m.late[first];
    m.late.erase(m.late.begin() + static_cast<std::ptrdiff_t>(first));
    if (next.bytes > 0) {
        land(next);
        return;
    }
    land_started(*next.thread, next.copies, __builtin_return_address(0));
    race::copies_arrived(next.barrier, *next.thread);
    arrive(next.barrier, m.barriers.find(next.barrier)->second);
}

void arrive_behind_landed(Thread& thread) {
    Machine& m = machine;
    const unsigned landed = thread.copies.empty() ? thread.copies_started : thread.copies.front().number;
    for (std::size_t i = 0; i < m.late.size();) {
        const LateArrival& late = m.late[i];
        if (late.thread == &thread && late.bytes == 0 && late.copies <= landed)
            land_next(i);
        else
            ++i;
    }
}

bool arrives_late(const Thread& thread) {
    for (const LateArrival& late : machine.late)
        if (late.thread == &thread && late.bytes == 0) return true;
    return false;
}

void proxy_fence() {
    if (!race::leaves_out(__builtin_return_address(0))) race::fenced();
}

// ---- products -------------------------------------------------------------------------------------------------------

namespace {

std::uintptr_t pattern_start() {
    return reinterpret_cast<std::uintptr_t>(machine.dynamic) / PATTERN_BYTES * PATTERN_BYTES;
}

constexpr unsigned ROWS_OF_WARP = 16, PANEL = 64;  // columns that lie together

struct Fields {
    std::uint64_t mode, start, next_panel, eight;

    explicit Fields(std::uint64_t descriptor)
        : mode(descriptor >> 62),
          start((descriptor & 0x3fff) << 4),
          next_panel((descriptor >> 16 & 0x3fff) << 4),
          eight((descriptor >> 32 & 0x3fff) << 4) {}

    std::uint64_t row_bytes() const { return mode == 1 ? 128 : 64; }
};

const std::byte* swizzled(const Fields& its, std::uint64_t address) {
    address ^= its.mode == 1 ? (address >> 7 & 7) << 4 : (address >> 7 & 3) << 4;
    return reinterpret_cast<const std::byte*>(pattern_start() + address);
}

// Where 16 bytes along k lie, of row or column number `row` of A or B, `at` bytes behind its first k.
const std::byte* bytes_of(std::uint64_t descriptor, unsigned row, unsigned at) {
    const Fields its(descriptor);
    return swizzled(its, its.start + row / 8 * its.eight + row % 8 * its.row_bytes() + at);
}

// Where 16 bytes along m or n lie, of row k of A or B, from `column` on.
const std::byte* columns_of(std::uint64_t descriptor, unsigned k, unsigned column) {
    const Fields its(descriptor);
    return swizzled(its, its.start + column / PANEL * its.next_panel + k / 8 * its.eight + k % 8 * its.row_bytes() +
                             column % PANEL * 2);
}

// Calls visit(16 bytes, what) for all that the running warp's part of a product reads from shared memory.
template <class Visit>
void each_operand(const Product& product, Visit visit) {
    const unsigned columns = 8 * product.blocks;
    if (product.b_columns) {
        for (unsigned k = 0; k < 16; ++k)
            for (unsigned column = 0; column < columns; column += 8) visit(columns_of(product.b, k, column), "B");
    } else {
        for (unsigned column = 0; column < columns; ++column)
            for (unsigned at = 0; at < 32; at += 16) visit(bytes_of(product.b, column, at), "B");
    }
    if (product.a != nullptr) return;
    const unsigned first = machine.now->id / LANES % WARPS_OF_GROUP * ROWS_OF_WARP;
    if (product.a_columns) {
        for (unsigned k = 0; k < 16; ++k)
            for (unsigned row = first; row < first + ROWS_OF_WARP; row += 8)
                visit(columns_of(product.shared_a, k, row), "A");
    } else {
        for (unsigned row = first; row < first + ROWS_OF_WARP; ++row)
            for (unsigned at = 0; at < 32; at += 16) visit(bytes_of(product.shared_a, row, at), "A");
    }
}

void check_descriptor(std::uint64_t descriptor, bool columns, const char* what) {
    const Fields its(descriptor);
    if (its.mode != 1 && (its.mode != 2 || columns))
        machine.fail(text("product: rows of %s are swizzled over 128 or 64 bytes here", what));
    if ((its.start / its.row_bytes()) % 8 != 0)
        machine.fail(text("product: the first row of %s is not where the swizzle begins", what));
    if (columns && (its.next_panel % PATTERN_BYTES != 0 || its.eight % PATTERN_BYTES != 0))
        machine.fail(text("product: columns of %s do not lie where the swizzle begins", what));
}

// Fails unless operands lie such as the swizzle is defined for.
void check_operands(const Product& product) {
    check_descriptor(product.b, product.b_columns, "B");
    if (product.a == nullptr) check_descriptor(product.shared_a, product.a_columns, "A");
    each_operand(product, [](const std::byte* bytes, const char* what) {
        if (!machine.is_shared(bytes, 16)) machine.fail(text("product: a row of %s is outside shared memory", what));
    });
}

void note_reads(const Product& product, const void* code) {
    each_operand(product, [code](const std::byte* bytes, const char*) { race::product_reads(bytes, 16, code); });
}

void start(Product product) {
    Thread& me = *machine.now;
    if (me.warp->size < LANES || machine.threads.size() < (me.id / LANES / WARPS_OF_GROUP + 1) * WARPS_OF_GROUP * LANES)
        machine.fail("product: it takes the 128 threads of a warpgroup");
    product.group = me.products_closed;
    if (me.lane() == 0) {
        check_operands(product);
        note_reads(product, product.code);
    }
    const std::size_t count = 4 * product.blocks;
    bool known = false;
    for (Sums& each : me.sums) {
        if (each.registers != product.sums) continue;
        known = true;
        each.last_group = product.group;
    }
    if (!known)
        me.sums.push_back({product.sums, std::vector<float>(product.sums, product.sums + count), product.group});
    std::memset(product.sums, 0xFF, count * sizeof *product.sums);
    me.products.push_back(product);
    ++me.products_started;
}

float operand(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

std::vector<float>& sums_of(Thread& thread, const Product& product) {
    for (Sums& each : thread.sums)
        if (each.registers == product.sums) return each.values;
    __builtin_unreachable();
}

// What a lane's registers hold of the warp's 16 rows of A.
template <unsigned K>
void take_fragment(float (&rows)[16][K], unsigned lane, const unsigned* a) {
    const unsigned g = lane / 4, t = lane % 4;
    for (unsigned r = 0; r < 4; ++r) {
        float* to = rows[g + 8 * (r & 1)];
        if (K == 16) {
            to[2 * t + 8 * (r >> 1)] = operand(a[r] << 16);
            to[2 * t + 8 * (r >> 1) + 1] = operand(a[r] & 0xffff0000u);
        } else {
            to[t + 4 * (r >> 1)] = operand(a[r] & 0xffffe000u);
        }
    }
}

// The elements of 16 bytes of an operand whose products are K deep: put(i, element i).
template <unsigned K, class Put>
void take_chunk(const std::byte* bytes, Put put) {
    unsigned words[4];
    std::memcpy(words, bytes, sizeof words);
    for (unsigned w = 0; w < 4; ++w) {
        if (K == 16) {
            put(2 * w, operand(words[w] << 16));
            put(2 * w + 1, operand(words[w] & 0xffff0000u));
        } else {
            put(w, operand(words[w] & 0xffffe000u));
        }
    }
}

// This warp's 16 rows of one product, K deep.
template <unsigned K>
void multiply(Warp& warp, std::size_t index) {
    Machine& m = machine;
    const Product& first = m.threads[warp.first].products[index];
    const unsigned columns = 8 * first.blocks;
    float a[16][K], b[K][256], row[256];
    for (unsigned lane = 0; lane < LANES; ++lane) {
        const Product& mine = m.threads[warp.first + lane].products[index];
        if (mine.b != first.b || mine.shared_a != first.shared_a || mine.a_columns != first.a_columns ||
            mine.b_columns != first.b_columns || mine.blocks != first.blocks || mine.bf16 != first.bf16)
            m.fail("product: lanes of one warp bring different operands");
        if (first.a != nullptr) take_fragment<K>(a, lane, mine.a);
    }
    if (first.a == nullptr) {
        const unsigned from = warp.first / LANES % WARPS_OF_GROUP * ROWS_OF_WARP;
        if (first.a_columns) {
            for (unsigned k = 0; k < K; ++k)
                for (unsigned i = 0; i < ROWS_OF_WARP; i += 8)
                    take_chunk<16>(columns_of(first.shared_a, k, from + i),
                                   [&](unsigned e, float x) { a[i + e][k] = x; });
        } else {
            for (unsigned i = 0; i < ROWS_OF_WARP; ++i)
                for (unsigned half = 0; half < 2; ++half)
                    take_chunk<K>(bytes_of(first.shared_a, from + i, 16 * half),
                                  [&](unsigned k, float x) { a[i][half * K / 2 + k] = x; });
        }
    }
    if (first.b_columns) {
        for (unsigned k = 0; k < K; ++k)
            for (unsigned n = 0; n < columns; n += 8)
                take_chunk<16>(columns_of(first.b, k, n), [&](unsigned e, float x) { b[k][n + e] = x; });
    } else {
        for (unsigned n = 0; n < columns; ++n)
            for (unsigned half = 0; half < 2; ++half)
                take_chunk<K>(bytes_of(first.b, n, 16 * half),
                              [&](unsigned k, float x) { b[half * K / 2 + k][n] = x; });
    }
    note_reads(first, first.code);
    for (unsigned i = 0; i < 16; ++i) {
        std::memset(row, 0, sizeof row);
        for (unsigned k = 0; k < K; ++k)
            for (unsigned n = 0; n < columns; ++n) row[n] += a[i][k] * b[k][n];
        for (unsigned t = 0; t < 4; ++t) {
            Thread& thread = m.threads[warp.first + i % 8 * 4 + t];
            float* to = sums_of(thread, thread.products[index]).data() + i / 8 * 2;
            for (unsigned block = 0; block < first.blocks; ++block)
                for (unsigned e = 0; e < 2; ++e)
                    to[4 * block + e] = cut_sum(to[4 * block + e], row[8 * block + 2 * t + e]);
        }
    }
}

// Does the warp's products of groups before `group`; all lanes have come.
void run_products(unsigned group) {
    Machine& m = machine;
    Warp& warp = *m.now->warp;
    std::vector<Product>& of_first = m.threads[warp.first].products;
    std::size_t count = 0;
    while (count < of_first.size() && of_first[count].group < group) ++count;
    for (unsigned lane = 0; lane < LANES; ++lane)
        if (m.threads[warp.first + lane].products.size() != of_first.size())
            m.fail("divergent: lanes of one warp have started different products");
    for (std::size_t i = 0; i < count; ++i) {
        if (of_first[i].bf16)
            multiply<16>(warp, i);
        else
            multiply<8>(warp, i);
    }
    for (unsigned lane = 0; lane < LANES; ++lane) {
        std::vector<Product>& products = m.threads[warp.first + lane].products;
        products.erase(products.begin(), products.begin() + static_cast<std::ptrdiff_t>(count));
    }
}

// The groups that are complete when the lanes wait; the lanes close and wait together.
void run_closed(Exchange&) {
    if (copies_land_early()) run_products(machine.now->products_closed);
}

void run_awaited(Exchange& table) {
    const unsigned closed = machine.now->products_closed, kept = table.from[0].word[0];
    if (closed > kept) run_products(closed - kept);
}

}  // namespace

unsigned shared_offset(const void* address) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) - pattern_start());
}

void product_tf32(float* sums, int blocks, const unsigned (&a)[4], unsigned long long rows) {
    start({sums, static_cast<unsigned>(blocks), a, 0, rows, false, false, false, 0, __builtin_return_address(0)});
}

void product_bf16(float* sums, int blocks, const unsigned (&a)[4], unsigned long long rows) {
    start({sums, static_cast<unsigned>(blocks), a, 0, rows, false, false, true, 0, __builtin_return_address(0)});
}

void product_bf16(float* sums, int blocks, unsigned long long a, unsigned long long b, bool a_columns, bool b_columns) {
    start({sums, static_cast<unsigned>(blocks), nullptr, a, b, a_columns, b_columns, true, 0,
           __builtin_return_address(0)});
}

void products_commit(Site site) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    ++machine.now->products_closed;
    exchange({}, nullptr, site, &run_closed);
}

void products_wait(int groups, Site site) {
    if (race::leaves_out(__builtin_return_address(0))) return;
    exchange({{static_cast<unsigned>(groups)}}, nullptr, site, &run_awaited);
    Thread& me = *machine.now;
    const unsigned complete = me.products_closed > static_cast<unsigned>(groups) ? me.products_closed - groups : 0;
    for (std::size_t i = me.sums.size(); i-- > 0;) {
        Sums& sums = me.sums[i];
        bool busy = sums.last_group >= complete;
        for (const Product& product : me.products) busy |= product.sums == sums.registers;
        if (busy) continue;
        std::memcpy(sums.registers, sums.values.data(), sums.values.size() * sizeof(float));
        me.sums.erase(me.sums.begin() + static_cast<std::ptrdiff_t>(i));
    }
}

void check_products(const Thread& thread) {
    if (!thread.products.empty() || !thread.sums.empty())
        machine.fail(text("%s has left the kernel without waiting for its products", name_of(thread).c_str()));
}

// A warpgroup's warps multiply together: each has started as many products as the first of them.
std::string divergent_warpgroup() {
    const Machine& m = machine;
    for (std::size_t first = 0; first + WARPS_OF_GROUP <= m.warps.size(); first += WARPS_OF_GROUP)
        for (std::size_t warp = first; warp < first + WARPS_OF_GROUP; ++warp)
            if (m.threads[warp * LANES].products_started != m.threads[first * LANES].products_started)
                return text("divergent: warps %zu and %zu of one warpgroup have started different products", first,
                            warp);
    return {};
}

}  // namespace lm_emu
