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

// Rows [begin, end) of one image: tiles of 16 columns are read along rows and written along columns.
void transpose(const Transpose& g, int64_t image, int64_t begin, int64_t end) {
    const float* in = g.in + image * g.rows * g.columns;
    float* out = g.out + image * g.rows * g.columns;
    for (int64_t j0 = 0; j0 < g.columns; j0 += 16)
        for (int64_t i0 = begin; i0 < end; i0 += 16) {
            float tile[16][16];
            const int64_t tall = least(16, end - i0), wide = least(16, g.columns - j0);
            for (int64_t i = 0; i < tall; ++i)
                for (int64_t j = 0; j < wide; ++j) tile[j][i] = in[(i0 + i) * g.columns + j0 + j];
            for (int64_t j = 0; j < wide; ++j) {
                float* to = out + (j0 + j) * g.rows + i0;
                for (int64_t i = 0; i < tall; ++i) to[i] = g.accumulate ? to[i] + tile[j][i] : tile[j][i];
            }
        }
}
