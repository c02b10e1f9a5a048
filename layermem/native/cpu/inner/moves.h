// Rows of floats from one pitch to another, and square tiles turned over.

void copy_rows(const Rows& g, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
        float* out = g.out + r * g.out_pitch;
        const float* in = g.in + r * g.in_pitch;
        each(0, g.width, [&](int64_t i, auto n) {
            store(out + i, g.accumulate ? load(out + i, n) + load(in + i, n) : load(in + i, n), n);
        });
    }
}

typedef float Four __attribute__((vector_size(16)));
typedef int32_t FourInts __attribute__((vector_size(16)));
typedef float LooseFour __attribute__((vector_size(16), aligned(4), may_alias));

// A square of 4 x 4 turned over.
inline void turn_four(float* out, int64_t out_pitch, const float* in, int64_t in_pitch) {
    const auto row = [&](int64_t i) -> Four { return *reinterpret_cast<const LooseFour*>(in + i * in_pitch); };
    const auto put = [&](int64_t i, Four v) { *reinterpret_cast<LooseFour*>(out + i * out_pitch) = v; };
    const FourInts even{0, 4, 1, 5}, odd{2, 6, 3, 7}, low{0, 1, 4, 5}, high{2, 3, 6, 7};
    const Four a = row(0), b = row(1), c = row(2), d = row(3);
    const Four ab = __builtin_shuffle(a, b, even), cd = __builtin_shuffle(c, d, even);
    const Four ef = __builtin_shuffle(a, b, odd), gh = __builtin_shuffle(c, d, odd);
    put(0, __builtin_shuffle(ab, cd, low)), put(1, __builtin_shuffle(ab, cd, high));
    put(2, __builtin_shuffle(ef, gh, low)), put(3, __builtin_shuffle(ef, gh, high));
}

// out[c][r] = in[r][c]
inline void turn(float* out, int64_t out_pitch, const float* in, int64_t in_pitch, int64_t rows, int64_t columns) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= columns; c += 4) turn_four(out + c * out_pitch + r, out_pitch, in + r * in_pitch + c, in_pitch);
        for (; c < columns; ++c)
            for (int64_t i = r; i < r + 4; ++i) out[c * out_pitch + i] = in[i * in_pitch + c];
    }
    for (; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) out[c * out_pitch + r] = in[r * in_pitch + c];
}

// Rows [begin, end) of one image: tiles of 16 columns are read along rows and written along columns.
void transpose(const Transpose& g, int64_t image, int64_t begin, int64_t end) {
    const float* in = g.in + image * g.rows * g.columns;
    float* out = g.out + image * g.rows * g.columns;
    for (int64_t j0 = 0; j0 < g.columns; j0 += 16)
        for (int64_t i0 = begin; i0 < end; i0 += 16) {
            float tile[16 * 16];
            const int64_t tall = least(16, end - i0), wide = least(16, g.columns - j0);
            turn(tile, 16, in + i0 * g.columns + j0, g.columns, tall, wide);
            for (int64_t j = 0; j < wide; ++j) {
                float* to = out + (j0 + j) * g.rows + i0;
                each(0, tall, [&](int64_t i, auto n) {
                    const V v = load(tile + j * 16 + i, n);
                    store(to + i, g.accumulate ? load(to + i, n) + v : v, n);
                });
            }
        }
}
