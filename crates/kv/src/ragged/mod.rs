//! Rows that own their planes, whatever their layers keep and however it is stored.
//!
//! ```text
//!   Blueprint --open(device)--> Kit (codecs of every layer)
//!                                |
//!     Row ------ layer 0: Place (which position lies in which column), Store (the planes of both codecs)
//!      |  \----- layer 1: ..
//!      |
//!      begin(n) -> append(layer, Packed) .. -> view(layer) .. -> commit(keep), or roll_back
//!                  recur(layer, inputs)
//! ```
//!
//! What a layer keeps (all of it, or a window) is decided in one place alone, how it is stored in the codecs alone,
//! and when it changes in the policy alone. Merging, extending, reordering and extracting rows of a batch are moves of
//! rows: no keys or values are copied.

mod batch;
mod cell;
mod entry;
mod kit;
mod layer;
mod packed;
mod place;
mod recurrent;
mod row;
mod snapshot;
mod store;
mod view;

pub use batch::RaggedRows;
pub use kit::Kit;
pub use packed::Packed;
pub use recurrent::recur;
pub use row::RaggedRow;
pub use view::View;

pub(crate) use kit::{Coders, Layout, Source};
pub(crate) use layer::{Layer, Stretch};
pub(crate) use place::{Place, Runs};
pub(crate) use store::{Store, columns, lost};
