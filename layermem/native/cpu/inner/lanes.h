// One register of floats on the unit being compiled: V, and the few operations that inner loops are made of.
// Included once per unit, inside its namespace; instantiates nothing of std, which the linker might share.
//
// A tail is loaded with zeros in the unused lanes and goes through the same instructions as a full register, so an
// element's bits do not depend on where in an array it stands.

#if defined(__AVX512F__)
constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX2__)
constexpr int LANES = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int LANES = 4, REGISTERS = 32;
#else
constexpr int LANES = 4, REGISTERS = 16;
#endif

constexpr int MAX_VECTORS = REGISTERS == 32 ? 4 : 2;  // widest tile, in registers

typedef float V __attribute__((vector_size(4 * LANES)));
typedef int32_t I __attribute__((vector_size(4 * LANES)));
typedef float Loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline V load(const float* p) { return *reinterpret_cast<const Loose*>(p); }
inline void store(float* p, V v) { *reinterpret_cast<Loose*>(p) = v; }
inline V splat(float x) { return x - V{}; }
inline V zero() { return V{}; }

#if defined(__AVX512F__)
inline V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline V load(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store(float* p, V v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }
#elif defined(__AVX2__)
inline V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
inline __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline V load(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
inline void store(float* p, V v, int n) { _mm256_maskstore_ps(p, first(n), v); }
#else
#if defined(__aarch64__)
inline V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
#else
inline V fma(V a, V b, V c) { return a * b + c; }
#endif
inline V load(const float* p, int n) {
    V v{};
    for (int i = 0; i < n; ++i) v[i] = p[i];
    return v;
}
inline void store(float* p, V v, int n) {
    for (int i = 0; i < n; ++i) p[i] = v[i];
}
#endif

inline V load_upto(const float* p, int64_t n) { return n >= LANES ? load(p) : load(p, static_cast<int>(n)); }
inline void store_upto(float* p, V v, int64_t n) { n >= LANES ? store(p, v) : store(p, v, static_cast<int>(n)); }

// Adds up the lanes, always in the same order: halves onto halves.
inline float total(V v) {
    float lane[LANES];
    store(lane, v);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
}

// Walks [begin, end) a register at a time: body(i, All{}) for whole registers, body(i, n) for what is left.
struct All {
    operator int() const { return LANES; }
};
inline V load(const float* p, All) { return load(p); }
inline void store(float* p, V v, All) { store(p, v); }

// As `each`, but four registers at a time while there are as many: body(i, n, Group<4>{}), else Group<1>{}.  For loops that
// go down columns, which then read 4 LANES neighbours of every row.
template <int SIZE>
struct Group {};
template <int SIZE>
constexpr int size_of(Group<SIZE>) {
    return SIZE;
}
template <class Body>
inline __attribute__((always_inline)) void each_group(int64_t begin, int64_t end, const Body& body) {
    int64_t i = begin;
    for (; i + 4 * LANES <= end; i += 4 * LANES) body(i, All{}, Group<4>{});
    for (; i + LANES <= end; i += LANES) body(i, All{}, Group<1>{});
    if (i < end) body(i, static_cast<int>(end - i), Group<1>{});
}

template <class Body>
inline __attribute__((always_inline)) void each(int64_t begin, int64_t end, const Body& body) {
    int64_t i = begin;
    for (; i + LANES <= end; i += LANES) body(i, All{});
    if (i < end) body(i, static_cast<int>(end - i));
}
