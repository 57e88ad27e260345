//! Fast products with AMX tiles: sixteen rows of activations times sixteen outputs in one instruction.
//!
//! For each tile of weights and block of rows, four groups at a time: four tile products, whose integer sums are
//! stored to the first cache, and then the float arithmetic on them with 512-bit vectors, which keep the sums of
//! a block's rows in registers over all groups. Nibbles are unpacked into a panel on the way through the first
//! block and reused by the later ones; bytes already are what the tiles want.
//!
//! The instructions are written in `asm!`, because the compiler's own names for them are not stable yet.

use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

use super::Fast;
use crate::pool::Scratch;
use crate::product::exact::widen_avx512 as widen;
use crate::product::format::{Code, LANES};
use crate::product::quantised::{BLOCK_ROWS, RowBlock};

/// Tile products between two stores, one for each tile register that holds sums.
const STEPS: usize = 4;
/// Bytes of a stored tile of sums.
const SUMS: usize = BLOCK_ROWS * LANES * 4;
/// Bytes of a stored tile's row.
const LINE: usize = 64;

/// Shapes of the tile registers (Intel SDM volume 1, "TILECFG"): 0 to 3 hold sums, 4 and 6 activations, 5 and 7
/// weights.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

impl Configuration {
    /// For `rows` rows of activations and `depth` inputs, at most 64.
    fn new(rows: usize, depth: usize) -> Self {
        let mut configuration =
            Self { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row: [0; 16], rows: [0; 16] };
        for register in 0..8 {
            let (lines, bytes) = match register {
                0..4 => (rows, LINE),
                4 | 6 => (rows, depth),
                _ => (depth / 4, LINE),
            };
            configuration.rows[register] = lines as u8;
            configuration.bytes_per_row[register] = bytes as u16;
        }
        configuration
    }

    /// # Safety
    ///
    /// The machine has AMX and the process may use it.
    unsafe fn load(&self) {
        // SAFETY: the configuration is a valid one of 64 bytes; it changes only tile registers, which no compiled
        // code uses.
        unsafe { asm!("ldtilecfg [{}]", in(reg) self, options(nostack, readonly)) }
    }
}

