//! One answer on its way: what names it, its rows, and how their events become a whole.
//!
//! An answer has one row for each choice: `n` for each prompt, in the order of the prompts.
//!
//! Invariants: every row gives texts and then one end; the usage is complete once all have ended, and counts a
//! prompt once, however many choices it has; dropping an answer cancels what has not ended.

use super::{
    cancel::Known,
    error::ApiError,
    part::{Part, Piece, Whole, failed, reason},
    reply::{Plan, Replying, Said},
    score::{Echo, Scored, Scores},
};
use crate::{
    model::{ServedModel, unix_seconds},
    text::{Detokenizer, Tokenizer},
};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    task::{Context, Poll},
};
use tandem_contracts::request::{Event, Outcome, Request, RequestId, Score, Scoring, Usage};
use tandem_engine::Subscription;

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

/// One choice that has not ended.
#[derive(Debug)]
struct Row {
    subscription: Subscription,
    scores: Option<Scores>,
    /// A prompt whose tokens come with their scores, and those that have come.
    echo: Option<(Echo, Vec<Score>)>,
    /// Whether these come from this row, and not from the first one of its prompt.
    scores_prompt: bool,
    /// A chat's choice, whose text is taken apart.
    reply: Option<Replying>,
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
        let row = |(subscription, scoring): (Subscription, Scoring)| {
            let scores = scored.then(|| Scores::new(Detokenizer::new(Arc::clone(&tokenizer)), 0));
            Some(Row {
                subscription,
                scores,
                echo: None,
                scores_prompt: scoring.prompt.is_some(),
                reply: None,
            })
        };
        let rows: Vec<Option<Row>> = subscriptions.into_iter().zip(scorings).map(row).collect();
        let stops = vec![None; rows.len()];
        let head = Head {
            id: format!("{prefix}{:016x}", RandomState::new().hash_one(unix_seconds())),
            created: unix_seconds(),
            model: model.name.clone(),
        };
        let (ready, usage) = (VecDeque::new(), Usage::default());
        Ok(Self {
            head,
            tokenizer,
            scored,
            rows,
            choices,
            turn: 0,
            ready,
            usage,
            reasoning_tokens: 0,
            stops,
            known: None,
        })
    }

    /// Takes the text of each choice apart, from its beginning.
    pub(crate) fn plan(&mut self, model: &ServedModel, plan: &Plan) {
        for row in self.rows.iter_mut().flatten() {
            row.reply = Some(Replying::new(&model.text, plan));
            if let Some(scores) = &mut row.scores {
                let tokenizer = Arc::clone(&self.tokenizer);
                *scores = Scores::new(Detokenizer::showing(tokenizer, plan.shown.clone()), 0);
            }
        }
    }

    /// Puts its prompt before each choice, in the order of prompts.
    pub(crate) fn echo(&mut self, echoes: &[Echo]) {
        let echoes = echoes.iter().flat_map(|echo| std::iter::repeat_n(echo, self.choices));
        for (index, (row, echo)) in self.rows.iter_mut().zip(echoes).enumerate() {
            let Some(row) = row else { continue };
            let Some(scores) = &mut row.scores else {
                let piece = Piece { text: echo.text.clone(), ..Piece::default() };
                self.ready.push_back((index, Part::More(piece)));
                continue;
            };
            let detokenizer = Detokenizer::new(Arc::clone(&self.tokenizer));
            *scores = Scores::new(detokenizer, echo.text.chars().count());
            row.echo = Some((echo.clone(), Vec::new()));
            let piece = row.echoed(&self.tokenizer, Vec::new());
            self.ready.extend(piece.map(|piece| (index, Part::More(piece))));
        }
    }

    /// What the engine calls the rows that have not ended.
    pub(crate) fn ids(&self) -> Vec<RequestId> {
        self.rows.iter().flatten().map(|row| row.subscription.id()).collect()
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
        let Some(row) = &mut self.rows[index] else { return Ok(()) };
        let piece = match event {
            Event::Progress { .. } => return Ok(()),
            Event::Prompt { scores } => {
                self.echoed(index, &scores);
                return Ok(());
            }
            Event::Delta { text, tokens, scores } => {
                let said = row.reply.as_mut().map(|reply| reply.push(&text, &tokens));
                let tokens = row.scores.as_mut().map_or_else(Vec::new, |all| {
                    tokens.into_iter().zip(scores).for_each(|(token, score)| all.push(token, Some(score)));
                    all.take(&text)
                });
                match said {
                    Some(said) => {
                        self.put_said(index, said, tokens);
                        return Ok(());
                    }
                    None => Piece { text, tokens, ..Piece::default() },
                }
            }
            Event::Finished { outcome, usage } => {
                let rest = row.scores.as_mut().map_or_else(Vec::new, Scores::finish);
                // What is left after a stop string was cut off by it.
                let tokens = if matches!(outcome, Outcome::Stop(_)) { Vec::new() } else { rest };
                let said = row.reply.as_mut().map_or_else(Vec::new, Replying::finish);
                let reply = row.reply.take();
                self.rows[index] = None;
                self.count(index, usage);
                self.reasoning_tokens += reply.as_ref().map_or(0, Replying::reasoning_tokens);
                if let Outcome::Stop(stop) = outcome {
                    self.stops[index] = Some(stop);
                }
                let reason = match reason(&outcome)? {
                    "stop" if reply.is_some_and(|reply| reply.called()) => "tool_calls",
                    reason => reason,
                };
                self.put_said(index, said, tokens);
                self.ready.push_back((index, Part::End(reason)));
                return Ok(());
            }
        };
        self.put(index, piece);
        Ok(())
    }

    /// Takes scores of a prompt for the row that they came from, and for those of the same prompt that wait for them.
    fn echoed(&mut self, from: usize, scores: &[Score]) {
        let rows = self.rows.iter_mut().enumerate().skip(from).take(self.choices);
        let waiting = rows.filter_map(|(index, row)| Some((index, row.as_mut()?)));
        for (index, row) in waiting.filter(|(index, row)| *index == from || !row.scores_prompt) {
            let piece = row.echoed(&self.tokenizer, scores.to_vec());
            self.ready.extend(piece.map(|piece| (index, Part::More(piece))));
        }
    }

    /// Hands a piece out. One of nothing says only that characters or stop strings are open.
    fn put(&mut self, index: usize, piece: Piece) {
        if piece != Piece::default() {
            self.ready.push_back((index, Part::More(piece)));
        }
    }

    /// Hands pieces out, the tokens with the first text among them.
    fn put_said(&mut self, index: usize, said: Vec<Said>, tokens: Vec<Scored>) {
        let mut tokens = Some(tokens);
        for said in said {
            let tokens = if matches!(said, Said::Text(_)) { tokens.take() } else { None };
            self.put(index, Piece { tokens: tokens.unwrap_or_default(), ..said.into() });
        }
        self.put(index, Piece { tokens: tokens.unwrap_or_default(), ..Piece::default() });
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Option<Event>)>> {
        let count = self.rows.len();
        let mut running = false;
        for index in (self.turn..count).chain(0..self.turn) {
            let Some(row) = &mut self.rows[index] else { continue };
            running = true;
            if row.echo.is_some() && !row.scores_prompt {
                // Its prompt comes first.
                continue;
            }
            if let Poll::Ready(event) = row.subscription.poll_recv(context) {
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
        if row.is_multiple_of(self.choices) {
            self.usage.prompt_tokens += usage.prompt_tokens;
            self.usage.cached_tokens += usage.cached_tokens;
        }
    }

    /// Token counts of the rows that have ended, as they stand on the wire.
    pub(crate) fn usage(&self) -> Value {
        let Usage { prompt_tokens, cached_tokens, completion_tokens, drafted_tokens, accepted_tokens } =
            self.usage;
        let mut usage = json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        });
        if drafted_tokens > 0 {
            usage["tandem"] = json!({
                "method": "speculative", "drafted_tokens": drafted_tokens, "accepted_tokens": accepted_tokens,
            });
        }
        usage
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

impl Row {
    /// Takes scores of the prompt, and gives the prompt with all of them once they are there.
    fn echoed(&mut self, tokenizer: &Arc<Tokenizer>, scores: Vec<Score>) -> Option<Piece> {
        let (echo, came) = self.echo.as_mut()?;
        came.extend(scores);
        if came.len() + 1 < echo.tokens.len() {
            return None;
        }
        let (echo, scores) = self.echo.take()?;
        let tokens = echo.scored(tokenizer, scores);
        Some(Piece { text: echo.text, tokens, ..Piece::default() })
    }
}
