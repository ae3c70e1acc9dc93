// Kaldi's log mel energies of waveforms, and the noise of the dither, on a CPU.
//
// A register holds LANES frames of one waveform, one in each lane. Every frame goes through the
// same operations in the same order. So its bits depend on its samples only: not on its place, on
// other frames, or on LANES. compiled.py compiles this file without contraction of products and
// sums, so the bits do not depend on the processor either. compiled_fbank.py makes the tables.

#include <cfloat>
#include <cstdint>
#include <cstdlib>

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#endif

#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, Ints{__VA_ARGS__})
#endif

// Lanes of the first halves of a and b in turn, and of their second halves.
#if LANES == 16
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define SECOND_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define SECOND_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define FIRST_HALVES 0, 4, 1, 5
#define SECOND_HALVES 2, 6, 3, 7
#endif

// Numbers and tables of a configuration: `Plan` of compiled_fbank.py.
struct Plan {
    int64_t size, shift;         // samples of a frame, and between the starts of two frames
    int64_t bins;
    int64_t points;              // of the complex transform: half of those of the real one
    int64_t eights, fours;       // passes of radix 8, then of radix 4, before the last of radix 4
    float emphasis, mean_share;  // mean_share: 1 - emphasis, or 0 if the mean stays
    float floor;                 // least energy
    const float *window;         // (size,)
    const float *twiddles;       // for each pass but the last (stride, radix - 1, cosine and sine)
    const int32_t *quads;        // (points / 4,) first of the four points of output k, last pass
    const float *unpacking;      // (points / 8 + 1, 4, cosine and sine), output k + q * points / 4
    const int32_t *counts;       // (bins + 1,) powers between the centres of two bins
    const int32_t *places;       // where each of these powers is
    const float *weights;        // of each of them, in the upper bin and in the lower one
};

