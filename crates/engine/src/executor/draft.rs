//! Proposals behind the tokens of rows that decode, and what becomes of them.
//!
//! ```text
//!   propose --> windows in the step --session, one evaluation--> choices, as long as they are what was proposed
//!           --deliver--> tokens                                  what was not chosen is taken back at once
//! ```
//!
//! A row with proposals shares its step with rows that have none and with prompts. Its window never crosses a place at which
//! its steps end: where precision changes, its last token, the context.
//!
//! Invariants: a row's tokens never depend on what is proposed; when a turn ends no row's slot holds more than its own tokens.

use super::{Executor, Parts, fault::guard};
use crate::{
    config::Draft,
    drafter::Drafter,
    handle::DraftSource,
    row::{Row, failed},
};
use std::{collections::BTreeMap, time::Duration};
use tandem_contracts::{
    execution::Method,
    model::{Capabilities, Slot, Step},
    request::Outcome,
};
use tandem_spec::{
    depth::{Candidate, Chance, Costs, allot},
    draft::{Ask, DraftProvider, Guess},
    ngram::NGrams,
};

/// Rounds after which a row that is asked for nothing is asked for one token.
const PROBE: u64 = 32;

/// What proposes, and what steps have cost.
#[derive(Debug, Default)]
pub(crate) struct Drafting {
    provider: Option<Box<dyn DraftProvider>>,
    /// What proposing took, for the step that is next.
    spent: Duration,
    /// Rounds in which some row was asked for nothing.
    idle: u64,
    /// Of rows that are kept by the policy of a number.
    costs: BTreeMap<usize, Costs>,
}

impl Drafting {
    /// As it is configured.
    pub(super) fn new(parts: &mut Parts, capabilities: &Capabilities) -> Self {
        let Parts { device, draft, config, .. } = parts;
        let vocabulary = config.vocabulary.unwrap_or(usize::MAX).min(capabilities.vocabulary);
        let provider: Option<Box<dyn DraftProvider>> = match (config.drafting.draft, draft.take()) {
            (Draft::Past(runs), _) => Some(Box::new(NGrams::new(runs))),
            (Draft::Mounted, Some(DraftSource::Provider(provider))) => Some(provider),
            (Draft::Mounted, Some(DraftSource::Model(session))) => {
                Some(Box::new(Drafter::new(device.clone(), session, vocabulary, config.prompt_chunk)))
            }
            (Draft::Off | Draft::Mounted, _) => None,
        };
        Self { provider, ..Self::default() }
    }

    /// With a provider of a test's own.
    #[cfg(test)]
    pub(crate) fn with(provider: Box<dyn DraftProvider>) -> Self {
        Self { provider: Some(provider), ..Self::default() }
    }

    /// Device bytes beside those of rows on their way to these lengths.
    pub(super) fn bytes(&self, lengths: &[usize]) -> usize {
        self.provider.as_ref().map_or(0, |provider| provider.bytes(lengths))
    }

    /// Forgets a row.
    pub(super) fn close(&mut self, slot: Slot) {
        if let Some(provider) = &mut self.provider {
            provider.close(slot);
        }
    }
}

/// Tokens that may come next in a row.
struct Proposal {
    /// The row, by its index.
    row: usize,
    guess: Guess,
    chance: Chance,
}

impl Executor {
    /// Puts proposals behind the tokens of the rows of a policy that decode.
    pub(super) fn propose(&mut self, policy: usize) {
        self.rows.iter_mut().for_each(|row| row.keep_drafts(0));
        self.drafting.spent = Duration::ZERO;
        let drafting = self.parts.config.drafting;
        let decodes = |row: &&Row| (row.decodes() || row.is_filling()) && row.policy == policy;
        let decoding = self.rows.iter().filter(decodes).count();
        let room = self.parts.config.step_tokens.saturating_sub(decoding);
        if drafting.tokens == 0 || room == 0 {
            return;
        }
        let proposals = self.proposals(policy, (decoding, room));
        if proposals.is_empty() {
            return;
        }
        let candidate = |it: &Proposal| Candidate { chance: it.chance, proposals: it.guess.tokens.len() };
        let candidates: Vec<Candidate> = proposals.iter().map(candidate).collect();
        let costs = self.drafting.costs.entry(policy).or_default();
        let taken = match drafting.adaptive {
            true => allot(&candidates, decoding, room, costs),
            false => {
                let mut left = room;
                let take = |it: &Candidate| {
                    let taken = it.proposals.min(left);
                    left -= taken;
                    taken
                };
                candidates.iter().map(take).collect()
            }
        };
        for (Proposal { row, guess, .. }, taken) in proposals.iter().zip(taken) {
            self.rows[*row].draft(guess, taken);
        }
    }

