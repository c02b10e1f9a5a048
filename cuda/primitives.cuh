// The vocabulary of every kernel: the functions of a thread for its warp, its block and the memory they share.
//
// Kernels include this header and no other.  Each primitive is one function with two bodies: PTX for the GPU, and a
// call into the emulator of tests/emulator/, which defines LM_EMULATE and runs the same source on the host.  The header
// itself includes nothing, so that nvcc and NVRTC compile it alike, for sm_75 and later.
//
//   memory    LM_SHARED, LM_DYN_SHARED, check_aligned, async_copy, async_commit, async_wait, load_matrix
//   order     block_sync, block_any, warp_sync
//   exchange  shuffle, shuffle_xor, shuffle_down, ballot
//   time      clock_cycles
//   maths     mma_tf32, mma_bf16, tf32_round, bf16_round, bf16_pack, bf16_low, bf16_high, infinity, philox
//
// A warp's primitives are executed by all 32 lanes together; a block's by all of its threads.
#pragma once

#if !defined(LM_EMULATE)

// LM_KERNEL(name, Args, args, threads[, blocks per SM]) { ... } defines a kernel that takes one plain struct by value.
#define LM_KERNEL(name, Args, args, ...) \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ Args args)

// LM_SHARED(float, tile, [32][33]); is a shared array, aligned to 16 bytes.
#define LM_SHARED(type, name, ...) __shared__ __align__(16) type name __VA_ARGS__

// LM_DYN_SHARED(float, tile); points to the bytes that the launch requests, aligned to 128.
#define LM_DYN_SHARED(type, name)                                       \
    extern __shared__ __align__(128) unsigned char lm_dynamic_shared[]; \
    type* const name = reinterpret_cast<type*>(lm_dynamic_shared)

#define LM_SITE      // the emulator tells barriers apart by the line that calls them;
#define LM_AND_SITE  // the GPU has no such parameter

#if defined(__CUDA_ARCH__)
#define LM_ARCH __CUDA_ARCH__
#else
#define LM_ARCH 0  // nvcc's host pass: bodies are parsed, never compiled
#endif

#endif

#define LM_FN static __device__ __forceinline__
#define LM_MEMBER __device__ __forceinline__  // of a struct

namespace lm {

constexpr int WARP = 32;

// ---- order --------------------------------------------------------------------------------------------------------

// All threads of the block have come here, and see what the others wrote before.
LM_FN void block_sync(LM_SITE) {
#if defined(LM_EMULATE)
    lm_emu::block_sync(site);
#else
    __syncthreads();
#endif
}

// block_sync that also returns whether any thread passed true.
LM_FN bool block_any(bool mine LM_AND_SITE) {
#if defined(LM_EMULATE)
    return lm_emu::block_any(mine, site);
#else
    return __syncthreads_or(mine) != 0;
#endif
}

// All lanes of the warp have come here, and see what the others wrote before.  No other warp primitive orders memory.
LM_FN void warp_sync(LM_SITE) {
#if defined(LM_EMULATE)
    lm_emu::warp_sync(site);
#else
    __syncwarp();
#endif
}

// ---- exchange -----------------------------------------------------------------------------------------------------

// Returns the value of `lane`.  T is float, int or unsigned.
template <class T>
LM_FN T shuffle(T value, int lane LM_AND_SITE) {
#if defined(LM_EMULATE)
    return lm_emu::shuffle(value, lane & 31, site);
#else
    return __shfl_sync(0xffffffffu, value, lane);
#endif
}

// Returns the value of lane ^ mask.
template <class T>
LM_FN T shuffle_xor(T value, int mask LM_AND_SITE) {
#if defined(LM_EMULATE)
    return lm_emu::shuffle(value, lm_emu::lane() ^ mask, site);
#else
    return __shfl_xor_sync(0xffffffffu, value, mask);
#endif
}

// Returns the value of lane + delta; the own value beyond the last lane.
template <class T>
LM_FN T shuffle_down(T value, int delta LM_AND_SITE) {
#if defined(LM_EMULATE)
    const int source = lm_emu::lane() + delta;
    return lm_emu::shuffle(value, source < WARP ? source : lm_emu::lane(), site);
#else
    return __shfl_down_sync(0xffffffffu, value, delta);
#endif
}

// Bit i is the value of lane i.
LM_FN unsigned ballot(bool mine LM_AND_SITE) {
#if defined(LM_EMULATE)
    return lm_emu::ballot(mine, site);
#else
    return __ballot_sync(0xffffffffu, mine);
#endif
}

// ---- vectors ------------------------------------------------------------------------------------------------------

// A GPU ends a kernel that moves 8 or 16 bytes at once at an address that is not a multiple of them; so does the emulator.
LM_FN void check_aligned(const void* address, int bytes) {
#if defined(LM_EMULATE)
    if (reinterpret_cast<unsigned long>(address) % static_cast<unsigned long>(bytes) != 0)
        lm_emu::misaligned(address, bytes);
#endif
}

// ---- asynchronous copies ------------------------------------------------------------------------------------------
//
//   async_copy<16>(&tile[...], source, inside);   any number, in flight
//   async_commit();                               closes the thread's current group
//   async_wait<N>();                              all but the newest N groups of this thread have landed
//   block_sync();                                 now other threads may read them too

#if !defined(LM_EMULATE)
LM_FN unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
#endif

#if LM_ARCH < 800
template <int BYTES>
struct Chunk;
template <>
struct Chunk<4> {
    using type = unsigned;
};
template <>
struct Chunk<8> {
    using type = uint2;
};
template <>
struct Chunk<16> {
    using type = uint4;
};
#endif

// BYTES (4, 8 or 16) from global memory to shared memory; zeros, and no access to `global`, unless `inside`.
// Both addresses are aligned to BYTES, that of zeros as well, which need not be one of memory.  A thread waits for all of
// its copies before it leaves the kernel.  sm_75 has no such copy: there it is a load and a store.
template <int BYTES>
LM_FN void async_copy(void* shared, const void* global, bool inside = true) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "an asynchronous copy moves 4, 8 or 16 bytes");
#if LM_ARCH < 800
    using T = typename Chunk<BYTES>::type;
    *static_cast<T*>(shared) = inside ? *static_cast<const T*>(global) : T{};
