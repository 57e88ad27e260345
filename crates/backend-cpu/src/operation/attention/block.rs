//! The kernel: a unit's vectors with one block after the other.

mod code;
mod integral;
mod mix;
mod panel;
mod plane;
mod rows;
mod score;

use super::Desk;
use super::query::{Numbers, Queries};
use super::state::{Seen, Slot};
use super::unit::{Stripe, Unit};
use crate::simd::fold::{self, Plain, Sums};
use crate::simd::{Kernel, LANES, Simd, math};
use integral::Side;
use plane::Held;
pub(super) use plane::staged;
pub(super) use rows::Soon;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// Vectors that go through a block together.
pub(super) const CHUNK: usize = 4;

/// Vectors from which on widening a block, or turning its keys into a [`panel`], pays.
pub(super) const MANY: usize = 16;

/// Scores or weights of a chunk: one line of places for each vector.
type Lines = [[f32; BLOCK]; CHUNK];

/// Some blocks of a unit.
pub(super) struct Task<'a, 'b, 'c> {
    pub(super) unit: &'a Unit<'a>,
    pub(super) queries: &'a Queries,
    pub(super) soft_cap: Option<f32>,
    pub(super) blocks: Range<usize>,
    /// One past the last block that will be read after these.
    pub(super) until: usize,
    /// Where the blocks go.
    pub(super) slot: &'a mut Slot<'c>,
    pub(super) desk: &'a mut Desk<'b>,
}

impl Kernel for Task<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let unit = self.unit;
        let &mut Desk { ref mut working, after } = self.desk;
        let (mixed, rest) = working.split_at_mut(CHUNK * unit.values.padded());
        let (staged, turned) = rest.split_at_mut(rest.len() - panel_space(unit));
        for block in self.blocks {
            let next = if block + 1 < self.until { Some((unit, block + 1)) } else { after };
            let mut view = View::new(simd, unit, block, (staged, Ahead::new(next)));
            // With few registers the partial sums would not stay in them.
            if S::WIDE && !turned.is_empty() {
                view.panel = Some(panel::turn(simd, &view, turned));
            }
            for first in (0..unit.vectors()).step_by(CHUNK) {
                let chunk = Chunk::new(unit, self.queries, block, first);
                if chunk.union().is_empty() {
                    continue;
                }
                let (most, sum) = chunk.attend(simd, &view, self.soft_cap, mixed);
                let seen = Seen { most: &most[..chunk.count], sum: &sum[..chunk.count], mixed };
                self.slot.take(simd, first, &seen);
            }
        }
    }
}

/// A block's keys and values.
struct View<'a> {
    unit: &'a Unit<'a>,
    block: usize,
    keys: Held<'a>,
    values: Held<'a>,
    /// The keys once more, turned; see [`panel`].
    panel: Option<&'a [f32]>,
    /// Keys of the next block, by place.
    soon: Soon,
}

/// What is read after a block: the next one.
#[derive(Clone, Copy)]
struct Ahead {
    keys: Soon,
    values: Soon,
}

