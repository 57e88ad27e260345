//! Fast products with AMX tiles: sixteen rows of activations times sixteen outputs in one instruction.
//!
//! For each tile of weights, block of rows and stretch of groups: first the tile products, whose integer sums are
//! stored to the first cache, and then the float arithmetic on them with 512-bit vectors, which keep the sums of a
//! block's rows in registers. Nibbles are unpacked into a panel on the way through the first block and reused by the
//! later ones; bytes already are what the tiles want.
//!
//! Many rows meet as many tiles at once as fit the second cache when unpacked: a stretch of a block stays in the
//! first cache while it goes through all of them, and neighbouring tiles' results lie beside each other.

mod panel;
mod tile;

use std::ops::Range;

use super::Fast;
use crate::pool::Scratch;
use crate::product::format::{Code, LANES};
use crate::product::quantised::BLOCK_ROWS;
use panel::{Panel, Stretch, depth};

/// Bytes of unpacked weights that may wait in the second cache.
const PANELS: usize = 512 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;

/// The most groups of a stretch: as many as leave room in the first cache for the sums, a panel and the block's
/// codes, which a single block keeps there over all stretches.
const fn steps(group: usize, nibble: bool, once: bool) -> usize {
    let steps = if once { 8 } else { 12 };
    // Bytes have two sums.
    if group == 128 || !nibble { steps / 2 } else { steps }
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
        tile::release();
    }
}

/// The working space of a part, in bytes.
struct Space {
    /// Of one stretch's integer sums.
    sums: usize,
    /// Of a panel's codes, and of codes and factors together.
    codes: usize,
    panel: usize,
    /// Of one tile's sums between two stretches.
    totals: usize,
    /// How many panels and totals there are.
    panels: usize,
}

impl Space {
    fn new<const G: usize, const NIBBLE: bool>(product: &Fast<'_>, tiles: usize, once: bool) -> Self {
        // What is used once need not be kept from one stretch to the next.
        let kept = if once { steps(G, NIBBLE, once) } else { product.groups() };
        let codes = if NIBBLE { kept * 2 * G * LANES } else { 0 };
        let panel = codes + kept * 2 * LINE;
        // Bytes are used where they are, nibbles where they were unpacked.
        let held = panel + if NIBBLE { 0 } else { product.segment.tile_bytes };
        let panels = if once { 1 } else { (PANELS / held.max(1)).clamp(1, tiles.max(1)) };
        let sums = tile::space(steps(G, NIBBLE, once)) * if NIBBLE { 1 } else { 2 };
        Self { sums, codes, panel, totals: BLOCK_ROWS * LINE, panels }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn run_format<const G: usize, const NIBBLE: bool>(
    product: &Fast<'_>,
    tiles: Range<usize>,
    blocks: Range<usize>,
    scratch: &mut Scratch,
) {
    let once = blocks.len() == 1;
    let Space { sums, codes, panel, totals, panels } = Space::new::<G, NIBBLE>(product, tiles.len(), once);
    let space = scratch.lend::<u8>(sums + panels * (panel + totals)).as_mut_ptr();
    let stretches = Stretch::all(product.groups(), steps(G, NIBBLE, once));
    let mut shape = 0;
    for first in tiles.clone().step_by(panels) {
        for index in blocks.clone() {
            let rows = product.input.block(index);
            for stretch in stretches.clone() {
                for tile in first..tiles.end.min(first + panels) {
                    // SAFETY: the configuration fits the block; the space holds the sums, and a panel and totals
                    // for each of these tiles; the cells are the caller's to give.
                    unsafe {
                        if rows.rows != shape {
                            tile::configure(rows.rows, depth(G, NIBBLE));
                            shape = rows.rows;
                        }
                        let own = space.add(sums + (tile - first) * (panel + totals));
                        let panel = Panel {
                            product,
                            tile,
                            codes: own,
                            factors: own.add(codes).cast(),
                            totals: own.add(panel).cast(),
                            sums: space.cast(),
                            once,
                            unpacked: index > blocks.start,
                        };
                        let first = index * BLOCK_ROWS;
                        match rows.rows {
                            13.. => panel.multiply::<G, NIBBLE, 16>(rows, first, stretch),
                            9.. => panel.multiply::<G, NIBBLE, 12>(rows, first, stretch),
                            5.. => panel.multiply::<G, NIBBLE, 8>(rows, first, stretch),
                            _ => panel.multiply::<G, NIBBLE, 4>(rows, first, stretch),
                        }
                    }
                }
            }
        }
    }
}
