//! Tokens that rows have sampled and nobody has read, which the next step may go on from.
//!
//! Invariant: what a step takes from here is the token of the slot that it names, or an error.

use super::plan::Plan;
use tandem_contracts::{
    model::Slot,
    tensor::{Device, Dtype, Error, ErrorKind, Result, Tensor},
};

/// The last sampled tokens of some slots.
#[derive(Debug)]
pub(super) struct Register {
    slots: Vec<Slot>,
    /// `i32 [slots]`.
    tokens: Tensor,
}

impl Register {
    pub(super) fn new(device: &Device, slots: &[Slot], sampled: &Tensor) -> Result<Self> {
        if sampled.dtype() != Dtype::I32 || sampled.elements() != slots.len() {
            let (dtype, tokens, slots) = (sampled.dtype(), sampled.elements(), slots.len());
            return Err(Error::shape(
                "register",
                format!("{slots} slots sampled {tokens} tokens of: {dtype:?}"),
            ));
        }
        Ok(Self { slots: slots.to_vec(), tokens: device.reshape(sampled, &[slots.len()])? })
    }

    /// Packed ids `i32 [T]` of a step, of which some are known and the others are here.
    ///
    /// # Errors
    /// A slot that has sampled nothing; or the device's own.
    pub(super) fn pack(register: Option<&Self>, plan: &Plan, device: &Device) -> Result<Tensor> {
        let known = device.upload_i32(&plan.ids, &[plan.ids.len()])?;
        if plan.unread.is_empty() {
            return Ok(known);
        }
        let missing = |slot: Slot| {
            Error::new(ErrorKind::State, "step", format!("no unread token is there of slot: {}", slot.0))
        };
        let all = plan.ids.len();
        // Those of the register stand behind the known ones.
        let mut places: Vec<usize> = (0..all).collect();
        for &(index, slot) in &plan.unread {
            let slots = register.map_or(&[][..], |register| &register.slots);
            places[index] = all + slots.iter().position(|it| *it == slot).ok_or_else(|| missing(slot))?;
        }
        let Some(Self { slots, tokens }) = register else { return Ok(known) };
        if places.iter().copied().eq(all..all + slots.len()) {
            return Ok(tokens.clone());
        }
        let narrow = |place: usize| i32::try_from(place).map_err(|_| Error::index("step", "too many tokens"));
        let places = places.into_iter().map(narrow).collect::<Result<Vec<_>>>()?;
        let both = device.concat(&[&known, tokens], 0)?;
        device.take(&both, &device.upload_i32(&places, &[all])?, 0)
    }
}
