// Kernels that check the others on a GPU: integer operands, naive convolutions, a comparison of bits. Integers from -2
// to 2 are exact in fp32, tf32, bfloat16 and float16, and so are their sums in fp32 below 2^24. So every engine,
// precision, tile and order of sums must give the bits of the naive kernels.
#include "conv_problem.cuh"
#include "element.cuh"

using namespace lm;

constexpr int THREADS = 256;
constexpr int RUN = 32;  // consecutive elements; one run in `every` is computed, or compared

// The element that a thread computes or compares, in blobs of which every `every`th run is checked.
LM_FN long long element_of(long long thread, int every) { return thread / RUN * RUN * every + thread % RUN; }

LM_FN long long my_thread() { return blockIdx.x * static_cast<long long>(THREADS) + threadIdx.x; }

// draw_whole_numbers: y[i] = a number from -2 to 2, drawn by seed and i, the same in every type.
//   y [count] float, or 16 bits in _bf16, _fp16  written
//   launch   a thread an element: grid ceil(count / 256), block 256
//   traffic  4 bytes an element, or 2; about 100 integer operations each
//   assumes  count < 2^31
template <class T>
struct WholeNumbersArgs {
    T* y;
    int count;
    unsigned seed;
};

template <class T>
LM_FN void draw(const WholeNumbersArgs<T>& p) {
    const long long i = my_thread();
    if (i >= p.count) return;
    const uint4 words = philox(make_uint4(static_cast<unsigned>(i), 0, 0, 0), p.seed, 0);
    store_one(p.y + i, static_cast<float>(static_cast<int>(words.x % 5u) - 2));
}
LM_KERNEL_OF_ELEMENTS(draw_whole_numbers, WholeNumbersArgs, THREADS, draw)

// naive_fprop, naive_dgrad, naive_wgrad: the sums of conv.cuh, element by element; an inner product is the convolution of
// images of one pixel.
//   maps [N,Ho,Wo,K], image [N,H,W,C] float, or 16 bits in _bf16, _fp16     filter [K,kh,kw,C/g] float
//   naive_fprop writes maps, naive_dgrad writes image or adds to it, and naive_wgrad writes filter [parts][K,kh,kw,C/g],
//   where part p is the sum over images p N / parts .. (p + 1) N / parts
//   launch   a thread an element that is computed: grid (ceil(of these / 256), parts), block 256, no shared memory
//   traffic  two loads a multiplication: bound by them
//   assumes  tensors below 2^31 elements
//   order    taps in rising order, then channels or outputs; images, then windows
//   source   Caffe src/caffe/test/test_convolution_layer.cpp, caffe_conv: what its own tests compare with
template <class T>
struct NaiveArgs {
    T* maps;
    T* image;
    float* filter;
    ConvProblem problem;
    int count, every;  // elements of what is written, without parts; of their runs, one in `every` is computed
};

LM_FN bool is_inside(int i, int size) { return i >= 0 && i < size; }

// An element of a blob of so many channels, lines and columns.
struct Place {
    int image, row, column, channel;
};

LM_FN Place place_of(int i, int channels, int columns, int rows) {
    const int pixel = i / channels, line = pixel / columns;
    return {line / rows, line % rows, pixel % columns, i % channels};
}

template <class T>
LM_FN void fprop(const NaiveArgs<T>& p) {
    const ConvProblem& conv = p.problem;
    const long long i = element_of(my_thread(), p.every);
    if (i >= p.count) return;
    const Place y = place_of(static_cast<int>(i), conv.maps_pitch, conv.maps_w, conv.maps_h);
    const float* weights = p.filter + y.channel * conv.kernel_h * conv.kernel_w * conv.channels;
    float sum = 0;
    for (int r = 0; r < conv.kernel_h; ++r)
        for (int s = 0; s < conv.kernel_w; ++s, weights += conv.channels) {
            const int h = y.row * conv.stride_h - conv.pad_h + r * conv.dilation_h;
            const int w = y.column * conv.stride_w - conv.pad_w + s * conv.dilation_w;
            if (!is_inside(h, conv.height) || !is_inside(w, conv.width)) continue;
            const T* x = p.image + ((y.image * conv.height + h) * conv.width + w) * conv.image_pitch +
                         y.channel / conv.outputs * conv.channels;
            for (int c = 0; c < conv.channels; ++c) sum += widened(x[c]) * weights[c];
        }
    store_one(p.maps + i, sum);
}
LM_KERNEL_OF_ELEMENTS(naive_fprop, NaiveArgs, THREADS, fprop)

