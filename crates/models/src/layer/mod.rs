//! Layers that families share. A layer is loaded from a declaration and runs on packed tokens `[tokens, width]`.

mod adapter;
mod attention;
mod expert;
mod feed_forward;
mod input;
mod loader;
mod mlp;
mod norm;
mod pass;
mod projection;
mod recode;
mod recurrent;
mod routed;
mod router;

pub(crate) use adapter::{Adapted, Modules, Residuals};
pub(crate) use attention::{Attention, AttentionDeclaration, AttentionNames, HeadNorms, Values};
pub(crate) use expert::{ExpertGate, ExpertNames, ExpertsDeclaration};
pub(crate) use feed_forward::{FeedForward, FeedForwardDeclaration};
pub(crate) use input::{LayerInput, LayerInputs, LayerInputsDeclaration};
pub(crate) use loader::Loader;
pub(crate) use mlp::{Mlp, MlpDeclaration};
pub(crate) use norm::{Norm, Norms};
pub(crate) use pass::Pass;
pub(crate) use projection::{Entry, Exit, Landing, Projection, Stored};
pub(crate) use recode::Recoding;
pub(crate) use recurrent::{Recurrent, RecurrentDeclaration};
pub(crate) use routed::{CompanyDeclaration, Routed, RoutedDeclaration};
pub(crate) use router::{RouterDeclaration, Scoring};
