//! Keys and values of a step, of all its rows, encoded once for each scheme that some row stores them by.

use super::kit::{Coders, Kit};
use std::ops::Range;
use tandem_contracts::tensor::{Binary, Dtype, Result, Tensor};

/// One layer's packed keys and values, `[tokens, heads, width]`.
#[derive(Debug)]
pub struct Packed<'a> {
    kit: &'a Kit,
    layer: usize,
    keys: &'a Tensor,
    values: &'a Tensor,
    made: Vec<Made>,
}

/// What a scheme made of them.
#[derive(Debug)]
struct Made {
    coders: Coders,
    fields: Vec<Tensor>,
    /// Tokens of the rows that are stored so.
    rows: Vec<Range<usize>>,
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

    /// Fields of the keys, then of the values, by one of the layer's schemes, for rows whose tokens are at `rows`.
    pub(crate) fn made(
        &mut self,
        coders: &Coders,
        rows: impl IntoIterator<Item = Range<usize>>,
    ) -> Result<&[Tensor]> {
        let index = match self.made.iter().position(|made| made.coders.scheme == coders.scheme) {
            Some(index) => index,
            None => {
                let fields = encode(coders, self.keys, self.values)?;
                self.made.push(Made { coders: coders.clone(), fields, rows: Vec::new() });
                self.made.len() - 1
            }
        };
        let made = &mut self.made[index];
        made.rows.extend(rows);
        Ok(&made.fields)
    }

    /// What was made by this scheme; nothing if nothing was.
    pub(super) fn fields(&self, coders: &Coders) -> &[Tensor] {
        let made = self.made.iter().find(|made| made.coders.scheme == coders.scheme);
        made.map_or(&[], |made| &made.fields)
    }

    /// Whether each packed token is finite, as it was stored, and was so in the layers before: booleans `[tokens]`. What is
    /// said of a token that is no row's means nothing. None where nothing was stored in any layer.
    ///
    /// # Errors
    /// Another number of tokens than before, or the device's own.
    pub fn sound(&self, before: Option<Tensor>) -> Result<Option<Tensor>> {
        let device = self.kit.device();
        if let [made] = &self.made[..] {
            return device.finite(before, &self.witnesses(made)).map(Some);
        }
        self.made.iter().try_fold(before, |before, made| {
            // What one scheme cannot store says nothing of the rows that are stored by another.
            let own = device.finite(None, &self.witnesses(made))?;
            let other =
                (0..self.keys.shape()[0]).map(|token| !made.rows.iter().any(|row| row.contains(&token)));
            let other = device.upload(&other.map(u8::from).collect::<Vec<_>>(), Dtype::Bool, own.shape())?;
            let own = device.binary(Binary::Or, own, &other)?;
            match before {
                Some(before) => device.binary(Binary::And, before, &own).map(Some),
                None => Ok(Some(own)),
            }
        })
    }

    fn witnesses<'t>(&'t self, made: &'t Made) -> Vec<&'t Tensor> {
        witnesses(&made.coders, [self.keys, self.values], &made.fields)
    }
}

/// Fields of keys, then of values.
pub(super) fn encode(coders: &Coders, keys: &Tensor, values: &Tensor) -> Result<Vec<Tensor>> {
    let mut fields = coders.keys.encode(keys)?;
    fields.extend(coders.values.encode(values)?);
    Ok(fields)
}

/// What is finite exactly where keys and values could be stored in these fields.
pub(super) fn witnesses<'t>(
    coders: &Coders,
    [keys, values]: [&'t Tensor; 2],
    fields: &'t [Tensor],
) -> Vec<&'t Tensor> {
    let (of_keys, of_values) = fields.split_at(coders.key_fields.min(fields.len()));
    let mut witnesses = coders.keys.witnesses(keys, of_keys);
    witnesses.extend(coders.values.witnesses(values, of_values));
    witnesses
}