#elif defined(LM_EMULATE)
    lm_emu::async_copy(shared, global, BYTES, inside);
#else
    const int bytes = inside ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                     "n"(BYTES), "r"(bytes)
                     : "memory");
#endif
}

// Closes the group of copies that this thread has issued since the last commit; it may be empty.
LM_FN void async_commit() {
#if LM_ARCH < 800
#elif defined(LM_EMULATE)
    lm_emu::async_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int GROUPS>
LM_FN void async_wait() {
#if LM_ARCH < 800
#elif defined(LM_EMULATE)
    lm_emu::async_wait(GROUPS);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}

// ---- matrices in shared memory ------------------------------------------------------------------------------------
//
// One 8x8 matrix of 16-bit elements (or 8x4 of 32 bits) is 8 rows of 16 bytes.  Lane i names row i % 8 of matrix i / 8,
// an address aligned to 16 bytes.  Register m of lane t receives, of matrix m,
//      plain       row t/4, elements 2(t%4) and 2(t%4)+1      (32 bits: element t%4)
//      TRANSPOSED  column t/4, of rows 2(t%4) and 2(t%4)+1

template <bool TRANSPOSED = false>
LM_FN void load_matrix(unsigned (&out)[4], const void* row LM_AND_SITE) {
#if defined(LM_EMULATE)
    lm_emu::load_matrix(out, 4, row, TRANSPOSED, site);
#else
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(shared_address(row))
                     : "memory");
#endif
}

// Two matrices: lanes 0 to 15 name the rows, the others' addresses are ignored.
template <bool TRANSPOSED = false>
LM_FN void load_matrix(unsigned (&out)[2], const void* row LM_AND_SITE) {
#if defined(LM_EMULATE)
    lm_emu::load_matrix(out, 2, row, TRANSPOSED, site);
#else
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(out[0]), "=r"(out[1])
                     : "r"(shared_address(row))
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                     : "=r"(out[0]), "=r"(out[1])
                     : "r"(shared_address(row))
                     : "memory");
#endif
}

// ---- number formats -----------------------------------------------------------------------------------------------

LM_FN float infinity() { return __uint_as_float(0x7f800000u); }

