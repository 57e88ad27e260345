//! Activations as integers of twelve bits, for `fast` products.
//!
//! Each group of a row (the weight's group of inputs) is quantised by itself:
//!
//! ```text
//! d = max |x| / 2032       code = round_half_even(x * (2032 / max |x|))     in -2032..=2032
//!                          code = 16 * high + low                           high in -127..=127, low in -8..=7
//! ```
//!
//! each step in f32; beside `d` lies `d * sum of codes` for the weight's bias. Codes are held as their two parts,
//! the bytes that byte products take. Eight bits alone would change the most likely token at one position in
//! twenty-five of ordinary text, twelve do at one in hundreds, and because tiles of bytes are deeper than a short
//! group, the second part often costs nothing. Three cases stand apart:
//! - a group that holds an infinity or a NaN gets `d = NaN`, so that every output of the row becomes NaN;
//! - a group whose largest magnitude is below 2^-115 (zeros and the neighbourhood of denormals, where `2032 / max`
//!   would leave the range of f32) counts as zeros: `d = 0`;
//! - everything else has a finite `d` (only `d * sum` may overflow, where the sum of the inputs would).
//!
//! Layout: rows in blocks of sixteen (the last may hold fewer, `n`), so that one row is contiguous and sixteen
//! are the tiles that AMX loads. In a block, for each group: `n` runs of a group's high parts and then its low
//! parts; and `n` times `d`, then `n` times `d * sum`.

mod kernel;

use super::error::{ErrorKind, ProductError, check_length};
use crate::memory::{Block, Memory};
use crate::pool::{Disjoint, Pool, Scratch};

/// Rows of a full block.
pub(super) const BLOCK_ROWS: usize = 16;

/// Bytes of a code.
pub(super) const PARTS: usize = 2;

/// Quantised rows; see the module.
#[derive(Debug)]
pub struct Quantised {
    rows: usize,
    width: usize,
    group: usize,
    codes: Block,
    /// With sixteen more at the end, so that a kernel may read factors for full blocks only.
    factors: Block,
}

/// One block of quantised rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowBlock<'a> {
    /// 1 to 16.
    pub(super) rows: usize,
    /// `[groups, rows, 2, group]`: high parts, low parts.
    pub(super) codes: &'a [i8],
    /// `[groups, 2, rows]`, and sixteen more so that a kernel may always read for sixteen rows.
    pub(super) factors: &'a [f32],
}

