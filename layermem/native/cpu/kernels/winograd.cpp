// Tiles are processed in batches whose transforms stay in cache: transform the input, multiply one matrix per element
// of the tiles (16 or 36), transform the output.  The workspace of fprop and dgrad is the packed weights, the input
// tiles and the output tiles of a batch; each of the three is [elements][...], with `kSkew` floats between elements.
//
//     x --B' d B--> in_tiles [e][batch][c] --times packed [e][c][k]--> out_tiles [e][batch][k] --A' m A--> y
//
// Transformed weights take 16/9 or 4 times as many bytes.  Many of them are made and used for a chunk of output channels
// at a time, and so are the sums of a weight gradient: all batches pass for one chunk, then for the next, each with its
// input tiles transformed again.  Deep layers have few tiles and many weights: there one batch holds all tiles, which
// serve all chunks.  A slice of a batch may have so few tiles that threads wait longer for weights that others have
// packed than they multiply.  There a task transforms the weights of a few output channels piece by piece, on its stack,
// multiplies each piece while it is in the cache of its core, and ends with the pixels of its channels.
//
// Batches and chunks depend on the shape only, and every sum runs in order of channels (wgrad: of tiles), so results do
// not depend on them, nor on the number of threads.
#include "cpu/kernels/winograd.h"

#include <algorithm>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/implicit_gemm.h"
#include "cpu/kernels/registry.h"
#include "cpu/kernels/stored.h"
#include "cpu/kernels/winograd_tiles.h"
#include "cpu/microkernels/winograd.h"
#include "cpu/threads/thread_pool.h"

namespace layermem::cpu {
namespace {

constexpr int64_t kTaskChannels = 64;       // output channels of a weight gradient's product, steps of one that packs
constexpr int64_t kTransformFloats = 2048;  // floats that a task of a transform writes
constexpr int64_t kMinTasks = 64;           // tasks of the products
constexpr int64_t kPanelColumns = 16;       // output channels of a task with few tiles: a multiple of every register
constexpr int64_t kPieceDepth = 32;         // input channels whose weights it transforms at a time
constexpr int64_t kPieceFloats = kPieceDepth * kPanelColumns + kLineFloats;  // floats of an element: 74 KiB in all
constexpr int64_t kMaxElements = 36;                                         // elements of a tile of F(4x4, 3x3)

// The product of one direction of a group, and how it is divided into batches, chunks and tasks.
struct Product {
    Winograd f;
    Direction d;
    int64_t tiles_h, tiles_w, tiles, batch, chunk;  // chunk: output channels
    bool by_panels;                                 // few tiles: each task transforms weights of its own