    /// What may come next in each row that can take proposals, of which so many decode, with room for so many tokens more.
    fn proposals(&mut self, policy: usize, (decoding, room): (usize, usize)) -> Vec<Proposal> {
        let (config, context) = (&self.parts.config, self.capabilities.context);
        let window = config.prompt_chunk.min(config.step_tokens).saturating_sub(1);
        let (mut found, mut asks) = (Vec::new(), Vec::new());
        for (index, row) in self.rows.iter_mut().enumerate().filter(|(_, row)| row.policy == policy) {
            let most = row.draft_room(context).min(config.drafting.tokens).min(window);
            if most == 0 || row.execution.method != Method::Speculative {
                continue;
            }
            if let Some(guess) = row.span(most) {
                let chance = row.chance(guess.sort);
                found.push(Proposal { row: index, guess, chance });
            } else if row.execution.grammar_jump {
                let guess = Guess { tokens: row.forced(most), sort: 0 };
                found.push(Proposal { row: index, guess, chance: Chance::CERTAIN });
            } else if let Some(provider) = &mut self.drafting.provider {
                row.tell(provider.as_mut());
                asks.push((index, Ask { slot: row.slot, most }));
            }
        }
        if self.drafting.provider.as_ref().is_some_and(|provider| provider.takes_time())
            && config.drafting.adaptive
        {
            self.moderate(policy, &mut asks, (decoding, room));
        }
        found.extend(self.ask(asks));
        found.retain(|proposal| !proposal.guess.tokens.is_empty());
        found
    }

    /// Asks for no more than will be tried; now and then for one where nothing is, so that it comes back when it pays.
    fn moderate(&mut self, policy: usize, asks: &mut Vec<(usize, Ask)>, (decoding, room): (usize, usize)) {
        let rows = &self.rows;
        let candidate =
            |(row, ask): &(usize, Ask)| Candidate { chance: rows[*row].chance(0), proposals: ask.most };
        let candidates: Vec<Candidate> = asks.iter().map(candidate).collect();
        let costs = self.drafting.costs.entry(policy).or_default();
        let taken = allot(&candidates, decoding, room, costs);
        let idle = taken.contains(&0);
        self.drafting.idle += u64::from(idle);
        let probing = idle && self.drafting.idle.is_multiple_of(PROBE);
        for ((_, ask), taken) in asks.iter_mut().zip(taken) {
            ask.most = if taken == 0 { usize::from(probing) } else { taken };
        }
        asks.retain(|(_, ask)| ask.most > 0);
    }

    /// What the provider proposes for these rows.
    fn ask(&mut self, asks: Vec<(usize, Ask)>) -> Vec<Proposal> {
        let Some(provider) = self.drafting.provider.as_mut().filter(|_| !asks.is_empty()) else {
            return Vec::new();
        };
        let begun = self.parts.clock.now();
        let wanted: Vec<Ask> = asks.iter().map(|(_, ask)| *ask).collect();
        let guesses = provider.propose(&wanted);
        if provider.takes_time() {
            self.drafting.spent = self.parts.clock.now().saturating_sub(begun);
            self.metrics.times.model += self.drafting.spent;
        }
        let mut found = Vec::new();
        for ((index, ask), mut guess) in asks.into_iter().zip(guesses) {
            let row = &mut self.rows[index];
            guess.tokens.truncate(ask.most);
            row.cut_by_grammar(&mut guess.tokens);
            let chance = row.chance(guess.sort);
            found.push(Proposal { row: index, guess, chance });
        }
        found
    }

    /// Leaves as many proposals to each row as its part of a step holds.
    pub(super) fn settle_drafts(&mut self, step: &Step) {
        for row in &mut self.rows {
            let part = step.rows.iter().find(|part| part.slot == row.slot);
            row.keep_drafts(part.map_or(0, |part| part.tokens.len() - 1));
        }
    }

    /// Learns what a round without prompts took, what proposing took included.
    pub(super) fn note_round(&mut self, step: &Step, time: Duration) {
        let time = time + self.drafting.spent;
        let row = self.rows.iter().find(|row| step.rows.iter().any(|part| part.slot == row.slot));
        if let Some(row) = row.filter(|_| self.parts.config.drafting.tokens > 0) {
            let costs = self.drafting.costs.entry(row.policy).or_default();
            costs.note(step.tokens(), time.as_secs_f64());
        }
    }

    /// Takes back what a step has put into slots beyond their rows' own tokens. Where that fails, the row does.
    pub(super) fn take_back(&mut self, excess: Vec<(Slot, usize)>, ended: &mut BTreeMap<Slot, Outcome>) {
        let session = &mut self.parts.session;
        for (slot, tokens) in excess {
            if let Err(fault) = guard("trim", || session.trim(slot, tokens)) {
                ended.insert(slot, failed(fault.message));
            }
        }
    }
}
