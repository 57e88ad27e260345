//! The short causal convolution at the entrance of a recurrence.
//!
//! Inputs are rounded to what the tail keeps before anything reads them, so that a token reads the same of a neighbour in
//! its own step as of one in the tail. The arithmetic is in the dtype in which the device computes.

use crate::{error, layer::Loader};
use std::rc::Rc;
use tandem_contracts::tensor::{Convolution, Device, Recurred, Result, StateSpan, Tensor};
use tandem_kv::recurrence::Carried;

/// A loaded convolution of each channel by itself.
#[derive(Debug)]
pub(super) struct ShortConvolution {
    pub(super) device: Device,
    /// `[channels, taps]`.
    weight: Tensor,
    /// `[channels]`.
    bias: Option<Tensor>,
    /// Whether SiLU follows.
    silu: bool,
}

impl ShortConvolution {
    /// Loads the module at `path`.
    pub(super) fn load(
        path: &str,
        extents: [usize; 2],
        (bias, silu): (bool, bool),
        loader: &mut Loader<'_, '_>,
    ) -> error::Result<Self> {
        let mut load_bias = || loader.vector(&format!("{path}.bias"), extents[0]);
        let bias = bias.then(&mut load_bias).transpose()?;
        let weight = loader.taps(&format!("{path}.weight"), extents)?;
        Ok(Self { device: Rc::clone(loader.device), weight, bias, silu })
    }

    /// Packed `x [tokens, channels]` behind each row's tail; the states are tails.
    pub(super) fn apply(&self, x: &Tensor, rows: &[Carried<'_>]) -> Result<Recurred> {
        let device = &self.device;
        let computed = self.weight.dtype();
        let Some(kept) = rows.first().map(|row| row.state.tail.dtype()).filter(|kept| *kept != computed)
        else {
            return self.convolve(x, rows.iter().map(|row| &row.state.tail), rows);
        };
        let x = device.cast(&device.cast(x, kept)?, computed)?;
        let tails = rows.iter().map(|row| device.cast(&row.state.tail, computed));
        let tails = tails.collect::<Result<Vec<_>>>()?;
        let Recurred { outputs, states } = self.convolve(&x, tails.iter(), rows)?;
        // The tail is of rounded inputs, so that this loses nothing.
        let states = states.iter().map(|tail| device.cast(tail, kept)).collect::<Result<_>>()?;
        Ok(Recurred { outputs, states })
    }

    fn convolve<'t>(
        &self,
        x: &Tensor,
        tails: impl Iterator<Item = &'t Tensor>,
        rows: &[Carried<'_>],
    ) -> Result<Recurred> {
        let spans: Vec<_> =
            tails.zip(rows).map(|(state, row)| StateSpan { tokens: row.tokens.clone(), state }).collect();
        let how = Convolution { weight: &self.weight, bias: self.bias.as_ref(), silu: self.silu };
        self.device.convolve(x, &spans, &how)
    }
}
