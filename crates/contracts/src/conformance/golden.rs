//! Reader of the golden files in `fixtures/operations`; `fixtures/make_operations.py` describes and makes them.

use super::{Broken, host::Host};
use crate::tensor::Dtype;

/// Tensors by name.
pub(super) struct Golden(&'static str);

impl Golden {
    pub(super) const QUANTIZE: Self = Self(include_str!("../../../../fixtures/operations/quantize.txt"));
    pub(super) const RECURRENCE: Self = Self(include_str!("../../../../fixtures/operations/recurrence.txt"));
    pub(super) const LAYERS: Self = Self(include_str!("../../../../fixtures/operations/layers.txt"));

    pub(super) fn get(&self, name: &str) -> Result<Host, Broken> {
        let malformed = || Broken::new(format!("golden tensor is missing or malformed: {name}"));
        let line = self.0.lines().find(|line| line.split(' ').next() == Some(name)).ok_or_else(malformed)?;
        let [_, dtype, extents, bytes] = line.split(' ').collect::<Vec<_>>()[..] else {
            return Err(malformed());
        };
        let dtype =
            Dtype::ALL.into_iter().find(|known| format!("{known:?}") == dtype).ok_or_else(malformed)?;
        let shape: Option<Vec<usize>> = extents.split('x').map(|extent| extent.parse().ok()).collect();
        let bytes: Option<Vec<u8>> = bytes
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let (shape, bytes) = shape.zip(bytes).ok_or_else(malformed)?;
        Ok(Host::from_bytes(dtype, &shape, &bytes))
    }
}
