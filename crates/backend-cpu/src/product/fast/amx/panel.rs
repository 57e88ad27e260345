//! One tile of weights on its way through blocks of rows.

use std::arch::x86_64::*;

use super::{LINE, tile};
use crate::product::exact::widen_avx512 as widen;
use crate::product::fast::Fast;
use crate::product::format::LANES;
use crate::product::quantised::{BLOCK_ROWS, RowBlock};

/// Groups by which weights are fetched ahead of their use: loads in the bursts of unpacking and of tile products
/// would wait for memory one after the other.
const AHEAD: usize = 16;

/// Consecutive groups whose products are computed before the float arithmetic on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    start: usize,
    groups: usize,
    /// Whether results are complete after it.
    last: bool,
}

impl Stretch {
    /// All groups in stretches of nearly one length, at most `most`; an empty one when there is no group.
    pub(super) fn all(groups: usize, most: usize) -> impl Iterator<Item = Self> + Clone {
        let length = groups.div_ceil(groups.div_ceil(most).max(1)).max(1);
        (0..groups.max(1)).step_by(length).map(move |start| {
            let groups_ = length.min(groups - start);
            Self { start, groups: groups_, last: start + groups_ == groups }
        })
    }
}

/// Bytes of a row that a tile of activations takes: for nibbles both parts of the shortest group or more; for bytes,
/// whose parts are multiplied one after the other, all of one part of it.
pub(super) const fn depth(group: usize, nibble: bool) -> usize {
    if nibble || group > 32 { LINE } else { 32 }
}

/// The integer sums of a stretch, `[groups, BLOCK_ROWS, LANES]`: with the high parts of activations and with the low
/// ones, or for nibbles, where one product gives both at once, the same twice.
#[derive(Clone, Copy)]
struct Sums {
    high: *const i32,
    low: *const i32,
}

impl Sums {
    /// The whole sums from `at` on.
    ///
    /// # Safety
    ///
    /// Sixteen are there.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn dot<const NIBBLE: bool>(self, at: usize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe {
            let high = _mm512_load_si512(self.high.add(at).cast());
            if NIBBLE {
                return high;
            }
            _mm512_add_epi32(_mm512_slli_epi32::<4>(high), _mm512_load_si512(self.low.add(at).cast()))
        }
    }
}

/// A tile of weights and the space that belongs to it.
pub(super) struct Panel<'a> {
    pub(super) product: &'a Fast<'a>,
    pub(super) tile: usize,
    /// Unpacked nibbles, `[groups, 2, G, LANES]` in the order that tiles want, first times sixteen, for high parts
    /// of activations, then as they are, for low parts; of all groups or, when they are used once, of a stretch.
    pub(super) codes: *mut u8,
    /// Scales and biases as f32, `[groups, 2, LANES]`, of as many groups.
    pub(super) factors: *mut f32,
    /// The results so far between two stretches, `[BLOCK_ROWS, LANES]`.
    pub(super) totals: *mut f32,
    /// Space for the integer sums of a stretch, see [`tile::space`]; twice that for bytes.
    pub(super) sums: *mut i32,
    /// Whether there is one block only.
    pub(super) once: bool,
    /// Whether `codes` and `factors` are there.
    pub(super) unpacked: bool,
}

