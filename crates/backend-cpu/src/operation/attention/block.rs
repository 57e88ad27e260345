//! The kernel: a unit's vectors with one block after the other.

mod mix;
mod panel;
mod rows;
mod score;

use super::plane::{Direct, Source};
use super::query::Queries;
use super::state::{Seen, Slot};
use super::unit::{Stripe, Unit};
use crate::simd::fold::{self, Plain, Sums};
use crate::simd::{Kernel, LANES, Simd, math};
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// Vectors that go through a block together.
pub(super) const CHUNK: usize = 4;

/// Vectors from which on turning a block's keys into a [`panel`] pays.
const MANY: usize = 16;

/// Scores or weights of a chunk: one line of places for each vector.
type Lines = [[f32; BLOCK]; CHUNK];

/// Some blocks of a unit.
pub(super) struct Task<'a> {
    pub(super) unit: &'a Unit<'a>,
    pub(super) queries: &'a Queries,
    pub(super) soft_cap: Option<f32>,
    pub(super) blocks: Range<usize>,
    /// Whether blocks are taken into one slot; else each leaves its own.
    pub(super) merge: bool,
    pub(super) slots: &'a mut [f32],
    /// See [`super::unit::Extents::working`]; the contents are arbitrary.
    pub(super) working: &'a mut [f32],
}

impl<'a> Kernel for Task<'a> {
    type Output = &'a mut [f32];

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> &'a mut [f32] {
        let Self { unit, queries, soft_cap, blocks, merge, slots, working } = self;
        let extents = unit.extents();
        let (mixed, rest) = working.split_at_mut(CHUNK * extents.width);
        let (staged, turned) = rest.split_at_mut(rest.len() - panel_space(unit));
        let mut stripes = Vec::new();
        for (index, block) in blocks.enumerate() {
            unit.stripes(block, &mut stripes);
            let mut view = View::new(simd, unit, &stripes, staged);
            // With few registers the partial sums would not stay in them.
            if S::WIDE && !turned.is_empty() {
                view.panel = Some(panel::turn(simd, &view, turned));
            }
            let start = if merge { 0 } else { index * extents.slot() };
            let mut slot = Slot::of(&mut slots[start..], extents);
            if !merge {
                slot.clear();
            }
            for first in (0..unit.vectors()).step_by(CHUNK) {
                let chunk = Chunk::new(unit, queries, block, first);
                if chunk.union().is_empty() {
                    continue;
                }
                let seen = chunk.attend(simd, &view, soft_cap, mixed);
                for (i, (most, sum)) in seen.into_iter().enumerate().take(chunk.count) {
                    let mixed = &mixed[i * extents.width..][..extents.width];
                    let seen = Seen { most, sum, mixed };
                    if merge { slot.take(simd, first + i, &seen) } else { slot.put(first + i, &seen) }
                }
            }
        }
        slots
    }
}

/// A block's keys and values as f32.
struct View<'a> {
    stripes: &'a [Stripe],
    keys: Plane<'a>,
    values: Plane<'a>,
    /// The keys once more, turned; see [`panel`].
    panel: Option<&'a [f32]>,
}

/// Floats that a unit's turned keys take: none if turning them would not pay.
pub(super) fn panel_space(unit: &Unit<'_>) -> usize {
    let width = unit.keys.padded();
    if unit.vectors() > MANY && panel::fits(width) { BLOCK * width } else { 0 }
}

/// Keys or values of a block.
struct Plane<'a> {
    elements: &'a [f32],
    /// From one place to the next.
    step: usize,
    /// Whether each element is read once, by one chunk, straight from memory.
    cold: bool,
    /// Where each stripe begins if the elements are read in place; else places count from the block's first.
    starts: Option<Starts<'a>>,
}

struct Starts<'a> {
    unit: &'a Unit<'a>,
    source: &'a Source<'a>,
}

impl Plane<'_> {
    /// The vectors of a stripe from `place` on.
    #[inline(always)]
    fn from(&self, stripe: &Stripe, place: usize) -> &[f32] {
        let start = match &self.starts {
            Some(Starts { unit, source }) => source.start(unit.place(stripe, place - stripe.places.start)),
            None => place * self.step,
        };
        &self.elements[start..]
    }
}