    Product(const ConvProblem& p, const Direction& direction) : f(winograd_of(p)), d(direction) {
        tiles_h = f.along(d.out_h);
        tiles_w = f.along(d.out_w);
        tiles = d.images * tiles_h * tiles_w;
        batch = batch_tiles(f, p, tiles, d.in_c, 2);
        by_panels = tiles <= d.few_tiles && 4 * f.elements() * d.in_c * d.out_c > kChunkBytes;
        if (by_panels) batch = tiles;
        chunk =
            by_panels ? std::min(d.out_c, panel_chunk()) : chunk_channels(f, batch == tiles, tiles, d.out_c, d.in_c);
    }
    // The workspace: packed weights, input tiles, output tiles.
    int64_t packed_floats() const { return by_panels ? 0 : all_packed_floats(f, d.in_c, chunk); }
    int64_t in_floats() const { return all_elements_floats(f, batch, d.in_c); }
    int64_t out_floats() const {
        return by_panels ? ceil_div(chunk, kPanelColumns) * panel_floats() : all_elements_floats(f, batch, chunk);
    }
    int64_t panel_floats() const { return f.elements() * element_floats(tiles, kPanelColumns); }
    // By panels, the output channels whose tiles take kChunkBytes.
    int64_t panel_chunk() const {
        return std::max(kChunkBytes / (4 * f.elements() * tiles) / kPanelColumns * kPanelColumns, kPanelColumns);
    }
    int64_t bytes() const {
        return aligned_bytes<float>(packed_floats()) + aligned_bytes<float>(in_floats()) +
               aligned_bytes<float>(out_floats());
    }
};

// Output channels [begin, end).
struct Range {
    int64_t begin, end;
    int64_t count() const { return end - begin; }
};

using Pack = void (*)(const WinogradWeights&, const PackedPanel&, int64_t begin, int64_t end);

// Transformed weights of some output channels, in panels.
void pack_weights(const GemmKernels& gemm, Pack pack, const Product& product, const WinogradWeights& weights,
                  const Range& columns, float* packed) {
    const int64_t depth = product.d.in_c, parts = ceil_div(depth, kTaskChannels);
    const auto panels = make_panels(gemm, columns.count());
    parallel_for(static_cast<int64_t>(panels.size()) * parts, [&](int64_t i) {
        const Panel& panel = panels[static_cast<size_t>(i / parts)];
        const int64_t begin = i % parts * kTaskChannels;
        const PackedPanel to{packed + panel.offset * depth,       packed_pitch(depth, columns.count()),
                             columns.begin + panel.column,        used_columns(gemm, panel),
                             panel.vectors * int64_t{gemm.lanes}, 0};
        pack(weights, to, begin, std::min(depth, begin + kTaskChannels));
    });
}

// A batch through the products: in_tiles [elements][count][in_c] -> out_tiles [elements][count][columns].  The depth
// in_c is cut into slices of at most kBlockDepth, so that the slice of a panel stays in cache while all rows of a block
// pass over it.  Only where elements x blocks give too few tasks are the panels shared out as well.
void multiply(const GemmKernels& kernels, const Product& product, int64_t count, int64_t columns, const float* in_tiles,
              float* out_tiles, const float* packed) {
    const auto panels = make_panels(kernels, columns);
    const auto panel_count = static_cast<int64_t>(panels.size());
    const int64_t depth = product.d.in_c, elements = product.f.elements();
    const int64_t blocks = ceil_div(count, kBlockRows), slices = ceil_div(depth, kBlockDepth);
    const int64_t shares = std::clamp<int64_t>(kMinTasks / (elements * blocks), 1, panel_count);
    const int64_t tasks = elements * blocks * shares, workers = threads();
    // Packed weights of the element of task i: those of a panel, from a step on.
    const auto at = [&](int64_t i, const Panel& panel, int64_t step) {
        return packed + i / shares / blocks * packed_pitch(depth, columns) + panel.offset * depth +
               step * panel.vectors * kernels.lanes;
    };
    const auto first_panel = [&](int64_t i) {
        return panels[static_cast<size_t>(chunk_begin(panel_count, shares, i % shares))];
    };
    // A task: one element of the tiles, one block of rows, one share of the panels.
    parallel_for(tasks, [&](int64_t i) {
        const int64_t share = i % shares, block = i / shares % blocks, element = i / shares / blocks;
        const float* in_element = in_tiles + element * element_floats(count, depth);
        float* out_element = out_tiles + element * element_floats(count, columns);
        const float* in_rows[kBlockRows];
        float* out_rows[kBlockRows];
        GemmBlock args{};
        args.in_rows = in_rows;
        args.out_rows = out_rows;
        args.pitch = kBlockRows;
        args.slices = 1;
        args.rows = std::min(kBlockRows, count - block * kBlockRows);
        for (int64_t slice = 0; slice < slices; ++slice) {
            const int64_t begin = chunk_begin(depth, slices, slice);
            args.length = chunk_begin(depth, slices, slice + 1) - begin;
            args.init = slice ? Init::out : Init::zero;
            for (int64_t row = 0; row < kBlockRows; ++row) {  // entries beyond the rows repeat the last one
                const int64_t tile = block * kBlockRows + std::min(row, args.rows - 1);
                in_rows[row] = in_element + tile * depth + begin;
                out_rows[row] = out_element + tile * columns;
            }
            const int64_t end = chunk_begin(panel_count, shares, share + 1);
            for (int64_t j = chunk_begin(panel_count, shares, share); j < end; ++j) {
                const Panel& panel = panels[static_cast<size_t>(j)];
                args.vectors = panel.vectors;
                args.last_lanes = panel.last_lanes;
                args.column = panel.column;
                args.packed = at(i, panel, begin);
                // This thread goes on with the next panel, the next slice, or about as many tasks later as there are
                // threads; what it reads there may have been packed by another.
                if (j + 1 < end)
                    args.next = at(i, panels[static_cast<size_t>(j + 1)], begin);
                else if (slice + 1 < slices)
                    args.next = at(i, first_panel(i), begin + args.length);
                else
                    args.next = i + workers < tasks ? at(i + workers, first_panel(i + workers), 0) : nullptr;
                args.next_pitch = panel.vectors * int64_t{kernels.lanes};
                kernels.gemm(args);
            }
        }
    });
}

struct Epilogue {
    float* out;
    const float* bias;
    bool accumulate, relu;
    Storage read, written;  // how in and out are stored
};

// Tiles [first, first + count) of the input.
void transform_inputs(const WinogradKernels& winograd, const Product& product, int64_t first, int64_t count,
                      const float* in, Storage storage, float* in_tiles) {
    const Direction& d = product.d;
    WinogradTiles read{};
    read.h = d.in_h;
    read.w = d.in_w;
    read.c = d.in_c;
    read.tiles_h = product.tiles_h;
    read.tiles_w = product.tiles_w;
    read.pixel = d.in_pixel;
    read.top = -d.pad_h;
    read.left = -d.pad_w;
    read.first = first;
    read.pitch = element_floats(count, d.in_c);
    read.tiles = in_tiles;
    read.in = in;
    parallel_for_ranges(count, std::max<int64_t>(1, kTransformFloats / d.in_c),
                        [&, transform = of_storage(winograd.transform_input, storage)](int64_t begin, int64_t end) {
                            transform(read, begin, end);
                        });
}

// Tiles [first, first + count) of some output channels, as they are to be transformed back.
WinogradTiles output_tiles(const Product& product, const Epilogue& epilogue, const Range& columns, int64_t first,
                           int64_t count, float* out_tiles) {
    const Direction& d = product.d;
    WinogradTiles write{};
    write.h = d.out_h;
    write.w = d.out_w;
    write.c = columns.count();
    write.tiles_h = product.tiles_h;
    write.tiles_w = product.tiles_w;
    write.pixel = d.out_pixel;
    write.first = first;
    write.pitch = element_floats(count, columns.count());
    write.tiles = out_tiles;
    write.out = element(epilogue.out, epilogue.written, columns.begin);
    write.bias = epilogue.bias ? epilogue.bias + columns.begin : nullptr;
    write.accumulate = epilogue.accumulate;
    write.relu = epilogue.relu;
    return write;
}

// Products of all elements of all tiles with a piece of the weights, for some output channels: `packed` has steps
// [begin, begin + depth) of them, each element in panels.  sums [elements][tiles][columns] = or += these.
void multiply_piece(const GemmKernels& kernels, const Product& product, const Range& columns, int64_t begin,
                    int64_t depth, const float* in_tiles, float* sums, const float* packed) {
    const int64_t count = product.tiles, in_c = product.d.in_c, lanes = kernels.lanes, width = columns.count();
    const float* in_rows[kBlockRows];
    float* out_rows[kBlockRows];
    GemmBlock args{};
    args.in_rows = in_rows;
    args.out_rows = out_rows;
    args.pitch = kBlockRows;
    args.slices = 1;
    args.length = depth;
    args.rows = count;
    args.init = begin ? Init::out : Init::zero;
    const int64_t readable = std::min(ceil_div(count, kTileRows) * kTileRows, kBlockRows);
    for (int64_t element = 0; element < product.f.elements(); ++element) {
        const float* in_element = in_tiles + element * element_floats(count, in_c) + begin;
        float* out_element = sums + element * element_floats(count, width);
        for (int64_t row = 0; row < readable; ++row) {  // entries beyond the rows repeat the last one
            const int64_t tile = std::min(row, count - 1);
            in_rows[row] = in_element + tile * in_c;
            out_rows[row] = out_element + tile * width;
        }
        args.packed = packed + element * kPieceFloats;
        for (args.column = 0; args.column < width; args.column += args.vectors * lanes) {
            const int64_t left = width - args.column;
            args.vectors = static_cast<int>(std::min<int64_t>(kernels.max_vectors, ceil_div(left, lanes)));
            args.last_lanes = static_cast<int>(std::min(lanes, left - (args.vectors - 1) * lanes));
            kernels.gemm(args);
            args.packed += depth * args.vectors * lanes;
        }
    }
}

// Few tiles: a task has some output channels, and weights of its own.
void run_panels(const GemmKernels& gemm, const WinogradKernels& winograd, Pack pack, const Product& product,
                const WinogradWeights& weights, const Epilogue& epilogue, const float* in_tiles, float* out_tiles) {
    const Direction& d = product.d;
    for (int64_t first = 0; first < d.out_c; first += product.chunk) {
        const int64_t last = std::min(d.out_c, first + product.chunk);
        parallel_for(ceil_div(last - first, kPanelColumns), [&](int64_t i) {
            alignas(64) float packed[kMaxElements * kPieceFloats];
            const int64_t column = first + i * kPanelColumns;
            const Range columns{column, std::min(last, column + kPanelColumns)};
            float* sums = out_tiles + i * product.panel_floats();
            for (int64_t begin = 0; begin < d.in_c; begin += kPieceDepth) {
                const int64_t end = std::min(begin + kPieceDepth, d.in_c), lanes = gemm.lanes;
                float* panel = packed;
                for (int64_t c = column; c < columns.end;) {
                    const int64_t left = columns.end - c;
                    const int64_t width = std::min<int64_t>(gemm.max_vectors, ceil_div(left, lanes)) * lanes;
                    pack(weights, {panel, kPieceFloats, c, std::min(left, width), width, begin}, begin, end);
                    panel += (end - begin) * width;
                    c += width;
                }
                multiply_piece(gemm, product, columns, begin, end - begin, in_tiles, sums, packed);
            }
            of_storage(winograd.transform_output, epilogue.written)(
                output_tiles(product, epilogue, columns, 0, product.tiles, sums), 0, product.tiles);
        });
    }
}

// One group: for each chunk of output channels and each batch of tiles, transform, multiply, transform back.
void run_group(const GemmKernels& gemm, const WinogradKernels& winograd, Pack pack, const Product& product,
               const WinogradWeights& weights, const Epilogue& epilogue, const float* in, float* packed) {
    const Direction& d = product.d;
    float* in_tiles = part_after(packed, product.packed_floats());
    float* out_tiles = part_after(in_tiles, product.in_floats());
    if (product.by_panels) {
        transform_inputs(winograd, product, 0, product.tiles, in, epilogue.read, in_tiles);
        run_panels(gemm, winograd, pack, product, weights, epilogue, in_tiles, out_tiles);
        return;
    }
    for (int64_t column = 0; column < d.out_c; column += product.chunk) {
        const Range columns{column, std::min(d.out_c, column + product.chunk)};
        pack_weights(gemm, pack, product, weights, columns, packed);
        for (int64_t first = 0; first < product.tiles; first += product.batch) {
            const int64_t count = std::min(product.batch, product.tiles - first);
            if (column == 0 || count < product.tiles)  // the input tiles of one batch serve all chunks
                transform_inputs(winograd, product, first, count, in, epilogue.read, in_tiles);
            multiply(gemm, product, count, columns.count(), in_tiles, out_tiles, packed);
            const WinogradTiles write = output_tiles(product, epilogue, columns, first, count, out_tiles);
            parallel_for_ranges(count, std::max<int64_t>(1, kTransformFloats / columns.count()),
                                [&, transform = of_storage(winograd.transform_output, epilogue.written)](
                                    int64_t begin, int64_t end) { transform(write, begin, end); });
        }
    }
}

// wgrad of a group: dw = G' u G with u[f] = sum over tiles of dy_tile[f] x_tile[f]'.  The sum runs in the transformed
// space, so that one transform back suffices for all tiles.  Slices of a batch carry all of u.
struct WgradProduct {
    Winograd f;
    ConvProblem p;
    int64_t tiles, batch, chunk;  // chunk: output channels whose sums are held at a time

