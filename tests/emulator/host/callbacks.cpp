// What -fsanitize=thread makes a kernel call at every access: libtsan's interface, served by the race checker.
#include <cstdint>

#include "race.hpp"

#define LM_CODE __builtin_return_address(0)
#define LM_ACCESS(name, bytes, write) \
    void name(void* p) { lm_emu::race::accessed(p, bytes, write, false, LM_CODE); }
#define LM_SIZE(n)                                \
    LM_ACCESS(__tsan_read##n, n, false)           \
    LM_ACCESS(__tsan_write##n, n, true)           \
    LM_ACCESS(__tsan_volatile_read##n, n, false)  \
    LM_ACCESS(__tsan_volatile_write##n, n, true)  \
    LM_ACCESS(__tsan_unaligned_read##n, n, false) \
    LM_ACCESS(__tsan_unaligned_write##n, n, true)

// memory orders are all treated as relaxed: an atomic orders nothing else here
#define LM_ATOMIC(bits, T)                                                                               \
    T __tsan_atomic##bits##_load(const volatile T* p, int) {                                             \
        lm_emu::race::accessed(const_cast<const T*>(p), sizeof(T), false, true, LM_CODE);                \
        return *p;                                                                                       \
    }                                                                                                    \
    void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                                      \
        lm_emu::race::accessed(const_cast<const T*>(p), sizeof(T), true, true, LM_CODE);                 \
        *p = value;                                                                                      \
    }                                                                                                    \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T value, int, int) {   \
        lm_emu::race::accessed(const_cast<const T*>(p), sizeof(T), true, true, LM_CODE);                 \
        const T old = *p;                                                                                \
        const bool same = old == *expected;                                                              \
        if (same) *p = value;                                                                            \
        *expected = old;                                                                                 \
        return same;                                                                                     \
    }                                                                                                    \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* expected, T value, int a, int b) { \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, value, a, b);                  \
    }                                                                                                    \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T value, int a, int b) {     \
        __tsan_atomic##bits##_compare_exchange_strong(p, &expected, value, a, b);                        \
        return expected;                                                                                 \
    }                                                                                                    \
    LM_FETCH(bits, T, exchange, value)                                                                   \
    LM_FETCH(bits, T, fetch_add, static_cast<T>(old + value))                                            \
    LM_FETCH(bits, T, fetch_sub, static_cast<T>(old - value))                                            \
    LM_FETCH(bits, T, fetch_and, static_cast<T>(old & value))                                            \
    LM_FETCH(bits, T, fetch_or, static_cast<T>(old | value))                                             \
    LM_FETCH(bits, T, fetch_xor, static_cast<T>(old ^ value))
#define LM_FETCH(bits, T, verb, result)                                                  \
    T __tsan_atomic##bits##_##verb(volatile T* p, T value, int) {                        \
        lm_emu::race::accessed(const_cast<const T*>(p), sizeof(T), true, true, LM_CODE); \
        const T old = *p;                                                                \
        *p = result;                                                                     \
        return old;                                                                      \
    }

extern "C" {
LM_SIZE(1)
LM_SIZE(2)
LM_SIZE(4)
LM_SIZE(8)
LM_SIZE(16)
LM_ATOMIC(8, std::uint8_t)
LM_ATOMIC(16, std::uint16_t)
LM_ATOMIC(32, std::uint32_t)
LM_ATOMIC(64, std::uint64_t)
void __tsan_read_range(void* p, unsigned long bytes) { lm_emu::race::accessed(p, bytes, false, false, LM_CODE); }
void __tsan_write_range(void* p, unsigned long bytes) { lm_emu::race::accessed(p, bytes, true, false, LM_CODE); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
void __tsan_init(void) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}
