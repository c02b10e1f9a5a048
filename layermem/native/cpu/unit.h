// A vector unit of the machine: its name, its width, and the inner loops compiled for it.
//
// Each inner loop is written once (inner/*.h) and compiled three times (kernels_base.cpp, kernels_avx2.cpp,
// kernels_avx512.cpp), each time in a namespace of its own.  Drivers (convolution.cpp, ...) are compiled once for
// the baseline; they cut the work into tasks and call through this table.  Pick of the unit: at run time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "channels.h"
#include "depthwise.h"
#include "lines.h"
#include "losses.h"
#include "map.h"
#include "moves.h"
#include "pooling.h"
#include "reduction.h"
#include "winograd.h"

namespace layermem::cpu {

enum class Start { zero, bias, out };  // what a sum begins with: nothing, the channel's bias, what is there already

// out[row][0..columns) (+)= sum over runs t and k < length of in[t][row][k] * packed[t * length + k][column].
// A panel: `vectors` registers wide.  Rows are found by pointer, so any stride, padding or layout of pixels will do.
struct GemmBlock {
    const float* const* in;  // [runs][pitch]; entries [rows, pitch) point at anything readable
    int64_t pitch;
    const float* none;  // stands for a row of zeros (padding); where a whole tile has it the run is skipped
    int64_t runs, length;
    const float* packed;  // [runs * length][vectors * lanes]
    float* const* out;    // [rows], at the panel's first column once `column` is added
    int64_t rows, column;
    int vectors, last;  // registers of the panel, floats in use of its last one
    Start start;
    const float* bias;  // of the panel's first column, for Start::bias
    bool relu;          // negative sums become 0
};

// out[k * pitch + c] (+)= sum over j < count of d[j][k] * x[j][c],  k < rows, c < columns.
struct OuterBlock {
    const float* const* x;
    const float* const* d;
    int64_t count, rows, columns;
    float* out;
    int64_t pitch;
    Start start;  // zero or out
};

// out[m * pitch + n] (+)= sum over k < length of a[m * a_pitch + k] * b[n * b_pitch + k],  m < rows, n < columns.
struct DotBlock {
    const float* a;
    const float* b;
    int64_t a_pitch, b_pitch, length, rows, columns;
    float* out;
    int64_t pitch;
    Start start;
    const float* bias;  // [columns]
    bool relu;
};

// out[m * pitch + c] (+)= sum over j < depth of d[m * d_pitch + j] * w[j * w_pitch + c],  m < rows, c < columns.
// Each register of w is loaded once for all rows, so w may be read from memory in long lines.
struct RankBlock {
    const float *d, *w;
    int64_t d_pitch, w_pitch, depth, rows, columns;
    float* out;
    int64_t pitch;
    Start start;  // zero or out
};

struct Unit {
    const char* name;
    int lanes;        // floats in a register
    int max_vectors;  // widest panel of a GemmBlock, in registers

    void (*gemm)(const GemmBlock&);
    void (*outer)(const OuterBlock&);
    void (*dot)(const DotBlock&);
    void (*rank)(const RankBlock&);
    // out[k][j] = w[j * pitch + k]  for k < depth, j < columns; zeros up to `width` columns, a multiple of lanes
    void (*pack_columns)(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width);
    // out[k][j] = w[k * pitch + j]  likewise
    void (*pack_rows)(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width);
    void (*add_rows)(float* out, const float* in, int64_t pitch, int64_t rows, int64_t columns, Start start);

    void (*winograd_in)(const WinogradTiles&, int64_t begin, int64_t end);      // 4x4 pixels to squares
    void (*winograd_out)(const WinogradTiles&, int64_t begin, int64_t end);     // squares to 2x2 pixels
    void (*winograd_spread)(const WinogradTiles&, int64_t begin, int64_t end);  // 2x2 pixels of dy to squares
    void (*winograd_pack_columns)(const WinogradWeights&, float* packed, int64_t pitch, int64_t column, int64_t columns,
                                  int64_t width);
    void (*winograd_pack_rows)(const WinogradWeights&, float* packed, int64_t pitch, int64_t column, int64_t columns,
                               int64_t width, int64_t begin, int64_t end);
    void (*winograd_weights)(const WinogradWeights&, int64_t begin, int64_t end);

    void (*depthwise)(const DepthwiseArgs&, int64_t row);       // of n * ho
    void (*depthwise_back)(const DepthwiseArgs&, int64_t row);  // of n * h
    void (*depthwise_sums)(const DepthwiseSums&, int64_t begin, int64_t end);

