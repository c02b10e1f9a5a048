#if defined(__AVX512F__)
#define LAYERMEM_UNIT avx512
#include "inner/table.h"

namespace layermem::cpu {
const Unit* unit_avx512() {
    static const Unit u = avx512::table("avx512");
    return &u;
}
}  // namespace layermem::cpu
#else
#include "unit.h"
namespace layermem::cpu {
const Unit* unit_avx512() { return nullptr; }
}  // namespace layermem::cpu
#endif