impl<'a> View<'a> {
    #[inline(always)]
    fn new<S: Simd>(simd: S, unit: &'a Unit<'a>, stripes: &'a [Stripe], staged: &'a mut [f32]) -> Self {
        let keys_staged = if unit.keys.direct().is_some() { 0 } else { BLOCK * unit.keys.padded() };
        let (for_keys, for_values) = staged.split_at_mut(keys_staged);
        Self {
            stripes,
            keys: stage(simd, unit, unit.keys, stripes, for_keys),
            values: stage(simd, unit, unit.values, stripes, for_values),
            panel: None,
        }
    }
}

#[inline(always)]
fn stage<'a, S: Simd>(
    simd: S,
    unit: &'a Unit<'a>,
    source: &'a Source<'a>,
    stripes: &[Stripe],
    staged: &'a mut [f32],
) -> Plane<'a> {
    if let Some(Direct { elements, step }) = source.direct() {
        let cold = unit.vectors() <= CHUNK;
        return Plane { elements, step, cold, starts: Some(Starts { unit, source }) };
    }
    let step = source.padded();
    for stripe in stripes {
        let places = stripe.places.start * step..stripe.places.end * step;
        source.widen(simd, unit.place(stripe, 0), &mut staged[places]);
    }
    Plane { elements: staged, step, cold: false, starts: None }
}

/// Up to [`CHUNK`] vectors at one block.
struct Chunk<'a> {
    count: usize,
    /// Each `[padded width]`; those beyond the count are the last one again.
    queries: [&'a [f32]; CHUNK],
    /// Places that each sees.
    visible: [Range<usize>; CHUNK],
}

impl<'a> Chunk<'a> {
    #[inline(always)]
    fn new(unit: &Unit<'_>, queries: &'a Queries, block: usize, first: usize) -> Self {
        let count = CHUNK.min(unit.vectors() - first);
        let vector = |i: usize| first + i.min(count - 1);
        Self {
            count,
            queries: std::array::from_fn(|i| queries.vector(unit.token(vector(i)), unit.head(vector(i)))),
            visible: std::array::from_fn(|i| unit.places(vector(i), block)),
        }
    }

    /// Places that some vector sees (and perhaps others between them).
    #[inline(always)]
    fn union(&self) -> Range<usize> {
        let seen = || self.visible.iter().filter(|places| !places.is_empty());
        let start = seen().map(|places| places.start).min().unwrap_or(0);
        start..seen().map(|places| places.end).max().unwrap_or(0)
    }

    /// `(m_b, l_b)` of each vector, and its `o_b` in `mixed`, `[CHUNK, padded width]`.
    #[inline(always)]
    fn attend<S: Simd>(
        &self,
        simd: S,
        view: &View<'_>,
        soft_cap: Option<f32>,
        mixed: &mut [f32],
    ) -> [(f32, f32); CHUNK] {
        let mut lines = [[f32::NEG_INFINITY; BLOCK]; CHUNK];
        match view.panel {
            Some(panel) => panel::fill(simd, self, (view, panel), soft_cap, &mut lines),
            None => score::fill(simd, self, view, soft_cap, &mut lines),
        }
        let mut seen = [(0.0, 0.0); CHUNK];
        for (i, line) in lines.iter_mut().enumerate().take(self.count) {
            line[..self.visible[i].start].fill(f32::NEG_INFINITY);
            line[self.visible[i].end..].fill(f32::NEG_INFINITY);
            seen[i] = weigh(simd, line);
        }
        mix::fill(simd, self, view, &lines, mixed);
        seen
    }
}

/// Replaces scores by weights; gives the largest score and the sum of the weights, 0 if there is no score.
#[inline(always)]
fn weigh<S: Simd>(simd: S, line: &mut [f32; BLOCK]) -> (f32, f32) {
    let most = fold::largest(simd, line);
    // Subtracting -inf from itself would make NaN of places that are only hidden.
    let shift = simd.splat(if most == f32::NEG_INFINITY { 0.0 } else { most });
    let mut sums = Sums::new(simd);
    for (index, vector) in line.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let power = math::exp(simd, simd.sub(simd.load(vector), shift));
        simd.store(vector, power);
        sums.take(simd, index, &Plain, power);
    }
    (most, sums.total(simd))
}
