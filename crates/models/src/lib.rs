//! Language models over the tensor port: their configuration, their weight files, their layers, and the one session
//! that runs them.
//!
//! ```text
//!   bytes --Checkpoint::open--> Checkpoint --load(device)--> Box<dyn Session>
//!           (config, headers)                (weights onto the device)
//! ```
//!
//! Files are mapped or read by the caller and come in as byte slices; nothing here opens a file. A model runs on any
//! device of the port, and its session is driven through [`tandem_contracts::model`].
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | `config.json` and GGUF metadata as one typed value |
//! | [`weights`] | safetensors and GGUF files, and how tensors come onto a device |
//! | `layer` | attention, gated unit, norms: shared by all families |
//! | `dense` | the decoder made of them, from a family's declaration |
//! | `family` | the families: what each reads from its configuration, and its declaration |
//! | `session` | slots, steps, checks: the model port |
#![forbid(unsafe_code)]

mod checkpoint;
pub mod config;
mod dense;
mod error;
mod family;
mod layer;
#[cfg(test)]
mod sample;
mod session;
pub mod weights;

pub use checkpoint::{Checkpoint, Options, Ring, Source, TOGETHER};
pub use error::{Error, ErrorKind, Result};
pub use family::names as families;
pub use session::DecoderSession;
pub use tandem_kv::{Layout, bank::Paging};
