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

use super::{Executor, fault::guard};
use crate::{config::Draft, row::failed};
use std::{collections::BTreeMap, time::Duration};
use tandem_contracts::{
    execution::Method,
    model::{Slot, Step},
    request::Outcome,
    text::TokenId,
};
use tandem_spec::{
    depth::{Candidate, Chance, Costs, allot},
    draft::{Ask, DraftProvider},
    ngram::NGrams,
};

/// What proposes, and what steps have cost.
#[derive(Debug, Default)]
pub(crate) struct Drafting {
    provider: Option<Box<dyn DraftProvider>>,
    /// Of rows that are kept by the policy of a number.
    costs: BTreeMap<usize, Costs>,
}

impl Drafting {
    /// As it is configured.
    pub(crate) fn new(draft: Draft) -> Self {
        let provider = match draft {
            Draft::Off => None,
            Draft::Past(runs) => Some(Box::new(NGrams::new(runs)) as _),
        };
        Self { provider, costs: BTreeMap::new() }
    }

    /// With a provider of a test's own.
    #[cfg(test)]
    pub(crate) fn with(provider: Box<dyn DraftProvider>) -> Self {
        Self { provider: Some(provider), costs: BTreeMap::new() }
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
    tokens: Vec<TokenId>,
    chance: Chance,
}

impl Executor {
    /// Puts proposals behind the tokens of the rows of a policy that decode.
    pub(super) fn propose(&mut self, policy: usize) {
        self.rows.iter_mut().for_each(|row| row.keep_drafts(0));
        let drafting = self.parts.config.drafting;
        let decoding = self.rows.iter().filter(|row| row.decodes() && row.policy == policy).count();
        let room = self.parts.config.step_tokens.saturating_sub(decoding);
        if drafting.tokens == 0 || room == 0 {
            return;
        }
        let proposals = self.proposals(policy);
        if proposals.is_empty() {
            return;
        }
        let candidate = |it: &Proposal| Candidate { chance: it.chance, proposals: it.tokens.len() };
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
        for (Proposal { row, tokens, .. }, taken) in proposals.iter().zip(taken) {
            self.rows[*row].draft(&tokens[..taken], tokens.first().copied());
        }
    }

    /// What may come next in each row that can take proposals.
    fn proposals(&mut self, policy: usize) -> Vec<Proposal> {
        let (config, context) = (&self.parts.config, self.capabilities.context);
        let window = config.prompt_chunk.min(config.step_tokens).saturating_sub(1);
        let (mut found, mut asks) = (Vec::new(), Vec::new());
        for (index, row) in self.rows.iter_mut().enumerate().filter(|(_, row)| row.policy == policy) {
            let most = row.draft_room(context).min(config.drafting.tokens).min(window);
            if most == 0 || row.execution.method != Method::Speculative {
                continue;
            }
            if row.execution.grammar_jump {
                let tokens = row.forced(most);
                found.push(Proposal { row: index, tokens, chance: Chance::CERTAIN });
            } else if let Some(provider) = &mut self.drafting.provider {
                row.tell(provider.as_mut());
                asks.push((index, Ask { slot: row.slot, most }));
            }
        }
        if let Some(provider) = self.drafting.provider.as_mut().filter(|_| !asks.is_empty()) {
            let wanted: Vec<Ask> = asks.iter().map(|(_, ask)| *ask).collect();
            for ((index, ask), mut tokens) in asks.into_iter().zip(provider.propose(&wanted)) {
                let row = &mut self.rows[index];
                tokens.truncate(ask.most);
                row.cut_by_grammar(&mut tokens);
                found.push(Proposal { row: index, tokens, chance: row.chance() });
            }
        }
        found.retain(|proposal| !proposal.tokens.is_empty());
        found
    }

    /// Leaves as many proposals to each row as its part of a step holds.
    pub(super) fn settle_drafts(&mut self, step: &Step) {
        for row in &mut self.rows {
            let part = step.rows.iter().find(|part| part.slot == row.slot);
            row.keep_drafts(part.map_or(0, |part| part.tokens.len() - 1));
        }
    }

    /// Learns what a round without prompts took.
    pub(super) fn note_round(&mut self, step: &Step, time: Duration) {
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
