//! Rows of every kind and codec against a plain list of tokens.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

mod attention;
mod budget;
mod life;
mod memory;
mod naive;
mod padding;
mod pool;
mod property;
mod recurrent;
mod refusal;
mod round;
mod snapshot;
mod turn;

use std::{num::NonZeroUsize, rc::Rc};
use tandem_contracts::tensor::{Affine, Device, Dtype};
use tandem_kv::{
    Blueprint, Growth, Kind, LayerShape,
    codec::Scheme,
    policy::{Encoding, Request},
    ragged::Kit,
};

const SHAPE: LayerShape = LayerShape { heads: 2, key_width: 64, value_width: 64 };

fn affine(bits: u8) -> Scheme {
    Scheme::affine(Affine { bits, group: 32 }, Dtype::Bf16)
}

/// A model of these layers; planes grow by 4 columns, so that short rows grow, wrap and shrink.
fn kit(device: &Device, kinds: &[Kind], encoding: Encoding, start: usize) -> Rc<Kit> {
    kit_of(Dtype::Bf16, device, kinds, encoding, start)
}

/// The same where what is not encoded is of `plain`.
fn kit_of(plain: Dtype, device: &Device, kinds: &[Kind], encoding: Encoding, start: usize) -> Rc<Kit> {
    let request = Request { plain, encoding, start };
    let (blueprint, _) = Blueprint::new(kinds.to_vec(), &request).unwrap();
    Kit::open(device, blueprint.growing(Growth::by(NonZeroUsize::new(4).unwrap()))).unwrap()
}
