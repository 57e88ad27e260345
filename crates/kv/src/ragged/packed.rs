//! Keys and values of a step, of all its rows, encoded once for each scheme that some row stores them by.

use super::kit::{Coders, Kit};
use crate::codec::Scheme;
use tandem_contracts::tensor::{Binary, Result, Tensor};

/// One layer's packed keys and values, `[tokens, heads, width]`.
#[derive(Debug)]
pub struct Packed<'a> {
    kit: &'a Kit,
    layer: usize,
    keys: &'a Tensor,
    values: &'a Tensor,
    made: Vec<(Scheme, Made)>,
}

/// What a scheme made of them.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// Of the keys, then of the values.
    pub(crate) fields: Vec<Tensor>,
    /// Boolean `[tokens, heads]`; absent for plain floats, which show what is not finite.
    pub(crate) sound: Option<Tensor>,
}

impl<'a> Packed<'a> {
    /// Keys and values of `layer`, not encoded yet.
    pub fn new(kit: &'a Kit, layer: usize, keys: &'a Tensor, values: &'a Tensor) -> Self {
        Self { kit, layer, keys, values, made: Vec::new() }
    }

    /// The layer.
    pub fn layer(&self) -> usize {
        self.layer
    }

    pub(super) fn is_of(&self, kit: &Kit) -> bool {
        std::ptr::eq(self.kit, kit)
    }

    /// Their fields by one of the layer's schemes.
    pub(crate) fn made(&mut self, coders: &Coders) -> Result<Made> {
        if let Some((_, made)) = self.made.iter().find(|(scheme, _)| *scheme == coders.scheme) {
            return Ok(made.clone());
        }
        let made = encode(self.kit, coders, self.keys, self.values)?;
        self.made.push((coders.scheme, made.clone()));
        Ok(made)
    }
}

/// Fields of keys and values, and whether they could be stored.
pub(super) fn encode(kit: &Kit, coders: &Coders, keys: &Tensor, values: &Tensor) -> Result<Made> {
    let (mut fields, own) = (coders.keys.encode(keys)?, coders.values.encode(values)?);
    let sound = if coders.scheme.is_plain() {
        None
    } else {
        let sound = coders.keys.sound(keys, &fields)?;
        Some(kit.device().binary(Binary::And, sound, &coders.values.sound(values, &own)?)?)
    };
    fields.extend(own);
    Ok(Made { fields, sound })
}
