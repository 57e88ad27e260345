//! Key-value cache rows of language models.
//!
//! A [`Row`] is what one sequence of tokens has left behind in the layers of a model: keys and values, by position.
//! Each row owns its planes, so rows join and leave a batch without a copy, and a row's numbers cannot depend on its
//! company. A [`Kind`] says what a layer keeps, a [`codec`] how keys or values are stored, a [`policy`] which layers are
//! stored how and from which position on, and a [`ragged`] row composes them. Everything runs on the tensor port; nothing
//! here evaluates (but to bound a conversion's memory), reads a clock or knows a model.
//!
//! ```text
//!   Geometry (heads and widths of each layer, dtype)
//!      |
//!     Row ---- layer 0: keys [1, heads, capacity, width], values
//!      |  \--- layer 1: ..
//!      |
//!      begin(n) -> append(layer 0), append(layer 1), .. -> commit, or roll_back
//! ```
//!
//! Invariants:
//!
//! 1. The token count changes in [`Row::commit`] and [`Row::trim`] only. Columns past it are dead: the next append
//!    overwrites them.
//! 2. A plane is in the cache or in an operation, never in both: an append can reuse it in place.
//! 3. A fork shares planes. Later appends to one owner are not seen by the other, as the port gives values, not
//!    places.
#![forbid(unsafe_code)]

pub mod bank;
mod blueprint;
pub mod codec;
mod geometry;
mod kind;
mod padded;
mod paged;
mod plain;
pub mod policy;
pub mod ragged;
mod row;
pub mod rows;
mod signature;
mod transition;

pub use blueprint::Blueprint;
pub use geometry::{CAPACITY_STEP, Geometry, LayerShape};
pub use kind::{Growth, Kind, RecurrentShape};
pub use row::Row;
pub use transition::Transition;
