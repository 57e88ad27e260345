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
//! Only whole layers of floats or affine codes are paged; windows, states and TurboQuant's codes stay with each row, and
//! [`Unpaged`] names them.

mod ledger;
mod pool;

use crate::{
    Blueprint, Kind, Transition,
    bank::{Bank, BankRows, Scope},
    codec::Scheme,
    ragged::{Kit, Source},
};
use pool::Pool;
use std::{fmt, num::NonZeroUsize, rc::Rc};
use tandem_contracts::tensor::{Error, ErrorKind, Result};

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
    /// Pools in blocks of 256 that begin with one and grow as far as `most` tokens.
    pub const fn up_to(most: usize) -> Self {
        Self { block: const { NonZeroUsize::MIN.saturating_add(255) }, tokens: 1, most }
    }

    /// Blocks of a pool of which `needed` were in use at once: it grows by half, up to its limit.
    fn blocks(self, needed: usize) -> usize {
        let (block, most) = (self.block.get(), self.limit());
        let mut blocks = self.tokens.div_ceil(block).clamp(1, most.max(1));
        while blocks < needed && blocks < most {
            blocks = blocks.saturating_add((blocks / 2).max(1));
        }
        blocks.min(most)
    }

    /// The most blocks of a pool.
    fn limit(self) -> usize {
        self.most.div_ceil(self.block.get())
    }

    /// See [`Layout::need`](crate::Layout::need): pools as large as their rows have them, and what the rows keep themselves.
    pub(crate) fn need(self, blueprint: &Blueprint, rows: &[usize], step: usize) -> Result<usize> {
        let own = |kind, scheme| !is_paged(kind, scheme);
        let mut need =
            rows.iter().map(|&tokens| blueprint.need_of((tokens, step), own)).fold(0, usize::saturating_add);
        for (&kind, transition) in blueprint.kinds().iter().zip(blueprint.policy().layers()) {
            let start = transition.boundary().unwrap_or(0);
            // A pool does not shrink before its last row has left it, so that both can be whole.
            let before = rows.iter().map(|&tokens| tokens.min(start)).collect();
            let after = rows.iter().map(|&tokens| if tokens > start { tokens } else { 0 }).collect();
            for (scheme, lengths) in [(transition.scheme(0), before), (transition.scheme(usize::MAX), after)]
            {
                if is_paged(kind, scheme) {
                    need = need.saturating_add(self.pool_bytes((kind, scheme), lengths)?);
                }
            }
        }
        Ok(need)
    }

    fn pool_bytes(self, (kind, scheme): (Kind, Scheme), lengths: Vec<usize>) -> Result<usize> {
        let (block, limit) = (self.block.get(), self.limit());
        let needed = lengths.iter().fold(0, |sum: usize, tokens| sum.saturating_add(tokens.div_ceil(block)));
        match needed {
            0 => Ok(0),
            _ if needed > limit => Err(Error::new(
                ErrorKind::Memory,
                "pool",
                format!(
                    "rows of {lengths:?} tokens need {needed} blocks of {block}, it has at most: {limit}"
                ),
            )),
            _ => kind.bytes(scheme, self.blocks(needed).saturating_mul(block)),
        }
    }
}

/// A layer that keeps something and does not lie in blocks, although rows are paged: its rows keep it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpaged {
    /// Index of the layer.
    pub layer: usize,
    /// Why.
    pub cause: Cause,
}

/// Why a layer does not lie in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It keeps the last tokens only.
    Window,
    /// It carries a state.
    Recurrent,
    /// It is stored in TurboQuant's codes, at once or from a position on.
    Turbo,
}

impl fmt::Display for Unpaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = match self.cause {
            Cause::Window => "it keeps a window",
            Cause::Recurrent => "it carries a state",
            Cause::Turbo => "it is stored in TurboQuant's codes",
        };
        write!(f, "layer {} is not paged: {cause}", self.layer)
    }
}

/// The layers that do not lie in blocks, in order; one that reads another's keys keeps nothing.
pub(crate) fn unpaged(blueprint: &Blueprint) -> Vec<Unpaged> {
    let layers = blueprint.kinds().iter().zip(blueprint.policy().layers()).enumerate();
    let cause = |kind: &Kind, transition: &Transition| match kind {
        Kind::Window { .. } => Some(Cause::Window),
        Kind::Recurrent(_) => Some(Cause::Recurrent),
        Kind::Full(_) => transition.scheme(usize::MAX).is_turbo().then_some(Cause::Turbo),
        Kind::Shared { .. } => None,
    };
    layers
        .filter_map(|(layer, (kind, transition))| Some(Unpaged { layer, cause: cause(kind, transition)? }))
        .collect()
}

/// Whether a layer lies in blocks while it is stored so.
fn is_paged(kind: Kind, scheme: Scheme) -> bool {
    matches!(kind, Kind::Full(_)) && !scheme.is_turbo()
}

impl BankRows {
    /// Rows that lie in blocks of pools. A step for which there are no blocks is refused, with a `Memory` error, by
    /// [`Rows::begin`](crate::rows::Rows::begin); nothing is lost then, nor where the device runs out of memory for copies of
    /// blocks. A failure while it writes into a pool loses the layer of all rows there, and each of them says so.
    pub fn paged(kit: Rc<Kit>, paging: Paging) -> Self {
        let of = Rc::clone(&kit);
        Self::new(kit, usize::MAX, |layer, encoded| {
            let Some(Source::Own(layout)) = of.layers().get(layer) else { return None };
            if !is_paged(of.blueprint().kinds()[layer], layout.coders(encoded).scheme) {
                return None;
            }
            let scope = Scope { kit: Rc::clone(&of), layer, encoded };
            Some(Box::new(Pool::new(scope, paging)) as Box<dyn Bank>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        LayerShape, Layout, RecurrentShape,
        policy::{Encoding, Request},
    };
    use tandem_contracts::tensor::Dtype;

    #[test]
    fn layers_that_are_not_paged_are_named() {
        let shape = LayerShape { heads: 2, key_width: 64, value_width: 64 };
        let state = RecurrentShape { heads: 2, value_width: 8, key_width: 8, channels: 48, taps: 4 };
        let kinds = vec![
            Kind::Full(shape),
            Kind::Window { shape, window: 9, keep: 0 },
            Kind::Recurrent(state),
            Kind::Shared { donor: 0 },
            Kind::Full(shape),
        ];
        let encoding = Encoding::ByLayer(vec![(4, Scheme::turbo(8, 3))]);
        let (blueprint, _) =
            Blueprint::new(kinds, &Request { plain: Dtype::Bf16, encoding, start: 5 }).unwrap();
        let named = |layout: Layout| -> Vec<String> {
            layout.unpaged(&blueprint).iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            named(Layout::Paged(Paging::up_to(1000))),
            [
                "layer 1 is not paged: it keeps a window",
                "layer 2 is not paged: it carries a state",
                "layer 4 is not paged: it is stored in TurboQuant's codes",
            ]
        );
        assert!(named(Layout::Ragged).is_empty());
    }
}
