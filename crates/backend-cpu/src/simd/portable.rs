//! Vectors as arrays, in plain Rust.
//!
//! On x86-64 this is the last resort (every fused step is a call to the system's library) and is kept small; elsewhere
//! it is what there is, and is inlined so that the compiler turns the arrays into the machine's vectors.

use super::{Digits, Kernel, LANES, LINE, Simd};
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

/// 64 numbers of 16 bits: of each four the first and the third as a word, then the second and the fourth.
#[inline(always)]
pub(super) fn pairs(numbers: &[i32; LINE]) -> Digits {
    let word = |low: i32, high: i32| low as u32 & 0xffff | (high as u32) << 16;
    let mut digits = [[0; LANES]; 2];
    for (k, four) in numbers.as_chunks::<4>().0.iter().enumerate() {
        (digits[0][k], digits[1][k]) = (word(four[0], four[2]), word(four[1], four[3]));
    }
    digits
}

impl Simd for Portable {
    type Lanes = Lanes;
    type Mask = [bool; LANES];
    type Ints = [i32; LANES];
    type Words = [u8; LINE];
    type Dots = [i32; LANES];
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

    fn load_bf16_dealt(self, from: &[bf16; 2 * LANES]) -> [Lanes; 2] {
        [0, 1].map(|odd| std::array::from_fn(|i| from[2 * i + odd].to_f32()))
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

    #[inline(always)]
    fn words(self, from: &[u8; LINE]) -> [u8; LINE] {
        *from
    }

    #[inline(always)]
    fn repeat(self, word: u32) -> [i32; LANES] {
        [word as i32; LANES]
    }

    #[inline(always)]
    fn no_dots(self) -> [i32; LANES] {
        [0; LANES]
    }

    #[inline(always)]
    fn dot(self, mut sums: [i32; LANES], words: [u8; LINE], by: [[i32; LANES]; 2]) -> [i32; LANES] {
        for lane in 0..LANES {
            let byte = |i: usize| i32::from(words[4 * lane + i]);
            let (even, odd) = (by[0][lane], by[1][lane]);
            sums[lane] += byte(0) * i32::from(even as i16) + byte(2) * (even >> 16);
            sums[lane] += byte(1) * i32::from(odd as i16) + byte(3) * (odd >> 16);
        }
        sums
    }

    #[inline(always)]
    fn total(self, sums: [i32; LANES], less: [i32; LANES]) -> Lanes {
        let mut out = [0.0; LANES];
        for lane in 0..LANES {
            out[lane] = (sums[lane] - less[lane]) as f32;
        }
        out
    }

    fn digits(self, xs: &[Lanes; 4]) -> Digits {
        let mut numbers = [0; LINE];
        numbers.iter_mut().zip(xs.as_flattened()).for_each(|(number, x)| *number = *x as i32);
        pairs(&numbers)
    }

    #[inline(always)]
    fn halves(self, first: Lanes, second: Lanes) -> Lanes {
        std::array::from_fn(|lane| if lane < 8 { first[lane] } else { second[lane] })
    }

    #[inline(always)]
    fn int_halves(self, first: [i32; LANES], second: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|lane| if lane < 8 { first[lane] } else { second[lane] })
    }

    fn deal(self, a: Lanes, b: Lanes) -> [Lanes; 2] {
        let lane = |i: usize| if i < LANES { a[i] } else { b[i - LANES] };
        [0, 1].map(|odd| std::array::from_fn(|i| lane(2 * i + odd)))
    }

    fn zip(self, even: Lanes, odd: Lanes) -> [Lanes; 2] {
        [0, 8].map(|first| std::array::from_fn(|i| [even, odd][i % 2][first + i / 2]))
    }

    #[inline]
    fn load_bits(self, from: &[u8; LINE]) -> Lanes {
        let words = from.as_chunks::<4>().0;
        std::array::from_fn(|lane| f32::from_le_bytes(words[lane]))
    }

    #[inline]
    fn flip(self, x: Lanes) -> Lanes {
        x.map(|x| f32::from_bits(x.to_bits() ^ 0x8080_8080))
    }

    #[inline]
    fn store_bits(self, to: &mut [u8; LINE], x: Lanes) {
        to.as_chunks_mut().0.iter_mut().zip(x).for_each(|(to, x)| *to = x.to_le_bytes());
    }

    #[inline]
    fn weave(self, rows: [&[u8; LINE]; 4], to: &mut [[u8; LINE]; 4]) {
        for (j, to) in to.iter_mut().enumerate() {
            for (lane, word) in to.as_chunks_mut().0.iter_mut().enumerate() {
                *word = rows.map(|row| row[16 * (lane / 4) + 4 * j + lane % 4]);
            }
        }
    }

    #[inline]
    fn unweave(self, xs: [Lanes; 4]) -> [Lanes; 4] {
        [0, 1, 2, 3].map(|q| std::array::from_fn(|i| xs[i / 4][4 * q + i % 4]))
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
    fn begin_sums(self, xs: &[Lanes; 4]) -> Lanes {
        std::array::from_fn(|i| {
            let (x, lane) = (xs[i / 4], i % 4);
            (x[lane] + x[lane + 8]) + (x[lane + 4] + x[lane + 12])
        })
    }

    #[inline]
    fn end_sums(self, xs: &[Lanes; 4]) -> Lanes {
        std::array::from_fn(|i| {
            let (x, first) = (xs[i % 4], i / 4 * 4);
            (x[first] + x[first + 2]) + (x[first + 1] + x[first + 3])
        })
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
