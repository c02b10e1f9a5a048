// The tile of a GemmBlock: TALL rows by WIDE registers of sums stay in registers through all runs.  Each step loads
// WIDE registers of packed weights once and broadcasts one float of every row, straight from the image.

template <int TALL, int WIDE>
void gemm_tile(const GemmBlock& g, int64_t row) {
    const int64_t live = g.rows - row < TALL ? g.rows - row : TALL;
    V sum[TALL][WIDE];
    if (g.start == Start::out) {
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i) {
            const float* out = g.out[i < live ? row + i : row] + g.column;
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j)
                sum[i][j] = j + 1 < WIDE ? load(out + j * LANES) : load_upto(out + j * LANES, g.last);
        }
    } else {
        V first[WIDE];
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; ++j) {
            const int in_use = j + 1 < WIDE ? LANES : g.last;
            first[j] = g.start == Start::bias ? load_upto(g.bias + j * LANES, in_use) : zero();
        }
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) sum[i][j] = first[j];
    }

    const float* b = g.packed;
    for (int64_t run = 0; run < g.runs; ++run, b += g.length * WIDE * LANES) {
        const float* const* in = g.in + run * g.pitch + row;
        if (g.none) {
            bool empty = true;
#pragma GCC unroll 24
            for (int i = 0; i < TALL; ++i) empty &= in[i] == g.none;
            if (empty) continue;
        }
        const float* a[TALL];
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i) a[i] = in[i];
        const float* w = b;
        for (int64_t k = 0; k < g.length; ++k, w += WIDE * LANES) {
            V column[WIDE];
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) column[j] = load(w + j * LANES);
#pragma GCC unroll 24
            for (int i = 0; i < TALL; ++i) {
                const V x = splat(a[i][k]);
#pragma GCC unroll 4
                for (int j = 0; j < WIDE; ++j) sum[i][j] = fma(x, column[j], sum[i][j]);
            }
        }
    }

    if (g.relu) {
#pragma GCC unroll 24
        for (int i = 0; i < TALL; ++i)
#pragma GCC unroll 4
            for (int j = 0; j < WIDE; ++j) sum[i][j] = rectified(sum[i][j]);
    }
#pragma GCC unroll 24
    for (int i = 0; i < TALL; ++i) {
        if (i >= live) break;
        float* out = g.out[row + i] + g.column;
#pragma GCC unroll 4
        for (int j = 0; j < WIDE; ++j)
            if (j + 1 < WIDE)
                store(out + j * LANES, sum[i][j]);
            else
                store_upto(out + j * LANES, sum[i][j], g.last);
    }
}

template <int TALL, int WIDE>
void gemm_tiles(const GemmBlock& g) {
    for (int64_t row = 0; row < g.rows; row += TALL) gemm_tile<TALL, WIDE>(g, row);
}

// Tile shapes that fill the register file: sums, one register per panel column, one broadcast.
void gemm(const GemmBlock& g) {
    if constexpr (REGISTERS == 32) {
        switch (g.vectors) {
            case 1: return gemm_tiles<12, 1>(g);
            case 2: return gemm_tiles<12, 2>(g);
            case 3: return gemm_tiles<8, 3>(g);
            default: return gemm_tiles<6, 4>(g);
        }
    } else if (g.vectors == 1) {
        gemm_tiles<6, 1>(g);
    } else {
        gemm_tiles<6, 2>(g);
    }
}

// A square of LANES registers turned over: stage by stage, lanes whose number has a bit set change places with rows whose
// number has it.
inline void turn(V (&row)[LANES]) {
#pragma GCC unroll 4
    for (int bit = 1; bit < LANES; bit *= 2) {
        I low, high;
        for (int lane = 0; lane < LANES; ++lane) {
            low[lane] = lane & bit ? LANES + lane - bit : lane;
            high[lane] = lane & bit ? LANES + lane : lane + bit;
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; ++i) {
            if (i & bit) continue;
            const V a = row[i], b = row[i + bit];
            row[i] = __builtin_shuffle(a, b, low);
            row[i + bit] = __builtin_shuffle(a, b, high);
        }
    }
}

// LANES steps by LANES columns at a time; width is a multiple of LANES.
void pack_columns(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width) {
    for (int64_t k = 0; k < depth; k += LANES) {
        const int64_t steps = least(LANES, depth - k);
        for (int64_t j = 0; j < width; j += LANES) {
            V square[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; ++i)
                square[i] = j + i < columns ? load_upto(w + (j + i) * pitch + k, steps) : zero();
            turn(square);
            for (int64_t i = 0; i < steps; ++i) store(out + (k + i) * width + j, square[i]);
        }
    }
}

void pack_rows(float* out, const float* w, int64_t pitch, int64_t depth, int64_t columns, int64_t width) {
    for (int64_t k = 0; k < depth; ++k, out += width, w += pitch)
        for (int64_t j = 0; j < width; j += LANES)
            store(out + j, columns - j >= LANES ? load(w + j)
                           : columns > j        ? load(w + j, static_cast<int>(columns - j))
                                                : zero());
}
