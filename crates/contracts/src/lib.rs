//! The ports and plain values that Tandem's crates share.
//!
//! Core crates hold policy and mathematics, adapters hold devices, and this crate is all that they have in
//! common. It knows no device library, no runtime, no protocol, no file and no clock of its own.
//!
//! | module | what it fixes |
//! |---|---|
//! | [`tensor`] | what a device must do: the port that adapters implement |
//! | [`model`] | what the engine asks of a loaded model: steps over slots |
//! | [`execution`] | how a request is to be run: needs, support, and the resolved plan |
//! | [`schedule`] | what a scheduling driver sees of a group, and the clock |
//! | [`grammar`] | what binds an answer to a form |
//! | [`fill`] | what a request determines of its answer |
//! | [`text`] | vocabularies and stop matching, without a tokeniser's type |
//! | [`sampling`] | how a row chooses its next token |
//! | [`request`] | what a client submits, and the events that answer it |
//! | [`threefry`] | the counter-based random words behind samples and sign vectors |
//! | [`blob`] | named byte blobs, without files |
#![forbid(unsafe_code)]

pub mod blob;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod execution;
#[cfg(feature = "fake")]
pub mod fake;
pub mod fill;
pub mod grammar;
pub mod model;
pub mod request;
pub mod sampling;
pub mod schedule;
pub mod tensor;
pub mod text;
pub mod threefry;
