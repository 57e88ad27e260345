//! A tensor's value: an MLX array, evaluated or still a node of a graph.

use mlx_rs::Array;
use std::fmt;
use tandem_contracts::tensor::{DeviceId, Dtype, Error, Result, Storage};

/// The storage of a tensor.
pub(crate) struct Value {
    array: Array,
    shape: Vec<usize>,
    dtype: Dtype,
    device: DeviceId,
    bounds: Option<Bounds>,
}

/// What the host knows of the values of an index tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// No value is smaller.
    pub(crate) least: i32,
    /// No value is larger.
    pub(crate) most: i32,
    /// Both occur among the values, so that a bound out of range is a value out of range.
    pub(crate) attained: bool,
}

impl Bounds {
    /// The bounds of values that the host has seen; none of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = i32>) -> Option<Self> {
        values.into_iter().fold(None, |bounds, value| {
            let (least, most) =
                bounds.map_or((value, value), |b: Self| (b.least.min(value), b.most.max(value)));
            Some(Self { least, most, attained: true })
        })
    }

    /// The bounds of positions along an axis, of which it is not known which occur.
    pub(crate) fn below(extent: usize) -> Self {
        Self { least: 0, most: narrow(extent).saturating_sub(1), attained: false }
    }

    /// The bounds of some of the values.
    pub(crate) fn of_part(self) -> Self {
        Self { attained: false, ..self }
    }

    /// Whether every value is an index of an axis of `extent`.
    pub(crate) fn within(self, extent: usize) -> bool {
        self.least >= 0 && self.most < narrow(extent)
    }
}

impl Value {
    pub(crate) fn new(array: Array, shape: Vec<usize>, dtype: Dtype, device: DeviceId) -> Self {
        Self { array, shape, dtype, device, bounds: None }
    }

    pub(crate) fn bounded(self, bounds: Option<Bounds>) -> Self {
        Self { bounds, ..self }
    }

    pub(crate) fn array(&self) -> &Array {
        &self.array
    }

    pub(crate) fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }
}

impl Storage for Value {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn device(&self) -> DeviceId {
        self.device
    }
}

// Written out because the array's own implementation evaluates and prints every element.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({:?} {:?})", self.dtype, self.shape)
    }
}

/// A shape in MLX's integers.
///
/// # Errors
/// An extent above `i32::MAX`, which MLX cannot hold.
pub(crate) fn dims(operation: &'static str, shape: &[usize]) -> Result<Vec<i32>> {
    shape
        .iter()
        .map(|&extent| i32::try_from(extent))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::shape(operation, format!("an extent exceeds {}: {shape:?}", i32::MAX)))
}

/// An extent or axis of an array that exists, whose extents all passed [`dims`].
pub(crate) fn narrow(extent: usize) -> i32 {
    i32::try_from(extent).unwrap_or(i32::MAX)
}

/// MLX's name of a dtype.
pub(crate) fn native(dtype: Dtype) -> mlx_rs::Dtype {
    match dtype {
        Dtype::F32 => mlx_rs::Dtype::Float32,
        Dtype::F16 => mlx_rs::Dtype::Float16,
        Dtype::Bf16 => mlx_rs::Dtype::Bfloat16,
        Dtype::I32 => mlx_rs::Dtype::Int32,
        Dtype::U32 => mlx_rs::Dtype::Uint32,
        Dtype::I8 => mlx_rs::Dtype::Int8,
        Dtype::U8 => mlx_rs::Dtype::Uint8,
        Dtype::Bool => mlx_rs::Dtype::Bool,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_values() {
        let bounds = Bounds::of([3, -1, 7]);
        assert_eq!(bounds, Some(Bounds { least: -1, most: 7, attained: true }));
        assert_eq!(Bounds::of([]), None);
        assert!(bounds.is_some_and(|b| !b.within(8)));
        assert!(Bounds::of([0, 7]).is_some_and(|b| b.within(8) && !b.within(7)));
        assert!(Bounds::below(4).within(4));
    }

    #[test]
    fn extents_beyond_the_device_are_refused() {
        assert_eq!(dims("t", &[2, 0]).ok(), Some(vec![2, 0]));
        assert!(dims("t", &[1 << 31]).is_err());
    }
}
