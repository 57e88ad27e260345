//! One answer on its way: what names it, its rows, and how their events become a whole.
//!
//! An answer has one row for each choice: `n` for each prompt, in the order of the prompts.
//!
//! Invariants: every row gives texts and then one end; the usage is complete once all have ended, and counts a
//! prompt once, however many choices it has; dropping an answer cancels what has not ended.

use super::{
    cancel::Known,
    error::ApiError,
    part::{Part, Piece, Whole, ending, failed, reason},
    reply::Plan,
    row::Row,
    score::Echo,
    usage::UsageObject,
};
use crate::{
    model::{ServedModel, unix_seconds},
    text::Tokenizer,
};
use std::{
    collections::VecDeque,
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    task::{Context, Poll},
};
use tandem_contracts::request::{Event, Outcome, Request, RequestId, Score, Usage};
use tandem_engine::{EngineHandle, Phase};

/// Tokens up to which an answer is written in no time, prompts included as they may be shown.
const SHORT: usize = 4096;

/// What names an answer in each of its objects.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

/// An answer that is being made.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    /// For the texts of tokens.
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Whether tokens come with their scores.
    pub(crate) scored: bool,
    engine: EngineHandle,
    /// The rows that have not ended, by the index of their choice.
    rows: Vec<Option<Row>>,
    /// Rows of one prompt.
    choices: usize,
    /// The row that is asked first, so that none waits for the others.
    turn: usize,
    /// Parts that are there already.
    ready: VecDeque<(usize, Part)>,
    usage: Usage,
    reasoning_tokens: usize,
    /// Which stop string ended each row that has ended.
    stops: Vec<Option<usize>>,
    /// Keeps the id known to who would cancel it.
    pub(super) known: Option<Known>,
}

/// What comes next of an answer.
#[derive(Debug)]
pub(crate) enum Step {
    /// So many tokens of a prompt are read, of all.
    Read { done: usize, total: usize },
    /// More of a choice.
    Part(usize, Part),
}

impl Answer {
    /// Submits requests, `choices` for each prompt, and names what they will bring.
    ///
    /// # Errors
    /// One of them was not taken; none runs then.
    pub(crate) fn submit(
        prefix: &str,
        model: &ServedModel,
        requests: impl Iterator<Item = Request>,
        choices: usize,
    ) -> Result<Self, ApiError> {
        let mut scorings = Vec::new();
        let requests = requests.inspect(|request| scorings.push(request.scoring));
        let subscriptions = model.engine.submit_all(requests)?;
        let scored = scorings.iter().any(|scoring| scoring.answer.is_some());
        let tokenizer = Arc::clone(&model.text.tokenizer);
        let row = |(subscription, scoring)| Some(Row::new(subscription, &tokenizer, scoring, scored));
        let rows: Vec<Option<Row>> = subscriptions.into_iter().zip(scorings).map(row).collect();
        Ok(Self { scored, ..Self::new(prefix, model, rows, choices) })
    }

    /// What these rows will bring, `choices` for each prompt.
    pub(super) fn new(prefix: &str, model: &ServedModel, rows: Vec<Option<Row>>, choices: usize) -> Self {
        let head = Head {
            id: format!("{prefix}{:016x}", RandomState::new().hash_one(unix_seconds())),
            created: unix_seconds(),
            model: model.name.clone(),
        };
        Self {
            head,
            tokenizer: Arc::clone(&model.text.tokenizer),
            scored: false,
            engine: model.engine.clone(),
            stops: vec![None; rows.len()],
            rows,
            choices,
            turn: 0,
            ready: VecDeque::new(),
            usage: Usage::default(),
            reasoning_tokens: 0,
            known: None,
        }
    }

    /// Takes the text of each choice apart, from its beginning.
    pub(crate) fn plan(&mut self, model: &ServedModel, plan: &Plan) {
        self.rows.iter_mut().flatten().for_each(|row| row.plan(&model.text, plan));
    }

    /// Puts its prompt before each choice, in the order of prompts.
    pub(crate) fn echo(&mut self, echoes: &[Arc<Echo>]) {
        let echoes = echoes.iter().flat_map(|echo| std::iter::repeat_n(echo, self.choices));
        for (index, (row, echo)) in self.rows.iter_mut().zip(echoes).enumerate() {
            let piece = row.as_mut().and_then(|row| row.echo(echo));
            self.ready.extend(piece.map(|piece| (index, Part::More(piece))));
        }
    }

