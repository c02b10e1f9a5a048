// Tiles are processed in batches whose transforms stay in cache: transform the input, multiply 16 matrices, transform
// the output.  The workspace of fprop and dgrad is the packed weights, the input tiles and the output tiles of a batch;
// each of the three is [16 elements][...], with `kSkew` floats between elements.
//
//     x --B' d B--> in_tiles [16][batch][c] --times packed [16][c][k]--> out_tiles [16][batch][k] --A' m A--> y
//
// The batches depend on the shape only, and every sum runs in order of channels (wgrad: of tiles), so results do not
// depend on the number of threads.
#include "cpu/kernels/winograd.h"

#include <algorithm>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/implicit_gemm.h"
#include "cpu/microkernels/winograd.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kBatchBytes = 2 << 20;    // of tiles: more would leave the cache, fewer make small products
constexpr int64_t kSkew = 80;               // floats between elements, so that they do not fall into one cache set
constexpr int64_t kTaskChannels = 64;       // output channels of a weight gradient's task
constexpr int64_t kTransformFloats = 2048;  // of a task of a transform
constexpr int64_t kMinTasks = 64;           // of the products

// 2x2 tiles of y, over all images; those at the lower and right border may stick out by a pixel.
int64_t tile_count(const ConvProblem& p) { return p.n * ceil_div(p.ho(), 2) * ceil_div(p.wo(), 2); }

// Tiles of a batch: a multiple of 48, the rows of several GEMM tiles, at least 48.
int64_t batch_tiles(const ConvProblem& p, int64_t tiles) {
    return std::min(tiles, std::max<int64_t>(kBatchBytes / (kTileElements * 4 * (p.c + p.k)) / 48 * 48, 48));
}

// Floats of one element of `tiles` tiles.
int64_t element_floats(int64_t tiles, int64_t channels) { return tiles * channels + kSkew; }

// Floats of all elements of `tiles` tiles; no skew lies behind the last.
int64_t all_elements_floats(int64_t tiles, int64_t channels) {
    return kTileElements * element_floats(tiles, channels) - kSkew;
}

// The same of packed weights.
int64_t all_packed_floats(int64_t depth, int64_t columns) {
    return kTileElements * (packed_floats(depth, columns) + kSkew) - kSkew;
}

// The part of a workspace behind one of `floats` floats.
float* part_after(float* part, int64_t floats) {
    return part + aligned_bytes<float>(floats) / static_cast<int64_t>(sizeof(float));
}

// One group of a convolution is a convolution of its own, whose pixels are further apart than its channels are many.
struct Group {
    ConvProblem p;             // with groups = 1
    int64_t x_pixel, y_pixel;  // floats from one pixel to the next
};

Group one_group(const ConvProblem& p) {
    Group group{p, p.c, p.k};
    group.p.c = p.group_c();
    group.p.k = p.group_k();
    group.p.groups = 1;
    return group;
}

// A group as the transforms see it: fprop reads x and writes y, dgrad reads dy and writes dx.
struct Direction {
    int64_t in_h, in_w, in_c, in_pixel, out_h, out_w, out_c, out_pixel, images, pad_h, pad_w;
};

Direction fprop_direction(const Group& group) {
    const ConvProblem& p = group.p;
    return {p.h, p.w, p.c, group.x_pixel, p.ho(), p.wo(), p.k, group.y_pixel, p.n, p.ph, p.pw};
}

// dgrad is a convolution of dy with the window rotated by 180 degrees and pad 2 - ph (kernel - 1 - pad).
Direction dgrad_direction(const Group& group) {
    const ConvProblem& p = group.p;
    return {p.ho(), p.wo(), p.k, group.y_pixel, p.h, p.w, p.c, group.x_pixel, p.n, 2 - p.ph, 2 - p.pw};
}

