//! Rows of one state policy.

use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    tensor::{Device, Dtype, Result},
};
use tandem_kv::{
    Blueprint, Kind,
    bank::BankRows,
    codec::Scheme,
    policy::{Encoding, Exemption, Request},
    ragged::{Kit, RaggedRows},
    rows::Rows,
};

/// Most tokens of a step with which rows come together where they share planes: single tokens and windows of drafts do,
/// chunks of prompts do not.
const TOGETHER: usize = 64;

/// What a model's layers keep, and in which dtype.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) kinds: Vec<Kind>,
    /// Of what is not encoded, and of scales and biases.
    pub(crate) dtype: Dtype,
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
        let rows: Box<dyn Rows> = match device.traits().ragged_attention {
            true => Box::new(RaggedRows::new(kit)),
            false => Box::new(BankRows::padded(kit, TOGETHER)),
        };
        Ok(Self { policy: policy.clone(), rows })
    }
}
