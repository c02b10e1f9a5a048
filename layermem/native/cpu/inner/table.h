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
#include "math.h"  // after lanes.h
// and the loops
#include "channels.h"
#include "depthwise.h"
#include "dot.h"
#include "gemm.h"
#include "lines.h"
#include "losses.h"
#include "map.h"
#include "moves.h"
#include "outer.h"
#include "pooling.h"
#include "reduction.h"
#include "softmax.h"
#include "winograd.h"

Unit table(const char* name) {
    Unit u{};
    u.name = name;
    u.lanes = LANES;
    u.max_vectors = MAX_VECTORS;
    u.gemm = gemm;
    u.outer = outer;
    u.dot = dot;
    u.rank = rank;
    u.pack_columns = pack_columns;
    u.pack_rows = pack_rows;
    u.add_rows = add_rows;
    u.winograd_in = winograd_in;
    u.winograd_out = winograd_out;
    u.winograd_spread = winograd_spread;
    u.winograd_pack_columns = winograd_pack_columns;
    u.winograd_pack_rows = winograd_pack_rows;
    u.winograd_weights = winograd_weights;
    u.depthwise = depthwise_row;
    u.depthwise_back = depthwise_back_row;
    u.depthwise_sums = depthwise_sums;
    u.map = map;
    u.relu_forward = relu_forward;
    u.relu_backward = relu_backward;
    u.clip_forward = clip_forward;
    u.choose_forward = choose_forward;
    u.choose_backward = choose_backward;
    u.dropout = dropout;
    u.update = update;
    u.squares = squares;
    u.max_pool = max_pool_row;
    u.average_pool = average_pool_row;
    u.max_pool_back = max_pool_back_row;
    u.average_pool_back = average_pool_back_row;
    u.blend = blend;
    u.channel_sum = channel_sum;
    u.softmax = softmax;
    u.softmax_back = softmax_back;
    u.softmax_loss = softmax_loss;
    u.softmax_loss_back = softmax_loss_back;
    u.accuracy = accuracy;
    u.sigmoid_loss = sigmoid_loss;
    u.sigmoid_loss_back = sigmoid_loss_back;
    u.euclidean_loss = euclidean_loss;
    u.euclidean_loss_back = euclidean_loss_back;
    u.contrastive_loss = contrastive_loss;
    u.contrastive_loss_back = contrastive_loss_back;
    u.hinge_loss = hinge_loss;
    u.hinge_loss_back = hinge_loss_back;
    u.logistic_loss = logistic_loss;
    u.logistic_loss_back = logistic_loss_back;
    u.reduce_row = reduce_row;
    u.reduce_columns = reduce_columns;
    u.reduce_back = reduce_back;
    u.not_below = not_below;
    u.largest_of_few = largest_of_few;
    u.lrn = lrn;
    u.lrn_back = lrn_back;
    u.lrn_within = lrn_within;
    u.lrn_within_back = lrn_within_back;
    u.interp = interp_row;
    u.interp_back = interp_back_row;
    u.copy_rows = copy_rows;
    u.transpose = transpose;
    return u;
}
}  // namespace
}  // namespace LAYERMEM_UNIT
}  // namespace layermem::cpu
