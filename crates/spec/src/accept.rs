//! Which proposals of a window count.
//!
//! A step has read a row's pending token and its proposals, and gives logits after each. The row chooses at each place as it
//! would have without proposals: by its own parameters, history, grammar, seed and index. As long as what it chooses is what
//! was proposed, the next place is real; the first other choice corrects the proposal, and what comes after it means nothing.
//! After the last proposal one choice more is free. So greedy and sampled rows get the tokens that they would have had.
//!
//! ```text
//!   window    pending   p1      p2      p3
//!   chosen       p1      p2      x       -        accepted 2, x corrects, kept: pending p1 p2
//! ```
//!
//! Invariant: nothing is asked of a walk that is over.

use tandem_contracts::text::TokenId;

/// A walk over the choices of one window, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk<'a> {
    proposals: &'a [TokenId],
    accepted: usize,
    over: bool,
}

impl<'a> Walk<'a> {
    /// Before the first choice; without proposals it has one.
    pub fn new(proposals: &'a [TokenId]) -> Self {
        Self { proposals, accepted: 0, over: false }
    }

    /// Whether the next place is real.
    pub fn goes_on(&self) -> bool {
        !self.over
    }

    /// Takes what was chosen at the next place; says whether it was proposed.
    pub fn take(&mut self, token: TokenId) -> bool {
        debug_assert!(self.goes_on(), "the walk is over");
        let proposed = self.proposals.get(self.accepted) == Some(&token);
        self.accepted += usize::from(proposed);
        self.over |= !proposed;
        proposed
    }

    /// Ends the walk: its row has ended.
    pub fn stop(&mut self) {
        self.over = true;
    }

    /// Proposals that were chosen.
    pub fn accepted(&self) -> usize {
        self.accepted
    }

    /// Tokens of the window that stay in the row, of which `delivered` were delivered: the pending one, and the proposals
    /// that are part of the answer. An end token is chosen and accepted, and no part of it.
    pub fn kept(&self, delivered: usize) -> usize {
        1 + self.accepted.min(delivered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walked(proposals: &[TokenId], chosen: &[TokenId]) -> (Vec<TokenId>, usize) {
        let mut walk = Walk::new(proposals);
        let mut tokens = Vec::new();
        for &token in chosen {
            if !walk.goes_on() {
                break;
            }
            walk.take(token);
            tokens.push(token);
        }
        (tokens, walk.accepted())
    }

    #[test]
    fn a_correction_ends_the_walk_and_the_last_choice_is_free() {
        assert_eq!(walked(&[1, 2, 3], &[1, 2, 9, 3]), (vec![1, 2, 9], 2));
        assert_eq!(walked(&[1, 2, 3], &[9, 2, 3, 4]), (vec![9], 0));
        assert_eq!(walked(&[1, 2, 3], &[1, 2, 3, 4]), (vec![1, 2, 3, 4], 3));
        assert_eq!(walked(&[], &[7]), (vec![7], 0));
    }

    #[test]
    fn what_was_not_delivered_is_not_kept() {
        let mut walk = Walk::new(&[1, 2]);
        assert!(walk.take(1) && walk.take(2) && walk.goes_on());
        walk.stop();
        assert!(!walk.goes_on());
        // The second was an end token.
        assert_eq!([0, 1, 2, 3].map(|delivered| walk.kept(delivered)), [1, 2, 3, 3]);
    }

    proptest! {
        /// The tokens are those of a row that takes one choice after another, whatever was proposed.
        #[test]
        fn proposals_change_no_token(
            proposals in prop::collection::vec(0_u32..3, 0..8),
            answer in prop::collection::vec(0_u32..3, 9),
        ) {
            // What a row chooses after proposals that were wrong is anything.
            let same = proposals.iter().zip(&answer).take_while(|(one, other)| one == other).count();
            let chosen: Vec<TokenId> =
                (0..=proposals.len()).map(|place| if place <= same { answer[place] } else { 7 }).collect();
            let (tokens, accepted) = walked(&proposals, &chosen);
            prop_assert_eq!(accepted, same);
            prop_assert_eq!(&tokens[..], &answer[..=same]);
        }
    }
}
