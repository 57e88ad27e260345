//! How a row's next token is chosen from its logits.
//!
//! ```text
//!   logits [rows, width] --+-- greedy rows ---> argmax, maximum on the device --+--> one evaluation --> tokens
//!                          +-- sampled rows --> filter chain on the host -------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`batch`] | all rows of a step: what the device does, what is downloaded |
//! | [`chain`] | one row: bias, filters, temperature, draw |
//! | [`uniform`] | the number that a draw takes |
//!
//! Invariant: a row's token depends on its own logits, parameters, seed and count of sampled tokens, and on
//! nothing that shares the step.

mod batch;
mod chain;
mod uniform;

pub(crate) use batch::{Choice, Draw, Picks};
