//! One live row: its tokens, its text, its consumer.
//!
//! Invariants: `computed` tokens of `tokens` are in the row's slot; a sampled token is delivered before the row
//! is planned again; what the consumer is told and what is counted come from the same call. Drafts stand behind the tokens
//! from the moment that a step is planned with them to its delivery. What is filled in behind a sampled token is delivered with it.

mod draft;
mod fill;

use crate::{
    command::Submission,
    error::panic_message,
    plan::Counted,
    prefix::Namespace,
    sample::{Chosen, Draw, Wish},
    subscription::{Publisher, Reader},
};
use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};
use tandem_contracts::{
    execution::{Execution, Method},
    grammar::{Matcher, Progress},
    model::{AdapterSet, RowStep, Slot, Wanted},
    request::{Failure, Outcome, Request, RequestId, Usage},
    text::{Delta, TokenId},
};
use tandem_spec::{accept::Walk, depth::Chance, draft::SORTS, fill::Session as Fill};

/// Why a row ends whose logits give no token.
pub(crate) const NOT_NUMBERS: &str = "the model gave logits that are not numbers";

/// A request that has a slot.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) id: RequestId,
    pub(crate) slot: Slot,
    /// How its keys and values are kept, by its number in the engine's configuration.
    pub(crate) policy: usize,
    /// Whether the row must leave before it is served again.
    pub(crate) cancelled: bool,
    /// How it is run: resolved when it was accepted, and only read since.
    pub(crate) execution: Arc<Execution>,
    request: Request,
    publisher: Publisher,
    /// The prompt, what has been sampled and delivered, and drafts.
    tokens: Vec<TokenId>,
    /// How many of them are drafts.
    drafted: usize,
    /// How likely proposals are right, by their sort.
    chances: [Chance; SORTS],
    /// The sort of its drafts.
    sort: usize,
    /// The first of proposals that were not tried.
    untried: Option<TokenId>,
    /// What the request determines of the answer, where it is run so.
    fill: Option<Fill>,
    /// Tokens of the answer that nobody chose.
    filled: usize,
    /// Whether its drafts are a span that the request determines or copies.
    spanning: bool,
    /// Tokens that whoever proposes has been told.
    told: usize,
    /// Whether numbers show how many tokens a step had.
    windows_show: bool,
    /// How many of them are the prompt's.
    prompt: usize,
    computed: usize,
    /// Whether the slot is open: a row waits for another one, with which it begins.
    open: bool,
    boundary: Option<Boundary>,
    /// Where the row is cut next for others that wait for it.
    cut: Option<usize>,
    grammar_failure: Option<Failure>,
}

/// A place before a prompt's last token at which its steps are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// Tokens before it.
    pub(crate) tokens: usize,
    /// Whether the row's state there is kept.
    pub(crate) kept: bool,
}

impl Row {
    /// A row for an accepted request, before its slot is open; its place in the queue is given back here.
    pub(crate) fn new(submission: Submission, slot: Slot, boundary: Option<Boundary>) -> Self {
        let Submission { id, mut request, policy, execution, publisher, place } = submission;
        drop(place);
        let tokens = mem::take(&mut request.prompt);
        let prompt = tokens.len();
        let fill = fill::follow(&mut request, &tokens, &execution);
        let (cancelled, open, computed, cut) = (false, false, 0, None);
        Self {
            id,
            slot,
            policy,
            cancelled,
            execution,
            request,
            publisher,
            tokens,
            drafted: 0,
            chances: Default::default(),
            sort: 0,
            untried: None,
            fill,
            filled: 0,
            spanning: false,
            told: 0,
            windows_show: false,
            prompt,
            computed,
            open,
            boundary,
            cut,
            grammar_failure: None,
        }
    }

