#if defined(__AVX2__)
#define LAYERMEM_UNIT avx2
#include "inner/table.h"

namespace layermem::cpu {
const Unit* unit_avx2() {
    static const Unit u = avx2::table("avx2");
    return &u;
}
}  // namespace layermem::cpu
#else
#include "unit.h"
namespace layermem::cpu {
const Unit* unit_avx2() { return nullptr; }
}  // namespace layermem::cpu
#endif
