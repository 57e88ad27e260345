//! Delayed precision of one layer: plain up to a position, encoded from there on.
//!
//! The precision of a computation is a function of position alone. A query before `start` reads every key as it was
//! before; a query from `start` on reads every key encoded, its own included. So a row's numbers cannot depend on how
//! its tokens were cut into steps, with whom they were computed, or where a stored prefix ended. What follows:
//!
//! 1. No step crosses `start`: [`Transition::limit`].
//! 2. The layer converts when a step begins at `start` or beyond; with `start` 0 nothing is ever stored plain.
//! 3. A row that has converted cannot be shortened below `start`, where a fresh row would still be plain:
//!    [`Transition::floor`].

use crate::codec::Scheme;

/// How one layer is stored over the length of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    before: Scheme,
    after: Scheme,
    start: usize,
}

impl Transition {
    /// One scheme at every position.
    pub const fn never(scheme: Scheme) -> Self {
        Self { before: scheme, after: scheme, start: 0 }
    }

    /// `before` for queries at positions below `start`, `after` from there on.
    pub fn at(start: usize, before: Scheme, after: Scheme) -> Self {
        if start == 0 || before == after { Self::never(after) } else { Self { before, after, start } }
    }

    /// What a query at `position` reads.
    pub const fn scheme(&self, position: usize) -> Scheme {
        if position < self.start { self.before } else { self.after }
    }

    /// The position at which the scheme changes.
    pub const fn boundary(&self) -> Option<usize> {
        if self.start == 0 { None } else { Some(self.start) }
    }

    /// The most tokens of a step that begins at `position`; none where nothing limits it.
    pub const fn limit(&self, position: usize) -> Option<usize> {
        if position < self.start { Some(self.start - position) } else { None }
    }

    /// How a row of `tokens` tokens is stored when its last step is done; nothing where there was none.
    pub const fn stored(&self, tokens: usize) -> Option<Scheme> {
        match tokens.checked_sub(1) {
            Some(last) => Some(self.scheme(last)),
            None => None,
        }
    }

    /// Fewest tokens to which a row of `tokens` tokens may be shortened.
    pub const fn floor(&self, tokens: usize) -> usize {
        if tokens > self.start { self.start } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_contracts::tensor::Dtype;

    const PLAIN: Scheme = Scheme::plain(Dtype::Bf16);
    const CODED: Scheme = Scheme::turbo(8, 3);

    #[test]
    fn schemes_by_position() {
        let transition = Transition::at(3, PLAIN, CODED);
        assert_eq!([0, 2, 3, 9].map(|position| transition.scheme(position)), [PLAIN, PLAIN, CODED, CODED]);
        // Three tokens are positions 0 to 2; the fourth converts the row.
        assert_eq!([0, 3, 4].map(|tokens| transition.stored(tokens)), [None, Some(PLAIN), Some(CODED)]);
        assert_eq!([0, 2, 3, 4].map(|position| transition.limit(position)), [Some(3), Some(1), None, None]);
        assert_eq!([0, 3, 4, 90].map(|tokens| transition.floor(tokens)), [0, 0, 3, 3]);
        assert_eq!(transition.boundary(), Some(3));
    }

    #[test]
    fn without_a_threshold_nothing_is_plain() {
        let transition = Transition::at(0, PLAIN, CODED);
        assert_eq!(transition, Transition::never(CODED));
        assert_eq!(transition.scheme(0), CODED);
        assert_eq!((transition.boundary(), transition.limit(0), transition.floor(9)), (None, None, 0));
    }

    #[test]
    fn a_transition_to_the_same_scheme_is_none() {
        assert_eq!(Transition::at(5, CODED, CODED), Transition::never(CODED));
        assert_eq!(Transition::never(PLAIN).floor(100), 0);
    }
}
