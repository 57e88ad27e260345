//! Elementary functions on vectors, the same bits on every instruction set and system.
//!
//! Polynomials are minimax fits (weighted for relative error) made with Remez-like reweighting; `tests`
//! measures the error of each against the standard library's functions of f64. Errors, in units in the last
//! place:
//!
//! | function | largest error | where |
//! |---|---|---|
//! | [`exp`] | 1.0 | where the result is normal; else 0 |
//! | [`sigmoid`] | 2.5 | everywhere normal |
//! | [`tanh`] | 3 | everywhere |
//! | [`erf`] | 3 | everywhere |
//! | [`sine_cosine`] | 1.2e-7 absolute | `|x| <= 100 000`; beyond, see there |

use super::{LANES, Simd};
use std::f32::consts::{FRAC_2_PI, FRAC_PI_2, LN_2, LOG2_E};

/// Horner's scheme: `c[0] + x (c[1] + x (c[2] + ..))`.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, x: S::Lanes, coefficients: [f32; N]) -> S::Lanes {
    let mut value = simd.splat(coefficients[N - 1]);
    for &coefficient in coefficients[..N - 1].iter().rev() {
        value = simd.fma(value, x, simd.splat(coefficient));
    }
    value
}

/// `e^x`: `2^n e^r` with `n = round(x / ln 2)` and `|r| <= ln 2 / 2`. Infinite above 88.73; 0 below -87.33,
/// where it would leave the normal numbers, on which processors are slow.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
    let lowest = simd.splat(-87.33);
    let below = simd.less(x, lowest);
    // The operand order lets NaN through.
    let x = simd.max(lowest, simd.min(simd.splat(89.0), x));
    let n = simd.round(simd.mul(x, simd.splat(LOG2_E)));
    // ln 2 as its f32 and the rest; the first product is exact within the fused step.
    let r = simd.fma(n, simd.splat(-LN_2), x);
    let r = simd.fma(n, simd.splat(1.904_654_2e-9), r);
    let tail = polynomial(simd, r, [0.5, 0.166_665_13, 0.041_666_187, 0.008_369_598, 0.001_395_171_7]);
    let value = simd.add(simd.fma(simd.mul(r, r), tail, r), simd.splat(1.0));
    simd.select(below, simd.splat(0.0), simd.scale(value, n))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
    let one = simd.splat(1.0);
    simd.div(one, simd.add(one, exp(simd, simd.sub(simd.splat(0.0), x))))
}

/// Hyperbolic tangent: odd polynomial near 0, `1 - 2 / (e^2|x| + 1)` beyond 0.625.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
    let (magnitude, one) = (simd.abs(x), simd.splat(1.0));
    let square = simd.mul(x, x);
    let tail = polynomial(
        simd,
        square,
        [-0.333_332_84, 0.133_314_91, -0.053_743_495, 0.020_650_579, -0.005_717_037],
    );
    let near = simd.fma(simd.mul(square, x), tail, x);
    let power = exp(simd, simd.add(magnitude, magnitude));
    let far = simd.sub(one, simd.div(simd.splat(2.0), simd.add(power, one)));
    // The sign last, for the sake of -0.
    simd.with_sign(simd.select(simd.less(magnitude, simd.splat(0.625)), near, far), x)
}

/// Error function: odd polynomial up to 0.921875, then `1 - e^-p(|x|)`.
#[inline(always)]
pub(crate) fn erf<S: Simd>(simd: S, x: S::Lanes) -> S::Lanes {
    let (magnitude, one) = (simd.abs(x), simd.splat(1.0));
    let square = simd.mul(x, x);
    let tail = polynomial(
        simd,
        square,
        [
            0.128_379_17,
            -0.376_126_35,
            0.112_837_02,
            -0.026_859_702,
            0.005_201_716,
            -8.149_807_4e-4,
            8.397_802e-5,
        ],
    );
    let near = simd.fma(x, tail, x);
    // Beyond 4 the function is 1 to the last bit; the bound keeps the polynomial where it was fitted. The
    // operand order lets NaN through.
    let bounded = simd.min(simd.splat(4.0), magnitude);
    let power = polynomial(
        simd,
        bounded,
        [
            1.774_872_4e-4,
            1.127_749_6,
            0.637_059_7,
            0.104_037_42,
            -0.022_277_117,
            0.003_055_615_7,
            -1.971_826_2e-4,
        ],
    );
    let far = simd.sub(one, exp(simd, simd.sub(simd.splat(0.0), power)));
    simd.select(simd.less(magnitude, simd.splat(0.921_875)), near, simd.with_sign(far, x))
}

