//! How a row's next token is chosen from its logits.
//!
//! ```text
//!   logits [rows, width] --+-- greedy rows ---> argmax, maximum on the device --+--> one evaluation --> tokens
//!                          +-- other rows ----> chain on the host --------------+
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`batch`] | all rows of a step: what the device does, what is downloaded |
//! | [`chain`] | one row: processors, filters, temperature, draw |
//! | [`processor`], [`dry`] | what changes logits: bias, penalties, a mask |
//! | [`candidate`], [`filter`] | tokens in order, and which of them are left |
//! | [`score`] | log-probabilities |
//! | [`uniform`] | the numbers that a draw takes |
//!
//! Invariant: a row's token depends on its own logits, parameters, seed, history and count of sampled tokens, and on
//! nothing that shares the step.

mod batch;
mod candidate;
mod chain;
mod dry;
mod filter;
mod processor;
mod score;
mod uniform;

pub(crate) use batch::{Choice, Picks};
pub(crate) use chain::{Chosen, Draw, NoChoice, Wish};
