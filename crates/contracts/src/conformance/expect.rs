//! Comparisons of what a device gives with what it should.

use super::{Broken, Outcome, host::Host};
use crate::tensor::{Device, ErrorKind, Result, Tensor};
use std::fmt::Display;

/// Equal elements (NaN equals NaN, zeros have no sign), shape and dtype.
pub(crate) fn same(place: impl Display, device: &Device, x: &Tensor, expected: &Host) -> Outcome {
    near(place, device, x, expected, |_| 0.0)
}

/// Elements within a bound that may depend on their place in row-major order; shape and dtype equal.
pub(crate) fn near(
    place: impl Display,
    device: &Device,
    x: &Tensor,
    expected: &Host,
    bound: impl Fn(usize) -> f64,
) -> Outcome {
    compare(device, x, expected, bound).map_err(|broken| broken.at(place))
}

fn compare(device: &Device, x: &Tensor, expected: &Host, bound: impl Fn(usize) -> f64) -> Outcome {
    if (x.dtype(), x.shape()) != (expected.dtype, &expected.shape[..]) {
        return Err(Broken::new(format!("gave {x:?}, not {:?} {:?}", expected.dtype, expected.shape)));
    }
    let got = Host::download(device, x)?;
    for (i, (&got, &expected)) in got.values.iter().zip(&expected.values).enumerate() {
        let agree =
            got == expected || (got.is_nan() && expected.is_nan()) || (got - expected).abs() <= bound(i);
        if !agree {
            let bound = bound(i);
            return Err(Broken::new(format!("element {i} is {got:e}, not {expected:e} (within {bound:e})")));
        }
    }
    Ok(())
}

/// Equal bytes of two tensors.
pub(crate) fn same_bits(place: impl Display, device: &Device, a: &Tensor, b: &Tensor) -> Outcome {
    let described = (a.dtype(), a.shape()) == (b.dtype(), b.shape());
    if described && device.download(a)? == device.download(b)? {
        return Ok(());
    }
    let (first, second) = (Host::download(device, a)?, Host::download(device, b)?);
    let differ = first.values.iter().zip(&second.values).position(|(a, b)| a.to_bits() != b.to_bits());
    Err(Broken::new(format!("bits of {a:?} and {b:?} differ, first at element {differ:?}")).at(place))
}

/// The operation is refused, with this kind of error.
pub(crate) fn refused<T>(place: impl Display, result: Result<T>, kind: ErrorKind) -> Outcome {
    match result {
        Err(error) if error.kind() == kind && !error.to_string().is_empty() => Ok(()),
        Err(error) => Err(Broken::new(format!("gave {error:?}, not an error of kind {kind:?}")).at(place)),
        Ok(_) => Err(Broken::new(format!("was not refused as {kind:?}")).at(place)),
    }
}

/// A plain condition.
pub(crate) fn holds(place: impl Display, condition: bool) -> Outcome {
    if condition { Ok(()) } else { Err(Broken::new("does not hold").at(place)) }
}
