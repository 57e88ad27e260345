//! Rotary positions.
//!
//! The angle of a pair is `position * frequency` in f32; its sine and cosine, times the scale, turn the pair:
//!
//! ```text
//! a' = fma(a, cos, -(b * sin))        b' = fma(a, sin, b * cos)
//! ```

use crate::device::CpuDevice;
use crate::number::{Real, with_real};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch, math};
use crate::value::Draft;
use tandem_contracts::tensor::{Result, Rope, Tensor, shape};

pub(crate) fn rope(device: &CpuDevice, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor> {
    device.own("rope", &[&x, &rope.frequencies, positions])?;
    let rotated = shape::rope(&x, rope, positions)?;
    let positions = device.contiguous("rope", device.value("rope", positions)?)?;
    let frequencies = device.contiguous("rope", device.value("rope", &rope.frequencies)?)?;
    let mut draft = device.take_contiguous("rope", x)?;
    if rotated == 0 {
        return Ok(device.finish(draft));
    }
    let turn = Turn {
        positions: positions.slice().unwrap_or_default(),
        frequencies: frequencies.slice().unwrap_or_default(),
        interleaved: rope.interleaved,
        scale: rope.scale,
    };
    with_real!(draft.dtype, T => turn.all::<T>(device, &mut draft));
    Ok(device.finish(draft))
}

/// What turns heads.
struct Turn<'a> {
    positions: &'a [i32],
    frequencies: &'a [f32],
    interleaved: bool,
    scale: f32,
}

impl Turn<'_> {
    fn all<T: Real>(&self, device: &CpuDevice, draft: &mut Draft) {
        let [heads, width] = [draft.layout.shape()[1], draft.layout.shape()[2]];
        let (isa, row) = (device.pool.isa(), heads * width);
        let to = Disjoint::new(draft.elements::<T>());
        // The sines cost about as much as turning 16 heads.
        let cost = (heads + 16) * width;
        let tokens = self.positions.len();
        let parts = (tokens * cost / (16 << 10)).min(4 * device.pool.threads()).clamp(1, tokens.max(1));
        device.pool.run(parts, |part, scratch| {
            let angles = scratch.lend::<f32>(2 * self.frequencies.len());
            let (sines, cosines) = angles.split_at_mut(self.frequencies.len());
            for token in tokens * part / parts..tokens * (part + 1) / parts {
                // SAFETY: tokens do not overlap, and each belongs to one part.
                let heads = unsafe { to.range(token * row..(token + 1) * row) };
                let position = self.positions[token] as f32;
                dispatch(isa, Token { turn: self, position, heads, width, sines, cosines });
            }
        });
    }
}

/// The heads of one token.
struct Token<'a, T> {
    turn: &'a Turn<'a>,
    position: f32,
    heads: &'a mut [T],
    width: usize,
    sines: &'a mut [f32],
    cosines: &'a mut [f32],
}

impl<T: Real> Kernel for Token<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { turn, position, heads, width, sines, cosines } = self;
        let (position, scale) = (simd.splat(position), simd.splat(turn.scale));
        let angles =
            turn.frequencies.chunks(LANES).zip(sines.chunks_mut(LANES)).zip(cosines.chunks_mut(LANES));
        for ((frequencies, sines), cosines) in angles {
            let angle = simd.mul(position, simd.load_part(frequencies, 0.0));
            let (sine, cosine) = math::sine_cosine(simd, angle);
            simd.store_part(sines, simd.mul(sine, scale));
            simd.store_part(cosines, simd.mul(cosine, scale));
        }
        let half = turn.frequencies.len();
        for head in heads.chunks_exact_mut(width) {
            let head = &mut head[..2 * half];
            if turn.interleaved {
                neighbours(simd, head, sines, cosines);
            } else {
                let (first, second) = head.split_at_mut(half);
                halves(simd, (first, second), sines, cosines);
            }
        }
    }
}

/// Turns the pairs `(first[i], second[i])`.
#[inline(always)]
fn halves<S: Simd, T: Real>(simd: S, (first, second): (&mut [T], &mut [T]), sines: &[f32], cosines: &[f32]) {
    let (vectors, rest) = first.as_chunks_mut::<LANES>();
    let (other_vectors, other_rest) = second.as_chunks_mut::<LANES>();
    let (sine_vectors, sine_rest) = sines.as_chunks::<LANES>();
    let (cosine_vectors, cosine_rest) = cosines.as_chunks::<LANES>();
    let pairs = vectors.iter_mut().zip(other_vectors).zip(sine_vectors.iter().zip(cosine_vectors));
    for ((first, second), (sine, cosine)) in pairs {
        let pair = (T::load(simd, first), T::load(simd, second));
        let (a, b) = turn(simd, pair, simd.load(sine), simd.load(cosine));
        T::store(simd, first, a);
        T::store(simd, second, b);
    }
    if !rest.is_empty() {
        let pair = (T::load_part(simd, rest), T::load_part(simd, other_rest));
        let (sine, cosine) = (simd.load_part(sine_rest, 0.0), simd.load_part(cosine_rest, 0.0));
        let (a, b) = turn(simd, pair, sine, cosine);
        T::store_part(simd, rest, a);
        T::store_part(simd, other_rest, b);
    }
}

/// Turns the pairs `(head[2 i], head[2 i + 1])`.
#[inline(always)]
fn neighbours<S: Simd, T: Real>(simd: S, head: &mut [T], sines: &[f32], cosines: &[f32]) {
    let angles = sines.chunks(LANES).zip(cosines.chunks(LANES));
    for (pairs, (sines, cosines)) in head.chunks_mut(2 * LANES).zip(angles) {
        let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
        for (i, pair) in pairs.as_chunks::<2>().0.iter().enumerate() {
            (first[i], second[i]) = (pair[0].to_f32(), pair[1].to_f32());
        }
        let pair = (simd.load(&first), simd.load(&second));
        let (a, b) = turn(simd, pair, simd.load_part(sines, 0.0), simd.load_part(cosines, 0.0));
        simd.store(&mut first, a);
        simd.store(&mut second, b);
        for (i, pair) in pairs.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            *pair = [T::from_f32(first[i]), T::from_f32(second[i])];
        }
    }
}

#[inline(always)]
fn turn<S: Simd>(
    simd: S,
    (a, b): (S::Lanes, S::Lanes),
    sine: S::Lanes,
    cosine: S::Lanes,
) -> (S::Lanes, S::Lanes) {
    let minus = simd.sub(simd.splat(0.0), simd.mul(b, sine));
    (simd.fma(a, cosine, minus), simd.fma(a, sine, simd.mul(b, cosine)))
}
