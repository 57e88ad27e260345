//! A row's side of drafts: which tokens may stand behind its own, and for how long.

use super::Row;
use tandem_contracts::text::TokenId;
use tandem_spec::{
    depth::Chance,
    draft::{DraftProvider, Guess, SORTS},
};

impl Row {
    /// Whether its next step reads one token and chooses the next.
    pub(crate) fn decodes(&self) -> bool {
        self.open && self.computed + 1 == self.tokens().len()
    }

    /// Most drafts that can become part of its answer, with a token behind them: its last token is never one.
    pub(crate) fn draft_room(&self, context: usize) -> usize {
        if !self.decodes() || self.cancelled || self.counted().scored {
            return 0;
        }
        self.room(context).saturating_sub(1)
    }

    /// Drafts behind its tokens.
    pub(crate) fn drafts(&self) -> usize {
        self.drafted
    }

    /// Puts the first tokens of a guess behind its own; where there are none, notes what the first would have been.
    pub(crate) fn draft(&mut self, guess: &Guess, count: usize) {
        self.tokens.extend_from_slice(&guess.tokens[..count]);
        (self.drafted, self.sort) = (count, guess.sort.min(SORTS - 1));
        self.untried = guess.tokens.first().copied().filter(|_| count == 0);
    }

    /// Leaves the first drafts.
    pub(crate) fn keep_drafts(&mut self, count: usize) {
        let kept = self.drafted.min(count);
        self.tokens.truncate(self.tokens.len() - self.drafted + kept);
        self.drafted = kept;
    }

    /// How likely proposals of a sort are right.
    pub(crate) fn chance(&self, sort: usize) -> Chance {
        self.chances[sort.min(SORTS - 1)]
    }

    /// Tells whoever proposes the tokens that it does not know.
    pub(crate) fn tell(&mut self, provider: &mut dyn DraftProvider) {
        match self.told {
            0 => provider.open(self.slot, self.tokens()),
            told => provider.commit(self.slot, &self.tokens()[told..]),
        }
        self.told = self.tokens().len();
    }

    /// What its grammar leaves no choice of.
    pub(crate) fn forced(&mut self, most: usize) -> Vec<TokenId> {
        self.request.grammar.as_mut().map_or_else(Vec::new, |grammar| grammar.forced(most))
    }

    /// Leaves the proposals that its grammar takes; where that cannot be told, none.
    pub(crate) fn cut_by_grammar(&mut self, proposals: &mut Vec<TokenId>) {
        if let Some(grammar) = &mut self.request.grammar {
            let taken = grammar.prefix(proposals).unwrap_or(0);
            proposals.truncate(taken);
        }
    }
}
