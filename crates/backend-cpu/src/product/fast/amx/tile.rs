//! The tile instructions.
//!
//! They are written in `asm!`, because the compiler's own names for them are not stable yet. Compiled code never
//! uses tile registers, so their shapes and values survive from one block of instructions to the next.

use std::arch::asm;

use crate::product::format::LANES;
use crate::product::quantised::BLOCK_ROWS;

/// Bytes of a tile register's row.
const LINE: usize = 64;
/// Numbers of a stored tile of sums.
const SUMS: usize = BLOCK_ROWS * LANES;
/// Products under way before the first is stored.
const LAG: usize = 2;

/// Shapes of the tile registers (Intel SDM volume 1, "TILECFG").
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

/// Shapes the tile registers for blocks of `rows` rows of activations, `depth` bytes of each at once: 0 to 3 hold
/// sums, 4 and 6 activations, 5 and 7 weights.
///
/// # Safety
///
/// The machine has AMX and the process may use it; `rows` is 1 to 16, `depth` 32 or 64.
pub(super) unsafe fn configure(rows: usize, depth: usize) {
    let (mut bytes_per_row, mut lines) = ([0; 16], [0; 16]);
    for register in 0..8 {
        let (height, width) = match register {
            0..4 => (rows, LINE),
            4 | 6 => (rows, depth),
            _ => (depth / 4, LINE),
        };
        (lines[register], bytes_per_row[register]) = (height as u8, width as u16);
    }
    let configuration =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row, rows: lines };
    // SAFETY: the configuration is a valid one of 64 bytes; only tile registers change.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &configuration, options(nostack, readonly)) }
}

/// Leaves the tile registers in their initial state, which a context switch need not save.
///
/// # Safety
///
/// The machine has AMX and the process may use it.
pub(super) unsafe fn release() {
    // SAFETY: only tile registers change.
    unsafe { asm!("tilerelease", options(nostack, nomem)) }
}

/// Bytes that the sums of `groups` products need.
pub(super) const fn space(groups: usize) -> usize {
    (LAG + groups) * SUMS * 4
}

/// Products of consecutive groups: a block of rows of activations with a tile of weights.
#[derive(Clone, Copy)]
pub(super) struct Products {
    /// Signed codes: the first group's of the first row.
    pub(super) a: *const i8,
    /// Bytes from one row to the next.
    pub(super) a_line: usize,
    /// Bytes from one group to the next.
    pub(super) a_step: usize,
    /// Unsigned codes: for each group its depth through 4 lines of `[LANES, 4]`.
    pub(super) b: *const u8,
    /// Bytes from one group to the next.
    pub(super) b_step: usize,
    pub(super) groups: usize,
}