impl Quantised {
    /// Space for `rows` rows of `width` inputs in groups of `group`, whose values are arbitrary until
    /// [`Quantised::fill`].
    ///
    /// # Errors
    ///
    /// A group size that is not 32, 64 or 128 or does not divide the width; no memory.
    pub fn new(memory: &Memory, rows: usize, width: usize, group: usize) -> Result<Self, ProductError> {
        if !matches!(group, 32 | 64 | 128) {
            return Err(ErrorKind::Group(group).into());
        }
        if !width.is_multiple_of(group) {
            return Err(ErrorKind::Width { width, group }.into());
        }
        let codes = memory.take(rows * width * PARTS)?;
        let factors = memory.take((rows * (width / group) * 2 + BLOCK_ROWS) * size_of::<f32>())?;
        Ok(Self { rows, width, group, codes, factors })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Inputs of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Inputs that share a scale.
    pub fn group(&self) -> usize {
        self.group
    }

    /// Quantises `x`, `[rows, width]`.
    ///
    /// # Errors
    ///
    /// When `x` has another length.
    pub fn fill(&mut self, pool: &Pool, x: &[f32]) -> Result<(), ProductError> {
        check_length("activations", self.rows * self.width, x.len())?;
        let width = self.width;
        self.fill_rows(pool, |row, _, quantise| quantise(&x[row * width..][..width]));
        Ok(())
    }

    /// Quantises rows as they are made: `make(row, out)` writes a row's `width` inputs, each row on one thread.
    /// For an operation that is followed by a product and whose own results nobody else needs, such as a norm.
    pub fn fill_with(&mut self, pool: &Pool, make: impl Fn(usize, &mut [f32]) + Sync) {
        let width = self.width;
        self.fill_rows(pool, |row, scratch, quantise| {
            let inputs = scratch.lend::<f32>(width);
            make(row, inputs);
            quantise(inputs);
        });
    }

    /// Runs `each` for every row, with what quantises that row.
    fn fill_rows(&mut self, pool: &Pool, each: impl Fn(usize, &mut Scratch, &dyn Fn(&[f32])) + Sync) {
        let isa = pool.isa();
        let rows = self.rows;
        let writer = Writer {
            rows,
            width: self.width,
            group: self.group,
            codes: Disjoint::new(self.codes.of_mut()),
            factors: Disjoint::new(self.factors.of_mut()),
        };
        // Rows of a block have their factors side by side in cache lines, which two threads would take from each other.
        pool.run(rows.div_ceil(BLOCK_ROWS), |block, scratch| {
            for row in block * BLOCK_ROWS..rows.min((block + 1) * BLOCK_ROWS) {
                each(row, scratch, &|x| {
                    assert_eq!(x.len(), writer.width, "inputs of a row");
                    // SAFETY: the row has the length that its place was made for, and one part alone has it.
                    unsafe { kernel::quantise(isa, x, writer.row(row)) }
                });
            }
        });
    }

    /// The block that starts at row `16 * index`.
    pub(super) fn block(&self, index: usize) -> RowBlock<'_> {
        let first = index * BLOCK_ROWS;
        let rows = BLOCK_ROWS.min(self.rows - first);
        let groups = self.width / self.group;
        RowBlock {
            rows,
            codes: &self.codes.of()[first * self.width * PARTS..][..rows * self.width * PARTS],
            factors: &self.factors.of()[first * groups * 2..][..rows * groups * 2 + BLOCK_ROWS],
        }
    }
}

/// Access for parts that each write rows of their own.
struct Writer<'a> {
    rows: usize,
    width: usize,
    group: usize,
    codes: Disjoint<'a, i8>,
    factors: Disjoint<'a, f32>,
}

/// Where a row's codes and factors go; group `i`'s lie `i` steps further.
#[derive(Clone, Copy, Debug)]
struct Row {
    group: usize,
    /// High parts, and `group` further low parts.
    codes: *mut i8,
    code_step: usize,
    /// `d`, and `sum` numbers further `d * sum`.
    factors: *mut f32,
    factor_step: usize,
    sum: usize,
}

