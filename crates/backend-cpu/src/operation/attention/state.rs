//! The running softmax of each vector: `(m, l, o)`.

use super::unit::{Extents, Unit};
use crate::number::Real;
use crate::operation::turbo::transform;
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, math};

/// One `(m, l, o)` for each vector of a unit.
pub(super) struct Slot<'a> {
    /// `m`, `[vectors]`.
    most: &'a mut [f32],
    /// `l`, `[vectors]`.
    sum: &'a mut [f32],
    /// `o`, `[vectors, padded width]`.
    mixed: &'a mut [f32],
    width: usize,
}

impl<'a> Slot<'a> {
    pub(super) fn of(space: &'a mut [f32], extents: Extents) -> Self {
        let (most, rest) = space[..extents.slot()].split_at_mut(extents.vectors);
        let (sum, mixed) = rest.split_at_mut(extents.vectors);
        Self { most, sum, mixed, width: extents.width }
    }

    /// Nothing seen yet, but for the vector's sink.
    pub(super) fn begin(&mut self, sink: impl Fn(usize) -> Option<f32>) {
        for (vector, (most, sum)) in self.most.iter_mut().zip(&mut *self.sum).enumerate() {
            (*most, *sum) = sink(vector).map_or((f32::NEG_INFINITY, 0.0), |sink| (sink, 1.0));
        }
        self.mixed.fill(0.0);
    }

    /// Takes a block, or a segment, of up to [`LANES`] vectors from `first` on in. One of which nothing is seen (its sum
    /// is 0) changes nothing.
    #[inline(always)]
    pub(super) fn take<S: Simd>(&mut self, simd: S, first: usize, block: &Seen<'_>) {
        let most = &mut self.most[first..first + block.most.len()];
        let old = simd.load_part(most, f32::NEG_INFINITY);
        let new = simd.load_part(block.most, f32::NEG_INFINITY);
        let larger = simd.max(new, old);
        simd.store_part(most, larger);
        let (mut keep, mut add) = ([0.0; LANES], [0.0; LANES]);
        simd.store(&mut keep, math::exp(simd, simd.sub(old, larger)));
        simd.store(&mut add, math::exp(simd, simd.sub(new, larger)));
        for (i, more) in block.sum.iter().enumerate() {
            if *more == 0.0 {
                continue;
            }
            let sum = &mut self.sum[first + i];
            *sum = sum.mul_add(keep[i], more * add[i]);
            let (keep, add) = (simd.splat(keep[i]), simd.splat(add[i]));
            let to = self.mixed[(first + i) * self.width..][..self.width].as_chunks_mut::<LANES>().0;
            let from = block.mixed[i * self.width..][..self.width].as_chunks::<LANES>().0;
            for (to, from) in to.iter_mut().zip(from) {
                let more = simd.mul(simd.load(from), add);
                let all = simd.fma(simd.load(to), keep, more);
                simd.store(to, all);
            }
        }
    }
}

/// What some vectors saw of one block, or of one segment.
pub(super) struct Seen<'a> {
    pub(super) most: &'a [f32],
    pub(super) sum: &'a [f32],
    /// `[vectors, padded width]`
    pub(super) mixed: &'a [f32],
}

/// Takes a segment's slot into the row's.
pub(super) struct Take<'a, 'b> {
    pub(super) whole: &'b mut Slot<'a>,
    pub(super) segment: Slot<'b>,
}

impl Kernel for Take<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { whole, segment } = self;
        let vectors = segment.most.chunks(LANES).zip(segment.sum.chunks(LANES));
        for (i, (most, sum)) in vectors.enumerate() {
            let mixed = &segment.mixed[i * LANES * segment.width..];
            whole.take(simd, i * LANES, &Seen { most, sum, mixed });
        }
    }
}

/// Writes a unit's results, `o / l`, to `[tokens, heads, width]`; those of rotated values are turned back first.
pub(super) struct Finish<'a, 'b, T> {
    pub(super) unit: &'a Unit<'b>,
    pub(super) slot: Slot<'a>,
    pub(super) heads: usize,
    pub(super) width: usize,
    pub(super) out: Disjoint<'a, T>,
}

impl<T: Real> Kernel for Finish<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { unit, slot, heads, width, out } = self;
        let signs = unit.values.signs();
        for vector in 0..unit.vectors() {
            let place = (unit.token(vector) * heads + unit.head(vector)) * width;
            // SAFETY: each query and head belongs to one vector of one unit.
            let out = unsafe { out.range(place..place + width) };
            let share = simd.splat(1.0 / slot.sum[vector]);
            let mixed = slot.mixed[vector * slot.width..][..slot.width].as_chunks_mut::<LANES>().0;
            for mixed in &mut *mixed {
                let whole = simd.mul(simd.load(mixed), share);
                simd.store(mixed, whole);
            }
            if let Some(signs) = signs {
                let mixed = mixed.as_flattened_mut();
                transform(mixed);
                for (mixed, sign) in mixed.iter_mut().zip(signs) {
                    *mixed *= sign;
                }
            }
            let (vectors, rest) = out.as_chunks_mut::<LANES>();
            let count = vectors.len();
            for (to, from) in vectors.iter_mut().zip(&*mixed) {
                T::store(simd, to, simd.load(from));
            }
            if !rest.is_empty() {
                T::store_part(simd, rest, simd.load(&mixed[count]));
            }
        }
    }
}
