//! The engine: many requests over one loaded model.
//!
//! ```text
//!   EngineHandle --commands--> engine thread: commands, admission, plan, step, sampling, delivery
//!   Subscription <--events---  (owns device, session, caches, clock)
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`handle`](EngineHandle) | the thread, and what others hold of it |
//! | `binding` | what model and mounts can do for a request, bound once |
//! | `resolve` | a pure function from a request's needs to how it is run |
//! | `drafter` | a smaller model that proposes for the larger one |
//! | `executor` | the engine without its thread: one turn after another, drafts and grammars of its rows |
//! | [`hold`](Hold) | the device for somebody alone |
//! | `pace` | how many prompt tokens fit a step beside rows that decode |
//! | `plan` | a pure function from token counts to the next step |
//! | `prefix` | states of rows that have ended, for prompts that begin alike |
//! | `row` | one live request: tokens, text, consumer |
//! | `sample` | logits to tokens |
//! | [`subscription`](Subscription) | one request's events, merged for slow readers |
//! | `turn` | whose step is next, where rows cannot share one |
//! | [`status`](Metrics) | phase, queue places, counts |
//!
//! Rows of every age share one step: a step carries one token of each decoding row and chunks of prompts. On a
//! batch-invariant device a row's tokens therefore depend on its own request only.
//!
//! The crate knows no model, no backend, no runtime, no protocol and no clock of its own.
#![forbid(unsafe_code)]

mod binding;
mod command;
mod config;
mod drafter;
mod error;
mod executor;
mod handle;
mod hold;
mod pace;
mod plan;
mod prefix;
mod resolve;
mod row;
mod sample;
mod status;
mod subscription;
#[cfg(test)]
mod tests;
mod turn;

pub use config::{Config, Draft, Drafting, Gap, Mixing, PrefixLimits};
pub use error::{Error, ErrorKind};
pub use handle::{DraftSource, EngineHandle, Models, Starting, spawn, start};
pub use hold::Hold;
pub use status::{Metrics, Outcomes, Phase, Round, Rounds, Times};
pub use subscription::Subscription;
pub use tandem_spec::{fill::Tally, ngram::Runs};
