//! A value of the fake: row-major little-endian bytes.
//!
//! Invariant: `bytes` holds exactly `elements * dtype.size()` bytes. Elements are read and written one at a time
//! through two widths that hold every dtype: `f32` for floats and `i64` for integers and booleans.

use crate::tensor::Dtype;
use half::{bf16, f16};

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

impl Value {
    /// All bytes zero, which is 0 or false in every dtype.
    pub(super) fn zeros(dtype: Dtype, shape: &[usize]) -> Self {
        let count: usize = shape.iter().product();
        Self { dtype, shape: shape.to_vec(), bytes: vec![0; count * dtype.size()] }
    }

    pub(super) fn from_floats(dtype: Dtype, shape: &[usize], values: impl IntoIterator<Item = f32>) -> Self {
        let mut result = Self::zeros(dtype, shape);
        for (i, value) in (0..result.elements()).zip(values) {
            result.set_float(i, value);
        }
        result
    }

    pub(super) fn from_integers(
        dtype: Dtype,
        shape: &[usize],
        values: impl IntoIterator<Item = i64>,
    ) -> Self {
        let mut result = Self::zeros(dtype, shape);
        for (i, value) in (0..result.elements()).zip(values) {
            result.set_integer(i, value);
        }
        result
    }

    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    fn at<const N: usize>(&self, i: usize) -> [u8; N] {
        let mut buffer = [0; N];
        buffer.copy_from_slice(&self.bytes[i * N..(i + 1) * N]);
        buffer
    }

    pub(super) fn element(&self, i: usize) -> &[u8] {
        let size = self.dtype.size();
        &self.bytes[i * size..(i + 1) * size]
    }

    pub(super) fn set_element(&mut self, i: usize, bytes: &[u8]) {
        let size = self.dtype.size();
        self.bytes[i * size..(i + 1) * size].copy_from_slice(bytes);
    }

    /// Element `i` of a tensor of any dtype, as a float.
    pub(super) fn float(&self, i: usize) -> f32 {
        match self.dtype {
            Dtype::F32 => f32::from_le_bytes(self.at(i)),
            Dtype::F16 => f16::from_le_bytes(self.at(i)).to_f32(),
            Dtype::Bf16 => bf16::from_le_bytes(self.at(i)).to_f32(),
            _ => self.integer(i) as f32,
        }
    }

    /// Element `i` of an integer or boolean tensor.
    pub(super) fn integer(&self, i: usize) -> i64 {
        match self.dtype {
            Dtype::I32 => i32::from_le_bytes(self.at(i)).into(),
            Dtype::U32 => u32::from_le_bytes(self.at(i)).into(),
            Dtype::I8 => i8::from_le_bytes(self.at(i)).into(),
            Dtype::U8 | Dtype::Bool => self.bytes[i].into(),
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => self.float(i) as i64,
        }
    }

    /// Writes a float into a float tensor, rounded to nearest.
    pub(super) fn set_float(&mut self, i: usize, value: f32) {
        match self.dtype {
            Dtype::F32 => self.set_element(i, &value.to_le_bytes()),
            Dtype::F16 => self.set_element(i, &f16::from_f32(value).to_le_bytes()),
            Dtype::Bf16 => self.set_element(i, &bf16::from_f32(value).to_le_bytes()),
            // Saturates and truncates, as casts promise.
            Dtype::I32 => self.set_integer(i, (value as i32).into()),
            Dtype::U32 => self.set_integer(i, (value as u32).into()),
            Dtype::I8 => self.set_integer(i, (value as i8).into()),
            Dtype::U8 => self.set_integer(i, (value as u8).into()),
            Dtype::Bool => self.set_integer(i, i64::from(value != 0.0)),
        }
    }

    /// Writes an integer, wrapped to the width of an integer tensor.
    pub(super) fn set_integer(&mut self, i: usize, value: i64) {
        match self.dtype {
            Dtype::I32 | Dtype::U32 => self.set_element(i, &(value as u32).to_le_bytes()),
            Dtype::I8 | Dtype::U8 => self.set_element(i, &[value as u8]),
            Dtype::Bool => self.set_element(i, &[u8::from(value != 0)]),
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => self.set_float(i, value as f32),
        }
    }

    pub(super) fn floats(&self) -> Vec<f32> {
        (0..self.elements()).map(|i| self.float(i)).collect()
    }

    /// Element `i` of the result is element `source(i)` of `self`.
    pub(super) fn gather(&self, shape: &[usize], source: impl Fn(usize) -> usize) -> Self {
        let mut result = Self::zeros(self.dtype, shape);
        for i in 0..result.elements() {
            result.set_element(i, self.element(source(i)));
        }
        result
    }
}

/// Row-major strides in elements.
pub(super) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Strides that walk `from` in the order of the shape `to` that it broadcasts to: 0 along repeated axes.
pub(super) fn repeated(from: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(from);
    let added = to.len() - from.len();
    let axis = |axis: usize| if axis < added || from[axis - added] == 1 { 0 } else { own[axis - added] };
    (0..to.len()).map(axis).collect()
}

/// Where element `flat` of a row-major `shape` lies under other strides.
pub(super) fn offset(mut flat: usize, shape: &[usize], strides: &[usize]) -> usize {
    let mut offset = 0;
    for axis in (0..shape.len()).rev() {
        offset += flat % shape[axis] * strides[axis];
        flat /= shape[axis];
    }
    offset
}

/// A shape around an axis: extents before it together, its own, and those after it together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) outer: usize,
    pub(super) extent: usize,
    pub(super) inner: usize,
}

impl Around {
    pub(super) fn new(shape: &[usize], axis: usize) -> Self {
        Self {
            outer: shape[..axis].iter().product(),
            extent: shape[axis],
            inner: shape[axis + 1..].iter().product(),
        }
    }

    /// Number of lines along the axis.
    pub(super) fn lines(self) -> usize {
        self.outer * self.inner
    }

    /// Where element `i` of line `line` lies.
    pub(super) fn at(self, line: usize, i: usize) -> usize {
        (line / self.inner * self.extent + i) * self.inner + line % self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_the_inner_extents() {
        let around = Around::new(&[2, 3, 4], 1);
        assert_eq!((around.lines(), around.at(0, 1), around.at(5, 2)), (8, 4, 12 + 8 + 1));
    }

    #[test]
    fn repeated_axes_stand_still() {
        assert_eq!(repeated(&[3, 1], &[2, 3, 4]), [0, 1, 0]);
        assert_eq!(offset(4 + 2, &[2, 3, 4], &repeated(&[3, 1], &[2, 3, 4])), 1);
    }

    #[test]
    fn narrow_elements_wrap_or_saturate() {
        let mut x = Value::zeros(Dtype::I8, &[2]);
        x.set_integer(0, 200);
        x.set_float(1, 200.0);
        assert_eq!((x.integer(0), x.integer(1)), (-56, 127));
    }
}