namespace {

typedef float Floats __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t Ints __attribute__((vector_size(4 * LANES), may_alias));
typedef float Unaligned __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

struct Complex {
    Floats re, im;
};

// Memory of one call. Each is large enough to read or write a register at any place in it.
struct Work {
    float *samples;    // (rows, shift)
    float *columns;    // (shift, rows)
    int64_t rows;      // shifts that LANES frames reach into
    Complex *points;   // (points,)
    Floats *energies;  // (bins,)
};

inline Complex operator+(const Complex &a, const Complex &b) {
    return {a.re + b.re, a.im + b.im};
}

inline Complex operator-(const Complex &a, const Complex &b) {
    return {a.re - b.re, a.im - b.im};
}

inline Floats load(const float *at) {
    return *reinterpret_cast<const Unaligned *>(at);
}

inline void store(float *at, Floats x) {
    *reinterpret_cast<Unaligned *>(at) = x;
}

// Transpose (LANES, LANES) numbers, and write the first `count` rows. Each step interleaves the
// first half of the rows with the second.
inline void transpose(const float *from, int64_t from_pitch, float *to, int64_t to_pitch,
                      int64_t count) {
    Floats row[LANES], next[LANES];
    for (int i = 0; i < LANES; ++i) row[i] = load(from + i * from_pitch);

    for (int step = 1; step < LANES; step *= 2) {
        for (int i = 0; i < LANES / 2; ++i) {
            next[2 * i] = SHUFFLED(row[i], row[i + LANES / 2], FIRST_HALVES);
            next[2 * i + 1] = SHUFFLED(row[i], row[i + LANES / 2], SECOND_HALVES);
        }
        for (int i = 0; i < LANES; ++i) row[i] = next[i];
    }

    if (count == LANES)  // the loop of this branch is unrolled, so the rows stay in registers
        for (int i = 0; i < LANES; ++i) store(to + i * to_pitch, row[i]);
    else
        for (int i = 0; i < count; ++i) store(to + i * to_pitch, row[i]);
}

// Copy the samples that LANES frames reach into; zeros behind the end of the waveform.
template <typename Sample>
void copy_samples(const Sample *waveform, int64_t left, int64_t wanted, float *samples) {
    const int64_t count = left < wanted ? left : wanted;
    for (int64_t n = 0; n < count; ++n) samples[n] = waveform[n];
    for (int64_t n = count; n < wanted; ++n) samples[n] = 0;
}

// Transpose the samples: then sample n of LANES frames is a register, at column n % shift.
void make_columns(const Plan &plan, const Work &work) {
    const int64_t shift = plan.shift;
    int64_t row = 0;
    if (shift >= LANES) {
        for (int64_t c = 0; c < shift; c += LANES) {
            const int64_t first = c + LANES <= shift ? c : shift - LANES;  // the last ones overlap
            float *to = work.columns + first * work.rows;
            transpose(work.samples + first, shift, to, work.rows, LANES);
        }
        row = LANES;
    }

    for (; row < work.rows; ++row)
        for (int64_t c = 0; c < shift; ++c)
            work.columns[c * work.rows + row] = work.samples[row * shift + c];
}

// Call `use(n, sample n of the frames)` for n from 0.
template <typename Use>
inline void each_sample(const Plan &plan, const Work &work, Use use) {
    int64_t n = 0;
    for (int64_t row = 0; n < plan.size; ++row) {
        const int64_t end = n + plan.shift < plan.size ? n + plan.shift : plan.size;
        for (const float *at = work.columns + row; n < end; ++n, at += work.rows) use(n, load(at));
    }
}

// Write the frames as points: less their mean, with pre-emphasis and window. A pair of samples is
// a complex point.
void window_frames(const Plan &plan, const Work &work) {
    Floats sums[4] = {};
    each_sample(plan, work, [&](int64_t n, Floats x) { sums[n % 4] += x; });
    const Floats mean = ((sums[0] + sums[1]) + (sums[2] + sums[3])) / (float)plan.size;
    const Floats removed = mean * plan.mean_share;

    Floats before = load(work.columns);  // Kaldi uses the first sample twice
    Floats *points = reinterpret_cast<Floats *>(work.points);
    each_sample(plan, work, [&](int64_t n, Floats x) {
        points[n] = (x - before * plan.emphasis - removed) * plan.window[n];
        before = x;
    });
    for (int64_t n = plan.size; n < 2 * plan.points; ++n) points[n] = Floats{};
}

template <int RADIX>
inline void transform(Complex *z);

template <>
inline void transform<4>(Complex *z) {
    const Complex even = z[0] + z[2], odd = z[1] + z[3], rest = z[0] - z[2], turned = z[1] - z[3];
    const Complex quarter = {turned.im, -turned.re};
    z[0] = even + odd;
    z[1] = rest + quarter;
    z[2] = even - odd;
    z[3] = rest - quarter;
}

template <>
inline void transform<8>(Complex *z) {
    const float root = 0.70710678f;  // of 1/2
    Complex even[4] = {z[0], z[2], z[4], z[6]}, odd[4] = {z[1], z[3], z[5], z[7]};
    transform<4>(even);
    transform<4>(odd);
    odd[1] = {(odd[1].re + odd[1].im) * root, (odd[1].im - odd[1].re) * root};
    odd[2] = {odd[2].im, -odd[2].re};
    odd[3] = {(odd[3].im - odd[3].re) * root, (odd[3].re + odd[3].im) * -root};
    for (int k = 0; k < 4; ++k) {
        z[k] = even[k] + odd[k];
        z[k + 4] = even[k] - odd[k];
    }
}

// Transform RADIX points that lie `stride` apart, in place, for each of `stride` places, and
// multiply them with their twiddles.
template <int RADIX>
void pass(Complex *z, int64_t stride, const float *twiddle) {
    for (Complex *end = z + stride; z < end; ++z) {
        Complex y[RADIX];
        for (int m = 0; m < RADIX; ++m) y[m] = z[m * stride];
        transform<RADIX>(y);

        z[0] = y[0];
        for (int m = 1; m < RADIX; ++m, twiddle += 2) {
            const float cosine = twiddle[0], sine = twiddle[1];
            z[m * stride] = {y[m].re * cosine - y[m].im * sine, y[m].re * sine + y[m].im * cosine};
        }
    }
}

// Run all passes but the last one: decimation in frequency.
void run_passes(const Plan &plan, const Work &work) {
    const float *twiddles = plan.twiddles;
    int64_t block = plan.points;
    for (int64_t number = 0; number < plan.eights + plan.fours; ++number) {
        const int64_t radix = number < plan.eights ? 8 : 4, stride = block / radix;
        for (Complex *z = work.points; z < work.points + plan.points; z += block)
            radix == 8 ? pass<8>(z, stride, twiddles) : pass<4>(z, stride, twiddles);

        twiddles += 2 * (radix - 1) * stride;
        block = stride;
    }
}

// From outputs k and points - k of the complex transform to the powers k and points - k of the
// real one, times four.
inline void unpack(const Complex &a, const Complex &b, const float *turn, Floats *power,
                   Floats *mirror) {
    const Floats re = a.re + b.re, im = a.im - b.im, u = a.im + b.im, v = b.re - a.re;
    const Floats x = u * turn[0] + v * turn[1], y = v * turn[0] - u * turn[1];
    *power = (re + x) * (re + x) + (im + y) * (im + y);
    *mirror = (re - x) * (re - x) + (im - y) * (im - y);
}

// Run the last pass, and write the powers over its points: power k + q * points / 4 is number q of
// quad k. The power at half the sample rate is number 4 of quad 0.
void make_powers(const Plan &plan, const Work &work) {
    const int64_t quads = plan.points / 4;
    const float *turn = plan.unpacking;
    Complex a[4], b[4], *first = work.points + plan.quads[0];
    for (int q = 0; q < 4; ++q) a[q] = first[q];
    transform<4>(a);

    Floats *power = reinterpret_cast<Floats *>(first), same;
    unpack(a[0], a[0], turn, power, power + 4);
    unpack(a[1], a[3], turn + 2, power + 1, power + 3);
    unpack(a[2], a[2], turn + 4, power + 2, &same);

    for (int64_t k = 1; k <= quads / 2; ++k) {
        Complex *second = work.points + plan.quads[quads - k];
        first = work.points + plan.quads[k];
        for (int q = 0; q < 4; ++q) {
            a[q] = first[q];
            b[q] = second[q];
        }
        transform<4>(a);
        transform<4>(b);

        turn += 8;
        power = reinterpret_cast<Floats *>(first);
        Floats *mirror = reinterpret_cast<Floats *>(second) + 3;
        for (int q = 0; q < 4; ++q) unpack(a[q], b[3 - q], turn + 2 * q, power + q, mirror - q);
    }
}

// Natural logarithm of positive numbers that are not subnormal. Infinity and nan stay.
inline Floats logarithm(Floats x) {
    // x = 2 ** exponent * (1 + t), where 1 + t lies between the roots of 1/2 and of 2.
    const Ints root = Ints{} + 0x3f3504f3, bits = (Ints)x - root;
    const Floats t = (Floats)((bits & 0x007fffff) + root) - 1.0f, square = t * t;
    const Floats exponent = __builtin_convertvector(bits >> 23, Floats);

    // p(t) = (log(1 + t) - t + t ** 2 / 2) / t ** 3; its error is 3e-8 of the logarithm.
    Floats p = t * 0.08700435f - 0.14267486f;
    p = p * t + 0.14914769f;
    p = p * t - 0.16577585f;
    p = p * t + 0.19963063f;
    p = p * t - 0.25001338f;
    p = p * t + 0.3333391f;

    // log(2) is 0.693359375 - 2.1219444e-4; products with the first number are exact.
    const Floats small = exponent * -2.1219444e-4f + (t * square * p - square * 0.5f);
    return x <= FLT_MAX ? exponent * 0.693359375f + (small + t) : x;
}

// Each power adds to two bins at most: it rises in the upper one and falls in the lower one.
void make_energies(const Plan &plan, const Work &work) {
    const Floats *powers = reinterpret_cast<const Floats *>(work.points);
    const int32_t *place = plan.places;
    const float *weight = plan.weights;
    Floats lower = {};
    for (int64_t bin = 0; bin <= plan.bins; ++bin) {
        Floats rising = {}, falling = {};
        for (int32_t i = 0; i < plan.counts[bin]; ++i, ++place, weight += 2) {
            rising += powers[*place] * weight[0];
            falling += powers[*place] * weight[1];
        }

        if (bin) {
            const Floats energy = lower + falling, floor = Floats{} + plan.floor;
            work.energies[bin - 1] = logarithm(energy < floor ? floor : energy);
        }
        lower = rising;
    }
}

// Write the energies of `count` frames.
void write_frames(const Plan &plan, const Work &work, int64_t count, float *out) {
    const float *energies = reinterpret_cast<const float *>(work.energies);
    if (plan.bins >= LANES)
        for (int64_t b = 0; b < plan.bins; b += LANES) {
            const int64_t bin = b + LANES <= plan.bins ? b : plan.bins - LANES;
            transpose(energies + bin * LANES, LANES, out + bin, plan.bins, count);
        }
    else
        for (int64_t frame = 0; frame < count; ++frame)
            for (int64_t bin = 0; bin < plan.bins; ++bin)
                out[frame * plan.bins + bin] = energies[bin * LANES + frame];
}

}  // namespace