impl Panel<'_> {
    /// Multiplies a stretch of a block of at most `R` rows, the first of which is row `first` of the product. Where
    /// it has fewer, the vectors of the others hold arbitrary numbers that are not written out.
    ///
    /// # Safety
    ///
    /// The machine has these instructions, and the tile registers are configured for the block's rows and the
    /// [`depth`] of the format; the pointers lead to the space that they describe; nobody else uses the results' cells
    /// meanwhile.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    pub(super) unsafe fn multiply<const G: usize, const NIBBLE: bool, const R: usize>(
        &self,
        rows: RowBlock<'_>,
        first: usize,
        stretch: Stretch,
    ) {
        let mut totals = [_mm512_setzero_ps(); R];
        // SAFETY: the stretch lies within the groups, for which weights, codes, factors and the block's rows are
        // there; factors of rows beyond the block's last are read from the space that `Quantised` leaves behind.
        unsafe {
            if stretch.start > 0 {
                for (row, total) in totals.iter_mut().enumerate() {
                    *total = _mm512_load_ps(self.totals.add(row * LANES));
                }
            }
            let slot = if self.once { 0 } else { stretch.start };
            if !self.unpacked {
                (0..stretch.groups)
                    .for_each(|step| self.unpack::<G, NIBBLE>(stretch.start + step, slot + step));
            }
            let sums = self.products::<G, NIBBLE>(rows, stretch, slot);
            for step in 0..stretch.groups {
                let group = stretch.start + step;
                if !self.unpacked {
                    self.fetch(group + AHEAD);
                }
                let factors = self.factors.add((slot + step) * 2 * LANES);
                let (scale, bias) = (_mm512_load_ps(factors), _mm512_load_ps(factors.add(LANES)));
                let d = rows.factors.as_ptr().add(group * 2 * rows.rows);
                for (row, total) in totals.iter_mut().enumerate() {
                    let dot = sums.dot::<NIBBLE>((step * BLOCK_ROWS + row) * LANES);
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*d.add(row)));
                    *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, *total);
                    *total = _mm512_fmadd_ps(bias, _mm512_set1_ps(*d.add(rows.rows + row)), *total);
                }
            }
            if stretch.last {
                self.write(rows.rows, first, &totals);
            } else {
                for (row, total) in totals.iter().enumerate() {
                    _mm512_store_ps(self.totals.add(row * LANES), *total);
                }
            }
        }
    }

    /// The integer sums of a stretch.
    ///
    /// # Safety
    ///
    /// As [`Panel::multiply`], with the stretch unpacked at `slot`.
    #[inline]
    unsafe fn products<const G: usize, const NIBBLE: bool>(
        &self,
        rows: RowBlock<'_>,
        stretch: Stretch,
        slot: usize,
    ) -> Sums {
        // SAFETY: the stretch lies within the block's codes, `2 * G` bytes for each group and row, and the tile's
        // weights; the space holds both parts' sums where there are two.
        unsafe {
            let a = rows.codes.as_ptr().add(stretch.start * rows.rows * 2 * G);
            let (a_line, a_step, groups) = (2 * G, rows.rows * 2 * G, stretch.groups);
            if NIBBLE {
                let b = self.codes.cast_const().add(slot * 2 * G * LANES);
                let products = tile::Products { a, a_line, a_step, b, b_step: 2 * G * LANES, groups };
                let whole = match G {
                    32 => products.run::<1>(self.sums),
                    64 => products.run::<2>(self.sums),
                    _ => products.run::<4>(self.sums),
                };
                return Sums { high: whole, low: whole };
            }
            let b_step = self.product.affine.block_bytes();
            let b = self.weights().add(stretch.start * b_step);
            let high = tile::Products { a, a_line, a_step, b, b_step, groups };
            let low = tile::Products { a: a.add(G), ..high };
            let space = self.sums.byte_add(tile::space(groups));
            if G == 128 {
                Sums { high: high.run::<2>(self.sums), low: low.run::<2>(space) }
            } else {
                Sums { high: high.run::<1>(self.sums), low: low.run::<1>(space) }
            }
        }
    }

    /// Writes results out.
    ///
    /// # Safety
    ///
    /// As [`Panel::multiply`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn write<const R: usize>(&self, rows: usize, first: usize, totals: &[__m512; R]) {
        let cells = self.product.output.cells(first..first + rows, self.tile);
        let mask = u16::MAX >> (LANES - cells.columns);
        for (row, total) in totals.iter().enumerate() {
            // Not a shorter loop, which would take the sums out of their registers.
            if row < rows {
                // SAFETY: the cells of `rows` rows are there; the mask leaves out columns that are not.
                unsafe { _mm512_mask_storeu_ps(cells.start.add(row * cells.stride), mask, *total) };
            }
        }
    }

    /// The tile's blocks.
    fn weights(&self) -> *const u8 {
        self.product.blocks(self.tile..self.tile + 1).as_ptr()
    }

    /// Asks for a group's block, here or in the tiles that follow.
    #[inline]
    fn fetch(&self, group: usize) {
        let block_bytes = self.product.affine.block_bytes();
        for line in 0..block_bytes / LINE {
            // Beyond the last tile this is no address of ours.
            let address = self.weights().wrapping_add(group * block_bytes + line * LINE);
            // SAFETY: a prefetch reads nothing and may be given any address.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
        }
    }

    /// Puts a group's codes into the order that tiles want, and widens its scales and biases; both into the panel's
    /// place `slot`.
    ///
    /// # Safety
    ///
    /// As [`Panel::multiply`]; the tile has the group and the panel the place.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn unpack<const G: usize, const NIBBLE: bool>(&self, group: usize, slot: usize) {
        let affine = self.product.affine;
        let (lower, upper) = (_mm512_set1_epi8(15), _mm512_set1_epi8(!15));
        // SAFETY: the group's block is whole; the panel has space for `2 * G * LANES` codes and two lines of factors.
        unsafe {
            let block = self.weights().add(group * affine.block_bytes());
            if NIBBLE {
                let mut codes = self.codes.add(slot * 2 * G * LANES);
                for line in 0..G / 8 {
                    let line = _mm512_loadu_si512(block.add(line * LINE).cast());
                    _mm512_store_si512(codes.cast(), _mm512_and_si512(_mm512_slli_epi16::<4>(line), upper));
                    _mm512_store_si512(codes.add(LINE).cast(), _mm512_and_si512(line, upper));
                    let plain = codes.add(G * LANES);
                    _mm512_store_si512(plain.cast(), _mm512_and_si512(line, lower));
                    let line = _mm512_and_si512(_mm512_srli_epi16::<4>(line), lower);
                    _mm512_store_si512(plain.add(LINE).cast(), line);
                    codes = codes.add(2 * LINE);
                }
            }
            let scales = block.add(affine.code_bytes());
            let factors = self.factors.add(slot * 2 * LANES);
            _mm512_store_ps(factors, widen(affine.number, scales));
            _mm512_store_ps(factors.add(LANES), widen(affine.number, scales.add(affine.scale_bytes())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_cover_all_groups() {
        for groups in 0..100 {
            let stretches: Vec<Stretch> = Stretch::all(groups, 16).collect();
            assert_eq!(stretches.iter().map(|stretch| stretch.groups).sum::<usize>(), groups);
            assert!(stretches.iter().all(|stretch| stretch.groups <= 16));
            assert!(stretches.windows(2).all(|pair| pair[0].start + pair[0].groups == pair[1].start));
            assert!(
                stretches.iter().rev().map(|stretch| stretch.last).eq((0..stretches.len()).map(|i| i == 0))
            );
        }
    }
}
