//! Vectors as arrays, in plain Rust.
//!
//! On x86-64 this is the last resort (every fused step is a call to the system's library) and is kept small; elsewhere
//! it is what there is, and is inlined so that the compiler turns the arrays into the machine's vectors.

use super::{Kernel, LANES, Simd};
use half::{bf16, f16};

/// Needs nothing of the machine.
#[derive(Clone, Copy)]
pub(super) struct Portable;

type Lanes = [f32; LANES];

/// Methods of vectors that are one expression on each lane.
macro_rules! lanes {
    ($($name:ident($($argument:ident),*) $body:expr;)*) => {$(
        #[cfg_attr(target_arch = "x86_64", inline)]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        fn $name(self, $($argument: Lanes),*) -> Lanes {
            let mut out = [0.0; LANES];
            for lane in 0..LANES {
                $(let $argument = $argument[lane];)*
                out[lane] = $body;
            }
            out
        }
    )*};
}

/// 2^n for integral `n` in the range of normal numbers.
#[inline(always)]
fn power(n: f32) -> f32 {
    f32::from_bits(((n as i32 + 127) as u32) << 23)
}

/// `x * 2^n` in two steps, of which the first is exact, because 2^n itself may lie outside the normal numbers.
#[inline(always)]
fn scaled(x: f32, n: f32) -> f32 {
    let half = (n * 0.5).floor();
    x * power(half) * power(n - half)
}

impl Simd for Portable {
    type Lanes = Lanes;
    type Mask = [bool; LANES];
    const WIDE: bool = false;

    lanes! {
        add(a, b) a + b;
        sub(a, b) a - b;
        mul(a, b) a * b;
        div(a, b) a / b;
        fma(a, b, c) a.mul_add(b, c);
        min(a, b) if a < b { a } else { b };
        max(a, b) if a > b { a } else { b };
        sqrt(x) x.sqrt();
        round(x) x.round_ties_even();
        floor(x) x.floor();
        abs(x) x.abs();
        with_sign(x, sign) x.copysign(sign);
        scale(x, n) scaled(x, n);
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Lanes {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Lanes {
        *from
    }

    fn load_f16(self, from: &[f16; LANES]) -> Lanes {
        from.map(f16::to_f32)
    }

    fn load_bf16(self, from: &[bf16; LANES]) -> Lanes {
        from.map(bf16::to_f32)
    }

    #[inline]
    fn load_u8(self, from: &[u8; LANES]) -> Lanes {
        from.map(f32::from)
    }

    #[inline]
    fn load_i8(self, from: &[u8; LANES]) -> Lanes {
        from.map(|byte| f32::from(byte as i8))
    }

    #[inline]
    fn look_up(self, table: Lanes, words: [u32; 2], shifts: &[u32; LANES]) -> Lanes {
        let mut out = [0.0; LANES];
        for (lane, out) in out.iter_mut().enumerate() {
            *out = table[(words[lane / 8] >> shifts[lane]) as usize % LANES];
        }
        out
    }

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES], x: Lanes) {
        *to = x;
    }

    fn store_f16(self, to: &mut [f16; LANES], x: Lanes) {
        *to = x.map(f16::from_f32);
    }

    fn store_bf16(self, to: &mut [bf16; LANES], x: Lanes) {
        *to = x.map(bf16::from_f32);
    }

    #[inline]
    fn less(self, a: Lanes, b: Lanes) -> [bool; LANES] {
        let mut mask = [false; LANES];
        mask.iter_mut().zip(a.iter().zip(&b)).for_each(|(mask, (a, b))| *mask = a < b);
        mask
    }

    #[inline]
    fn is_nan(self, x: Lanes) -> [bool; LANES] {
        x.map(f32::is_nan)
    }

    #[inline]
    fn any(self, mask: [bool; LANES]) -> bool {
        mask.contains(&true)
    }

    #[inline]
    fn select(self, mask: [bool; LANES], a: Lanes, b: Lanes) -> Lanes {
        let mut out = b;
        out.iter_mut().zip(a).zip(mask).filter(|(_, mask)| *mask).for_each(|((out, a), _)| *out = a);
        out
    }

    #[inline(never)]
    fn apart<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline]
    fn sum(self, mut x: Lanes) -> f32 {
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|lane| x[lane] += x[lane + half]);
        }
        x[0]
    }

    #[inline]
    fn sums(self, xs: &[Lanes; LANES]) -> Lanes {
        xs.map(|x| self.sum(x))
    }

    #[inline]
    fn transpose(self, xs: &[Lanes; LANES]) -> [Lanes; LANES] {
        let mut out = [[0.0; LANES]; LANES];
        for (i, row) in xs.iter().enumerate() {
            out.iter_mut().zip(row).for_each(|(column, x)| column[i] = *x);
        }
        out
    }

    #[inline]
    fn largest(self, x: Lanes) -> f32 {
        x.into_iter().fold(f32::NEG_INFINITY, |most, x| if most > x { most } else { x })
    }
}
