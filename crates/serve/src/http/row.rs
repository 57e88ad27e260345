//! One row of an answer on its way: its events as pieces of its choice.
//!
//! Invariants: a piece is never nothing; a prompt that is shown stands before everything else of its choice; what a stop
//! string has cut off goes out in no form.

use super::{
    part::Piece,
    reply::{Plan, Replying, Said},
    score::{Echo, Scored, Scores},
};
use crate::{
    model::ModelText,
    text::{Detokenizer, Tokenizer},
};
use std::{
    sync::Arc,
    task::{Context, Poll},
};
use tandem_contracts::{
    request::{Event, Outcome, RequestId, Score, Scoring},
    text::TokenId,
};
use tandem_engine::Subscription;

/// One choice that has not ended.
#[derive(Debug)]
pub(super) struct Row {
    subscription: Subscription,
    tokenizer: Arc<Tokenizer>,
    scores: Option<Scores>,
    /// A prompt whose tokens come with their scores, and those that have come.
    echo: Option<(Arc<Echo>, Vec<Score>)>,
    /// Whether these come from this row, and not from the first one of its prompt.
    scores_prompt: bool,
    /// A chat's choice, whose text is taken apart.
    reply: Option<Replying>,
}

/// What the end of a row leaves.
#[derive(Debug)]
pub(super) struct End {
    pub(super) pieces: Vec<Piece>,
    /// Whether anything was called.
    pub(super) called: bool,
    pub(super) reasoning_tokens: usize,
}

impl Row {
    /// A row of which this is wanted; `scored` says whether tokens of its answer come with their scores.
    pub(super) fn new(
        subscription: Subscription,
        tokenizer: &Arc<Tokenizer>,
        scoring: Scoring,
        scored: bool,
    ) -> Self {
        Self {
            subscription,
            tokenizer: Arc::clone(tokenizer),
            scores: scored.then(|| Scores::new(Detokenizer::new(Arc::clone(tokenizer)), 0)),
            echo: None,
            scores_prompt: scoring.prompt.is_some(),
            reply: None,
        }
    }

    /// Takes the text apart, from its beginning.
    pub(super) fn plan(&mut self, text: &ModelText, plan: &Plan) {
        self.reply = Some(Replying::new(text, plan));
        if let Some(scores) = &mut self.scores {
            let tokenizer = Arc::clone(&self.tokenizer);
            *scores = Scores::new(Detokenizer::showing(tokenizer, plan.shown.clone()), 0);
        }
    }

    /// Puts its prompt before the choice: at once, or when all of its scores are there.
    pub(super) fn echo(&mut self, echo: &Arc<Echo>) -> Option<Piece> {
        let Some(scores) = &mut self.scores else {
            return Some(Piece { text: echo.text.clone(), ..Piece::default() }).filter(is_something);
        };
        let detokenizer = Detokenizer::new(Arc::clone(&self.tokenizer));
        *scores = Scores::new(detokenizer, echo.text.chars().count());
        self.echo = Some((Arc::clone(echo), Vec::new()));
        self.echoed(&[])
    }

    /// What the engine calls it.
    pub(super) fn id(&self) -> RequestId {
        self.subscription.id()
    }

    /// Whether scores of its prompt come from itself.
    pub(super) fn scores_prompt(&self) -> bool {
        self.scores_prompt
    }

    /// The next event, or a wake-up when there is one.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.echo.is_some() && !self.scores_prompt {
            // Its prompt comes first.
            return Poll::Pending;
        }
        self.subscription.poll_recv(context)
    }

    /// Takes scores of the prompt, and gives the prompt with all of them once they are there.
    pub(super) fn echoed(&mut self, scores: &[Score]) -> Option<Piece> {
        let (echo, came) = self.echo.as_mut()?;
        came.extend_from_slice(scores);
        if !echo.is_scored(came.len()) {
            return None;
        }
        let (echo, scores) = self.echo.take()?;
        let tokens = echo.scored(scores);
        Some(Piece { text: echo.text.clone(), tokens, ..Piece::default() })
    }

    /// More of the answer, as pieces. None says only that characters or stop strings are open.
    pub(super) fn more(&mut self, text: String, tokens: Vec<TokenId>, scores: Vec<Score>) -> Vec<Piece> {
        let said = self.reply.as_mut().map(|reply| reply.push(&text, &tokens));
        let tokens = self.scores.as_mut().map_or_else(Vec::new, |all| {
            tokens.into_iter().zip(scores).for_each(|(token, score)| all.push(token, Some(score)));
            all.take(&text)
        });
        match said {
            Some(said) => pieces(said, tokens),
            None => {
                Some(Piece { text, tokens, ..Piece::default() }).filter(is_something).into_iter().collect()
            }
        }
    }

    /// What was held back until the end.
    pub(super) fn end(mut self, outcome: &Outcome) -> End {
        let rest = self.scores.as_mut().map_or_else(Vec::new, Scores::finish);
        // What is left after a stop string was cut off by it.
        let tokens = if matches!(outcome, Outcome::Stop(_)) { Vec::new() } else { rest };
        let said = self.reply.as_mut().map_or_else(Vec::new, Replying::finish);
        End {
            pieces: pieces(said, tokens),
            called: self.reply.as_ref().is_some_and(Replying::called),
            reasoning_tokens: self.reply.as_ref().map_or(0, Replying::reasoning_tokens),
        }
    }
}

fn is_something(piece: &Piece) -> bool {
    *piece != Piece::default()
}

/// What was said as pieces, the tokens with the first text among them.
fn pieces(said: Vec<Said>, tokens: Vec<Scored>) -> Vec<Piece> {
    let mut tokens = Some(tokens);
    let mut pieces = Vec::new();
    for said in said {
        let tokens = if matches!(said, Said::Text(_)) { tokens.take() } else { None };
        pieces.push(Piece { tokens: tokens.unwrap_or_default(), ..said.into() });
    }
    pieces.push(Piece { tokens: tokens.unwrap_or_default(), ..Piece::default() });
    pieces.retain(is_something);
    pieces
}
