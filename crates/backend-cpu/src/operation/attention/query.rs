//! Queries in f32, scaled, each padded with zeros to whole vectors; and, where they meet codes as integers, as whole
//! numbers of one step each.

use crate::device::{CpuDevice, no_memory};
use crate::memory::Block;
use crate::number::{Real, with_real};
use crate::operation::row::widen;
use crate::pool::Disjoint;
use crate::simd::{Digits, Kernel, LANES, LINE, MOST, Simd, dispatch};
use std::ops::Range;
use tandem_contracts::tensor::{Result, Tensor};

/// `f32 [tokens, heads, padded width]`.
#[derive(Debug)]
pub(super) struct Queries {
    block: Block,
    heads: usize,
    padded: usize,
    /// See [`Numbers`]; nothing where no keys are met as integers.
    numbers: Option<[Block; 2]>,
}

/// Elements whose numbers are summed together; a group of codes is one or several such spans.
pub(super) const SPAN: usize = 32;

/// What one of the largest number counts.
pub(super) const STEP: f32 = 1.0 / MOST;

/// What is smaller counts as 0, because it would have no step.
const LEAST: f32 = 7.888_609e-31;

impl Queries {
    pub(super) fn new(device: &CpuDevice, q: &Tensor, scale: f32) -> Result<Self> {
        let source = device.value("attend", q)?;
        let &[tokens, heads, width] = source.layout.shape() else { unreachable!("the shape was checked") };
        let padded = width.next_multiple_of(LANES);
        let bytes = tokens * heads * padded * size_of::<f32>();
        let mut block = device.memory.take(bytes).map_err(|error| no_memory("attend", error))?;
        let strides = source.layout.strides();
        let cells = Disjoint::new(block.of_mut::<f32>());
        let isa = device.pool.isa();
        with_real!(source.dtype, T => {
            let from = source.read::<T>();
            device.spread(tokens * heads, padded, |range| {
                // SAFETY: vectors do not overlap, and each belongs to one part.
                let to = unsafe { cells.range(range.start * padded..range.end * padded) };
                let starts = range.map(|vector| vector / heads * strides[0] + vector % heads * strides[1]);
                dispatch(isa, Scale { from, starts, step: strides[2], width, scale, to });
            });
        });
        Ok(Self { block, heads, padded, numbers: None })
    }

    /// Adds the queries' numbers.
    pub(super) fn count(&mut self, device: &CpuDevice) -> Result<()> {
        let (vectors, lines) =
            (self.block.of::<f32>().len() / self.padded.max(1), self.padded.div_ceil(LINE));
        let take =
            |size: usize| device.memory.take(vectors * size * 4).map_err(|error| no_memory("attend", error));
        let (mut digits, mut sums) = (take(lines * 2 * LANES)?, take(1 + lines * 2)?);
        let (to, to_sums) = (Disjoint::new(digits.of_mut::<u32>()), Disjoint::new(sums.of_mut::<f32>()));
        let (from, isa) = (self.block.of::<f32>(), device.pool.isa());
        device.spread(vectors, self.padded, |range| {
            for vector in range {
                let from = &from[vector * self.padded..][..self.padded];
                let digits = vector * lines * 2 * LANES..(vector + 1) * lines * 2 * LANES;
                let sums = vector * (1 + 2 * lines)..(vector + 1) * (1 + 2 * lines);
                // SAFETY: vectors do not overlap, and each belongs to one part.
                let (digits, sums) = unsafe { (to.range(digits), to_sums.range(sums)) };
                dispatch(isa, Count { from, digits: digits.as_chunks_mut().0.as_chunks_mut().0, sums });
            }
        });
        self.numbers = Some([digits, sums]);
        Ok(())
    }

    /// One query's numbers; nothing where there are none.
    #[inline]
    pub(super) fn numbers(&self, token: usize, head: usize) -> Numbers<'_> {
        let Some([digits, sums]) = &self.numbers else { return Numbers { digits: &[], sums: &[] } };
        let (vector, lines) = (token * self.heads + head, self.padded.div_ceil(LINE));
        let digits: &[Digits] = digits.of::<u32>().as_chunks().0.as_chunks().0;
        Numbers {
            digits: &digits[vector * lines..][..lines],
            sums: &sums.of::<f32>()[vector * (1 + 2 * lines)..][..1 + 2 * lines],
        }
    }

    pub(super) fn heads(&self) -> usize {
        self.heads
    }

    /// One query, `[padded width]`.
    #[inline]
    pub(super) fn vector(&self, token: usize, head: usize) -> &[f32] {
        &self.block.of()[(token * self.heads + head) * self.padded..][..self.padded]
    }
}