// A batch through the 16 products: in_tiles [16][count][in_c] -> out_tiles [16][count][out_c].  The depth in_c is cut
// into slices of at most kBlockDepth, so that the slice of a panel stays in cache while all rows of a block pass over
// it.  Only where elements x blocks give too few tasks are the panels shared out as well.
void multiply(const GemmKernels& kernels, const Direction& d, int64_t count, const float* in_tiles, float* out_tiles,
              const float* packed, int64_t packed_pitch) {
    const auto panels = make_panels(kernels, d.out_c);
    const auto panel_count = static_cast<int64_t>(panels.size());
    const int64_t blocks = ceil_div(count, kBlockRows), slices = ceil_div(d.in_c, kBlockDepth);
    const int64_t shares = std::clamp<int64_t>(kMinTasks / (kTileElements * blocks), 1, panel_count);
    // A task: one element of the tiles, one block of rows, one share of the panels.
    parallel_for(kTileElements * blocks * shares, [&](int64_t task) {
        const int64_t share = task % shares, block = task / shares % blocks, element = task / shares / blocks;
        const float* in_element = in_tiles + element * element_floats(count, d.in_c);
        float* out_element = out_tiles + element * element_floats(count, d.out_c);
        const float* in_rows[kBlockRows];
        float* out_rows[kBlockRows];
        GemmBlock args{};
        args.in_rows = in_rows;
        args.out_rows = out_rows;
        args.pitch = kBlockRows;
        args.slices = 1;
        args.rows = std::min(kBlockRows, count - block * kBlockRows);
        for (int64_t slice = 0; slice < slices; ++slice) {
            const int64_t begin = chunk_begin(d.in_c, slices, slice);
            args.length = chunk_begin(d.in_c, slices, slice + 1) - begin;
            args.init = slice ? Init::out : Init::zero;
            for (int64_t i = 0; i < kBlockRows; ++i) {  // entries beyond the rows repeat the last one
                const int64_t tile = block * kBlockRows + std::min(i, args.rows - 1);
                in_rows[i] = in_element + tile * d.in_c + begin;
                out_rows[i] = out_element + tile * d.out_c;
            }
            for (int64_t i = chunk_begin(panel_count, shares, share); i < chunk_begin(panel_count, shares, share + 1);
                 ++i) {
                const Panel& panel = panels[static_cast<size_t>(i)];
                args.vectors = panel.vectors;
                args.last_lanes = panel.last_lanes;
                args.column = panel.column;
                args.packed =
                    packed + element * packed_pitch + panel.offset * d.in_c + begin * panel.vectors * kernels.lanes;
                kernels.gemm(args);
            }
        }
    });
}

struct Epilogue {
    float* out;
    const float* bias;
    bool accumulate, relu;
};

// One group: for each batch of tiles, transform, multiply, transform back.
void run_group(const GemmKernels& gemm, const WinogradKernels& winograd, const ConvProblem& p, const Direction& d,
               const Epilogue& epilogue, const float* in, float* packed) {
    const int64_t tiles_h = ceil_div(d.out_h, 2), tiles_w = ceil_div(d.out_w, 2), tiles = d.images * tiles_h * tiles_w;
    const int64_t batch = batch_tiles(p, tiles), packed_pitch = packed_floats(d.in_c, d.out_c) + kSkew;
    float* in_tiles = part_after(packed, all_packed_floats(d.in_c, d.out_c));
    float* out_tiles = part_after(in_tiles, all_elements_floats(batch, d.in_c));
    for (int64_t first = 0; first < tiles; first += batch) {
        const int64_t count = std::min(batch, tiles - first);
        WinogradTiles read{};
        read.h = d.in_h;
        read.w = d.in_w;
        read.c = d.in_c;
        read.tiles_h = tiles_h;
        read.tiles_w = tiles_w;
        read.pixel = d.in_pixel;
        read.top = -d.pad_h;
        read.left = -d.pad_w;
        read.first = first;
        read.pitch = element_floats(count, d.in_c);
        read.tiles = in_tiles;
        read.in = in;
        parallel_for_ranges(count, std::max<int64_t>(1, kTransformFloats / d.in_c),
                            [&](int64_t begin, int64_t end) { winograd.transform_input(read, begin, end); });

        multiply(gemm, d, count, in_tiles, out_tiles, packed, packed_pitch);

        WinogradTiles write{};
        write.h = d.out_h;
        write.w = d.out_w;
        write.c = d.out_c;
        write.tiles_h = tiles_h;
        write.tiles_w = tiles_w;
        write.pixel = d.out_pixel;
        write.first = first;
        write.pitch = element_floats(count, d.out_c);
        write.tiles = out_tiles;
        write.out = epilogue.out;
        write.bias = epilogue.bias;
        write.accumulate = epilogue.accumulate;
        write.relu = epilogue.relu;
        parallel_for_ranges(count, std::max<int64_t>(1, kTransformFloats / d.out_c),
                            [&](int64_t begin, int64_t end) { winograd.transform_output(write, begin, end); });
    }
}

