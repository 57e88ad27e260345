//! What an engine needs around it: a clock, and requests without text.

use std::time::{Duration, Instant};
use tandem_contracts::{
    request::{Request, Scoring},
    sampling::Sampling,
    schedule::Clock,
    text::{Delta, StopMatcher, TokenId},
};

/// Time from the machine.
#[derive(Debug)]
pub struct Machine(Instant);

impl Machine {
    /// A clock that begins now.
    pub fn clock() -> Box<dyn Clock> {
        Box::new(Self(Instant::now()))
    }
}

impl Clock for Machine {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// No text, no stop strings.
#[derive(Debug)]
struct Mute;

impl StopMatcher for Mute {
    fn push(&mut self, _: TokenId) -> Delta {
        Delta::default()
    }

    fn finish(&mut self) -> Delta {
        Delta::default()
    }
}

/// A greedy request for `tokens` tokens, whichever they are.
pub fn request(prompt: Vec<TokenId>, tokens: usize) -> Request {
    Request {
        prompt,
        max_tokens: tokens,
        sampling: Sampling::greedy(),
        scoring: Scoring::default(),
        end_tokens: Vec::new(),
        ignore_end: true,
        state: None,
        text: Box::new(Mute),
        grammar: None,
        fill: None,
    }
}
