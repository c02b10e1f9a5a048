// Sums of what ranks computed, in the order of ranks.
#pragma once
#include <cstdint>
#include <vector>

namespace layermem::distributed {

// sum = (sum if it continues, else 0) + part of rank 0 + part of rank 1 .., one addition after the other, per element.
//
//   sums, own  [chunks] where the elements of each chunk lie, in the sum and in the part of this rank; they may be the same
//   counts     [chunks] elements of each
//   received   [ranks - 1] the parts of the other ranks in their order: the elements of all chunks, one after the other
//   rank       of this process
//
// Every vector width gives the same bits: an element's additions do not depend on others.
void add_parts(const std::vector<float*>& sums, const std::vector<const float*>& own,
               const std::vector<int64_t>& counts, const std::vector<const float*>& received, int64_t rank,
               bool continues);

}  // namespace layermem::distributed
