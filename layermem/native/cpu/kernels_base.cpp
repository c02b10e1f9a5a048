#define LAYERMEM_UNIT base
#include "inner/table.h"

namespace layermem::cpu {
const Unit* unit_base() {
    static const Unit u = base::table("base");
    return &u;
}
}  // namespace layermem::cpu
