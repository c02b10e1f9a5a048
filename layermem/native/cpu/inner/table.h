// All inner loops of one vector unit.  The including file names the unit: LAYERMEM_UNIT (its namespace).
#include <cstdint>

#include "../unit.h"
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace layermem::cpu {
namespace LAYERMEM_UNIT {
namespace {
#include "lanes.h"
#include "gemm.h"
#include "dot.h"
#include "outer.h"

Unit table(const char* name) {
    Unit u{};
    u.name = name;
    u.lanes = LANES;
    u.max_vectors = MAX_VECTORS;
    u.gemm = gemm;
    u.outer = outer;
    u.dot = dot;
    u.pack_columns = pack_columns;
    u.pack_rows = pack_rows;
    u.add_rows = add_rows;
    return u;
}
}  // namespace
}  // namespace LAYERMEM_UNIT
}  // namespace layermem::cpu
