//! A block's codes as the bytes that they are, in the order in which exact products take them.
//!
//! Scores meet sixteen keys a vector: each lane holds four neighbouring codes of one key, so that sums never cross
//! lanes. Values are met by four positions at once: each lane holds one column's codes of four. Either way all vectors
//! of a unit share one rearranged block, and integer sums are the same in any order.

mod mix;
mod score;
mod unpack;

pub(super) use mix::fill as mix;
pub(super) use score::fill as score;

use super::super::plane::Source;
use super::super::plane::code::Codes;
use super::super::unit::Unit;
use super::rows::Soon;
use crate::memory::bytes_mut;
use crate::simd::{LANES, LINE, Simd};
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;

/// A block's keys or values.
pub(in crate::operation::attention) struct Integral<'a> {
    codes: &'a Codes<'a>,
    /// Of keys `[columns / 4][BLOCK / 16]`, of values `[BLOCK / 4][columns / 16]`.
    words: &'a [[u8; LINE]],
    /// `[2, groups, BLOCK]`, 0 where a place is not live.
    factors: &'a [f32],
    /// A multiple of 64.
    columns: usize,
    /// The next block's codes, by place.
    soon: Soon,
}

/// Which of the two orders is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Keys,
    Values,
}

/// Columns of a plane with what is added so that they are whole vectors of bytes.
pub(in crate::operation::attention) fn columns(width: usize) -> usize {
    width.next_multiple_of(LINE)
}

/// Floats of working space: the codes twice, the factors, and those of one kind as they lie.
pub(super) fn space(source: &Source<'_>, codes: &Codes<'_>) -> usize {
    2 * BLOCK * columns(source.width) / size_of::<f32>() + 3 * BLOCK * codes.groups(source.width)
}

impl<'a> Integral<'a> {
    /// Rearranges a block. The working space is as large as [`space`] says.
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        simd: S,
        unit: &Unit<'_>,
        (source, codes): (&'a Source<'a>, &'a Codes<'a>),
        (block, space): (usize, &'a mut [f32]),
        side: Side,
    ) -> Self {
        let (columns, groups) = (columns(source.width), codes.groups(source.width));
        let (factors, rest) = space.split_at_mut(3 * BLOCK * groups);
        let (rows, words) = bytes_mut(rest).split_at_mut(BLOCK * columns);
        let (words, _) = words.as_chunks_mut();
        let rows = Rows::new(unit, (source, codes), block, rows);
        match side {
            Side::Keys => rows.turn(simd, codes.is_signed(), words),
            Side::Values => rows.weave(simd, words),
        }
        let factors = stage(simd, unit, codes, block, factors);
        Self { codes, words, factors, columns, soon: Soon::NONE }
    }

    /// With what is to be asked for meanwhile.
    #[inline(always)]
    pub(super) fn before(self, soon: Soon) -> Self {
        Self { soon, ..self }
    }

    /// Asks for codes of the next block at several places while a first chunk of vectors works, so that memory does too.
    #[inline(always)]
    fn ask<S: Simd>(&self, simd: S, places: Range<usize>, first: bool) {
        if first {
            for place in places {
                self.soon.ask(simd, place);
            }
        }
    }

    /// Both factors of a group at all places.
    #[inline(always)]
    fn factors(&self, group: usize) -> [&[[f32; LANES]]; 2] {
        let groups = self.factors.len() / (2 * BLOCK);
        [0, 1].map(|factor| self.factors[(factor * groups + group) * BLOCK..][..BLOCK].as_chunks().0)
    }
}

/// Widens the factors of a block, each group's side by side.
#[inline(always)]
fn stage<'a, S: Simd>(
    simd: S,
    unit: &Unit<'_>,
    codes: &Codes<'_>,
    block: usize,
    space: &'a mut [f32],
) -> &'a [f32] {
    let count = space.len() / 3;
    let (to, lying) = space.split_at_mut(2 * count);
    for (factor, to) in to.chunks_exact_mut(count).enumerate() {
        let alone = count == BLOCK;
        let first = if alone { &mut *to } else { &mut *lying };
        if !is_whole(unit, block) || !codes.has(factor) {
            // Places that are not live must not bring in what was here before.
            first.fill(0.0);
        }
        for stripe in unit.stripes(block) {
            let place = (unit.place(&stripe, 0), stripe.places.start, stripe.places.len());
            codes.widen(simd, factor, place, first);
        }
        if !alone {
            part(simd, lying, to);
        }
    }
    to
}