// Workspace of one direction: packed weights, input tiles, output tiles, as in run_group.
int64_t direction_bytes(const ConvProblem& p, const Direction& d) {
    const int64_t batch = batch_tiles(p, d.images * ceil_div(d.out_h, 2) * ceil_div(d.out_w, 2));
    return aligned_bytes<float>(all_packed_floats(d.in_c, d.out_c)) +
           aligned_bytes<float>(all_elements_floats(batch, d.in_c)) +
           aligned_bytes<float>(all_elements_floats(batch, d.out_c));
}

// total [16][k][c]: the transformed weight gradient of one group, summed over all tiles.  Behind it in the workspace
// are the input and dy tiles of a batch.  dw = G' u G with u[f] = sum over tiles of dy_tile[f] x_tile[f]': the sum runs
// in the transformed space, so that one transform back suffices for all tiles.
void sum_products(const GemmKernels& gemm, const WinogradKernels& winograd, const Group& group, float* total,
                  const float* x, const float* dy) {
    const ConvProblem& p = group.p;
    const int64_t tiles = tile_count(p), batch = batch_tiles(p, tiles), chunks = ceil_div(p.k, kTaskChannels);
    float* x_tiles = part_after(total, kTileElements * p.k * p.c);
    float* dy_tiles = part_after(x_tiles, all_elements_floats(batch, p.c));
    for (int64_t first = 0; first < tiles; first += batch) {
        const int64_t count = std::min(batch, tiles - first);
        WinogradTiles in{};
        in.h = p.h;
        in.w = p.w;
        in.c = p.c;
        in.tiles_h = ceil_div(p.ho(), 2);
        in.tiles_w = ceil_div(p.wo(), 2);
        in.pixel = group.x_pixel;
        in.top = -p.ph;
        in.left = -p.pw;
        in.first = first;
        in.pitch = element_floats(count, p.c);
        in.tiles = x_tiles;
        in.in = x;
        WinogradTiles out = in;
        out.h = p.ho();
        out.w = p.wo();
        out.c = p.k;
        out.pixel = group.y_pixel;
        out.top = 0;
        out.left = 0;
        out.pitch = element_floats(count, p.k);
        out.tiles = dy_tiles;
        out.in = dy;
        parallel_for_ranges(count, std::max<int64_t>(1, kTransformFloats / (p.c + p.k)),
                            [&](int64_t begin, int64_t end) {
                                winograd.transform_input(in, begin, end);
                                winograd.transform_dy(out, begin, end);
                            });
        // A task: one element of the tiles, one chunk of output channels; tiles are summed in order.
        parallel_for(kTileElements * chunks, [&](int64_t task) {
            const int64_t element = task / chunks, k = task % chunks * kTaskChannels;
            const float *x_rows[kMaxPairs], *dy_rows[kMaxPairs];
            OuterBlock block{};
            block.x = x_rows;
            block.d = dy_rows;
            block.d_strip = kStripRows;
            block.rows = std::min(kTaskChannels, p.k - k);
            block.columns = p.c;
            block.pitch = p.c;
            block.out = total + (element * p.k + k) * p.c;
            for (int64_t tile = 0; tile < count; tile += kMaxPairs) {
                block.count = std::min(kMaxPairs, count - tile);
                block.init = first == 0 && tile == 0 ? Init::zero : Init::out;
                for (int64_t i = 0; i < block.count; ++i) {
                    x_rows[i] = x_tiles + element * element_floats(count, p.c) + (tile + i) * p.c;
                    dy_rows[i] = dy_tiles + element * element_floats(count, p.k) + (tile + i) * p.k + k;
                }
                gemm.outer(block);
            }
        });
    }
}

}  // namespace

// Few channels leave too little to multiply between the transforms of pixels, few tiles too little behind that of
// weights.
bool is_winograd(const ConvProblem& p) {
    return p.kh == 3 && p.kw == 3 && p.sh == 1 && p.sw == 1 && p.dh == 1 && p.dw == 1 && p.group_c() >= 32 &&
           p.group_k() >= 32 && p.ph <= 2 && p.pw <= 2 && tile_count(p) >= 64;
}