/// # Safety
///
/// As [`Fast::run`], which has checked the operands, on a machine with these instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn run(
    product: &Fast<'_>,
    tiles: Range<usize>,
    blocks: Range<usize>,
    scratch: &mut Scratch,
) {
    // SAFETY: the caller's promise.
    unsafe {
        match (product.affine.code, product.affine.group) {
            (Code::Nibble, 32) => run_format::<32, true>(product, tiles, blocks, scratch),
            (Code::Nibble, 64) => run_format::<64, true>(product, tiles, blocks, scratch),
            (Code::Nibble, _) => run_format::<128, true>(product, tiles, blocks, scratch),
            (Code::Byte, 32) => run_format::<32, false>(product, tiles, blocks, scratch),
            (Code::Byte, 64) => run_format::<64, false>(product, tiles, blocks, scratch),
            (Code::Byte, _) => run_format::<128, false>(product, tiles, blocks, scratch),
        }
        // Leaves the tile registers in their initial state, which a context switch need not save.
        asm!("tilerelease", options(nostack, nomem));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_format<const G: usize, const NIBBLE: bool>(
    product: &Fast<'_>,
    tiles: Range<usize>,
    blocks: Range<usize>,
    scratch: &mut Scratch,
) {
    let groups = product.groups();
    let codes = if NIBBLE { groups * G * LANES } else { 0 };
    let space = scratch.lend::<u8>(2 * STEPS * SUMS + codes + groups * 2 * LINE);
    let (sums, space) = space.split_at_mut(2 * STEPS * SUMS);
    let (codes, factors) = space.split_at_mut(codes);
    let mut shape = 0;
    for tile in tiles {
        let mut panel = Panel {
            weights: product.blocks(tile..tile + 1),
            code_bytes: product.affine.code_bytes(),
            block_bytes: product.affine.block_bytes(),
            product,
            codes: codes.as_mut_ptr(),
            factors: factors.as_mut_ptr().cast(),
            sums: sums.as_mut_ptr().cast(),
            unpacked: false,
        };
        for index in blocks.clone() {
            let rows = product.input.block(index);
            // SAFETY: the configuration fits the block; the panel's space was measured above; the cells are the
            // caller's to give.
            unsafe {
                if rows.rows != shape {
                    Configuration::new(rows.rows, G.min(64)).load();
                    shape = rows.rows;
                }
                let place = (tile, index * BLOCK_ROWS);
                match rows.rows {
                    13.. => panel.multiply::<G, NIBBLE, 16>(rows, place),
                    9.. => panel.multiply::<G, NIBBLE, 12>(rows, place),
                    5.. => panel.multiply::<G, NIBBLE, 8>(rows, place),
                    _ => panel.multiply::<G, NIBBLE, 4>(rows, place),
                }
            }
            panel.unpacked = true;
        }
    }
}

/// A tile of weights on its way through blocks of rows.
struct Panel<'a> {
    /// The tile's blocks.
    weights: &'a [u8],
    code_bytes: usize,
    block_bytes: usize,
    product: &'a Fast<'a>,
    /// Unpacked nibbles, `[groups, G, LANES]` in the order that tiles want.
    codes: *mut u8,
    /// Scales and biases as f32, `[groups, 2, LANES]`.
    factors: *mut f32,
    /// `[2, STEPS, BLOCK_ROWS, LANES]`
    sums: *mut i32,
    /// Whether `codes` and `factors` are there.
    unpacked: bool,
}

impl Panel<'_> {
    /// Multiplies with a block of at most `R` rows. Where it has fewer, the vectors of the others hold arbitrary
    /// numbers that are not stored.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn multiply<const G: usize, const NIBBLE: bool, const R: usize>(
        &self,
        rows: RowBlock<'_>,
        (tile, first): (usize, usize),
    ) {
        let groups = self.product.groups();
        let mut totals = [_mm512_setzero_ps(); R];
        // SAFETY: groups stay below `groups`, for which weights, codes, factors and the block's rows are there;
        // factors of rows beyond the block's last are read from the space that `Quantised` leaves behind them.
        unsafe {
            for start in (0..groups).step_by(STEPS) {
                let steps = STEPS.min(groups - start);
                // The two halves of the space take turns, so that the next products need not wait for the float
                // arithmetic on these.
                let sums = self.sums.add(start / STEPS % 2 * STEPS * SUMS / 4);
                if !self.unpacked {
                    (start..start + steps).for_each(|group| self.unpack::<G, NIBBLE>(group));
                }
                let a = rows.codes.as_ptr().add(start * rows.rows * G);
                let (b, b_step) = if NIBBLE {
                    (self.codes.cast_const().add(start * G * LANES), G * LANES)
                } else {
                    (self.weights.as_ptr().add(start * self.block_bytes), self.block_bytes)
                };
                let operands = Operands { a, a_step: rows.rows * G, b, b_step };
                if steps == STEPS {
                    operands.four_products::<G>(sums);
                } else {
                    operands.products::<G>(steps, sums);
                }
                for step in 0..steps {
                    let group = start + step;
                    let factors = self.factors.add(group * 2 * LANES);
                    let (scale, bias) = (_mm512_load_ps(factors), _mm512_load_ps(factors.add(LANES)));
                    let d = rows.factors.as_ptr().add(group * 2 * rows.rows);
                    for (row, total) in totals.iter_mut().enumerate() {
                        let dot = _mm512_load_si512(sums.add((step * BLOCK_ROWS + row) * LANES).cast());
                        let scale = _mm512_mul_ps(scale, _mm512_set1_ps(*d.add(row)));
                        *total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, *total);
                        *total = _mm512_fmadd_ps(bias, _mm512_set1_ps(*d.add(rows.rows + row)), *total);
                    }
                }
            }
            for (row, total) in totals.iter().enumerate().take(rows.rows) {
                let cells = self.product.output.lanes(first + row, tile);
                _mm512_mask_storeu_ps(cells.as_mut_ptr(), u16::MAX >> (LANES - cells.len()), *total);
            }
        }
    }

    /// Puts a group's codes into the order that tiles want, and widens its scales and biases.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn unpack<const G: usize, const NIBBLE: bool>(&self, group: usize) {
        let mask = _mm512_set1_epi8(15);
        // SAFETY: the group's block is whole; the panel has space for `G * LANES` codes and two lines of factors.
        unsafe {
            let block = self.weights.as_ptr().add(group * self.block_bytes);
            if NIBBLE {
                let mut codes = self.codes.add(group * G * LANES);
                for line in 0..G / 8 {
                    let line = _mm512_loadu_si512(block.add(line * LINE).cast());
                    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(line), mask);
                    _mm512_store_si512(codes.cast(), _mm512_and_si512(line, mask));
                    _mm512_store_si512(codes.add(LINE).cast(), high);
                    codes = codes.add(2 * LINE);
                }
            }
            let number = self.product.affine.number;
            let scales = block.add(self.code_bytes);
            let factors = self.factors.add(group * 2 * LANES);
            _mm512_store_ps(factors, widen(number, scales));
            _mm512_store_ps(factors.add(LANES), widen(number, scales.add(LANES * number.bytes())));
        }
    }
}

/// The operands of tile products of consecutive groups.
#[derive(Clone, Copy)]
struct Operands {
    /// `[groups, rows, G]` codes of activations.
    a: *const i8,
    /// From one group to the next.
    a_step: usize,
    /// `[G / 4, LANES, 4]` codes of weights for each group.
    b: *const u8,
    b_step: usize,
}

