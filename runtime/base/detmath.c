#include "base/detmath.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if FLT_EVAL_METHOD > 0
#error "these functions need double operations that round to double"
#endif

/* A number as the unevaluated sum of two doubles, |lo| <= ulp(hi) / 2. */
typedef struct Pair {
    double hi, lo;
} Pair;

/* ln 2 = ln2_hi + ln2_lo; the first has 32 bits, so that its product with an exponent is exact. */
static const double ln2_hi = 0x1.62e42fee00000p-1, ln2_lo = 0x1.a39ef35793c76p-33, log2_e = 0x1.71547652b82fep+0;
/* pi / 2 in pieces of 30, 30 and 53 bits: products of the first two with a number below 2^23 are exact. */
static const double pio2_a = 0x1.921fb54000000p+0, pio2_b = 0x1.10b4611800000p-30, pio2_c = 0x1.313198a2e0370p-61;
static const double two_over_pi = 0x1.45f306dc9c883p-1;

/* The nearest integer of |x| < 2^51, ties to even: adding this number leaves no bits for a fraction. */
static double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

static double double_of(uint64_t u) {
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static double power_of_two(int n) { return double_of((uint64_t)(n + 1023) << 52); } /* -1022 <= n <= 1023 */

static Pair sum(double a, double b) { /* exact (Knuth) */
    double s = a + b, t = s - a;
    return (Pair){s, (a - (s - t)) + (b - t)};
}

static Pair product(double a, double b) { /* exact (Dekker), without FMA; |a|, |b| < 2^990 */
    double ca = 0x1.0000002p27 * a, cb = 0x1.0000002p27 * b;
    double ah = ca - (ca - a), bh = cb - (cb - b), al = a - ah, bl = b - bh, p = a * b;
    return (Pair){p, ((ah * bh - p) + ah * bl + al * bh) + al * bl};
}

/* exp(hi + lo): n ln 2 taken off, the Taylor series to r^13 on |r| <= ln(2)/2 (next term < 5e-18), times 2^n. */
static double exp_pair(Pair x) {
    if (x.hi != x.hi) return x.hi;
    if (x.hi > 710) return INFINITY;
    if (x.hi < -746) return 0;
    double n = nearest(x.hi * log2_e), head = x.hi - n * ln2_hi, tail = x.lo - n * ln2_lo, r = head + tail;
    double lost = tail - (r - head); /* what the sum rounded off */
    double p = 1.0 / 6227020800.0;
    static const double factorial[] = {479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2};
    for (size_t i = 0; i < sizeof factorial / sizeof *factorial; i++) p = p * r + 1.0 / factorial[i];
    p = 1.0 + (r + (r * r * p + lost));
    int whole = (int)n, half = whole / 2; /* in two steps: 2^n itself may be out of range where the result is not */
    return p * power_of_two(half) * power_of_two(whole - half);
}

/* log(x) of a finite x > 0: x = 2^n m, m in [sqrt(1/2), sqrt(2)); with s = (m - 1) / (m + 1),
 * log m = 2 (s + s^3/3 + s^5/5 + ...), to s^23 (|s| < 0.172; next term < 4e-21); s itself as a pair. */
static Pair log_pair(double x) {
    int n = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        n = -54;
    }
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    n += (int)(u >> 52) - 1023;
    double m = double_of((u & 0xfffffffffffffu) | 0x3ff0000000000000u);
    if (m >= 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        n++;
    }
    double f = m - 1; /* exact */
    Pair d = sum(m, 1);
    double s = f / d.hi;
    Pair back = product(s, d.hi);
    double s_lo = (((f - back.hi) - back.lo) - s * d.lo) / d.hi;
    double z = s * s, p = 0;
    for (int k = 23; k >= 3; k -= 2) p = p * z + 1.0 / k;
    Pair total = sum(n * ln2_hi, 2 * s);
    return sum(total.hi, total.lo + (n * ln2_lo + (2 * s_lo + 2 * s * z * p)));
}

double det_exp(double x) { return exp_pair((Pair){x, 0}); }

double det_log(double x) {
    if (x != x || x == INFINITY) return x;
    if (x <= 0) return x == 0 ? -INFINITY : NAN;
    return log_pair(x).hi;
}

double det_pow(double x, double y) {
    if (y == 0 || x == 1) return 1;
    if (x != x || y != y || x < 0) return NAN;
    if (x == 0 || x == INFINITY) return (x == 0) == (y > 0) ? 0 : INFINITY;
    Pair l = log_pair(x);
    double rough = y * l.hi;
    if (rough > 710) return INFINITY;
    if (rough < -746) return 0;
    Pair p = product(y, l.hi);
    return exp_pair(sum(p.hi, p.lo + y * l.lo));
}

/* Taylor series on |r| <= pi/4: to r^17 and r^18, next terms below 1e-19. */
static double sin_series(Pair r) {
    double z = r.hi * r.hi, p = 0;
    for (int k = 17; k >= 3; k -= 2) p = (p + 1) * -z / (k * (k - 1));
    return r.hi + (r.hi * p + r.lo * (1 - z * 0.5));
}

static double cos_series(Pair r) {
    double z = r.hi * r.hi, p = 0;
    for (int k = 18; k >= 4; k -= 2) p = (p + 1) * -z / (k * (k - 1));
    return 1 - (0.5 * z - (-0.5 * z * p - r.hi * r.lo));
}

/* x = n pi/2 + r; the quadrant n mod 4 says which series with which sign. `turn`: 0 for the sine, 1 for the cosine. */
static double circular(double x, int turn) {
    if (!(fabs(x) <= 1e7)) return NAN;
    double n = nearest(x * two_over_pi);
    Pair r = sum(x - n * pio2_a, -(n * pio2_b));
    r = sum(r.hi, r.lo - n * pio2_c);
    int quadrant = (int)((int64_t)n + turn) & 3;
    double v = quadrant & 1 ? cos_series(r) : sin_series(r);
    return quadrant & 2 ? -v : v;
}

double det_sin(double x) { return circular(x, 0); }
double det_cos(double x) { return circular(x, 1); }
