//! One answer on its way: what names it, its rows, and how their events become a whole.
//!
//! An answer has one row for each choice: `n` for each prompt, in the order of the prompts.
//!
//! Invariants: every row gives texts and then one end; the usage is complete once all have ended, and counts a
//! prompt once, however many choices it has; dropping an answer cancels what has not ended.

use super::error::ApiError;
use crate::model::{ServedModel, unix_seconds};
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    task::{Context, Poll},
};
use tandem_contracts::request::{Event, Outcome, Request, Usage};
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
    /// The rows that have not ended, by the index of their choice.
    rows: Vec<Option<Subscription>>,
    /// Rows of one prompt.
    choices: usize,
    /// The row that is asked first, so that none waits for the others.
    turn: usize,
    usage: Usage,
}

/// What one row gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// More text, never empty.
    Text(String),
    /// The wire's word for how the row ended.
    End(&'static str),
}

/// A finished choice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) text: String,
    pub(crate) reason: &'static str,
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
        let rows = requests.map(|request| Ok(Some(model.engine.submit(request)?)));
        let rows = rows.collect::<Result<Vec<_>, ApiError>>()?;
        let head = Head {
            id: format!("{prefix}-{:016x}", RandomState::new().hash_one(unix_seconds())),
            created: unix_seconds(),
            model: model.name.clone(),
        };
        Ok(Self { head, rows, choices, turn: 0, usage: Usage::default() })
    }

    /// Number of choices.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The next part of any row, with the index of its choice; `None` once all have ended.
    ///
    /// # Errors
    /// A row failed, which ends the answer.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, Part), ApiError>> {
        loop {
            let (row, event) = poll_fn(|context| self.poll(context)).await?;
            match event {
                Some(Event::Progress { .. }) => {}
                // Characters or stop strings are open: there is nothing to say yet.
                Some(Event::Delta { text, .. }) if text.is_empty() => {}
                Some(Event::Delta { text, .. }) => return Some(Ok((row, Part::Text(text)))),
                Some(Event::Finished { outcome, usage }) => {
                    self.rows[row] = None;
                    self.count(row, usage);
                    return Some(reason(&outcome).map(|reason| (row, Part::End(reason))));
                }
                None => return Some(Err(failed("the engine is gone"))),
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Option<Event>)>> {
        let count = self.rows.len();
        let mut running = false;
        for row in (self.turn..count).chain(0..self.turn) {
            let Some(subscription) = &mut self.rows[row] else { continue };
            running = true;
            if let Poll::Ready(event) = subscription.poll_recv(context) {
                self.turn = (row + 1) % count;
                return Poll::Ready(Some((row, event)));
            }
        }
        if running { Poll::Pending } else { Poll::Ready(None) }
    }

    fn count(&mut self, row: usize, usage: Usage) {
        self.usage.completion_tokens += usage.completion_tokens;
        if row.is_multiple_of(self.choices) {
            self.usage.prompt_tokens += usage.prompt_tokens;
            self.usage.cached_tokens += usage.cached_tokens;
        }
    }

    /// Token counts of the rows that have ended, as they stand on the wire.
    pub(crate) fn usage(&self) -> Value {
        let Usage { prompt_tokens, cached_tokens, completion_tokens } = self.usage;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": 0},
        })
    }

    /// Waits for the end of every row.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) async fn collect(&mut self) -> Result<Vec<Whole>, ApiError> {
        let mut wholes = vec![Whole::default(); self.len()];
        while let Some(next) = self.next().await {
            match next? {
                (row, Part::Text(text)) => wholes[row].text.push_str(&text),
                (row, Part::End(reason)) => wholes[row].reason = reason,
            }
        }
        Ok(wholes)
    }
}

fn reason(outcome: &Outcome) -> Result<&'static str, ApiError> {
    match outcome {
        Outcome::End | Outcome::Stop(_) => Ok("stop"),
        Outcome::Length => Ok("length"),
        Outcome::Cancelled => Err(failed("the request was cancelled")),
        Outcome::Failed(failure) => Err(failed(&failure.message)),
    }
}

fn failed(message: &str) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
