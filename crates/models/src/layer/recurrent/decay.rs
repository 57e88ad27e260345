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

/// `ln(1 + e^x)` of f32, to about three units in the last place at either end.
///
/// `max(x, 0) + ln(1 + y)` with `y = e^-|x|`. Where `1 + y` rounds, `ln(1 + y) y / ((1 + y) - 1)` has the error of `y`
/// alone (Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1).
fn softplus(device: &Device, x: Tensor) -> Result<Tensor> {
    let number = |value| device.full(Scalar::Float(value), Dtype::F32, &[]);
    let (zero, one) = (number(0.0)?, number(1.0)?);
    let small = device.unary(Unary::Negate, device.unary(Unary::Abs, x.clone())?)?;
    let small = device.unary(Unary::Exp, small)?;
    let sum = device.binary(Binary::Add, small.clone(), &one)?;
    let kept = device.binary(Binary::Subtract, sum.clone(), &one)?;
    let ratio = device.binary(Binary::Divide, small.clone(), &kept)?;
    let logarithm = device.binary(Binary::Multiply, device.unary(Unary::Log, sum)?, &ratio)?;
    let vanished = device.binary(Binary::Equal, kept, &zero)?;
    let logarithm = device.select(&vanished, &small, &logarithm)?;
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
