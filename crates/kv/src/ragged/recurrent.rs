//! A step of several rows through a recurrent layer.

use super::{cell::Replay, row::RaggedRow};
use crate::recurrence::{Carried, Carry, Recurrence};
use std::{ops::Range, rc::Rc};
use tandem_contracts::tensor::{Error, Result, Tensor};

/// Takes rows with open steps through a recurrent layer: `inputs` are packed, each with tokens as its first axis, and a
/// row's own are at its range. Gives the outputs of all packed tokens.
///
/// # Errors
/// No step is open, it is another layer's turn, a range has another length than the row's step, the recurrence's own, or
/// it gave other states than the layer has. No row has changed then.
pub fn recur(
    layer: usize,
    inputs: &[Tensor],
    recurrence: &Rc<dyn Recurrence>,
    rows: &mut [(&mut RaggedRow, Range<usize>)],
) -> Result<Tensor> {
    let mut carried = Vec::with_capacity(rows.len());
    for (row, range) in rows.iter() {
        carried.push(Carried { tokens: range.clone(), state: row.carried(layer, range)? });
    }
    let Carry { outputs, states } = recurrence.carry(inputs, &carried)?;
    if states.len() != rows.len() {
        return Err(Error::shape("recur", format!("{} rows, got states: {}", rows.len(), states.len())));
    }
    for ((row, _), state) in rows.iter().zip(&states) {
        row.check_state(layer, state)?;
    }
    for ((row, range), state) in rows.iter_mut().zip(states) {
        let (inputs, recurrence) = (inputs.to_vec(), Rc::clone(recurrence));
        row.advance(layer, state, Replay { inputs, range: range.clone(), recurrence });
    }
    Ok(outputs)
}