template <class T>
LM_FN void dgrad(const NaiveArgs<T>& p) {
    const ConvProblem& conv = p.problem;
    const long long i = element_of(my_thread(), p.every);
    if (i >= p.count) return;
    const Place x = place_of(static_cast<int>(i), conv.image_pitch, conv.width, conv.height);
    const int group = x.channel / conv.channels, pitch = conv.kernel_h * conv.kernel_w * conv.channels;
    float sum = 0;
    for (int r = 0; r < conv.kernel_h; ++r)
        for (int s = 0; s < conv.kernel_w; ++s) {
            const int down = x.row + conv.pad_h - r * conv.dilation_h;
            const int right = x.column + conv.pad_w - s * conv.dilation_w;
            const int row = down / conv.stride_h, column = right / conv.stride_w;
            if (down < 0 || down % conv.stride_h != 0 || row >= conv.maps_h) continue;
            if (right < 0 || right % conv.stride_w != 0 || column >= conv.maps_w) continue;
            const T* dy = p.maps + ((x.image * conv.maps_h + row) * conv.maps_w + column) * conv.maps_pitch +
                          group * conv.outputs;
            const float* weights = p.filter + group * conv.outputs * pitch + (r * conv.kernel_w + s) * conv.channels +
                                   x.channel % conv.channels;
            for (int k = 0; k < conv.outputs; ++k) sum += widened(dy[k]) * weights[k * pitch];
        }
    store_one(p.image + i, sum);
}
LM_KERNEL_OF_ELEMENTS(naive_dgrad, NaiveArgs, THREADS, dgrad)

template <class T>
LM_FN void wgrad(const NaiveArgs<T>& p) {
    const ConvProblem& conv = p.problem;
    const long long i = element_of(my_thread(), p.every);
    if (i >= p.count) return;
    const Place w = place_of(static_cast<int>(i), conv.channels, conv.kernel_w, conv.kernel_h);  // image: the output
    const int part = static_cast<int>(blockIdx.y), parts = static_cast<int>(gridDim.y);
    const T* maps = p.maps + w.image;
    const T* image = p.image + w.image / conv.outputs * conv.channels + w.channel;
    float sum = 0;
    for (int n = part * conv.images / parts; n < (part + 1) * conv.images / parts; ++n)
        for (int row = 0; row < conv.maps_h; ++row) {
            const int y = row * conv.stride_h - conv.pad_h + w.row * conv.dilation_h;
            if (!is_inside(y, conv.height)) continue;
            for (int column = 0; column < conv.maps_w; ++column) {
                const int x = column * conv.stride_w - conv.pad_w + w.column * conv.dilation_w;
                if (!is_inside(x, conv.width)) continue;
                sum += widened(maps[((n * conv.maps_h + row) * conv.maps_w + column) * conv.maps_pitch]) *
                       widened(image[((n * conv.height + y) * conv.width + x) * conv.image_pitch]);
            }
        }
    p.filter[part * static_cast<long long>(p.count) + i] = sum;
}
LM_KERNEL_OF_ELEMENTS(naive_wgrad, NaiveArgs, THREADS, wgrad)

// compare_32, compare_16: how many elements of two blobs have other bits, and which is the first of these.
//   got, wanted [count] of 32 or 16 bits  read     found [warps][2]  written: number; the first one, or 2^32 - 1
//   launch   grid of up to 264 blocks, block 256, no shared memory; a thread takes elements a grid apart
//   traffic  8 bytes an element, or 4: bound by memory
//   assumes  count < 2^31
template <class Word>
struct CompareArgs {
    unsigned* found;
    const Word* got;
    const Word* wanted;
    int count, every;
};

template <class Word>
LM_FN void compare(const CompareArgs<Word>& p) {
    unsigned number = 0, first = 0xffffffffu;
    const long long threads = gridDim.x * static_cast<long long>(THREADS);
#pragma unroll 4
    for (long long thread = my_thread(); element_of(thread, p.every) < p.count; thread += threads) {
        const long long i = element_of(thread, p.every);
        if (p.got[i] == p.wanted[i]) continue;
        if (number++ == 0) first = static_cast<unsigned>(i);
    }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        const unsigned other = shuffle_xor(first, distance);
        number += shuffle_xor(number, distance);
        first = other < first ? other : first;
    }
    if (threadIdx.x % WARP != 0) return;
    unsigned* mine = p.found + my_thread() / WARP * 2;
    mine[0] = number;
    mine[1] = first;
}

LM_KERNEL(compare_32, CompareArgs<unsigned>, p, THREADS) { compare(p); }
LM_KERNEL(compare_16, CompareArgs<unsigned short>, p, THREADS) { compare(p); }
