// CUDA's built-in vector types and the functions that make them, for those that kernels use.
#pragma once

#define LM_VECTOR2(Name, T, ALIGN)                \
    struct __attribute__((aligned(ALIGN))) Name { \
        T x, y;                                   \
    };                                            \
    inline Name make_##Name(T x, T y) { return {x, y}; }
#define LM_VECTOR4(Name, T, ALIGN)                \
    struct __attribute__((aligned(ALIGN))) Name { \
        T x, y, z, w;                             \
    };                                            \
    inline Name make_##Name(T x, T y, T z, T w) { return {x, y, z, w}; }

LM_VECTOR2(char2, signed char, 2)
LM_VECTOR2(uchar2, unsigned char, 2)
LM_VECTOR2(short2, short, 4)
LM_VECTOR2(ushort2, unsigned short, 4)
LM_VECTOR2(int2, int, 8)
LM_VECTOR2(uint2, unsigned, 8)
LM_VECTOR2(float2, float, 8)
LM_VECTOR2(double2, double, 16)
LM_VECTOR2(longlong2, long long, 16)
LM_VECTOR2(ulonglong2, unsigned long long, 16)
LM_VECTOR4(char4, signed char, 4)
LM_VECTOR4(uchar4, unsigned char, 4)
LM_VECTOR4(short4, short, 8)
LM_VECTOR4(ushort4, unsigned short, 8)
LM_VECTOR4(int4, int, 16)
LM_VECTOR4(uint4, unsigned, 16)
LM_VECTOR4(float4, float, 16)

#undef LM_VECTOR2
#undef LM_VECTOR4