/// Largest argument that is reduced in f32.
const REDUCIBLE: f32 = 100_000.0;

/// Sine and cosine, arguments in radians. Arguments beyond 100 000 go to the standard library's f64, one by
/// one.
#[inline(always)]
pub(crate) fn sine_cosine<S: Simd>(simd: S, x: S::Lanes) -> (S::Lanes, S::Lanes) {
    // NaN is not less either, and comes out as NaN.
    if simd.any(simd.less(simd.splat(REDUCIBLE), simd.abs(x))) {
        let mut lanes = [0.0; LANES];
        simd.store(&mut lanes, x);
        let sine = lanes.map(|x| f64::from(x).sin() as f32);
        let cosine = lanes.map(|x| f64::from(x).cos() as f32);
        return (simd.load(&sine), simd.load(&cosine));
    }
    // r = x - n pi / 2, with pi / 2 as its f32 and two rests.
    let n = simd.round(simd.mul(x, simd.splat(FRAC_2_PI)));
    let r = simd.fma(n, simd.splat(-FRAC_PI_2), x);
    let r = simd.fma(n, simd.splat(4.371_139e-8), r);
    let r = simd.fma(n, simd.splat(1.776_356_8e-15), r);
    let square = simd.mul(r, r);
    let sine = polynomial(simd, square, [-0.166_666_54, 0.008_332_131, -1.951_083_8e-4]);
    let sine = simd.fma(simd.mul(square, r), sine, r);
    let cosine = polynomial(simd, square, [0.041_666_646, -0.001_388_730_6, 2.443_120_3e-5]);
    let cosine =
        simd.fma(simd.mul(square, square), cosine, simd.fma(square, simd.splat(-0.5), simd.splat(1.0)));
    quadrant(simd, n, sine, cosine)
}

/// Turns the sine and cosine of `r` into those of `r + n pi / 2`.
#[inline(always)]
fn quadrant<S: Simd>(simd: S, n: S::Lanes, sine: S::Lanes, cosine: S::Lanes) -> (S::Lanes, S::Lanes) {
    let (zero, half) = (simd.splat(0.0), simd.splat(0.5));
    // n modulo 4, exactly, as n is integral.
    let modulo = simd.fma(simd.floor(simd.mul(n, simd.splat(0.25))), simd.splat(-4.0), n);
    let parity = simd.fma(simd.floor(simd.mul(modulo, half)), simd.splat(-2.0), modulo);
    let odd = simd.less(half, parity);
    let (first, second) = (simd.select(odd, cosine, sine), simd.select(odd, sine, cosine));
    let negative_sine = simd.less(simd.splat(1.5), modulo);
    // The cosine is negative in the quadrants 1 and 2: |modulo - 1.5| < 1.
    let distance = simd.abs(simd.sub(modulo, simd.splat(1.5)));
    let negative_cosine = simd.less(distance, simd.splat(1.0));
    let flip = |mask, x| simd.select(mask, simd.sub(zero, x), x);
    (flip(negative_sine, first), flip(negative_cosine, second))
}

/// [`exp`] of one number, for references in tests.
#[cfg(test)]
pub(crate) fn exponential(x: f32) -> f32 {
    let simd = super::portable::Portable;
    exp(simd, simd.splat(x))[0]
}