impl Ahead {
    /// The next block of some unit.
    #[inline(always)]
    fn new(next: Option<(&Unit<'_>, usize)>) -> Self {
        let [keys, values] = match next {
            Some((unit, block)) => [unit.keys, unit.values].map(|source| unit.soon(source, block)),
            None => [Soon::NONE; 2],
        };
        Self { keys, values }
    }
}

/// Floats that a unit's turned keys take: none if turning them would not pay.
pub(super) fn panel_space(unit: &Unit<'_>) -> usize {
    let width = unit.keys.padded();
    if unit.vectors() > MANY && unit.keys.integral().is_none() && panel::fits(width) {
        BLOCK * width
    } else {
        0
    }
}

impl<'a> View<'a> {
    #[inline(always)]
    fn new<S: Simd>(
        simd: S,
        unit: &'a Unit<'a>,
        block: usize,
        (space, ahead): (&'a mut [f32], Ahead),
    ) -> Self {
        let (for_keys, for_values) = space.split_at_mut(staged(unit, unit.keys));
        Self {
            unit,
            block,
            keys: Held::new(simd, unit, (unit.keys, Side::Keys), (block, for_keys), ahead.keys),
            values: Held::new(simd, unit, (unit.values, Side::Values), (block, for_values), ahead.values),
            panel: None,
            soon: ahead.keys,
        }
    }
}

/// Up to [`CHUNK`] vectors at one block.
struct Chunk<'a> {
    /// Vector of the unit.
    first: usize,
    count: usize,
    /// Each `[padded width]`; those beyond the count are the last one again.
    queries: [&'a [f32]; CHUNK],
    /// The same as whole numbers.
    numbers: [Numbers<'a>; CHUNK],
    /// From the first to the last place that each sees.
    visible: [Range<usize>; CHUNK],
    /// Places between them that are hidden.
    hidden: [Range<usize>; CHUNK],
}

impl<'a> Chunk<'a> {
    #[inline(always)]
    fn new(unit: &Unit<'_>, queries: &'a Queries, block: usize, first: usize) -> Self {
        let count = CHUNK.min(unit.vectors() - first);
        let nothing = [const { 0..0 }; CHUNK];
        let mut chunk = Self {
            first,
            count,
            queries: [&[]; CHUNK],
            numbers: [Numbers::NONE; CHUNK],
            visible: nothing.clone(),
            hidden: nothing,
        };
        let (mut query, mut head) = unit.split(first);
        let mut seen = unit.places(query, block);
        for i in 0..CHUNK {
            if i > 0 && i < count {
                head += 1;
                if head == unit.group {
                    (query, head) = (query + 1, 0);
                    seen = unit.places(query, block);
                }
            }
            let (token, head) = unit.place_of(query, head);
            chunk.queries[i] = queries.vector(token, head);
            chunk.numbers[i] = queries.numbers(token, head);
            (chunk.visible[i], chunk.hidden[i]) = seen.clone();
        }
        chunk
    }

    /// Places that some vector sees (and perhaps others between them).
    #[inline(always)]
    fn union(&self) -> Range<usize> {
        let (mut start, mut end) = (BLOCK, 0);
        for places in &self.visible {
            if !places.is_empty() {
                (start, end) = (start.min(places.start), end.max(places.end));
            }
        }
        start..end
    }

    /// `(m_b, l_b)` of each vector, and its `o_b` in `mixed`, `[CHUNK, padded width]`.
    #[inline(always)]
    fn attend<S: Simd>(
        &self,
        simd: S,
        view: &View<'_>,
        soft_cap: Option<f32>,
        mixed: &mut [f32],
    ) -> ([f32; CHUNK], [f32; CHUNK]) {
        let mut lines = [[f32::NEG_INFINITY; BLOCK]; CHUNK];
        match (&view.keys, view.panel) {
            (Held::Integral(keys), _) => {
                integral::score(simd, self, keys, soft_cap, &mut lines);
                hide(view, &mut lines, self.count);
            }
            (_, Some(panel)) => {
                panel::fill(simd, self, panel, soft_cap, &mut lines);
                hide(view, &mut lines, self.count);
            }
            _ => score::fill(simd, self, view, soft_cap, &mut lines),
        }
        let (mut most, mut sum) = ([f32::NEG_INFINITY; CHUNK], [0.0; CHUNK]);
        for (i, line) in lines.iter_mut().enumerate().take(self.count) {
            line[..self.visible[i].start].fill(f32::NEG_INFINITY);
            line[self.visible[i].end..].fill(f32::NEG_INFINITY);
            line[self.hidden[i].clone()].fill(f32::NEG_INFINITY);
            (most[i], sum[i]) = weigh(simd, line);
        }
        match &view.values {
            Held::Integral(values) => integral::mix(simd, self, values, &lines, mixed),
            _ => mix::fill(simd, self, view, &lines, mixed),
        }
        (most, sum)
    }
}

/// Places that are not live have no score.
#[inline(always)]
fn hide(view: &View<'_>, lines: &mut Lines, count: usize) {
    let mut end = 0;
    for stripe in view.unit.stripes(view.block) {
        if end < stripe.places.start {
            lines[..count].iter_mut().for_each(|line| line[end..stripe.places.start].fill(f32::NEG_INFINITY));
        }
        end = stripe.places.end;
    }
    if end < BLOCK {
        lines[..count].iter_mut().for_each(|line| line[end..].fill(f32::NEG_INFINITY));
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