extern "C" {

// Write the log mel energies (frames, bins) of each waveform to its place in `outs`.
//
// Returns 0, or 1 if there is no memory.
int log_mel_energies(const Plan *plan, int64_t waveforms, const void *const *samples,
                     const uint8_t *are_int16, const int64_t *lengths, const int64_t *frames,
                     float *const *outs) {
    Work work;
    work.rows = LANES + (plan->size - 1) / plan->shift;
    const int64_t numbers = work.rows * plan->shift + LANES;
    const int64_t registers = 2 * plan->points + plan->bins + 2 * (numbers / LANES + 1);
    float *memory = static_cast<float *>(aligned_alloc(sizeof(Floats), registers * sizeof(Floats)));
    if (!memory) return 1;

    work.points = reinterpret_cast<Complex *>(memory);
    work.energies = reinterpret_cast<Floats *>(work.points + plan->points);
    work.columns = reinterpret_cast<float *>(work.energies + plan->bins);
    work.samples = work.columns + numbers;

    for (int64_t i = 0; i < waveforms; ++i)
        for (int64_t frame = 0; frame < frames[i]; frame += LANES) {
            const int64_t start = frame * plan->shift, wanted = work.rows * plan->shift;
            const int64_t left = lengths[i] - start;
            if (are_int16[i])
                copy_samples((const int16_t *)samples[i] + start, left, wanted, work.samples);
            else
                copy_samples((const float *)samples[i] + start, left, wanted, work.samples);

            make_columns(*plan, work);
            window_frames(*plan, work);
            run_passes(*plan, work);
            make_powers(*plan, work);
            make_energies(*plan, work);

            const int64_t count = frames[i] - frame < LANES ? frames[i] - frame : LANES;
            write_frames(*plan, work, count, outs[i] + frame * plan->bins);
        }

    free(memory);
    return 0;
}

// Write a waveform plus normal noise of a deviation, which is `white_noise` of features.py.
void add_noise(const void *samples, int is_int16, int64_t length, uint64_t seed, float deviation,
               const float *quantiles, float *out) {
    for (int64_t first = 0; first < length; first += 4) {
        uint64_t z = seed += 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        z ^= z >> 31;
        for (int64_t n = first; n < first + 4 && n < length; ++n, z >>= 16) {
            const float x = is_int16 ? ((const int16_t *)samples)[n] : ((const float *)samples)[n];
            out[n] = x + deviation * quantiles[(z & 0xffff) ^ 0x8000];
        }
    }
}

}  // extern "C"