    explicit WgradProduct(const ConvProblem& problem) : f(winograd_of(problem)), p(problem) {
        tiles = f.tiles(p.n, p.ho(), p.wo());
        batch = batch_tiles(f, p, tiles, p.c, 1);
        chunk = chunk_channels(f, batch == tiles, tiles, p.k, p.c);
    }
    // The workspace: u [elements][chunk][c] unless it is carried, tiles of x, tiles of dy.
    int64_t total_floats() const { return f.elements() * chunk * p.c; }
    int64_t x_floats() const { return all_elements_floats(f, batch, p.c); }
    int64_t dy_floats() const { return all_elements_floats(f, batch, chunk); }
    int64_t bytes() const {
        return (p.is_slice() ? 0 : aligned_bytes<float>(total_floats())) + aligned_bytes<float>(x_floats()) +
               aligned_bytes<float>(dy_floats());
    }
};

// Tiles of x, and those of some channels of dy; of one batch, the former serve all chunks.
void transform_batch(const WinogradKernels& winograd, const WgradProduct& product, const Group& group, int64_t first,
                     int64_t count, const Range& channels, float* x_tiles, float* dy_tiles, const float* x,
                     const float* dy, Storage of_x, Storage of_dy) {
    const ConvProblem& p = product.p;
    const bool with_x = channels.begin == 0 || count < product.tiles;
    WinogradTiles in{};
    in.h = p.h;
    in.w = p.w;
    in.c = p.c;
    in.tiles_h = product.f.along(p.ho());
    in.tiles_w = product.f.along(p.wo());
    in.pixel = group.x_pixel;
    in.top = -p.ph;
    in.left = -p.pw;
    in.first = first;
    in.frames = p.frames;
    in.step = p.x_step;
    in.pitch = element_floats(count, p.c);
    in.tiles = x_tiles;
    in.in = x;
    WinogradTiles out = in;
    out.h = p.ho();
    out.w = p.wo();
    out.c = channels.count();
    out.pixel = group.y_pixel;
    out.top = 0;
    out.left = 0;
    out.step = p.y_step;
    out.pitch = element_floats(count, channels.count());
    out.tiles = dy_tiles;
    out.in = element(dy, of_dy, channels.begin);
    const int64_t floats = (with_x ? in.c : 0) + out.c;  // of a tile
    parallel_for_ranges(count, std::max<int64_t>(1, kTransformFloats / floats), [&](int64_t begin, int64_t end) {
        if (with_x) of_storage(winograd.transform_input, of_x)(in, begin, end);
        of_storage(winograd.transform_dy, of_dy)(out, begin, end);
    });
}

// total [elements][channels][c] = or += the products of a batch, for some output channels.
void sum_products(const GemmKernels& gemm, const WgradProduct& product, int64_t count, const Range& channels, Init init,
                  float* total, const float* x_tiles, const float* dy_tiles) {
    const ConvProblem& p = product.p;
    const int64_t parts = ceil_div(channels.count(), kTaskChannels);
    // A task: one element of the tiles, some output channels; tiles are summed in order.
    parallel_for(product.f.elements() * parts, [&](int64_t i) {
        const int64_t element = i / parts, k = i % parts * kTaskChannels;
        const float *x_rows[kMaxPairs], *dy_rows[kMaxPairs];
        OuterBlock block{};
        block.x = x_rows;
        block.d = dy_rows;
        block.d_strip = kStripRows;
        block.rows = std::min(kTaskChannels, channels.count() - k);
        block.columns = p.c;
        block.pitch = p.c;
        block.out = total + (element * channels.count() + k) * p.c;
        for (int64_t tile = 0; tile < count; tile += kMaxPairs) {
            block.count = std::min(kMaxPairs, count - tile);
            block.init = tile == 0 ? init : Init::out;
            for (int64_t j = 0; j < block.count; ++j) {
                x_rows[j] = x_tiles + element * element_floats(count, p.c) + (tile + j) * p.c;
                dy_rows[j] =
                    dy_tiles + element * element_floats(count, channels.count()) + (tile + j) * channels.count() + k;
            }
            gemm.outer(block);
        }
    });
}

void run_wgrad(const GemmKernels& gemm, const WinogradKernels& winograd, const WgradProduct& product,
               const Group& group, float* dw, const float* x, const float* dy, Storage of_x, Storage of_dy,
               bool accumulate, float* totals, float* x_tiles) {
    const int64_t c = product.p.c;
    float* dy_tiles = part_after(x_tiles, product.x_floats());
    for (int64_t k = 0; k < product.p.k; k += product.chunk) {
        const Range channels{k, std::min(product.p.k, k + product.chunk)};
        float* total = totals + (product.p.is_slice() ? product.f.elements() * k * c : 0);
        for (int64_t first = 0; first < product.tiles; first += product.batch) {
            const int64_t count = std::min(product.batch, product.tiles - first);
            transform_batch(winograd, product, group, first, count, channels, x_tiles, dy_tiles, x, dy, of_x, of_dy);
            const Init init = first || product.p.first ? Init::out : Init::zero;
            sum_products(gemm, product, count, channels, init, total, x_tiles, dy_tiles);
        }
        if (!product.p.is_last()) continue;
        const WinogradWeights weights{channels.count(), c, nullptr, dw + k * 9 * c, total, accumulate};
        parallel_for_ranges(channels.count(), 4,
                            [&](int64_t begin, int64_t end) { winograd.transform_dw(weights, begin, end); });
    }
}

}  // namespace

// Few channels leave too little to multiply between the transforms of pixels, few tiles too little behind that of
// weights.
bool is_winograd(const ConvProblem& p) {
    return p.kh == 3 && p.kw == 3 && p.sh == 1 && p.sw == 1 && p.dh == 1 && p.dw == 1 && p.group_c() >= 32 &&
           p.group_k() >= 32 && p.ph <= 2 && p.pw <= 2 && Winograd{2}.tiles(p.batch(), p.ho(), p.wo()) >= 64;
}

int64_t winograd_tile(const ConvProblem& p) { return is_winograd(p) ? winograd_of(p).m : 0; }

// One size for all groups: they run one after the other and reuse it.
int64_t winograd_fprop_workspace_bytes(const ConvProblem& p) {
    const Group group = one_group(p);
    return Product(group.p, fprop_direction(group)).bytes();
}

int64_t winograd_dgrad_workspace_bytes(const ConvProblem& p) {
    const Group group = one_group(p);
    return Product(group.p, dgrad_direction(group)).bytes();
}

Launch winograd_fprop(const ConvProblem& p, float* y, const float* x, const float* w, const float* bias,
                      bool accumulate, bool relu, const ReluMask& mask, void* workspace, Storage of_x, Storage of_y) {
    const Group group = one_group(p);
    return [=, &gemm = gemm_kernels(), &activation = activation_kernels(), &winograd = winograd_of(group.p).kernels(),
            product = Product(group.p, fprop_direction(group))] {
        const int64_t c = group.p.c, k = group.p.k;
        for (int64_t i = 0; i < p.groups; ++i) {
            const WinogradWeights weights{k, c, w + i * k * 9 * c, nullptr, nullptr, false};
            const Epilogue epilogue{
                element(y, of_y, i * k), bias ? bias + i * k : nullptr, accumulate, relu, of_x, of_y};
            run_group(gemm, winograd, winograd.pack_fprop, product, weights, epilogue, element(x, of_x, i * c),
                      static_cast<float*>(workspace));
        }
        if (mask.bits) write_mask(activation, p.n * p.ho() * p.wo() * p.k, y, mask, of_y);
    };
}

Launch winograd_dgrad(const ConvProblem& p, float* dx, const float* dy, const float* w, const float* bias,
                      bool accumulate, void* workspace, Storage storage) {
    const Group group = one_group(p);
    return [=, &gemm = gemm_kernels(), &winograd = winograd_of(group.p).kernels(),
            product = Product(group.p, dgrad_direction(group))] {
        const int64_t c = group.p.c, k = group.p.k;
        for (int64_t i = 0; i < p.groups; ++i) {
            const WinogradWeights weights{k, c, w + i * k * 9 * c, nullptr, nullptr, false};
            const Epilogue epilogue{
                element(dx, storage, i * c), bias ? bias + i * c : nullptr, accumulate, false, storage, storage};
            run_group(gemm, winograd, winograd.pack_dgrad, product, weights, epilogue, element(dy, storage, i * k),
                      static_cast<float*>(workspace));
        }
    };
}

int64_t winograd_wgrad_workspace_bytes(const ConvProblem& p) { return WgradProduct(one_group(p).p).bytes(); }

int64_t winograd_wgrad_carry_bytes(const ConvProblem& p) {
    const Group group = one_group(p);
    return aligned_bytes<float>(p.groups * winograd_of(group.p).elements() * group.p.k * group.p.c);
}

Launch winograd_wgrad(const ConvProblem& p, float* dw, const float* x, const float* dy, bool accumulate,
                      void* workspace, void* carry, Storage of_x, Storage of_dy) {
    const Group group = one_group(p);
    return [=, &gemm = gemm_kernels(), &winograd = winograd_of(group.p).kernels(), product = WgradProduct(group.p)] {
        const int64_t c = group.p.c, k = group.p.k;
        auto *from = static_cast<float*>(workspace), *carried = static_cast<float*>(carry);
        for (int64_t i = 0; i < p.groups; ++i) {
            float* totals = p.is_slice() ? carried + i * product.f.elements() * k * c : from;
            float* x_tiles = p.is_slice() ? from : part_after(from, product.total_floats());
            run_wgrad(gemm, winograd, product, group, dw + i * k * 9 * c, element(x, of_x, i * c),
                      element(dy, of_dy, i * k), of_x, of_dy, accumulate, totals, x_tiles);
        }
    };
}

LAYERMEM_KERNEL(winograd_tile)

}  // namespace layermem::cpu
