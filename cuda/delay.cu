// delay: keeps a stream busy, so that the work queued after it starts without the latency of its launch.
//   launch   one warp: grid 1, block 32; reads and writes no blob
//   traffic  none
//   assumes  less than a second
//   source   layermem/backends/cuda/device.py, seconds()
#include "primitives.cuh"

using namespace lm;

struct DelayArgs {
    unsigned long long cycles;  // of the multiprocessor's clock
};

LM_KERNEL(delay, DelayArgs, p, 32) {
    const long long begin = clock_cycles();
    while (static_cast<unsigned long long>(clock_cycles() - begin) < p.cycles) {
    }
}