impl Writer<'_> {
    /// The place of one row, whose writer must be its only user.
    fn row(&self, row: usize) -> Row {
        let (first, lane) = (row / BLOCK_ROWS * BLOCK_ROWS, row % BLOCK_ROWS);
        let rows = BLOCK_ROWS.min(self.rows - first);
        let (codes, factors) = (first * self.width * PARTS, first * (self.width / self.group) * 2);
        let block_codes = codes..codes + rows * self.width * PARTS;
        let block_factors = factors..factors + rows * (self.width / self.group) * 2;
        Row {
            group: self.group,
            codes: self.codes.pointer(block_codes).wrapping_add(lane * self.group * PARTS),
            code_step: rows * self.group * PARTS,
            factors: self.factors.pointer(block_factors).wrapping_add(lane),
            factor_step: 2 * rows,
            sum: rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::isa::Isa;

    fn quantise(isa: Isa, x: &[f32], rows: usize, group: usize) -> Quantised {
        let pool = Pool::new(NonZeroUsize::new(2).unwrap(), isa).unwrap();
        let mut quantised = Quantised::new(&Memory::default(), rows, x.len() / rows, group).unwrap();
        quantised.fill(&pool, x).unwrap();
        quantised
    }

    #[test]
    fn a_group_is_scaled_to_its_largest_magnitude() {
        let mut x = vec![0.0; 32];
        // d = 1: codes are the values, halves to even.
        x[..8].copy_from_slice(&[2032.0, -2032.0, 0.5, 1.5, -2.5, 7.25, 8.0, -9.0]);
        for isa in Isa::available() {
            let quantised = quantise(isa, &x, 1, 32);
            let block = quantised.block(0);
            assert_eq!(block.codes[..9], [127, -127, 0, 0, 0, 0, 1, -1, 0]);
            assert_eq!(block.codes[32..41], [0, 0, 0, 2, -2, 7, -8, 7, 0]);
            // 2 - 2 + 7 + 8 - 9
            assert_eq!(block.factors[..2], [1.0, 6.0]);
        }
    }

    #[test]
    fn strange_groups() {
        for isa in Isa::available() {
            for strange in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut x = vec![1.0; 64];
                x[40] = strange;
                let quantised = quantise(isa, &x, 1, 32);
                let factors = quantised.block(0).factors;
                assert_eq!(factors[0], 1.0 / 2032.0);
                assert!(factors[2].is_nan() && factors[3].is_nan());
                assert!(quantised.block(0).codes[64..].iter().all(|code| *code == 0));
            }
            for tiny in [0.0, -0.0, f32::from_bits(1), f32::MIN_POSITIVE, 2.0_f32.powi(-116)] {
                let quantised = quantise(isa, &[tiny; 32], 1, 32);
                assert_eq!(quantised.block(0).factors[..2], [0.0, 0.0]);
                assert!(quantised.block(0).codes.iter().all(|code| *code == 0));
            }
            for extreme in [2.0_f32.powi(-115), f32::MAX / 33.0] {
                let quantised = quantise(isa, &[-extreme; 32], 1, 32);
                assert_eq!(quantised.block(0).codes[..32], [-127; 32]);
                assert_eq!(quantised.block(0).codes[32..], [0; 32]);
                assert!(quantised.block(0).factors[..2].iter().all(|factor| factor.is_normal()));
            }
        }
    }

    #[test]
    fn every_instruction_set_and_every_company_gives_the_same_codes() {
        let (rows, width) = (37, 384);
        let x: Vec<f32> = (0..rows * width).map(|i| ((i * 7919 % 1013) as f32 - 506.0) * 0.37).collect();
        for group in [32, 64, 128] {
            for isa in Isa::available() {
                let many = quantise(isa, &x, rows, group);
                for row in 0..rows {
                    let alone = quantise(Isa::Portable, &x[row * width..][..width], 1, group);
                    let (block, lane) = (many.block(row / 16), row % 16);
                    for index in 0..width / group {
                        let at = (index * block.rows + lane) * group * PARTS;
                        assert_eq!(
                            block.codes[at..][..group * PARTS],
                            alone.block(0).codes[index * group * PARTS..][..group * PARTS]
                        );
                        let at = index * 2 * block.rows + lane;
                        let factors = [block.factors[at], block.factors[at + block.rows]];
                        assert_eq!(factors, alone.block(0).factors[index * 2..][..2]);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_may_be_quantised_as_they_are_made() {
        let (rows, width) = (100, 256);
        let x: Vec<f32> = (0..rows * width).map(|i| (i * 31 % 101) as f32 - 50.0).collect();
        let expected = quantise(Isa::Portable, &x, rows, 64);
        let pool = Pool::new(NonZeroUsize::new(3).unwrap(), Isa::Amx).unwrap();
        let mut made = Quantised::new(&Memory::default(), rows, width, 64).unwrap();
        made.fill_with(&pool, |row, out| out.copy_from_slice(&x[row * width..][..width]));
        for block in 0..rows.div_ceil(16) {
            let (made, expected) = (made.block(block), expected.block(block));
            assert_eq!(made.codes, expected.codes);
            let factors = made.rows * (width / 64) * 2;
            assert_eq!(made.factors[..factors], expected.factors[..factors]);
        }
    }

    #[test]
    fn wrong_shapes_are_refused() {
        let memory = Memory::default();
        assert!(Quantised::new(&memory, 1, 64, 16).is_err());
        assert!(Quantised::new(&memory, 1, 48, 32).is_err());
        let pool = Pool::new(NonZeroUsize::MIN, Isa::Portable).unwrap();
        assert!(Quantised::new(&memory, 2, 64, 32).unwrap().fill(&pool, &[0.0; 64]).is_err());
        assert!(Quantised::new(&memory, 0, 64, 32).unwrap().fill(&pool, &[]).is_ok());
    }
}