    /// What the engine calls the rows that have not ended.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        self.rows.iter().flatten().map(Row::id).collect()
    }

    /// Which stop string ended a row.
    pub(crate) fn stop(&self, row: usize) -> Option<usize> {
        self.stops[row]
    }

    /// Number of choices.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Choices of each prompt.
    pub(super) fn choices(&self) -> usize {
        self.choices
    }

    /// The next part of any row, with the index of its choice; `None` once all have ended.
    ///
    /// # Errors
    /// A row failed, which ends the answer.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Part), ApiError>> {
        loop {
            match self.advance().await? {
                Ok(Step::Read { .. }) => {}
                Ok(Step::Part(index, part)) => return Some(Ok((index, part))),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// As [`Self::next`], and how far prompts are read.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn advance(&mut self) -> Option<Result<Step, ApiError>> {
        loop {
            if let Some((index, part)) = self.ready.pop_front() {
                return Some(Ok(Step::Part(index, part)));
            }
            let (index, event) = poll_fn(|context| self.poll(context)).await?;
            let Some(event) = event else { return Some(Err(failed("the engine is gone"))) };
            let read = match event {
                Event::Progress { done, total } => Some(Step::Read { done, total }),
                _ => None,
            };
            if let Err(error) = self.take(index, event) {
                return Some(Err(error));
            }
            if let Some(read) = read {
                return Some(Ok(read));
            }
        }
    }

    fn take(&mut self, index: usize, event: Event) -> Result<(), ApiError> {
        if let Some(known) = &mut self.known {
            known.see(index, &event);
        }
        match event {
            Event::Progress { .. } => {}
            Event::Prompt { scores } => self.echoed(index, &scores),
            Event::Delta { text, tokens, scores } => {
                let Some(row) = &mut self.rows[index] else { return Ok(()) };
                let pieces = row.more(text, tokens, scores);
                self.put(index, pieces);
            }
            Event::Finished { outcome, usage } => self.end(index, &outcome, usage)?,
        }
        Ok(())
    }

    fn end(&mut self, index: usize, outcome: &Outcome, usage: Usage) -> Result<(), ApiError> {
        let Some(row) = self.rows[index].take() else { return Ok(()) };
        self.count(index, usage);
        if let Outcome::Stop(stop) = outcome {
            self.stops[index] = Some(*stop);
        }
        let reason = match (outcome, self.engine.phase()) {
            (Outcome::Failed(_), Phase::Draining | Phase::Stopped) => return Err(ending()),
            _ => reason(outcome)?,
        };
        let end = row.end(outcome);
        self.reasoning_tokens += end.reasoning_tokens;
        self.put(index, end.pieces);
        let reason = if end.called && reason == "stop" { "tool_calls" } else { reason };
        self.ready.push_back((index, Part::End(reason)));
        Ok(())
    }

    /// Takes scores of a prompt for the row that they came from, and for those of the same prompt that wait for them.
    fn echoed(&mut self, from: usize, scores: &[Score]) {
        let rows = self.rows.iter_mut().enumerate().skip(from).take(self.choices);
        let waiting = rows.filter_map(|(index, row)| Some((index, row.as_mut()?)));
        for (index, row) in waiting.filter(|(index, row)| *index == from || !row.scores_prompt()) {
            let piece = row.echoed(scores);
            self.ready.extend(piece.map(|piece| (index, Part::More(piece))));
        }
    }

    fn put(&mut self, index: usize, pieces: Vec<Piece>) {
        self.ready.extend(pieces.into_iter().map(|piece| (index, Part::More(piece))));
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Option<Event>)>> {
        let count = self.rows.len();
        let mut running = false;
        for index in (self.turn..count).chain(0..self.turn) {
            let Some(row) = &mut self.rows[index] else { continue };
            running = true;
            if let Poll::Ready(event) = row.poll(context) {
                self.turn = (index + 1) % count;
                return Poll::Ready(Some((index, event)));
            }
        }
        if running { Poll::Pending } else { Poll::Ready(None) }
    }

    fn count(&mut self, row: usize, usage: Usage) {
        self.usage.completion_tokens += usage.completion_tokens;
        self.usage.drafted_tokens += usage.drafted_tokens;
        self.usage.accepted_tokens += usage.accepted_tokens;
        self.usage.filled_tokens += usage.filled_tokens;
        if row.is_multiple_of(self.choices) {
            self.usage.prompt_tokens += usage.prompt_tokens;
            self.usage.cached_tokens += usage.cached_tokens;
        }
    }

    /// Whether it takes time to write what has ended of it.
    pub(crate) fn is_long(&self) -> bool {
        self.scored || self.usage.prompt_tokens + self.usage.completion_tokens > SHORT
    }

    /// Token counts of the rows that have ended, as they stand on the wire.
    pub(crate) fn usage(&self) -> UsageObject {
        UsageObject::new(self.usage, self.reasoning_tokens)
    }

    /// Waits for the end of every row.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) async fn collect(&mut self) -> Result<Vec<Whole>, ApiError> {
        let mut wholes = vec![Whole::default(); self.len()];
        while let Some(next) = self.next().await {
            match next? {
                (row, Part::More(piece)) => wholes[row].add(piece),
                (row, Part::End(reason)) => wholes[row].reason = reason,
            }
        }
        Ok(wholes)
    }
}
