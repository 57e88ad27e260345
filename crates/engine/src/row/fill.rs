//! A row's side of what its request determines: spans that are put behind a sampled token, and spans that are drafts.
//!
//! ```text
//!   one token after another   sampled token --push--> a rule's span --emit, token by token--> commit     copies are left alone
//!   verified in windows       last token    --push--> any span      --drafts of the next step--> commit what was chosen
//! ```
//!
//! Invariants: which tokens a row gets follows from the request and from what it samples, never from who shares its steps; a
//! filled token ends the row as a sampled one does, and takes no step of the sampler.

use super::{Row, failed};
use crate::sample::Chosen;
use std::{mem, time::Duration};
use tandem_contracts::{
    execution::{Execution, Method},
    request::{Outcome, Request},
    text::TokenId,
};
use tandem_spec::{
    draft::{Guess, SORTS},
    fill::{Error, Limits, Origin, Policy, Proposal, Session, Tally},
};

/// What is to be followed of a request that is run so.
pub(super) fn follow(request: &mut Request, prompt: &[TokenId], execution: &Execution) -> Option<Session> {
    let fill = request.fill.take().filter(|_| execution.fill)?;
    let ends = if request.ignore_end { &[][..] } else { &request.end_tokens };
    Some(Session::new(&fill, prompt, ends, Limits::default()))
}

impl Row {
    /// Whether its next step reads tokens of the answer that were filled in.
    pub(crate) fn is_filling(&self) -> bool {
        self.open && self.computed >= self.prompt && self.tokens().len() > self.computed + 1
    }

    /// What became of its spans.
    pub(crate) fn tally(&self) -> Option<&Tally> {
        self.fill.as_ref().map(Session::tally)
    }

    /// Most tokens that may still become part of its answer.
    pub(super) fn room(&self, context: usize) -> usize {
        let answer = self.request.max_tokens.saturating_sub(self.answered());
        answer.min(context.saturating_sub(self.tokens().len()))
    }

    /// The span that may come next, as drafts.
    pub(crate) fn span(&mut self, most: usize) -> Option<Guess> {
        self.spanning = false;
        let span = self.fill.as_mut()?.doubt(most).ok()?;
        let tokens = span.to_vec();
        self.spanning = true;
        Some(Guess { tokens, sort: SORTS - 1 })
    }

    /// So many samples were read whose places had been filled.
    pub(super) fn waste(&mut self, samples: usize) {
        if let Some(fill) = &mut self.fill {
            (0..samples).for_each(|_| fill.waste());
        }
    }

    /// Goes on from the tokens that a step gave, from the one at `known` on, of whose `(tried, accepted)` drafts so many were
    /// chosen. Returns how the row ends: as it did, or by what is filled in.
    pub(super) fn follow_window(
        &mut self,
        known: usize,
        (tried, accepted): (usize, usize),
        outcome: Option<Outcome>,
        (context, now): (usize, Duration),
    ) -> Option<Outcome> {
        let Some(fill) = self.fill.as_mut() else { return outcome };
        let window = &self.tokens[known..];
        let spanning = mem::take(&mut self.spanning);
        // Of a span that was a draft, what was chosen is part of the answer.
        let taken = if spanning { accepted.min(window.len()) } else { 0 };
        let settled = settle(fill, if spanning { tried } else { 0 }, taken);
        let Some((&last, before)) = window[taken..].split_last().filter(|_| outcome.is_none()) else {
            return outcome;
        };
        let before = before.to_vec();
        let room = self.room(context);
        let pushed = settled.and_then(|()| {
            let fill = self.fill.as_mut().ok_or(Error::Settled)?;
            fill.observe(&before)?;
            fill.push(last, room)
        });
        match pushed {
            Ok(Some(span)) if self.execution.method != Method::Speculative => {
                self.fill_in(span, context, now)
            }
            Ok(_) => None,
            Err(error) => Some(lost(error)),
        }
    }

    /// Puts a span behind the answer that a rule gives; a copy is nothing that the request determines.
    fn fill_in(&mut self, span: Proposal, context: usize, now: Duration) -> Option<Outcome> {
        let begin = self.tokens.len();
        let mut outcome = None;
        let determined = span.policy == Policy::Assert && span.origin != Origin::Echo;
        for token in span.ids.into_iter().filter(|_| determined) {
            outcome = self.tell_consumer(Chosen { token, score: None }, context, now);
            if outcome.is_some() {
                break;
            }
        }
        let taken = self.tokens.len() - begin;
        self.filled += taken;
        self.publisher.usage.filled_tokens += taken;
        let fill = self.fill.as_mut()?;
        let settled = if determined { fill.commit(taken) } else { fill.refuse() };
        outcome.or(settled.err().map(lost))
    }
}

/// Settles a span of which so many tokens were tried, if there is one.
fn settle(fill: &mut Session, tried: usize, taken: usize) -> Result<(), Error> {
    if fill.pending().is_none() {
        return Ok(());
    }
    if tried == 0 {
        return fill.refuse();
    }
    fill.doubt(tried)?;
    fill.commit(taken)
}

/// How a row ends whose spans cannot be told any more.
fn lost(error: Error) -> Outcome {
    tracing::error!(%error, "what a request determines could not be followed");
    failed("what the request determines could not be followed")
}
