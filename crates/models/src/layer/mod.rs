//! Layers that families share. A layer is loaded from a declaration and runs on packed tokens `[tokens, width]`.

mod attention;
mod loader;
mod mlp;
mod pass;
mod projection;

pub(crate) use attention::{Attention, AttentionDeclaration};
pub(crate) use loader::Loader;
pub(crate) use mlp::{Mlp, MlpDeclaration};
pub(crate) use pass::{PackedRow, Pass, Rows, not_open};
pub(crate) use projection::{Norm, Projection};
