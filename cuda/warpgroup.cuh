// The primitives of warpgroups of sm_90a, in addition to primitives.cuh: barriers in shared memory that count arrivals
// and bytes, copies of whole runs of memory, and products of four warps that read one operand from shared memory.
//
//   barriers   barrier_init, barrier_arrive, barrier_arrive_behind_copies, barrier_expect, barrier_wait
//   copies     bulk_copy
//   products   shared_rows, shared_columns, products_begin, products_add_to, product_tf32, product_bf16, products_commit,
//              products_wait
//   memory     proxy_fence
//   registers  registers_give, registers_take
//
// Other architectures lack these instructions (LM_WARPGROUPS), and kernels that need them refuse to run.
#pragma once
#include "primitives.cuh"

#if defined(LM_EMULATE) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LM_WARPGROUPS 1
#else
#define LM_WARPGROUPS 0
#endif

namespace lm {

constexpr int WARPGROUP = 4 * WARP;  // threads; the first one's number is a multiple of it

#if LM_WARPGROUPS

// ---- barriers -------------------------------------------------------------------------------------------------------
//
// A barrier is a word of 64 bits in shared memory.  Its phases are numbered from 0 on; one ends after as many arrivals
// as barrier_init states, and the next one begins.  Writes of a thread before its arrival are visible to threads that
// have waited for the phase.

// Called by one thread; a block_sync makes it known to the others.
LM_FN void barrier_init(unsigned long long* barrier, int arrivals) {
#if defined(LM_EMULATE)
    lm_emu::barrier_init(barrier, arrivals);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
#endif
}

LM_FN void barrier_arrive(unsigned long long* barrier) {
#if defined(LM_EMULATE)
    lm_emu::barrier_arrive(barrier);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// Arrives once all asynchronous copies that this thread has started have landed, and returns at once.
LM_FN void barrier_arrive_behind_copies(unsigned long long* barrier) {
#if defined(LM_EMULATE)
    lm_emu::barrier_arrive_behind_copies(barrier);
#else
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}

// Makes the phase also wait for so many bytes of bulk copies.  Called by a thread that has still to arrive in it,
// before it starts these copies.
LM_FN void barrier_expect(unsigned long long* barrier, int bytes) {
#if defined(LM_EMULATE)
    lm_emu::barrier_expect(barrier, bytes);
#else
    asm volatile("mbarrier.expect_tx.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
#endif
}

// Waits until a phase of this parity has ended and no other since; odd parity counts as ended until phase 0 ends.
LM_FN void barrier_wait(unsigned long long* barrier, unsigned parity LM_AND_SITE) {
#if defined(LM_EMULATE)
    lm_emu::barrier_wait(barrier, parity, site);
#else
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "LM_WAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@ended bra LM_ENDED;\n"
        "bra LM_WAIT;\n"
        "LM_ENDED:\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
#endif
}

// Makes writes of this thread to shared memory visible to products that begin after it has been waited for, and its
// barriers to bulk copies: both use another path to memory than threads do.
LM_FN void proxy_fence() {
#if defined(LM_EMULATE)
    lm_emu::proxy_fence();
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// ---- copies ---------------------------------------------------------------------------------------------------------
//
// One thread starts a copy of a whole run of memory, which the tensor memory accelerator moves: a multiple of 16 bytes,
// between addresses that are multiples of 16.  Threads that have waited for the phase of the barrier see it, and so do their
// products, without a proxy_fence.  One is needed behind the barrier_init, and behind what threads have read and written of
// the bytes that are overwritten.
// source  PTX ISA, "cp.async.bulk"; CUDA C++ Programming Guide, "Using TMA to transfer one-dimensional arrays"

LM_FN void bulk_copy(void* shared, const void* global, int bytes, unsigned long long* barrier) {
#if defined(LM_EMULATE)
    lm_emu::bulk_copy(shared, global, bytes, barrier);
#else
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
#endif
}

// ---- registers ------------------------------------------------------------------------------------------------------
//
// Called by all warps of a warpgroup: from here on a thread has COUNT registers, a multiple of 8.

template <int COUNT>
LM_FN void registers_give() {
#if !defined(LM_EMULATE)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

template <int COUNT>
LM_FN void registers_take() {
#if !defined(LM_EMULATE)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

// ---- products of a warpgroup ----------------------------------------------------------------------------------------
//
//      products_begin();                      what registers hold now is what products read
//      product_tf32(d, a, b);                 any number, in flight
//      products_commit();                     closes the warpgroup's current group
//      products_wait<N>(d);                   all but the newest N groups are complete; registers may be used again
//
// d[64,8 BLOCKS] += a[64,K] * b[K,8 BLOCKS].  Warp w of the warpgroup has rows 16 w to 16 w + 15, and a lane holds of
// them, and of each eight columns, what it holds of mma_tf32 (K = 8) or mma_bf16 (K = 16) in primitives.cuh.
// b lies in shared memory, a column in a row of ROW_BYTES, 128 or 64: 16-byte chunk j of row r lies at j ^ (r & 7), or at
// j ^ (r / 2 & 3).  The first row is at a multiple of 8 ROW_BYTES.
// source  PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Matrix Descriptor Format"

// Names rows for a product; those for the next K lie PRODUCT_BYTES after.
template <int ROW_BYTES>
LM_FN unsigned long long shared_rows(const void* first, int product) {
    static_assert(ROW_BYTES == 128 || ROW_BYTES == 64, "rows are 128 or 64 bytes");
    constexpr int PRODUCT_BYTES = 32;
#if defined(LM_EMULATE)
    const unsigned address = lm_emu::shared_offset(first);
#else
    const unsigned address = shared_address(first);
#endif
    constexpr unsigned long long SWIZZLE = ROW_BYTES == 128 ? 1 : 2, EIGHT_ROWS = 8 * ROW_BYTES / 16;
    return SWIZZLE << 62 | EIGHT_ROWS << 32 | 1ull << 16 |
           ((address + static_cast<unsigned>(product * PRODUCT_BYTES)) & 0x3ffffu) >> 4;
}

// Names columns of 16 bits, of B or of A, which are the rows of C: row k has 128 bytes of 64 columns, its chunk j at
// j ^ (k & 7), and those of the next 64 columns lie PANEL_BYTES behind.  The first row is at a multiple of 1024 bytes.
// source  CUTLASS, make_gmma_desc<Major::MN>: the leading offset leads to the next 64 columns, the stride to the next 8 k's
template <int PANEL_BYTES>
LM_FN unsigned long long shared_columns(const void* first, int product) {
    static_assert(PANEL_BYTES % 1024 == 0, "each panel begins where the swizzle does");
    constexpr int ROW_BYTES = 128, K = 16;
    constexpr unsigned long long NEXT_PANEL = PANEL_BYTES / 16;
    return (shared_rows<ROW_BYTES>(first, 0) & ~(0xffffull << 16)) + NEXT_PANEL * (1 << 16) +
           static_cast<unsigned>(product * K * ROW_BYTES / 16);
}

LM_FN void products_begin() {
#if !defined(LM_EMULATE)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Makes products add to the current content of `d`; the compiler moves no access to it in between.
template <int N>
LM_FN void products_add_to(float (&d)[N][4]) {
#if !defined(LM_EMULATE)
#pragma unroll
    for (int j = 0; j < N; ++j) asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3]));
#endif
}

LM_FN void products_commit(LM_SITE) {
#if defined(LM_EMULATE)
    lm_emu::products_commit(site);
#else
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// For products that go on adding to the same registers, which no thread may use before it has waited for all.
template <int GROUPS>
LM_FN void products_wait(LM_SITE) {
#if defined(LM_EMULATE)
    lm_emu::products_wait(GROUPS, site);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
#endif
}

// Also keeps the compiler from using `d` earlier.
template <int GROUPS, int N>
LM_FN void products_wait(float (&d)[N][4] LM_AND_SITE) {
#if defined(LM_EMULATE)
    lm_emu::products_wait(GROUPS, site);
#else
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
#pragma unroll
    for (int j = 0; j < N; ++j) asm volatile("" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])::"memory");
#endif
}

#define LM_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define LM_SUMS_8(j)                                                                                            \
    LM_SUMS(j), LM_SUMS(j + 1), LM_SUMS(j + 2), LM_SUMS(j + 3), LM_SUMS(j + 4), LM_SUMS(j + 5), LM_SUMS(j + 6), \
        LM_SUMS(j + 7)
#define LM_FRAGMENT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
#define LM_NUMBERS_32                                                                                \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
    "%26,%27,%28,%29,%30,%31"
#define LM_NUMBERS_64                                                                                   \
    LM_NUMBERS_32                                                                                       \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55," \
    "%56,%57,%58,%59,%60,%61,%62,%63"
#define LM_NUMBERS_96                                                                                   \
    LM_NUMBERS_64                                                                                       \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87," \
    "%88,%89,%90,%91,%92,%93,%94,%95"
#define LM_PRODUCT(shape, type, more, BLOCKS)                                                              \
    if constexpr (BLOCKS == 8)                                                                             \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64" shape ".f32." type "." type " {" LM_NUMBERS_32  \
                     "}, {%32,%33,%34,%35}, %36, 1, 1, 1" more ";"                                         \
                     : LM_SUMS_8(0)                                                                        \
                     : LM_FRAGMENT);                                                                       \
    else                                                                                                   \
        asm volatile("wgmma.mma_async.sync.aligned.m64n128" shape ".f32." type "." type " {" LM_NUMBERS_64 \
                     "}, {%64,%65,%66,%67}, %68, 1, 1, 1" more ";"                                         \
                     : LM_SUMS_8(0), LM_SUMS_8(8)                                                          \
                     : LM_FRAGMENT);

template <int BLOCKS>
LM_FN void product_tf32(float (&d)[BLOCKS][4], const unsigned (&a)[4], unsigned long long b) {
    static_assert(BLOCKS == 8 || BLOCKS == 16, "64 columns or 128");
#if defined(LM_EMULATE)
    lm_emu::product_tf32(&d[0][0], BLOCKS, a, b);
#else
    LM_PRODUCT("k8", "tf32", "", BLOCKS)
#endif
}

template <int BLOCKS>
LM_FN void product_bf16(float (&d)[BLOCKS][4], const unsigned (&a)[4], unsigned long long b) {
    static_assert(BLOCKS == 8 || BLOCKS == 16, "64 columns or 128");
#if defined(LM_EMULATE)
    lm_emu::product_bf16(&d[0][0], BLOCKS, a, b);
#else
    LM_PRODUCT("k16", "bf16", ", 0", BLOCKS)
#endif
}

// Both operands are in shared memory, sixteen k's of each: 64 rows of A and all columns of B, named by shared_rows or,
// for A_COLUMNS or B_COLUMNS, by shared_columns.
template <bool A_COLUMNS, bool B_COLUMNS, int BLOCKS>
LM_FN void product_bf16(float (&d)[BLOCKS][4], unsigned long long a, unsigned long long b) {
    static_assert(BLOCKS == 16 || BLOCKS == 24, "128 columns or 192");
#if defined(LM_EMULATE)
    lm_emu::product_bf16(&d[0][0], BLOCKS, a, b, A_COLUMNS, B_COLUMNS);
#else
    if constexpr (BLOCKS == 16)
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" LM_NUMBERS_64
                     "}, %64, %65, 1, 1, 1, %66, %67;"
                     : LM_SUMS_8(0), LM_SUMS_8(8)
                     : "l"(a), "l"(b), "n"(A_COLUMNS ? 1 : 0), "n"(B_COLUMNS ? 1 : 0));
    else
        asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" LM_NUMBERS_96
                     "}, %96, %97, 1, 1, 1, %98, %99;"
                     : LM_SUMS_8(0), LM_SUMS_8(8), LM_SUMS_8(16)
                     : "l"(a), "l"(b), "n"(A_COLUMNS ? 1 : 0), "n"(B_COLUMNS ? 1 : 0));
#endif
}

#undef LM_SUMS
#undef LM_SUMS_8
#undef LM_FRAGMENT
#undef LM_NUMBERS_32
#undef LM_NUMBERS_64
#undef LM_NUMBERS_96
#undef LM_PRODUCT

#endif

}  // namespace lm
