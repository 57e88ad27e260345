//! One answer on its way through a grammar.

use super::compiler::line;
use llguidance::Matcher as Engine;
use std::fmt;
use tandem_contracts::{
    grammar::{Matcher, Progress},
    request::Failure,
    text::TokenId,
};

pub(super) struct Bound {
    engine: Engine,
}

impl Bound {
    pub(super) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("stopped", &self.engine.is_stopped()).finish_non_exhaustive()
    }
}

fn failure(error: impl fmt::Display) -> Failure {
    Failure { message: format!("the answer's grammar cannot go on: {}", line(&error.to_string())) }
}

impl Matcher for Bound {
    fn allowed(&mut self) -> Result<Vec<u32>, Failure> {
        self.engine.compute_mask_or_eos().map(|mask| mask.as_slice().to_vec()).map_err(failure)
    }

    fn accept(&mut self, token: TokenId) -> Result<Progress, Failure> {
        self.engine.consume_token(token).map_err(failure)?;
        match self.engine.is_stopped() {
            false => Ok(Progress::Open),
            true if self.engine.stop_reason().is_ok() => Ok(Progress::Complete),
            true => Err(failure(self.engine.stop_reason())),
        }
    }

    fn take_back(&mut self, tokens: usize) -> Result<(), Failure> {
        self.engine.rollback(tokens).map_err(failure)
    }

    fn forced(&mut self, most: usize) -> Vec<TokenId> {
        if self.engine.is_stopped() {
            return Vec::new();
        }
        let mut tokens = self.engine.compute_ff_tokens();
        tokens.truncate(most);
        tokens
    }

    fn prefix(&mut self, tokens: &[TokenId]) -> Result<usize, Failure> {
        self.engine.validate_tokens(tokens).map_err(failure)
    }
}
