// What the lanes of a warp do together: shuffles, votes, matrix loads and products.
#include <cstdint>
#include <cstring>

#include "block.hpp"
#include "race.hpp"

namespace lm_emu {

Exchange& exchange(const Deposit& mine, const void* row, Site site, void (*complete)(Exchange&)) {
    Machine& m = machine;
    Thread& me = *m.now;
    Warp& warp = *me.warp;
    Exchange& table = warp.table[warp.turn & 1];
    if (warp.gone > 0)
        m.fail(text("divergent: %s waits at %s:%d for lanes of its warp that have left the kernel", name_of(me).c_str(),
                    base_name(site.file), site.line));
    me.state = Thread::AT_WARP;
    me.site = site;
    table.from[me.lane()] = mine;
    table.row[me.lane()] = row;
    if (++warp.waiting == warp.size) {
        for (unsigned i = 0; i < warp.size; ++i) {
            const Thread& t = m.threads[warp.first + i];
            if (t.site.line != site.line || std::strcmp(t.site.file, site.file) != 0)
                m.fail(text("divergent: %s is at the warp primitive of %s:%d, %s at that of %s:%d", name_of(me).c_str(),
                            base_name(site.file), site.line, name_of(t).c_str(), base_name(t.site.file), t.site.line));
        }
        if (complete != nullptr) complete(table);
        warp.waiting = 0;
        ++warp.turn;
        m.queue_all(warp.first, warp.size);
    }
    m.pause();
    return table;
}

namespace {

void count_warp_sync(Exchange&) {
    race::warp_met();
    ++machine.now->warp->epoch;
}

void need_whole_warp(const char* what, Site site) {
    if (machine.now->warp->size < LANES)
        machine.fail(text("%s:%d: %s needs all 32 lanes, the warp of %s has %u", base_name(site.file), site.line, what,
                          name_of(*machine.now).c_str(), machine.now->warp->size));
}

float tf32_operand(unsigned bits) {  // the multiplier sees 19 bits
    bits &= 0xffffe000u;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

float bf16_operand(unsigned bits) {
    bits <<= 16;
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

template <int K>
void multiply(const float (&a)[16][K], const float (&b)[K][8], double (&out)[16][8]) {
    for (int i = 0; i < 16; ++i) {
        double row[8] = {};
        for (int k = 0; k < K; ++k)
            for (int n = 0; n < 8; ++n) row[n] += static_cast<double>(a[i][k]) * static_cast<double>(b[k][n]);
        std::memcpy(out[i], row, sizeof row);
    }
}

void multiply_tf32(Exchange& table) {
    float a[16][8], b[8][8];
    for (unsigned lane = 0; lane < LANES; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        const unsigned* word = table.from[lane].word;
        for (unsigned r = 0; r < 4; ++r) a[g + 8 * (r & 1)][t + 4 * (r >> 1)] = tf32_operand(word[r]);
        for (unsigned r = 0; r < 2; ++r) b[t + 4 * r][g] = tf32_operand(word[4 + r]);
    }
    multiply(a, b, table.product);
}

void multiply_bf16(Exchange& table) {
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < LANES; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        const unsigned* word = table.from[lane].word;
        for (unsigned half = 0; half < 2; ++half) {
            for (unsigned r = 0; r < 4; ++r)
                a[g + 8 * (r & 1)][2 * t + half + 8 * (r >> 1)] = bf16_operand(word[r] >> (16 * half) & 0xffffu);
            for (unsigned r = 0; r < 2; ++r)
                b[2 * t + half + 8 * r][g] = bf16_operand(word[4 + r] >> (16 * half) & 0xffffu);
        }
    }
    multiply(a, b, table.product);
}

// Reads for the whole warp at once: a lane that goes on may overwrite its row.
template <bool TRANSPOSED>
void gather(Exchange& table) {
    const unsigned matrices = table.from[0].word[0];
    const auto* const* row = reinterpret_cast<const std::byte* const*>(table.row);
    for (unsigned lane = 0; lane < LANES; ++lane) {
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned m = 0; m < matrices; ++m) {
            auto* out = reinterpret_cast<std::byte*>(&table.loaded[lane][m]);
            if (TRANSPOSED) {
                std::memcpy(out, row[8 * m + 2 * t] + 2 * g, 2);
                std::memcpy(out + 2, row[8 * m + 2 * t + 1] + 2 * g, 2);
            } else {
                std::memcpy(out, row[8 * m + g] + 4 * t, 4);
            }
        }
    }
}

void product(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site, void (*complete)(Exchange&)) {
    need_whole_warp("mma", site);
    const Exchange& table = exchange({{a[0], a[1], a[2], a[3], b[0], b[1]}}, nullptr, site, complete);
    const unsigned g = machine.now->lane() / 4, t = machine.now->lane() % 4;
    for (unsigned i = 0; i < 4; ++i) d[i] = cut_sum(d[i], table.product[g + 8 * (i >> 1)][2 * t + (i & 1)]);
}

}  // namespace

void warp_sync(Site site) {
    if (!race::leaves_out(__builtin_return_address(0))) exchange({}, nullptr, site, &count_warp_sync);
}

unsigned shuffle_word(unsigned value, int source, Site site) {
    const Exchange& table = exchange({{value}}, nullptr, site);
    if (source < 0 || static_cast<unsigned>(source) >= machine.now->warp->size)
        machine.fail(text("%s:%d: %s asks for the value of lane %d, which its warp does not have", base_name(site.file),
                          site.line, name_of(*machine.now).c_str(), source));
    return table.from[source].word[0];
}

unsigned ballot(bool mine, Site site) {
    const Exchange& table = exchange({{mine ? 1u : 0u}}, nullptr, site);
    unsigned votes = 0;
    for (unsigned i = 0; i < machine.now->warp->size; ++i) votes |= table.from[i].word[0] << i;
    return votes;
}

void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site) {
    product(d, a, b, site, &multiply_tf32);
}

void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site) {
    product(d, a, b, site, &multiply_bf16);
}

void load_matrix(unsigned* out, int matrices, const void* row, bool transposed, Site site) {
    Thread& me = *machine.now;
    need_whole_warp("load_matrix", site);
    if (me.lane() < 8u * static_cast<unsigned>(matrices)) {
        if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0 || !machine.is_shared(row, 16))
            machine.fail(text("%s:%d: %s names a row that is not 16 aligned bytes of shared memory",
                              base_name(site.file), site.line, name_of(me).c_str()));
        race::accessed(row, 16, false, false, __builtin_return_address(0));
    }
    const auto complete = transposed ? &gather<true> : &gather<false>;
    const Exchange& table = exchange({{static_cast<unsigned>(matrices)}}, row, site, complete);
    std::memcpy(out, table.loaded[me.lane()], 4 * static_cast<std::size_t>(matrices));
}

}  // namespace lm_emu
