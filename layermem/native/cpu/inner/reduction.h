// Sums along an axis, and numbers spread out along it.

// f(x) as the sum takes it, and its slope as a factor of dy.
template <class F>
inline __attribute__((always_inline)) void with_term(Term term, const F& run) {
    switch (term) {
        case Term::plain: return run([](V x) { return x; }, [](V, V dy) { return dy; });
        case Term::absolute:
            return run([](V x) { return absolute(x); },
                       [](V x, V dy) { return pick(x > zero(), dy, pick(x < zero(), -dy, zero())); });
        case Term::square: return run([](V x) { return x * x; }, [](V x, V dy) { return dy * (x + x); });
    }
}

// The sum of term(x) over [begin, end) of one row: blocks of 1024 in float, their totals in double.
double reduce_row(const ReduceArgs& g, const float* x, int64_t begin, int64_t end) {
    double sum = 0;
    with_term(g.term, [&](const auto& f, const auto&) {
        for (int64_t block = begin; block < end; block += 1024) {
            V part = zero();
            each(block, least(end, block + 1024), [&](int64_t i, auto n) { part += f(load(x + i, n)); });
            sum += static_cast<double>(total(part));
        }
    });
    return sum;
}

// Columns [begin, end) of block `outer`, inner > 1: 64 elements of the axis at a time, so that long sums stay exact.
void reduce_columns(const ReduceArgs& g, int64_t outer, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    const float* x = g.x + outer * s.size * s.inner;
    float* y = g.out + outer * s.inner;
    with_term(g.term, [&](const auto& f, const auto&) {
        each(begin, end, [&](int64_t i, auto n) __attribute__((always_inline)) {
            V sum = zero();
            for (int64_t block = 0; block < s.size; block += 64) {
                V part = zero();
                for (int64_t k = block; k < least(s.size, block + 64); ++k) part += f(load(x + k * s.inner + i, n));
                sum += part;
            }
            sum = splat(g.factor) * sum;
            store(y + i, g.accumulate ? load(y + i, n) + sum : sum, n);
        });
    });
}

// Lines [begin, end) of outer * size: each gets the gradient of its block.
void reduce_back(const ReduceArgs& g, int64_t begin, int64_t end) {
    const Axis& s = g.axis;
    with_term(g.term, [&](const auto&, const auto& slope) {
        const auto write = [&](int64_t at, V dy, auto n) __attribute__((always_inline)) {
            const V dx = slope(g.x ? load(g.x + at, n) : zero(), splat(g.factor) * dy);
            store(g.out + at, g.accumulate ? load(g.out + at, n) + dx : dx, n);
        };
        if (s.inner == 1) {  // elements instead of lines of one
            for (int64_t at = begin; at < end;) {
                const int64_t o = at / s.size, till = least(end, (o + 1) * s.size);
                const V dy = splat(g.dy[o]);
                each(at, till, [&](int64_t i, auto n) __attribute__((always_inline)) { write(i, dy, n); });
                at = till;
            }
            return;
        }
        for (int64_t line = begin; line < end; ++line)
            each(0, s.inner, [&](int64_t i, auto n) __attribute__((always_inline)) {
                write(line * s.inner + i, load(g.dy + line / s.size * s.inner + i, n), n);
            });
    });
}

// The first of [begin, end) that is not below `floor`, to within a register of it; `end` if all are.
int64_t not_below(const float* x, int64_t begin, int64_t end, float floor) {
    for (; begin + LANES <= end; begin += LANES)
        if (positive(pick(load(x + begin) < splat(floor), zero(), splat(1.0f)))) return begin;
    return begin;
}

// The largest of each of up to LANES rows of up to SHORT, the last of equals; false if a NaN is in the way.
bool largest_of_few(const float* x, int64_t rows, int64_t size, float* place, float* value) {
    float tile[SHORT * LANES] = {};
    turn(tile, LANES, x, size, rows, size);
    const int n = static_cast<int>(rows);
    V best = load_upto(tile, n), at = zero();
    I numbers = best == best;
    for (int64_t i = 1; i < size; ++i) {
        const V v = load_upto(tile + i * LANES, n);
        const I later = v >= best;
        best = pick(later, v, best), at = pick(later, splat(static_cast<float>(i)), at);
        numbers &= v == v;
    }
    store(place, at);
    store(value, best);
    return positive(pick(numbers, zero(), splat(1.0f))) == 0;
}