/// Adds the product of the tiles at `$a_at` and `$b_at` of a group to the register `$sums`, through the registers
/// `$a` and `$b`.
macro_rules! add {
    ($sums:literal, $a:literal, $b:literal, $a_at:literal, $b_at:literal) => {
        concat!(
            "tileloadd ",
            $a,
            ", [{a} + {a_line}*1 + ",
            $a_at,
            "]\n",
            "tileloadd ",
            $b,
            ", [{b} + {line}*1 + ",
            $b_at,
            "]\n",
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

/// One group's product, one tile deep.
macro_rules! one_deep {
    ($sums:literal, $a:literal, $b:literal) => {
        concat!("tilezero ", $sums, "\n", add!($sums, $a, $b, "0", "0"), next!())
    };
}

/// The same, two tiles deep.
macro_rules! two_deep {
    ($sums:literal, $a:literal, $b:literal) => {
        concat!(
            "tilezero ",
            $sums,
            "\n",
            add!($sums, $a, $b, "0", "0"),
            add!($sums, $a, $b, "64", "1024"),
            next!()
        )
    };
}

/// The same, four tiles deep.
macro_rules! four_deep {
    ($sums:literal, $a:literal, $b:literal) => {
        concat!(
            "tilezero ",
            $sums,
            "\n",
            add!($sums, $a, $b, "0", "0"),
            add!($sums, $a, $b, "64", "1024"),
            add!($sums, $a, $b, "128", "2048"),
            add!($sums, $a, $b, "192", "3072"),
            next!()
        )
    };
}

/// Goes to the next group.
macro_rules! next {
    () => {
        "add {a}, {a_step}\nadd {b}, {b_step}\n"
    };
}

macro_rules! store {
    ($sums:literal, $offset:literal) => {
        concat!("tilestored [{c} + {line}*1 + ", $offset, "], ", $sums, "\n")
    };
}

/// All products, four in each round. A store that follows its own product waits for it and holds everything up,
/// so stores are two products late: those at the beginning of the first round write two tiles of nothing before
/// the sums.
macro_rules! pipeline {
    ($product:ident) => {
        concat!(
            "test {quads}, {quads}\n",
            "jz 3f\n",
            "2:\n",
            $product!("tmm0", "tmm4", "tmm5"),
            store!("tmm2", "0"),
            $product!("tmm1", "tmm6", "tmm7"),
            store!("tmm3", "1024"),
            $product!("tmm2", "tmm4", "tmm5"),
            store!("tmm0", "2048"),
            $product!("tmm3", "tmm6", "tmm7"),
            store!("tmm1", "3072"),
            "add {c}, 4096\n",
            "dec {quads}\n",
            "jnz 2b\n",
            // One to three products more, then what is still to be stored.
            "3:\n",
            "cmp {rest}, 1\n",
            "jb 6f\n",
            $product!("tmm0", "tmm4", "tmm5"),
            store!("tmm2", "0"),
            "cmp {rest}, 2\n",
            "jb 5f\n",
            $product!("tmm1", "tmm6", "tmm7"),
            store!("tmm3", "1024"),
            "cmp {rest}, 3\n",
            "jb 4f\n",
            $product!("tmm2", "tmm4", "tmm5"),
            store!("tmm0", "2048"),
            store!("tmm1", "3072"),
            store!("tmm2", "4096"),
            "jmp 7f\n",
            "4:\n",
            store!("tmm0", "2048"),
            store!("tmm1", "3072"),
            "jmp 7f\n",
            "5:\n",
            store!("tmm3", "1024"),
            store!("tmm0", "2048"),
            "jmp 7f\n",
            "6:\n",
            store!("tmm2", "0"),
            store!("tmm3", "1024"),
            "7:\n",
        )
    };
}

/// Runs the tile instructions `$code` on `$products`, with the sums' space at `$space`.
macro_rules! tiles {
    ($products:ident, $space:ident, $code:expr) => {
        asm!(
            $code,
            a = inout(reg) $products.a => _,
            b = inout(reg) $products.b => _,
            c = inout(reg) $space => _,
            quads = inout(reg) $products.groups / 4 => _,
            rest = in(reg) $products.groups % 4,
            a_step = in(reg) $products.a_step,
            b_step = in(reg) $products.b_step,
            a_line = in(reg) $products.a_line,
            line = in(reg) LINE,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

impl Products {
    /// Computes the sums of all groups, `[groups, BLOCK_ROWS, LANES]`, and says where in `space` they begin. Rows
    /// that the tile registers do not have are left as they were. A group is `TILES` tiles deep: 1, 2 or 4.
    ///
    /// # Safety
    ///
    /// The tile registers are configured for the operands' rows, and to their depth where `TILES` is 1, else to
    /// 64; the operands hold `self.groups` groups; `space` has `space(self.groups)` bytes.
    pub(super) unsafe fn run<const TILES: usize>(self, space: *mut i32) -> *const i32 {
        const { assert!(matches!(TILES, 1 | 2 | 4)) };
        // SAFETY: the caller's promise bounds all that is read and written; otherwise only tile registers change.
        unsafe {
            match TILES {
                1 => tiles!(self, space, pipeline!(one_deep)),
                2 => tiles!(self, space, pipeline!(two_deep)),
                _ => tiles!(self, space, pipeline!(four_deep)),
            }
            space.add(LAG * SUMS)
        }
    }
}
