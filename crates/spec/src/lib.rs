//! Speculation and structure: what proposes tokens, which of them count, how many are worth a try.
//!
//! Everything works on plain token ids: no tensor, no cache, no tokeniser's type, no clock.
//!
//! | module | what it does |
//! |---|---|
//! | [`draft`] | the port of whatever proposes tokens for rows |
//! | [`ngram`] | proposals from a row's own past |
//! | [`accept`] | which proposals of a window count |
//! | [`depth`] | how many proposals are worth a step's time |
//! | [`grammar`] | which tokens a grammar allows, and which it leaves no choice of |
//! | [`fill`] | spans that a request determines, and copies of what stood before |
//!
//! ```text
//!   tokens so far --propose--> drafts --depth--> window --one step--> chosen tokens --accept--> kept, and delivered
//! ```
//!
//! Invariants: a draft never changes which tokens a row gets, only how many steps they take; what is filled in follows from the
//! request and the row's own tokens.
#![forbid(unsafe_code)]

pub mod accept;
pub mod depth;
pub mod draft;
pub mod fill;
pub mod grammar;
pub mod ngram;
