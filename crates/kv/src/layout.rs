//! What lies between rows, by name, and the bytes that rows take together in it.

use crate::{
    Blueprint,
    bank::{BankRows, Paging, Unpaged},
    paged::unpaged,
    ragged::{Kit, RaggedRows},
    rows::Rows,
};
use std::rc::Rc;
use tandem_contracts::tensor::Result;

/// A layout of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Every row has planes of its own.
    Ragged,
    /// Rows share padded planes, each from its first step of at most `most` tokens on.
    Padded {
        /// Tokens of the longest step with which a row moves in.
        most: usize,
    },
    /// Rows lie in blocks of pools.
    Paged(Paging),
}

impl Layout {
    /// No rows yet.
    pub fn open(self, kit: Rc<Kit>) -> Box<dyn Rows> {
        match self {
            Self::Ragged => Box::new(RaggedRows::new(kit)),
            Self::Padded { most } => Box::new(BankRows::padded(kit, most)),
            Self::Paged(paging) => Box::new(BankRows::paged(kit, paging)),
        }
    }

    /// Layers that rows keep themselves although the layout is paged.
    pub fn unpaged(self, blueprint: &Blueprint) -> Vec<Unpaged> {
        match self {
            Self::Paged(_) => unpaged(blueprint),
            Self::Ragged | Self::Padded { .. } => Vec::new(),
        }
    }

    /// Device bytes that rows take together at most, each on its way to as many tokens as `rows` says, in steps that give
    /// no row more than `step` tokens: the bytes of their planes and states. A layer that grows or is encoded has its old
    /// planes beside the new ones for that time, and what a row leaves of shared planes goes with their next step. Saturates.
    ///
    /// # Errors
    /// `Memory`, where the rows need more blocks than a pool may have.
    pub fn need(self, blueprint: &Blueprint, rows: &[usize], step: usize) -> Result<usize> {
        Ok(match self {
            Self::Ragged => {
                rows.iter().fold(0, |sum: usize, &tokens| sum.saturating_add(blueprint.need(tokens, step)))
            }
            // Planes are as long as the longest row in them, and another's step may begin at its end. The rows of one are at
            // different moments.
            Self::Padded { most } => {
                let longest = rows.iter().max().map_or(0, |longest| longest.saturating_add(most.min(step)));
                rows.len().saturating_mul(blueprint.need_apart(longest, step))
            }
            Self::Paged(paging) => paging.need(blueprint, rows, step)?,
        })
    }
}