// The operand bits of x for mma_tf32, rounded to nearest (the mma itself drops the low 13 bits); every NaN becomes
// 0x7fffffff.  Ties go to even on sm_90 and later, where this is one instruction, and away from zero before.
LM_FN unsigned tf32_round(float x) {
#if !defined(LM_EMULATE) && LM_ARCH >= 900
    unsigned bits;
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#else
    const unsigned bits = __float_as_uint(x), half = LM_ARCH >= 900 ? 0xfffu + ((bits >> 13) & 1u) : 0x1000u;
    return x != x ? 0x7fffffffu : bits + half;
#endif
}

// The 16 bits of x as bfloat16, rounded to nearest, ties to even; every NaN becomes 0x7fff.
LM_FN unsigned short bf16_round(float x) {
#if !defined(LM_EMULATE) && LM_ARCH >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    const unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}

// Two bfloat16 in one register: `low` in bits 0 to 15, the place of the lower address.
LM_FN unsigned bf16_pack(float low, float high) {
#if !defined(LM_EMULATE) && LM_ARCH >= 800
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return static_cast<unsigned>(bf16_round(low)) | static_cast<unsigned>(bf16_round(high)) << 16;
#endif
}

LM_FN float bf16_low(unsigned both) { return __uint_as_float(both << 16); }
LM_FN float bf16_high(unsigned both) { return __uint_as_float(both & 0xffff0000u); }

// ---- time ---------------------------------------------------------------------------------------------------------

// The clock of the multiprocessor: only differences within a thread mean anything.
LM_FN long long clock_cycles() {
#if defined(LM_EMULATE)
    return lm_emu::clock_cycles();
#else
    return clock64();
#endif
}

// ---- matrix products of a warp ------------------------------------------------------------------------------------
//
// d[16,8] += a[16,K] * b[K,8].  With g = lane / 4 and t = lane % 4 a lane holds
//      d      d0 (g, 2t)  d1 (g, 2t+1)  d2 (g+8, 2t)  d3 (g+8, 2t+1)
//      tf32   a0 (g, t)   a1 (g+8, t)   a2 (g, t+4)   a3 (g+8, t+4)        b0 (t, g)   b1 (t+4, g)          K = 8
//      bf16   the same with a pair of neighbours along K in each register: t stands for 2t, 2t+1; t+4 for 2t+8, 2t+9
// source  PTX ISA, "Matrix fragments for mma.m16n8k8" and "mma.m16n8k16"
// sm_75 has neither product; there the lanes pass their fragments round by shuffles: slow, and the same function.

#if LM_ARCH < 800
template <bool BF16>
LM_FN void mma_by_shuffles(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    const int lane = static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31;
    const int g = lane / 4, t = lane % 4;
    float sum[4] = {0, 0, 0, 0};
#pragma unroll 1  // small rather than fast
    for (int k = 0; k < 8; ++k) {
        const bool far = k >= 4;  // selects registers: an index would put them into memory
        const int from = k % 4;
        const unsigned rows[2] = {shuffle(far ? a[2] : a[0], 4 * g + from), shuffle(far ? a[3] : a[1], 4 * g + from)};
        const unsigned mine = far ? b[1] : b[0];
        const unsigned columns[2] = {shuffle(mine, 8 * t + from), shuffle(mine, 8 * t + 4 + from)};
        const unsigned keep = BF16 ? 0xffff0000u : 0xffffe000u;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const unsigned x = rows[i / 2], y = columns[i % 2];
            if (BF16) sum[i] = fmaf(bf16_low(x), bf16_low(y), sum[i]);
            sum[i] = fmaf(__uint_as_float(x & keep), __uint_as_float(y & keep), sum[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] += sum[i];
}
#endif

LM_FN void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2] LM_AND_SITE) {
#if LM_ARCH < 800
    mma_by_shuffles<false>(d, a, b);
#elif defined(LM_EMULATE)
    lm_emu::mma_tf32(d, a, b, site);
#else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

LM_FN void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2] LM_AND_SITE) {
#if LM_ARCH < 800
    mma_by_shuffles<true>(d, a, b);
#elif defined(LM_EMULATE)
    lm_emu::mma_bf16(d, a, b, site);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// ---- random numbers -----------------------------------------------------------------------------------------------

// Philox4x32-10: four random words from a counter and a key, the same on every device and in every order.
// source  Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011)
LM_FN uint4 philox(uint4 counter, unsigned key0, unsigned key1) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        const unsigned high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

}  // namespace lm
