//! Fields as the planes that attention reads.

use tandem_contracts::tensor::{Plane, Quantized, Tensor, TurboKeys, TurboValues};

/// A plane of keys or values, `[rows, heads, columns, extent]` for each field.
#[derive(Clone, Debug)]
pub enum Held {
    /// Floats.
    Plain(Tensor),
    /// Affine codes.
    Affine(Quantized),
    /// TurboQuant's keys.
    TurboKeys(TurboKeys),
    /// TurboQuant's values.
    TurboValues(TurboValues),
}

impl Held {
    /// As attention takes it.
    pub fn plane(&self) -> Plane<'_> {
        match self {
            Self::Plain(plane) => Plane::Plain(plane),
            Self::Affine(plane) => Plane::Affine(plane),
            Self::TurboKeys(plane) => Plane::TurboKeys(plane),
            Self::TurboValues(plane) => Plane::TurboValues(plane),
        }
    }
}
