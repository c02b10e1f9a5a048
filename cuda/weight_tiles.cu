// Weights of a convolution in fp32, rounded to bfloat16 and laid out for products of warpgroups.
#include "weight_tiles.cuh"

using namespace lm;

constexpr int THREADS = 256, CHUNKS = 4;  // CHUNKS: of a thread, whose loads are in flight together
constexpr int STAGE_CHUNKS = WeightTile::ELEMENTS / WeightTile::CHUNK;
constexpr int ROW_CHUNKS = WeightTile::DEPTH / WeightTile::CHUNK;  // and those of a row of a panel, which is as long
constexpr int PANELS = WeightTile::COLUMNS / WeightTile::PANEL, PANEL_CHUNKS = STAGE_CHUNKS / PANELS;
constexpr int BLOCKS = STAGE_CHUNKS / (THREADS * CHUNKS);  // that write a stage

// tile_rows, tile_columns: the tiles of weight_tiles.cuh.
//   tiles    rows or columns of bfloat16  written      weights  [groups][outputs][taps][channels] float  read
//   launch   grid (stages of a tile x BLOCKS, tiles along n, groups), block 256, no shared memory
//   traffic  6 bytes per weight, and 2 per zero: bound by memory
//   assumes  channels are a multiple of 8, and of tile_columns outputs of 64
//   ties     to even; every NaN becomes 0x7fff, as in half.cu
//   source   the swizzle of 128 bytes: PTX ISA, "Shared Memory Matrix Layout"
struct TileWeightsArgs {
    unsigned short* tiles;
    const float* weights;
    int outputs, taps, channels;  // of a group
};

// A chunk: weights from number `from` on, or zeros.  Its loads are in no branch, so that those of all chunks are in flight.
struct EightWeights {
    float values[2][4];
    bool inside;

    LM_MEMBER void fetch(const float* weights, long long from, bool is_inside) {
        inside = is_inside;
        const float* source = weights + (inside ? from : 0);
#pragma unroll
        for (int half = 0; half < 2; ++half) load<4>(values[half], source + 4 * half);
    }

    LM_MEMBER void place(uint4* to) const {
        const auto pair = [&](int half, int e) {
            return inside ? Bf16::pack(values[half][e], values[half][e + 1]) : 0u;
        };
        *to = make_uint4(pair(0, 0), pair(0, 2), pair(1, 0), pair(1, 2));
    }
};

// This thread's chunk number i of a stage.
LM_FN unsigned my_chunk(int i) { return (blockIdx.x % BLOCKS * CHUNKS + i) * THREADS + threadIdx.x; }

// The chunks of the stage that this block writes a part of.
LM_FN uint4* my_stage(unsigned short* tiles) {
    const long long tile = static_cast<long long>(blockIdx.z) * gridDim.y + blockIdx.y;
    check_aligned(tiles, 16);
    return reinterpret_cast<uint4*>(tiles) + (tile * (gridDim.x / BLOCKS) + blockIdx.x / BLOCKS) * STAGE_CHUNKS;
}

// Chunk j of row r, among the chunks of all rows.
LM_FN unsigned swizzled(unsigned r, unsigned j) { return r * ROW_CHUNKS + (j ^ (r & 7u)); }

LM_KERNEL(tile_rows, TileWeightsArgs, p, THREADS) {
    const int depth = p.taps * p.channels, first = static_cast<int>(blockIdx.x / BLOCKS) * WeightTile::DEPTH;
    const int n0 = static_cast<int>(blockIdx.y) * WeightTile::COLUMNS;
    const float* weights = p.weights + static_cast<long long>(blockIdx.z) * p.outputs * depth;
    EightWeights chunks[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const int output = n0 + static_cast<int>(my_chunk(i) / ROW_CHUNKS);
        const int k = first + static_cast<int>(my_chunk(i) % ROW_CHUNKS) * WeightTile::CHUNK;
        chunks[i].fetch(weights, static_cast<long long>(output) * depth + k, output < p.outputs && k < depth);
    }
    uint4* stage = my_stage(p.tiles);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i)
        chunks[i].place(stage + swizzled(my_chunk(i) / ROW_CHUNKS, my_chunk(i) % ROW_CHUNKS));
}

LM_KERNEL(tile_columns, TileWeightsArgs, p, THREADS) {
    constexpr unsigned OF_K = PANELS * ROW_CHUNKS;  // chunks of all columns, which lie one behind the other in memory
    const int number = static_cast<int>(blockIdx.x / BLOCKS), of_tap = p.outputs / WeightTile::DEPTH;
    const int tap = number / of_tap, first = (number - tap * of_tap) * WeightTile::DEPTH;
    const int n0 = static_cast<int>(blockIdx.y) * WeightTile::COLUMNS;
    const long long row = static_cast<long long>(p.taps) * p.channels;
    const float* weights = p.weights + static_cast<long long>(blockIdx.z) * p.outputs * row;
    EightWeights chunks[CHUNKS];
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const int channel = n0 + static_cast<int>(my_chunk(i) % OF_K) * WeightTile::CHUNK;
        const int output = first + static_cast<int>(my_chunk(i) / OF_K);
        chunks[i].fetch(weights, output * row + tap * p.channels + channel, channel < p.channels);
    }
    uint4* stage = my_stage(p.tiles);
#pragma unroll
    for (int i = 0; i < CHUNKS; ++i) {
        const unsigned k = my_chunk(i) / OF_K, chunk = my_chunk(i) % OF_K;
        chunks[i].place(stage + chunk / ROW_CHUNKS * PANEL_CHUNKS + swizzled(k, chunk % ROW_CHUNKS));
    }
}
