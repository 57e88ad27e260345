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

    /// Takes one vector's block, or segment, in. One of which nothing is seen (its sum is 0) changes nothing.
    #[inline(always)]
    pub(super) fn take<S: Simd>(&mut self, simd: S, vector: usize, block: &Seen<'_>) {
        if block.sum == 0.0 {
            return;
        }
        let old = self.most[vector];
        let most = if block.most > old { block.most } else { old };
        let mut shares = [0.0; LANES];
        (shares[0], shares[1]) = (old - most, block.most - most);
        let powers = math::exp(simd, simd.load(&shares));
        simd.store(&mut shares, powers);
        let [keep, add] = [shares[0], shares[1]];
        self.most[vector] = most;
        self.sum[vector] = self.sum[vector].mul_add(keep, block.sum * add);
        let (keep, add) = (simd.splat(keep), simd.splat(add));
        let (mixed, _) = self.mixed[vector * self.width..][..self.width].as_chunks_mut::<LANES>();
        for (to, from) in mixed.iter_mut().zip(block.mixed.as_chunks::<LANES>().0) {
            let more = simd.mul(simd.load(from), add);
            let all = simd.fma(simd.load(to), keep, more);
            simd.store(to, all);
        }
    }
}

/// What one vector saw of one block, or of one segment.
pub(super) struct Seen<'a> {
    pub(super) most: f32,
    pub(super) sum: f32,
    /// `[padded width]`
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
        for vector in 0..segment.most.len() {
            let mixed = &segment.mixed[vector * segment.width..][..segment.width];
            let seen = Seen { most: segment.most[vector], sum: segment.sum[vector], mixed };
            whole.take(simd, vector, &seen);
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