/// Whether all of a block lies in one stripe.
#[inline(always)]
fn is_whole(unit: &Unit<'_>, block: usize) -> bool {
    unit.stripes(block).next().is_some_and(|stripe| stripe.places == (0..BLOCK))
}

/// `[BLOCK, groups]` of several groups as `[groups, BLOCK]`.
#[inline(always)]
fn part<S: Simd>(simd: S, from: &[f32], to: &mut [f32]) {
    let groups = from.len() / BLOCK;
    let vectors = from.as_chunks::<LANES>().0;
    match groups {
        2 => {
            let (even, odd) = to.split_at_mut(BLOCK);
            let (even, odd) = (even.as_chunks_mut::<LANES>().0, odd.as_chunks_mut::<LANES>().0);
            for ((even, odd), two) in even.iter_mut().zip(odd).zip(vectors.as_chunks::<2>().0) {
                let [first, second] = simd.deal(simd.load(&two[0]), simd.load(&two[1]));
                simd.store(even, first);
                simd.store(odd, second);
            }
        }
        _ => {
            for (group, to) in to.chunks_exact_mut(BLOCK).enumerate() {
                for (place, to) in to.iter_mut().enumerate() {
                    *to = from[place * groups + group];
                }
            }
        }
    }
}

/// A block's codes, each a byte: a row of whole lines for each place.
///
/// Invariant: all [`BLOCK`] rows lie within the bytes.
#[derive(Clone, Copy)]
struct Rows<'a> {
    bytes: &'a [u8],
    step: usize,
    columns: usize,
}

impl<'a> Rows<'a> {
    /// Bytes of whole blocks are read where they lie, other codes unpacked into working space.
    #[inline(always)]
    fn new(
        unit: &Unit<'_>,
        (source, codes): (&'a Source<'a>, &'a Codes<'a>),
        block: usize,
        space: &'a mut [u8],
    ) -> Self {
        let columns = columns(source.width);
        if codes.bits == 8
            && columns == source.width
            && let Some(stripe) = unit.stripes(block).next().filter(|stripe| stripe.places == (0..BLOCK))
        {
            let from = &codes.bytes[source.start(unit.place(&stripe, 0))..];
            return Self::at(from, source.step(), columns);
        }
        for stripe in unit.stripes(block) {
            let from = &codes.bytes[source.start(unit.place(&stripe, 0))..];
            let to = &mut space[stripe.places.start * columns..stripe.places.end * columns];
            unpack::rows(codes, (from, source.step()), source.width, to);
        }
        // What lies at other places is old, and nothing is made of it.
        Self::at(space, columns, columns)
    }

    /// # Panics
    /// The rows do not lie within the bytes.
    #[inline(always)]
    fn at(bytes: &'a [u8], step: usize, columns: usize) -> Self {
        assert!((BLOCK - 1) * step + columns <= bytes.len(), "rows outside their plane");
        Self { bytes, step, columns }
    }

    /// 64 codes of a place.
    #[inline(always)]
    fn line(&self, place: usize, column: usize) -> &'a [u8; LINE] {
        debug_assert!(place < BLOCK && column + LINE <= self.columns);
        let start = place * self.step + column;
        // SAFETY: all rows lie within the bytes (the invariant), and the line within its row.
        unsafe { &*self.bytes.as_ptr().add(start).cast() }
    }

    /// Words of four codes of sixteen places; signed codes become greater by 128.
    #[inline(always)]
    fn turn<S: Simd>(&self, simd: S, signed: bool, to: &mut [[u8; LINE]]) {
        for column in (0..self.columns).step_by(LINE) {
            for group in 0..BLOCK / LANES {
                let mut rows = [simd.splat(0.0); LANES];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = simd.load_bits(self.line(group * LANES + i, column));
                    if signed {
                        *row = simd.flip(*row);
                    }
                }
                let turned = simd.transpose(&rows);
                for (i, turned) in turned.into_iter().enumerate() {
                    simd.store_bits(&mut to[(column / 4 + i) * (BLOCK / LANES) + group], turned);
                }
            }
        }
    }

    /// Words of four places' codes of a column.
    #[inline(always)]
    fn weave<S: Simd>(&self, simd: S, to: &mut [[u8; LINE]]) {
        let (to, _) = to.as_chunks_mut::<4>();
        for four in 0..BLOCK / 4 {
            for column in 0..self.columns / LINE {
                let mut rows = [&[0; LINE]; 4];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = self.line(4 * four + i, column * LINE);
                }
                simd.weave(rows, &mut to[four * (self.columns / LINE) + column]);
            }
        }
    }
}
