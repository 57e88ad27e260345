//! Rows of one state policy.

use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    tensor::{Device, Dtype, Result},
};
use tandem_kv::{
    Blueprint, Kind, Layout,
    codec::Scheme,
    policy::{Encoding, Exemption, Request},
    ragged::Kit,
    rows::Rows,
};

/// What a model's layers keep, in which dtype, and how rows lie beside each other.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) kinds: Vec<Kind>,
    /// Of what is not encoded, and of scales and biases.
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
}

impl Layers {
    /// How rows of a policy are made, and the layers that stay plain all the same.
    ///
    /// # Errors
    /// The layers cannot be kept so.
    pub(super) fn blueprint(&self, policy: &StatePolicy) -> Result<(Blueprint, Vec<Exemption>)> {
        let scheme = |code: &Code| match *code {
            Code::Affine(affine) => Scheme::affine(affine, self.dtype),
            Code::Turbo { keys, values } => Scheme::turbo(keys, values),
        };
        let (encoding, start) = match policy {
            StatePolicy::Plain => (Encoding::None, 0),
            StatePolicy::Encoded { codes: Codes::Uniform(code), start } => {
                (Encoding::Uniform(scheme(code)), *start)
            }
            StatePolicy::Encoded { codes: Codes::ByLayer(codes), start } => (
                Encoding::ByLayer(codes.iter().map(|(layer, code)| (*layer, scheme(code))).collect()),
                *start,
            ),
        };
        Blueprint::new(self.kinds.clone(), &Request { plain: self.dtype, encoding, start })
    }
}

/// The rows, and how they are kept.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) policy: StatePolicy,
    pub(super) rows: Box<dyn Rows>,
}

impl Pool {
    /// No rows yet.
    ///
    /// # Errors
    /// The layers cannot be kept so, or the device's own.
    pub(super) fn open(device: &Device, layers: &Layers, policy: &StatePolicy) -> Result<Self> {
        let kit = Kit::open(device, layers.blueprint(policy)?.0)?;
        Ok(Self { policy: policy.clone(), rows: layers.layout.open(kit) })
    }
}