/// Makes scaled vectors of queries.
struct Scale<'a, T, I> {
    from: &'a [T],
    /// Where each begins.
    starts: I,
    step: usize,
    width: usize,
    scale: f32,
    to: &'a mut [f32],
}

impl<T: Real, I: Iterator<Item = usize>> Kernel for Scale<'_, T, I> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, starts, step, width, scale, to } = self;
        let padded = width.next_multiple_of(LANES).max(1);
        let scale = simd.splat(scale);
        for (start, to) in starts.zip(to.chunks_exact_mut(padded)) {
            let (vectors, rest) = match step {
                1 => from[start..start + width].as_chunks::<LANES>(),
                _ => (&[][..], &[][..]),
            };
            if step != 1 {
                widen(&from[start..], step, &mut to[..width]);
            }
            for (i, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let x = match vectors.get(i) {
                    Some(vector) => T::load(simd, vector),
                    None if step == 1 => T::load_part(simd, rest),
                    None => simd.load(to),
                };
                simd.store(to, simd.mul(x, scale));
            }
            to[width..].fill(0.0);
        }
    }
}

/// A query as whole numbers of at most [`MOST`], each worth the query's step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    digits: &'a [Digits],
    /// The step, then the sums.
    sums: &'a [f32],
}

impl Numbers<'_> {
    pub(super) const NONE: Self = Self { digits: &[], sums: &[] };

    /// Numbers `4 i .. 4 i + 4` of a span.
    #[inline(always)]
    pub(super) fn quad(&self, span: usize, i: usize) -> [u32; 2] {
        let [first, second] = &self.digits[span / 2];
        let i = span % 2 * (SPAN / 4) + i % (SPAN / 4);
        [first[i], second[i]]
    }

    #[inline(always)]
    pub(super) fn step(&self) -> f32 {
        self.sums[0]
    }

    /// The sum of the numbers of some spans; exact.
    #[inline(always)]
    pub(super) fn sum(&self, spans: Range<usize>) -> f32 {
        self.sums[1..][spans].iter().sum()
    }
}

/// Makes a query's numbers.
struct Count<'a> {
    from: &'a [f32],
    digits: &'a mut [Digits],
    sums: &'a mut [f32],
}

impl Kernel for Count<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { from, digits, sums } = self;
        let vectors = from.as_chunks::<LANES>().0;
        let zero = simd.splat(0.0);
        let (mut most, mut strange) = (zero, zero);
        for vector in vectors {
            let x = simd.load(vector);
            most = simd.max(simd.abs(x), most);
            // NaN where an element is none or infinite.
            strange = simd.fma(x, zero, strange);
        }
        let (most, scale) = range(simd, simd.largest(most));
        sums[0] = most * STEP + simd.sum(strange);
        for ((vectors, digits), sums) in vectors.chunks(4).zip(digits).zip(sums[1..].chunks_exact_mut(2)) {
            let mut numbers = [zero; 4];
            for (number, vector) in numbers.iter_mut().zip(vectors) {
                *number = whole(simd, simd.load(vector), scale);
            }
            *digits = simd.digits(&numbers);
            sums[0] = simd.sum(simd.add(numbers[0], numbers[1]));
            sums[1] = simd.sum(simd.add(numbers[2], numbers[3]));
        }
    }
}

/// What numbers of which the largest has this size are multiplied with to become whole, after the size itself; both 0
/// for one that is too small.
#[inline(always)]
pub(super) fn range<S: Simd>(simd: S, most: f32) -> (f32, S::Lanes) {
    if most < LEAST { (0.0, simd.splat(0.0)) } else { (most, simd.splat(MOST / most)) }
}

/// To the nearest whole number of at most [`MOST`]; NaN becomes some.
#[inline(always)]
pub(super) fn whole<S: Simd>(simd: S, x: S::Lanes, scale: S::Lanes) -> S::Lanes {
    let least = simd.min(simd.mul(x, scale), simd.splat(MOST));
    simd.round(simd.max(least, simd.splat(-MOST)))
}