/// One group's product into the register `$sums`, through the registers `$a` and `$b`; steps on to the next group.
/// Activations are signed, weights unsigned.
macro_rules! product {
    ($sums:literal, $a:literal, $b:literal) => {
        concat!(
            "tilezero ",
            $sums,
            "\n",
            "tileloadd ",
            $a,
            ", [{a} + {a_line}*1]\n",
            "tileloadd ",
            $b,
            ", [{b} + {line}*1]\n",
            "tdpbsud ",
            $sums,
            ", ",
            $a,
            ", ",
            $b,
            "\n",
        )
    };
}

/// The second half of a group of 128.
macro_rules! product_more {
    ($sums:literal, $a:literal, $b:literal) => {
        concat!(
            "tileloadd ",
            $a,
            ", [{a} + {a_line}*1 + 64]\n",
            "tileloadd ",
            $b,
            ", [{b} + {line}*1 + 1024]\n",
            "tdpbsud ",
            $sums,
            ", ",
            $a,
            ", ",
            $b,
            "\n",
        )
    };
}

macro_rules! next_group {
    () => {
        "add {a}, {a_step}\nadd {b}, {b_step}\n"
    };
}

/// Stores lag behind products, because one that waits for its own product holds the others up.
macro_rules! store {
    ($sums:literal, $offset:literal) => {
        concat!("tilestored [{c} + {line}*1 + ", $offset, "], ", $sums, "\n")
    };
}

/// Runs tile instructions on the operands of `$self`, with the sums stored at `$c`.
macro_rules! tiles {
    ($self:ident, $group:ident, $c:ident, $($code:expr),+ $(,)?) => {
        asm!(
            $($code),+,
            a = inout(reg) $self.a => _,
            b = inout(reg) $self.b => _,
            a_step = in(reg) $self.a_step,
            b_step = in(reg) $self.b_step,
            a_line = in(reg) $group,
            line = in(reg) LINE,
            c = in(reg) $c,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Operands {
    /// The sums of four groups.
    ///
    /// # Safety
    ///
    /// The tile registers are configured for the operands' rows and group `G`; the operands hold four groups;
    /// `c` has space for four tiles of sums.
    #[inline]
    unsafe fn four_products<const G: usize>(self, c: *mut i32) {
        // SAFETY: the caller's promise bounds all that is read and written; no other register is changed.
        unsafe {
            if G == 128 {
                tiles!(
                    self,
                    G,
                    c,
                    product!("tmm0", "tmm4", "tmm5"),
                    product_more!("tmm0", "tmm6", "tmm7"),
                    next_group!(),
                    product!("tmm1", "tmm4", "tmm5"),
                    product_more!("tmm1", "tmm6", "tmm7"),
                    next_group!(),
                    product!("tmm2", "tmm4", "tmm5"),
                    product_more!("tmm2", "tmm6", "tmm7"),
                    next_group!(),
                    store!("tmm0", "0"),
                    product!("tmm3", "tmm4", "tmm5"),
                    product_more!("tmm3", "tmm6", "tmm7"),
                    store!("tmm1", "1024"),
                    store!("tmm2", "2048"),
                    store!("tmm3", "3072"),
                );
            } else {
                tiles!(
                    self,
                    G,
                    c,
                    product!("tmm0", "tmm4", "tmm5"),
                    next_group!(),
                    product!("tmm1", "tmm6", "tmm7"),
                    next_group!(),
                    product!("tmm2", "tmm4", "tmm5"),
                    next_group!(),
                    store!("tmm0", "0"),
                    product!("tmm3", "tmm6", "tmm7"),
                    store!("tmm1", "1024"),
                    store!("tmm2", "2048"),
                    store!("tmm3", "3072"),
                );
            }
        }
    }

    /// The sums of `steps` groups, one after the other.
    ///
    /// # Safety
    ///
    /// As [`Operands::four_products`], for `steps` groups and tiles.
    unsafe fn products<const G: usize>(mut self, steps: usize, c: *mut i32) {
        for step in 0..steps {
            // SAFETY: the caller's promise bounds all that is read and written; no other register is changed.
            unsafe {
                let c = c.add(step * SUMS / 4);
                if G == 128 {
                    tiles!(
                        self,
                        G,
                        c,
                        product!("tmm0", "tmm4", "tmm5"),
                        product_more!("tmm0", "tmm6", "tmm7"),
                        next_group!(),
                        store!("tmm0", "0"),
                    );
                } else {
                    tiles!(self, G, c, product!("tmm0", "tmm4", "tmm5"), next_group!(), store!("tmm0", "0"));
                }
                self.a = self.a.add(self.a_step);
                self.b = self.b.add(self.b_step);
            }
        }
    }
}
