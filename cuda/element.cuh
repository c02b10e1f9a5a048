// Elements of blobs in fp32 or in 16 bits: kernels widen them when they load, round them to nearest even when they
// store, and compute in fp32.  So a 16-bit kernel has the bits of the fp32 kernel between conversions (half.cu).
//
//   a kernel is a template of the element T of its blobs; its instances for Bf16 and Fp16 have names that end in
//   _bf16 and _fp16
//   V elements are moved at once where the address is a multiple of V sizeof(T)
#pragma once
#include "half.cuh"

namespace lm {

LM_FN float widened(float x) { return x; }

template <class T>
LM_FN float widened(T x) {
    return T::low(x.bits);
}

// Returns x after it has been stored in a blob of T.
template <class T>
LM_FN float as_stored(float x) {
    if constexpr (sizeof(T) == sizeof(float))
        return x;
    else
        return T::low(T::round(x));
}

LM_FN void store_one(float* to, float x) { *to = x; }

template <class T>
LM_FN void store_one(T* to, float x) {
    *to = T{T::round(x)};
}

// Like those of floats (common.cuh).
template <int V, class T>
LM_FN void load(float (&to)[V], const T* from) {
    check_aligned(from, V * 2);
    if constexpr (V == 4) {
        const uint2 all = *reinterpret_cast<const uint2*>(from);
        to[0] = T::low(all.x);
        to[1] = T::high(all.x);
        to[2] = T::low(all.y);
        to[3] = T::high(all.y);
    } else if constexpr (V == 2) {
        const unsigned both = *reinterpret_cast<const unsigned*>(from);
        to[0] = T::low(both);
        to[1] = T::high(both);
    } else {
        static_assert(V == 1, "one element, two or four");
        to[0] = widened(*from);
    }
}

// V elements in their form in memory: a thread that widens them only when it uses them can have more loads in flight.
template <int V, class T>
struct Elements {
    unsigned words[(V + 1) / 2];

    LM_MEMBER void fetch(const T* from) {
        check_aligned(from, V * 2);
        if constexpr (V == 4) {
            const uint2 all = *reinterpret_cast<const uint2*>(from);
            words[0] = all.x, words[1] = all.y;
        } else {
            static_assert(V == 1, "one element or four");
            words[0] = from->bits;
        }
    }

    LM_MEMBER void widen(float (&to)[V]) const {
#pragma unroll
        for (int i = 0; i < V; ++i) to[i] = i % 2 == 0 ? T::low(words[i / 2]) : T::high(words[i / 2]);
    }
};

template <int V>
struct Elements<V, float> {
    float values[V];

    LM_MEMBER void fetch(const float* from) { load<V>(values, from); }
    LM_MEMBER void widen(float (&to)[V]) const {
#pragma unroll
        for (int i = 0; i < V; ++i) to[i] = values[i];
    }
};

template <int V, class T>
LM_FN void store(T* to, const float (&from)[V]) {
    check_aligned(to, V * 2);
    if constexpr (V == 4) {
        uint2 all;
        all.x = T::pack(from[0], from[1]);
        all.y = T::pack(from[2], from[3]);
        *reinterpret_cast<uint2*>(to) = all;
    } else {
        static_assert(V == 1, "one element or four");
        *to = T{T::round(from[0])};
    }
}

// Rounds values to what a blob of T stores.
template <class T, int V>
LM_FN void round_as(float (&values)[V]) {
    if constexpr (sizeof(T) < sizeof(float)) {
        static_assert(V % 2 == 0, "two share a register");
#pragma unroll
        for (int i = 0; i < V; i += 2) {
            const unsigned both = T::pack(values[i], values[i + 1]);
            values[i] = T::low(both);
            values[i + 1] = T::high(both);
        }
    }
}

template <int V, class T>
LM_FN void put(T* to, float (&values)[V], bool accumulate) {
    if (accumulate) {
        float before[V];
        load<V>(before, to);
#pragma unroll
        for (int i = 0; i < V; ++i) values[i] = before[i] + values[i];
    }
    store<V>(to, values);
}

template <class T>
LM_FN void put(T* to, float value, bool accumulate) {
    *to = T{T::round(accumulate ? widened(*to) + value : value)};
}

}  // namespace lm

// The instances of kernel `name`, whose body is a function of Args<T>: for floats, and for each type of 16 bits.
#define LM_KERNEL_OF_ELEMENTS(name, Args, threads, ...)                    \
    LM_KERNEL(name, Args<float>, p, threads) { __VA_ARGS__(p); }           \
    LM_KERNEL(name##_bf16, Args<lm::Bf16>, p, threads) { __VA_ARGS__(p); } \
    LM_KERNEL(name##_fp16, Args<lm::Fp16>, p, threads) { __VA_ARGS__(p); }
