// SearchSettings: what the search for nested recomputation and offloads may spend, and where it looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace layermem::planning {

struct SearchSettings {
#define SETTING(type, name, ...) type name = __VA_ARGS__;
#include "planning/setting_list.h"
};

}  // namespace layermem::planning
