//! How fast heads forget: a step in time for each token and head, and what it leaves of the state.

use crate::{error, layer::Loader};
use tandem_contracts::tensor::{Binary, Device, Dtype, Result, Scalar, Tensor, Unary};

/// The parameters of all heads, in f32: small steps would be lost in less.
#[derive(Debug)]
pub(super) struct Decay {
    /// `[heads]`, added to what a token projects.
    bias: Tensor,
    /// `[heads]`, below 0: the logarithm of what is left after a step of 1.
    rate: Tensor,
}

impl Decay {
    /// Loads `A_log` and `dt_bias` of the module at `path`.
    pub(super) fn load(path: &str, heads: usize, loader: &mut Loader<'_, '_>) -> error::Result<Self> {
        let bias = loader.exact_vector(&format!("{path}.dt_bias"), heads)?;
        let logarithm = loader.exact_vector(&format!("{path}.A_log"), heads)?;
        let device = loader.device;
        let rate = device.unary(Unary::Negate, device.unary(Unary::Exp, logarithm)?)?;
        Ok(Self { bias, rate })
    }

    /// `softplus(x + bias)` of `x [tokens, heads]`, in f32.
    pub(super) fn step(&self, device: &Device, x: &Tensor) -> Result<Tensor> {
        softplus(device, device.binary(Binary::Add, device.cast(x, Dtype::F32)?, &self.bias)?)
    }

    /// What such steps leave of the state: `exp(rate * step)`.
    pub(super) fn left(&self, device: &Device, steps: Tensor) -> Result<Tensor> {
        device.unary(Unary::Exp, device.binary(Binary::Multiply, steps, &self.rate)?)
    }
}

/// `ln(1 + e^x)` of f32, as `max(x, 0) + ln(1 + e^-|x|)`: so does MLX (`logaddexp`), operation by operation.
fn softplus(device: &Device, x: Tensor) -> Result<Tensor> {
    let zero = device.full(Scalar::Float(0.0), Dtype::F32, &[])?;
    let small = device.unary(Unary::Negate, device.unary(Unary::Abs, x.clone())?)?;
    let logarithm = device.unary(Unary::Log1p, device.unary(Unary::Exp, small)?)?;
    device.binary(Binary::Add, device.binary(Binary::Maximum, x, &zero)?, &logarithm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tandem_contracts::fake;

    proptest! {
        #[test]
        fn softplus_keeps_its_precision(values in prop::collection::vec(-80f32..80.0, 1..40)) {
            let device = fake::open();
            let x = device.upload_f32(&values, &[1, values.len()]).unwrap();
            let got = softplus(&device, x).unwrap().to_vec::<f32>().unwrap();
            for (x, got) in values.iter().zip(got) {
                let expected = f64::from(*x).max(0.0) + (-f64::from(x.abs())).exp().ln_1p();
                let error = (f64::from(got) - expected).abs() / expected;
                prop_assert!(error < 4e-7, "{x}: {got}, expected: {expected}");
            }
        }
    }

    #[test]
    fn softplus_at_the_ends() {
        let device = fake::open();
        let x = device.upload_f32(&[f32::MIN, -1e3, 0.0, 1e3, f32::MAX], &[5]).unwrap();
        let got = softplus(&device, x).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(got, [0.0, 0.0, std::f32::consts::LN_2, 1e3, f32::MAX]);
    }
}