    /// Its prompt, then what has been sampled and delivered.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens[..self.tokens.len() - self.drafted]
    }

    /// Which states stand for its own.
    pub(crate) fn space(&self) -> Namespace {
        let windows = self.windows_show && self.execution.method == Method::Speculative;
        Namespace { adapters: AdapterSet::BASE, policy: self.policy, windows }
    }

    /// Notes whether numbers show how many tokens a step had.
    pub(crate) fn windows_show(&mut self, show: bool) {
        self.windows_show = show;
    }

    /// Whether it may begin with a stored state, and be stored.
    pub(crate) fn reuses(&self) -> bool {
        self.execution.prompt_cache || self.execution.method == Method::Speculative
    }

    /// Tokens that its slot holds.
    pub(crate) fn computed(&self) -> usize {
        self.computed
    }

    /// The tokens that its slot holds.
    pub(crate) fn computed_tokens(&self) -> &[TokenId] {
        &self.tokens[..self.computed]
    }

    /// Whether every token of its prompt has to be computed, as it is scored.
    pub(crate) fn is_scored(&self) -> bool {
        self.request.scoring.prompt.is_some()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Notes that the slot is open and holds the first `held` tokens, and tells the consumer that it waits no longer.
    pub(crate) fn begin(&mut self, held: usize, now: Duration) {
        (self.open, self.computed) = (true, held);
        self.publisher.usage.prompt_tokens = held;
        self.publisher.usage.cached_tokens = held;
        let prompt = self.prompt;
        self.note(|publisher| publisher.progress(held, prompt, now));
    }

    /// Whether its state is to be kept now, as it stands before the prompt's last token.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.open && self.boundary == Some(Boundary { tokens: self.computed, kept: true })
    }

    /// Nobody waits for it.
    pub(crate) fn forget_cut(&mut self) {
        self.cut = None;
    }

    /// A younger row waits until it holds so many tokens.
    pub(crate) fn cut_at(&mut self, tokens: usize) {
        self.cut = Some(self.cut.map_or(tokens, |cut| cut.min(tokens)));
    }

    /// Tokens that it may come to.
    pub(crate) fn longest(&self, context: usize) -> usize {
        longest((self.prompt, self.request.max_tokens), context)
    }

    /// Whether more is to be chosen after the token that is chosen next, as far as lengths tell.
    pub(crate) fn goes_on(&self, context: usize) -> bool {
        self.answered() + 1 < self.request.max_tokens && self.tokens.len() + 1 < context
    }

    pub(crate) fn counted(&self) -> Counted<'_> {
        let boundary = self.boundary.map(|boundary| boundary.tokens);
        let cut = self.cut.into_iter().chain(boundary).filter(|cut| *cut > self.computed).min();
        let scored = self.is_scored() && self.computed < self.prompt;
        let (known, drafts) = self.tokens.split_at(self.tokens.len() - self.drafted);
        let filling = self.is_filling();
        Counted { slot: self.slot, computed: self.computed, known, drafts, cut, scored, filling }
    }

    /// What each row of logits of its part of a step is for. A row that a grammar binds has a set of ids for each place at
    /// which it chooses, and none as long as they are not known.
    pub(crate) fn draws<'a>(
        &'a self,
        part: &RowStep,
        sets: Option<&'a [Vec<u32>]>,
    ) -> impl Iterator<Item = Draw<'a>> {
        let end = part.position + part.tokens.len();
        let places = end - part.wanted.count(part.tokens.len())..end;
        places.map(move |position| self.draw(position + 1, sets))
    }

    /// The token at this position: a known one is scored, the next one is chosen.
    fn draw<'a>(&'a self, position: usize, sets: Option<&'a [Vec<u32>]>) -> Draw<'a> {
        if let Some(&token) = self.tokens().get(position) {
            return Draw { wish: Wish::Known(token), scored: self.request.scoring.prompt, after: None };
        }
        let known = self.tokens().len();
        // A step that follows one that nobody has read is for a token beyond; no host looks at it.
        let draft = (position - known).min(self.drafted);
        let wish = Wish::Choose {
            sampling: &self.request.sampling,
            history: &self.tokens[..known + draft],
            // What was filled in took no step of the sampler.
            index: (self.answered() - self.filled + draft) as u64,
            allowed: sets.map(|sets| sets.get(draft).map_or(&[][..], Vec::as_slice)),
        };
        let after = self.tokens[..known + draft].last().copied().filter(|_| draft > 0);
        Draw { wish, scored: self.request.scoring.answer, after }
    }

    /// Hands out what binds the answer, with the drafts, if its part of a step chooses a token of it.
    pub(crate) fn lend_grammar(&mut self, part: &RowStep) -> Option<(Box<dyn Matcher>, Vec<TokenId>)> {
        let chooses = part.wanted != Wanted::None && part.position + part.tokens.len() == self.tokens.len();
        let grammar = self.request.grammar.take_if(|_| chooses)?;
        Some((grammar, self.tokens[self.tokens().len()..].to_vec()))
    }

    /// Takes it back, with the reason where it cannot be followed any more.
    pub(crate) fn return_grammar(&mut self, grammar: Box<dyn Matcher>, failure: Option<Failure>) {
        self.request.grammar = Some(grammar);
        self.grammar_failure = failure;
    }

    /// Why the grammar that binds the answer cannot be followed any more.
    pub(crate) fn grammar_failure(&mut self) -> Option<Failure> {
        self.grammar_failure.take()
    }

    /// Tokens of its answer so far.
    fn answered(&self) -> usize {
        self.tokens().len() - self.prompt
    }

    /// Notes that the slot holds `count` tokens more. Returns how many of them were of the prompt.
    pub(crate) fn advance(&mut self, count: usize, now: Duration) -> usize {
        let prompt = self.prompt;
        let before = self.computed.min(prompt);
        self.computed += count;
        let done = self.computed.min(prompt);
        if done > before {
            self.publisher.usage.prompt_tokens = done;
            self.note(|publisher| publisher.progress(done, prompt, now));
        }
        done - before
    }

    /// What it has cost so far.
    pub(crate) fn usage(&self) -> Usage {
        self.publisher.usage
    }

    /// Takes what came of [`Self::draws`], of which the last is a token if all known ones are computed, and tells the
    /// consumer. Returns how the row ends, if it does: the consumer is gone, nothing was to be chosen, an end token
    /// (not delivered), a stop string, the end of its grammar, `max_tokens`, the context's end, in this order.
    pub(crate) fn deliver(
        &mut self,
        mut drawn: Vec<Chosen>,
        context: usize,
        now: Duration,
    ) -> Option<Outcome> {
        let drafts = self.tokens.split_off(self.tokens().len());
        self.drafted = 0;
        let chosen = match self.computed == self.tokens.len() + drafts.len() {
            true => drawn.split_off(drawn.len().saturating_sub(1 + drafts.len())),
            false => Vec::new(),
        };
        if self.computed > self.prompt {
            self.waste(drawn.len());
        } else if !drawn.is_empty() {
            self.note(|publisher| publisher.prompt(drawn.into_iter().filter_map(|known| known.score), now));
        }
        if chosen.is_empty() {
            return None;
        }
        if self.request.max_tokens == 0 {
            return Some(Outcome::Length);
        }
        let delivered = self.deliver_window(&drafts, chosen, context, now);
        // Drafts that were not chosen are the session's to forget.
        self.computed = self.computed.min(delivered.kept);
        delivered.outcome
    }

    /// Delivers what was chosen behind the pending token and behind each draft, as long as that is what was proposed. Choices
    /// that are missing gave no token.
    fn deliver_window(
        &mut self,
        drafts: &[TokenId],
        chosen: Vec<Chosen>,
        context: usize,
        now: Duration,
    ) -> Delivered {
        let known = self.tokens.len();
        let (mut walk, mut outcome) = (Walk::new(drafts), None);
        if let Some((guess, first)) = self.untried.take().zip(chosen.first()) {
            self.chances[self.sort].learn(1, usize::from(guess == first.token));
        }
        for chosen in chosen {
            if !walk.goes_on() {
                break;
            }
            walk.take(chosen.token);
            outcome = self.tell_consumer(chosen, context, now);
            if outcome.is_some() {
                walk.stop();
            }
        }
        if outcome.is_none() && walk.goes_on() {
            // What the model thinks behind the last accepted draft is no choice.
            outcome = Some(failed(NOT_NUMBERS));
        }
        let usage = &mut self.publisher.usage;
        usage.drafted_tokens += drafts.len();
        usage.accepted_tokens += walk.accepted();
        self.chances[self.sort].learn(drafts.len(), walk.accepted());
        let kept = known - 1 + walk.kept(self.tokens.len() - known);
        let outcome = self.follow_window(known, (drafts.len(), walk.accepted()), outcome, (context, now));
        Delivered { outcome, kept }
    }

    /// Emits a token. The stop matcher is the consumer's code: where it panics, only its own row fails.
    fn tell_consumer(&mut self, chosen: Chosen, context: usize, now: Duration) -> Option<Outcome> {
        let emitted = catch_unwind(AssertUnwindSafe(|| self.emit(chosen, context, now)));
        emitted.unwrap_or_else(|payload| {
            tracing::error!(id = %self.id, panic = panic_message(payload.as_ref()), "a stop matcher panicked");
            Some(failed("the answer's text could not be processed"))
        })
    }

    fn emit(&mut self, Chosen { token, score }: Chosen, context: usize, now: Duration) -> Option<Outcome> {
        self.publisher.usage.completion_tokens += 1;
        if self.cancelled {
            return Some(Outcome::Cancelled);
        }
        if !self.request.ignore_end && self.request.end_tokens.contains(&token) {
            return Some(Outcome::End);
        }
        self.tokens.push(token);
        let delta = self.request.text.push(token);
        self.note(|publisher| publisher.delta(&delta.text, Some((token, score)), now));
        if let Some(index) = delta.stopped {
            return Some(Outcome::Stop(index));
        }
        if self.cancelled {
            return Some(Outcome::Cancelled);
        }
        match self.request.grammar.as_mut().map(|grammar| grammar.accept(token)) {
            None | Some(Ok(Progress::Open)) => {}
            Some(Ok(Progress::Complete)) => return Some(Outcome::End),
            Some(Err(failure)) => return Some(Outcome::Failed(failure)),
        }
        let full = self.answered() >= self.request.max_tokens || self.tokens.len() >= context;
        full.then_some(Outcome::Length)
    }

    fn note(&mut self, publish: impl FnOnce(&mut Publisher) -> Reader) {
        match publish(&mut self.publisher) {
            Reader::Present => {}
            Reader::Gone => self.cancelled = true,
            Reader::Idle => {
                tracing::warn!(id = %self.id, "a consumer has read nothing for too long");
                self.cancelled = true;
            }
        }
    }

    /// Hands out the text that was held back, and ends the request.
    pub(crate) fn finish(mut self, outcome: Outcome, now: Duration) -> Outcome {
        let mut outcome = outcome;
        if matches!(outcome, Outcome::End | Outcome::Length | Outcome::Cancelled) {
            match catch_unwind(AssertUnwindSafe(|| self.request.text.finish())) {
                Ok(Delta { text, stopped }) => {
                    if !text.is_empty() {
                        self.note(|publisher| publisher.delta(&text, None, now));
                    }
                    if let Some(index) = stopped.filter(|_| outcome != Outcome::Cancelled) {
                        outcome = Outcome::Stop(index);
                    }
                }
                Err(_) => outcome = failed("the answer's text could not be processed"),
            }
        }
        let Execution { method, reasons, .. } = self.execution.as_ref();
        tracing::debug!(id = %self.id, ?method, ?reasons, ?outcome, "a request has ended");
        self.publisher.finish(outcome.clone());
        outcome
    }
}

/// What came of a window.
struct Delivered {
    outcome: Option<Outcome>,
    /// Tokens that the row's slot is to hold.
    kept: usize,
}

/// Tokens that a row may come to, whose prompt and answer have at most so many.
pub(crate) fn longest((prompt, answer): (usize, usize), context: usize) -> usize {
    prompt.saturating_add(answer).min(context)
}

/// A failed outcome with its message.
pub(crate) fn failed(message: impl Into<String>) -> Outcome {
    Outcome::Failed(Failure { message: message.into() })
}
