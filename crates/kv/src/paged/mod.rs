//! Rows whose whole layers lie in blocks of a pool: no row reserves more than it holds, and rows with a common beginning
//! share its blocks.
//!
//! ```text
//!   pool    [blocks, heads, block, field]      0   1   2   3   4   5
//!   row 0   blocks 0, 2                        a-----  c
//!   row 1   blocks 0, 1, 4   (a fork of row 0) a-- b-------  d
//! ```
//!
//! Attention reads blocks where they lie, each as one run of positions: nothing is gathered. An append is cut where
//! blocks end. A fork shares blocks, and whoever writes into a shared one gets a copy of that block first. What is left
//! over at the end of a trimmed row, of a round that was kept in part, or of a step that was given up, is free again.
//!
//! Only whole layers of floats or affine codes are paged; windows, and TurboQuant's codes, stay in planes of each row.

mod ledger;
mod pool;

use crate::{
    bank::{Bank, BankRows, Scope},
    ragged::{Kit, Source},
};
use pool::Pool;
use std::{num::NonZeroUsize, rc::Rc};

/// Sizes of pools. Each layer has one, and another one for what is not converted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Positions of a block.
    pub block: NonZeroUsize,
    /// Tokens for which a pool has blocks at first.
    pub tokens: usize,
    /// Tokens beyond which it does not grow, each row's rounded up to blocks.
    pub most: usize,
}

impl Paging {
    /// Pools for `tokens` tokens that do not grow, in blocks of 256.
    pub const fn of(tokens: usize) -> Self {
        Self { block: const { NonZeroUsize::MIN.saturating_add(255) }, tokens, most: tokens }
    }
}

impl BankRows {
    /// Rows that lie in blocks of pools. A step for which there are no blocks is refused, with a `Memory` error, by
    /// [`Rows::begin`](crate::rows::Rows::begin); nothing is lost then. Another failure of the device while blocks are
    /// copied loses the layer of all rows in its pool.
    pub fn paged(kit: Rc<Kit>, paging: Paging) -> Self {
        let of = Rc::clone(&kit);
        Self::new(kit, usize::MAX, |layer, encoded| {
            let Some(Source::Own(layout)) = of.layers().get(layer) else { return None };
            if layout.window.is_some() || layout.coders(encoded).scheme.is_turbo() {
                return None;
            }
            let scope = Scope { kit: Rc::clone(&of), layer, encoded };
            Some(Box::new(Pool::new(scope, paging)) as Box<dyn Bank>)
        })
    }
}
