// Behind the primitives: what kernels are made of is called here, where it is inlined on a GPU.
//
// A function is then compiled once for all kernels of a source, in half the time of compiling it into each of them.
// The primitives, which come before, stay inlined, so that the machine sees from where in a kernel they are called.
#pragma once

#undef __forceinline__
#define __forceinline__ inline
