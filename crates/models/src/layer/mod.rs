//! Layers that families share. A layer is loaded from a declaration and runs on packed tokens `[tokens, width]`.

mod attention;
mod input;
mod loader;
mod mlp;
mod norm;
mod pass;
mod projection;
mod recurrent;

pub(crate) use attention::{Attention, AttentionDeclaration, AttentionNames, HeadNorms, Values};
pub(crate) use input::{LayerInput, LayerInputs, LayerInputsDeclaration};
pub(crate) use loader::Loader;
pub(crate) use mlp::{Mlp, MlpDeclaration};
pub(crate) use norm::{Norm, Norms};
pub(crate) use pass::Pass;
pub(crate) use projection::{Entry, Exit, Projection, Stored};
pub(crate) use recurrent::{Recurrent, RecurrentDeclaration};
