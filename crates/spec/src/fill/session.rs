//! One answer on its way: which span comes behind the token that was just sampled, and what became of it.
//!
//! ```text
//!   longest trigger at the history's end --else--> copy       plan order among equally long triggers
//!      cut before the first token that ends answers
//!      cut to the longest span and to what may still come     an echo that is cut is a guess, unless it ends with a delimiter
//!      dropped below the shortest span
//! ```
//!
//! What closes a call could stand in any text. So it counts only where a rule has begun one, until the last token of a closing
//! rule has come.
//!
//! Invariants: a span that was proposed is settled by one [`Session::commit`] or [`Session::refuse`] before anything else is
//! pushed; a call that fails has changed nothing; the history is prompt, sampled and committed tokens, and no others.

use super::{
    Limits, Origin, Policy, Proposal,
    echo::{Copy, Index},
    tally::Tally,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};
use tandem_contracts::{
    fill::{Fill, Kind, Rule},
    text::TokenId,
};

/// A call out of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The last proposal is not settled.
    Unsettled,
    /// There is no proposal to settle.
    Settled,
    /// More tokens are to be committed than were proposed.
    Beyond {
        /// To be committed.
        taken: usize,
        /// Proposed.
        proposed: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsettled => f.write_str("the last span is not committed"),
            Self::Settled => f.write_str("there is no span to commit"),
            Self::Beyond { taken, proposed } => {
                write!(f, "more tokens are committed than the {proposed} proposed: {taken}")
            }
        }
    }
}

impl std::error::Error for Error {}

/// One answer.
#[derive(Clone, Debug)]
pub struct Session {
    rules: Arc<[Rule]>,
    /// Rules by the last id of their triggers, the longest trigger first.
    triggers: BTreeMap<TokenId, Vec<usize>>,
    /// Last ids of what closes calls.
    closers: BTreeSet<TokenId>,
    /// Whether a rule has begun a call that is not closed.
    opened: bool,
    echo: Option<(Arc<BTreeSet<TokenId>>, Index)>,
    ends: Vec<TokenId>,
    limits: Limits,
    history: Vec<TokenId>,
    pending: Option<Proposal>,
    tally: Tally,
}

impl Session {
    /// An answer to a prompt that any of `ends` ends. Rules without a trigger are left out.
    pub fn new(fill: &Fill, prompt: &[TokenId], ends: &[TokenId], limits: Limits) -> Self {
        let rules = Arc::clone(&fill.rules);
        let mut triggers: BTreeMap<TokenId, Vec<usize>> = BTreeMap::new();
        for (index, rule) in rules.iter().enumerate() {
            if let Some(&last) = rule.trigger.last() {
                triggers.entry(last).or_default().push(index);
            }
        }
        for of_one in triggers.values_mut() {
            // Stable, so that the plan's order counts among equals.
            of_one.sort_by_key(|index| std::cmp::Reverse(rules[*index].trigger.len()));
        }
        let echo = fill.echo.as_ref().map(|delimiters| (Arc::clone(delimiters), Index::new(limits)));
        let (ends, history) = (ends.to_vec(), Vec::with_capacity(prompt.len()));
        let closing = rules.iter().filter(|rule| rule.kind == Kind::Close);
        let closers = closing.filter_map(|rule| rule.emit.last().copied()).collect();
        let (opened, pending, tally) = (false, None, Tally::default());
        let mut session =
            Self { rules, triggers, closers, opened, echo, ends, limits, history, pending, tally };
        session.extend(prompt);
        session
    }

    /// A token was sampled, behind which at most `budget` more may come. Gives the span that comes next, or may.
    ///
    /// # Errors
    /// The last span is not settled.
    pub fn push(&mut self, sampled: TokenId, budget: usize) -> Result<Option<Proposal>, Error> {
        self.observe(&[sampled])?;
        let span = self.rule().or_else(|| self.copy());
        self.pending = span.and_then(|span| self.clamp(span, budget));
        match self.pending.as_ref().map(|span| span.origin) {
            Some(Origin::Rule(kind)) => {
                self.tally.strict += 1;
                self.opened |= matches!(kind, Kind::Scaffold | Kind::Name | Kind::Key);
            }
            Some(Origin::Echo) => self.tally.echo += 1,
            None => {}
        }
        Ok(self.pending.clone())
    }

