//! Key-value cache rows of language models.
//!
//! A row is what one sequence of tokens has left behind in the layers of a model: keys and values, by position, or the
//! state that a [`recurrence`] carries. A [`Kind`] says what a layer keeps, a [`codec`] how keys or values are stored, a
//! [`policy`] which layers are stored how and from which position on. Rows of one [`Blueprint`] are stepped together
//! through the port [`rows::Rows`]; a row's numbers cannot depend on its company. Everything runs on the tensor port;
//! nothing here evaluates (but to bound a conversion's memory), reads a clock or knows a model.
//!
//! ```text
//!   Kinds + Policy --> Blueprint (bytes, limits) --open(device)--> Kit (codecs)
//!                                                                   |
//!   Rows: slot -> row --- layer 0: planes [1, heads, columns, field]  ..
//!                     \-- layer 1: ..
//!
//!   begin(parts) -> append(layer 0), views(layer 0), recur(layer 1), .. -> commit(keep), or roll_back
//! ```
//!
//! Where to start: `cargo run -p tandem-kv --example attend`, two rows that decode together
//! (`crates/kv/examples/attend.rs`). Then, in this order:
//!
//! | file | what is in it |
//! |---|---|
//! | `kind.rs`, `transition.rs`, `policy.rs` | what a layer keeps, how it is stored, and from which position on |
//! | `blueprint.rs`, `layout.rs`, `signature.rs` | all of it for a model: bytes, limits, and what stored rows are known by |
//! | `codec/` | fields of a token: plain floats, affine codes, TurboQuant |
//! | `rows.rs`, `recurrence.rs` | the ports: rows that are stepped together, layers that carry a state |
//! | `ragged/` | rows that own their planes; a row as bytes (`snapshot.rs`) |
//! | `bank/`, `padded/`, `paged/` | rows that share planes or blocks of a pool |
//! | `prefix.rs` | which stored row begins as a prompt does |
//! | `tests/rows/` | all of it against a list of tokens for each row; `benches/` for its cost |
//!
//! Invariants:
//!
//! 1. A row's token count changes when a step is committed and when it is trimmed. Columns past it are dead: the next
//!    append overwrites them.
//! 2. A plane is in the cache or in an operation, never in both: an append can reuse it in place.
//! 3. A fork shares planes. Later appends to one owner are not seen by the other, as the port gives values, not
//!    places.
#![forbid(unsafe_code)]

pub mod bank;
mod blueprint;
pub mod codec;
mod kind;
mod layout;
mod padded;
mod paged;
pub mod policy;
pub mod prefix;
pub mod ragged;
pub mod recurrence;
pub mod rows;
mod signature;
mod transition;

pub use blueprint::Blueprint;
pub use kind::{Growth, Kind, LayerShape, RecurrentShape};
pub use layout::Layout;
pub use transition::Transition;