// One size for fprop and dgrad: groups run one after the other and reuse it.
int64_t winograd_fprop_workspace_bytes(const ConvProblem& p) {
    const Group group = one_group(p);
    return direction_bytes(group.p, fprop_direction(group));
}

int64_t winograd_dgrad_workspace_bytes(const ConvProblem& p) {
    const Group group = one_group(p);
    return direction_bytes(group.p, dgrad_direction(group));
}

Launch winograd_fprop(const ConvProblem& p, float* y, const float* x, const float* w, const float* bias,
                      bool accumulate, bool relu, uint8_t* mask, void* workspace) {
    return [=, &gemm = gemm_kernels(), &winograd = winograd_kernels(), &activation = activation_kernels()] {
        const Group group = one_group(p);
        const int64_t c = group.p.c, k = group.p.k, pitch = packed_floats(c, k) + kSkew;
        float* packed = static_cast<float*>(workspace);
        const auto panels = make_panels(gemm, k);
        for (int64_t i = 0; i < p.groups; ++i) {
            const WinogradWeights weights{k, c, w + i * k * 9 * c, nullptr, nullptr, false};
            parallel_for(static_cast<int64_t>(panels.size()), [&](int64_t task) {
                const Panel& panel = panels[static_cast<size_t>(task)];
                const int64_t width = panel.vectors * int64_t{gemm.lanes};
                winograd.pack_fprop(weights, packed + panel.offset * c, pitch, panel.column, used_columns(gemm, panel),
                                    width);
            });
            const Epilogue epilogue{y + i * k, bias ? bias + i * k : nullptr, accumulate, relu};
            run_group(gemm, winograd, group.p, fprop_direction(group), epilogue, x + i * c, packed);
        }
        if (mask) write_mask(activation, p.n * p.ho() * p.wo() * p.k, y, mask);
    };
}

Launch winograd_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, const float* bias,
                      bool accumulate, void* workspace) {
    return [=, &gemm = gemm_kernels(), &winograd = winograd_kernels()] {
        const Group group = one_group(p);
        const int64_t c = group.p.c, k = group.p.k, pitch = packed_floats(k, c) + kSkew;
        const int64_t chunks = ceil_div(k, kTaskChannels);
        float* packed = static_cast<float*>(workspace);
        const auto panels = make_panels(gemm, c);
        for (int64_t i = 0; i < p.groups; ++i) {
            const WinogradWeights weights{k, c, w + i * k * 9 * c, nullptr, nullptr, false};
            parallel_for(static_cast<int64_t>(panels.size()) * chunks, [&](int64_t task) {
                const Panel& panel = panels[static_cast<size_t>(task / chunks)];
                const int64_t width = panel.vectors * int64_t{gemm.lanes}, begin = task % chunks * kTaskChannels;
                winograd.pack_dgrad(weights, packed + panel.offset * k, pitch, panel.column, used_columns(gemm, panel),
                                    width, begin, std::min(k, begin + kTaskChannels));
            });
            const Epilogue epilogue{dx + i * c, bias ? bias + i * c : nullptr, accumulate, false};
            run_group(gemm, winograd, group.p, dgrad_direction(group), epilogue, dy + i * k, packed);
        }
    };
}

int64_t winograd_wgrad_workspace_bytes(const ConvProblem& p) {
    const ConvProblem one = one_group(p).p;
    const int64_t batch = batch_tiles(one, tile_count(one));
    return aligned_bytes<float>(kTileElements * one.k * one.c) +
           aligned_bytes<float>(all_elements_floats(batch, one.c)) +
           aligned_bytes<float>(all_elements_floats(batch, one.k));
}

Launch winograd_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                      void* workspace) {
    return [=, &gemm = gemm_kernels(), &winograd = winograd_kernels()] {
        const Group group = one_group(p);
        const int64_t c = group.p.c, k = group.p.k;
        float* total = static_cast<float*>(workspace);
        for (int64_t i = 0; i < p.groups; ++i) {
            sum_products(gemm, winograd, group, total, x + i * c, dy + i * k);
            const WinogradWeights weights{k, c, nullptr, dw + i * k * 9 * c, total, accumulate};
            parallel_for_ranges(k, 4, [&](int64_t begin, int64_t end) { winograd.transform_dw(weights, begin, end); });
        }
    };
}

}  // namespace layermem::cpu
