//! Fill and echo: spans that a request determines, and spans that stood before, over plain ids.
//!
//! ```text
//!   sampled token --push--> rules: the longest trigger that the history ends with   --> assert
//!                           echo:  what followed the last few tokens elsewhere      --> verify, seldom assert
//!                 <--commit(n)-- the first n of them are part of the history
//! ```
//!
//! An asserted span is put behind the sampled token without being chosen. One to be verified is a guess: it is handed to
//! whatever verifies drafts, and changes no token.
//!
//! | module | what it does |
//! |---|---|
//! | `session` | one answer on its way: triggers, clamps, what becomes of each span |
//! | `echo` | where the last tokens stood before, and what followed there |
//! | `tally` | counts |
//!
//! Invariants: what is proposed follows from the request and its own tokens alone; each proposal is settled once, before the
//! next token is pushed; no span holds a token that ends the answer.

mod echo;
mod session;
mod tally;

pub use session::{Error, Session};
pub use tally::{Tally, Verified};

use tandem_contracts::{fill::Kind, text::TokenId};

/// What may become of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// It is part of the answer, and nobody chooses it.
    Assert,
    /// It is a guess.
    Verify,
}

/// Where a span comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A rule of the request.
    Rule(Kind),
    /// What stood before.
    Echo,
}

/// A span that comes next, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// At least as many as [`Limits::shortest`], at least two.
    pub ids: Vec<TokenId>,
    /// What may become of it.
    pub policy: Policy,
    /// Where it comes from.
    pub origin: Origin,
}

/// How long spans are, and how far echo looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most tokens of a span.
    pub longest: usize,
    /// Fewest; below two a span saves nothing.
    pub shortest: usize,
    /// Tokens that must be the same before what is copied; at least two.
    pub run: usize,
    /// Most places that are looked at, the nearest first.
    pub candidates: usize,
    /// Tokens after which no more places are noted.
    pub indexed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { longest: 32, shortest: 2, run: 8, candidates: 24, indexed: 131_072 }
    }
}