    // on elements [begin, end)
    void (*map)(const Map&, int64_t begin, int64_t end);
    void (*relu_forward)(const Relu&, int64_t begin, int64_t end);   // begin: a multiple of 16
    void (*relu_backward)(const Relu&, int64_t begin, int64_t end);  // likewise
    void (*clip_forward)(const Clip&, int64_t begin, int64_t end);   // likewise
    void (*choose_forward)(const Choice&, int64_t begin, int64_t end);
    void (*choose_backward)(const Choice&, int64_t begin, int64_t end);
    void (*dropout)(const Dropout&, int64_t begin, int64_t end);  // begin: a multiple of 64
    void (*update)(const Update&, int64_t begin, int64_t end);
    double (*squares)(const float* x, int64_t begin, int64_t end);

    void (*max_pool)(const PoolArgs&, int64_t row);  // of n * ho
    void (*average_pool)(const PoolArgs&, int64_t row);
    void (*max_pool_back)(const PoolArgs&, int64_t row);  // of n * h
    void (*average_pool_back)(const PoolArgs&, int64_t row);

    void (*blend)(const BlendArgs&, int64_t begin, int64_t end);      // lines
    void (*channel_sum)(const SumArgs&, int64_t begin, int64_t end);  // of outer

    void (*softmax)(const SoftmaxArgs&, int64_t begin, int64_t end);  // of outer
    void (*softmax_back)(const SoftmaxArgs&, int64_t begin, int64_t end);
    void (*softmax_loss)(const SoftmaxArgs&, int64_t begin, int64_t end, Judged&);
    void (*softmax_loss_back)(const SoftmaxArgs&, int64_t begin, int64_t end);
    void (*accuracy)(const SoftmaxArgs&, int64_t begin, int64_t end, Judged&);

    void (*sigmoid_loss)(const TargetArgs&, int64_t begin, int64_t end, Judged&);  // of elements
    void (*sigmoid_loss_back)(const TargetArgs&, int64_t begin, int64_t end);
    void (*euclidean_loss)(const PairArgs&, int64_t begin, int64_t end, Judged&);
    void (*euclidean_loss_back)(const PairArgs&, int64_t begin, int64_t end);
    void (*contrastive_loss)(const PairArgs&, int64_t begin, int64_t end, Judged&);  // of items
    void (*contrastive_loss_back)(const PairArgs&, int64_t begin, int64_t end);
    void (*hinge_loss)(const ItemArgs&, int64_t begin, int64_t end, Judged&);
    void (*hinge_loss_back)(const ItemArgs&, int64_t begin, int64_t end);
    void (*logistic_loss)(const ItemArgs&, int64_t begin, int64_t end, Judged&);
    void (*logistic_loss_back)(const ItemArgs&, int64_t begin, int64_t end);

    double (*reduce_row)(const ReduceArgs&, const float* row, int64_t begin, int64_t end);
    void (*reduce_columns)(const ReduceArgs&, int64_t outer, int64_t begin, int64_t end);
    void (*reduce_back)(const ReduceArgs&, int64_t begin, int64_t end);  // of outer * size lines
    int64_t (*not_below)(const float* x, int64_t begin, int64_t end, float floor);
    bool (*largest_of_few)(const float* x, int64_t rows, int64_t size, float* place, float* value);

    void (*lrn)(const LrnArgs&, int64_t begin, int64_t end, float* room);  // of pixels
    void (*lrn_back)(const LrnArgs&, int64_t begin, int64_t end, float* room);
    void (*lrn_within)(const LrnArgs&, int64_t row, float* products);  // of n * h; products: backward's first pass
    void (*lrn_within_back)(const LrnArgs&, int64_t row, const float* products);
    void (*interp)(const InterpArgs&, int64_t row);       // of n * ho
    void (*interp_back)(const InterpArgs&, int64_t row);  // of n * h

    void (*copy_rows)(const Rows&, int64_t begin, int64_t end);
    void (*transpose)(const Transpose&, int64_t image, int64_t begin, int64_t end);  // rows
};

const Unit& unit();                             // the one that launches made from now on will use
std::vector<std::string> vector_units();        // what this machine has, slowest first
void set_vector_unit(const std::string& name);  // one of those, or "auto"; std::invalid_argument otherwise

const Unit* unit_base();
const Unit* unit_avx2();    // null where the compiler does not know it
const Unit* unit_avx512();  // likewise

constexpr int64_t SHORT = 32;   // columns of a row, up to which rows fill the lanes better
constexpr int64_t ROWS = 96;    // most output rows of one GemmBlock; a multiple of every tile height
constexpr int64_t DEPTH = 384;  // most reduction steps of one GemmBlock before sums go back to memory

}  // namespace layermem::cpu