    /// Tokens were sampled behind which nobody asks for a span.
    ///
    /// # Errors
    /// The last span is not settled.
    pub fn observe(&mut self, sampled: &[TokenId]) -> Result<(), Error> {
        if self.pending.is_some() {
            return Err(Error::Unsettled);
        }
        self.tally.decode_steps += sampled.len() as u64;
        self.extend(sampled);
        Ok(())
    }

    /// The first `taken` tokens of the span are part of the answer.
    ///
    /// # Errors
    /// There is no span, or it is shorter.
    pub fn commit(&mut self, taken: usize) -> Result<(), Error> {
        let proposed = self.pending.as_ref().ok_or(Error::Settled)?.ids.len();
        if taken > proposed {
            return Err(Error::Beyond { taken, proposed });
        }
        let Some(Proposal { ids, policy, .. }) = self.pending.take() else { return Err(Error::Settled) };
        let count = taken as u64;
        match policy {
            Policy::Assert => {
                self.tally.events += 1;
                self.tally.injected += count;
                self.tally.span(taken);
            }
            Policy::Verify => {
                self.tally.verify.events += 1;
                self.tally.verify.accepted += count;
                self.tally.verify.rejected += proposed as u64 - count;
            }
        }
        self.extend(&ids[..taken]);
        Ok(())
    }

    /// The span is to be verified, whatever else might become of it, and at most so many tokens of it: what is left can be
    /// committed alone.
    ///
    /// # Errors
    /// There is no span.
    pub fn doubt(&mut self, most: usize) -> Result<&[TokenId], Error> {
        let pending = self.pending.as_mut().ok_or(Error::Settled)?;
        pending.policy = Policy::Verify;
        pending.ids.truncate(most);
        Ok(&pending.ids)
    }

    /// Nobody takes the span, be it to verify it.
    ///
    /// # Errors
    /// There is no span.
    pub fn refuse(&mut self) -> Result<(), Error> {
        self.pending.take().ok_or(Error::Settled)?;
        self.tally.verify.unsupported += 1;
        Ok(())
    }

    /// A sample was dropped: its place had been filled.
    pub fn waste(&mut self) {
        self.tally.wasted_samples += 1;
    }

    /// The span that is not settled.
    pub fn pending(&self) -> Option<&Proposal> {
        self.pending.as_ref()
    }

    /// Counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    fn extend(&mut self, tokens: &[TokenId]) {
        self.history.extend_from_slice(tokens);
        self.opened &= !tokens.iter().any(|token| self.closers.contains(token));
        if let Some((_, index)) = &mut self.echo {
            self.tally.index_truncated = index.note(&self.history) as u64;
        }
    }

    /// What the rule says whose trigger the history ends with.
    fn rule(&self) -> Option<Proposal> {
        let candidates = self.triggers.get(self.history.last()?)?;
        let fits =
            |rule: &&Rule| self.history.ends_with(&rule.trigger) && (self.opened || rule.kind != Kind::Close);
        let rule = candidates.iter().map(|index| &self.rules[*index]).find(fits)?;
        let (ids, origin) = (rule.emit.clone(), Origin::Rule(rule.kind));
        Some(Proposal { ids, policy: Policy::Assert, origin })
    }

    /// What followed where the history stood before as it stands now.
    fn copy(&mut self) -> Option<Proposal> {
        let (delimiters, index) = self.echo.as_ref()?;
        let Copy { ids, forked, sure } = index.copy(&self.history, delimiters, self.limits.longest);
        self.tally.branch_stops += u64::from(forked);
        let policy = if sure { Policy::Assert } else { Policy::Verify };
        Some(Proposal { ids, policy, origin: Origin::Echo })
    }

    fn clamp(&self, mut span: Proposal, budget: usize) -> Option<Proposal> {
        let Limits { longest, shortest, .. } = self.limits;
        let whole = span.ids.len();
        let end = span.ids.iter().position(|id| self.ends.contains(id)).unwrap_or(whole);
        span.ids.truncate(end.min(longest.max(shortest)).min(budget));
        let cut = span.origin == Origin::Echo && span.ids.len() < whole;
        let delimited = |id: &TokenId| self.echo.as_ref().is_some_and(|(ids, _)| ids.contains(id));
        if cut && !span.ids.last().is_some_and(delimited) {
            span.policy = Policy::Verify;
        }
        (span.ids.len() >= shortest.max(2)).then_some(span)
    }
}

#[cfg(test)]
mod tests;
