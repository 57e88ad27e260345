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
//!
//! ```text
//!   tokens so far --propose--> drafts --depth--> window --one step--> chosen tokens --accept--> kept, and delivered
//! ```
//!
//! Invariant: a draft never changes which tokens a row gets, only how many steps they take.
#![forbid(unsafe_code)]

pub mod accept;
pub mod depth;
pub mod draft;
pub mod grammar;
pub mod ngram;
