//! Vectors as arrays, in plain Rust.

use super::{LANES, Simd};
use half::{bf16, f16};
use std::array::from_fn;

/// Needs nothing of the machine.
#[derive(Clone, Copy)]
pub(super) struct Portable;

type Lanes = [f32; LANES];

/// 2^n for integral `n` in the range of normal numbers.
fn power(n: f32) -> f32 {
    f32::from_bits(((n as i32 + 127) as u32) << 23)
}

impl Simd for Portable {
    type Lanes = Lanes;
    type Mask = [bool; LANES];
    const WIDE: bool = false;

    #[inline(always)]
    fn splat(self, x: f32) -> Lanes {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Lanes {
        *from
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> Lanes {
        from.map(f16::to_f32)
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16; LANES]) -> Lanes {
        from.map(bf16::to_f32)
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Lanes) {
        *to = x;
    }

    #[inline(always)]
    fn store_f16(self, to: &mut [f16; LANES], x: Lanes) {
        *to = x.map(f16::from_f32);
    }

    #[inline(always)]
    fn store_bf16(self, to: &mut [bf16; LANES], x: Lanes) {
        *to = x.map(bf16::from_f32);
    }

    #[inline(always)]
    fn add(self, a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn div(self, a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| a[i] / b[i])
    }

    #[inline(always)]
    fn fma(self, a: Lanes, b: Lanes, c: Lanes) -> Lanes {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn min(self, a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn sqrt(self, x: Lanes) -> Lanes {
        x.map(f32::sqrt)
    }

    #[inline(always)]
    fn round(self, x: Lanes) -> Lanes {
        x.map(f32::round_ties_even)
    }

    #[inline(always)]
    fn floor(self, x: Lanes) -> Lanes {
        x.map(f32::floor)
    }

    #[inline(always)]
    fn abs(self, x: Lanes) -> Lanes {
        x.map(f32::abs)
    }

    #[inline(always)]
    fn with_sign(self, x: Lanes, sign: Lanes) -> Lanes {
        from_fn(|i| x[i].copysign(sign[i]))
    }

    #[inline(always)]
    fn scale(self, x: Lanes, n: Lanes) -> Lanes {
        // Two steps, of which the first is exact, because 2^n itself may lie outside the normal numbers.
        from_fn(|i| {
            let half = (n[i] * 0.5).floor();
            x[i] * power(half) * power(n[i] - half)
        })
    }

    #[inline(always)]
    fn less(self, a: Lanes, b: Lanes) -> [bool; LANES] {
        from_fn(|i| a[i] < b[i])
    }

    #[inline(always)]
    fn is_nan(self, x: Lanes) -> [bool; LANES] {
        x.map(f32::is_nan)
    }

    #[inline(always)]
    fn any(self, mask: [bool; LANES]) -> bool {
        mask.contains(&true)
    }

    #[inline(always)]
    fn select(self, mask: [bool; LANES], a: Lanes, b: Lanes) -> Lanes {
        from_fn(|i| if mask[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn sum(self, x: Lanes) -> f32 {
        let eight: [f32; 8] = from_fn(|i| x[i] + x[i + 8]);
        let four: [f32; 4] = from_fn(|i| eight[i] + eight[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }

    #[inline(always)]
    fn sums(self, xs: &[Lanes; LANES]) -> Lanes {
        xs.map(|x| self.sum(x))
    }

    #[inline(always)]
    fn transpose(self, xs: &[Lanes; LANES]) -> [Lanes; LANES] {
        from_fn(|j| from_fn(|i| xs[i][j]))
    }

    #[inline(always)]
    fn largest(self, x: Lanes) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, |most, x| if most > x { most } else { x })
    }
}
