//! Tensors on the host, for references: any dtype, held as `f64`, which is exact for all of them.
//!
//! Nothing here shares code with a device. Loops walk whole indices, so that a reference reads like its definition.

use super::Broken;
use crate::tensor::{Device, Dtype, Tensor};
use half::{bf16, f16};

/// A tensor on the host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Host {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// Row-major. Of the dtype's precision where the tensor is an operand; exact where it is an expectation.
    pub(crate) values: Vec<f64>,
}

impl Host {
    /// Values as they are, not rounded.
    pub(crate) fn raw(dtype: Dtype, shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "a reference has the wrong size");
        Self { dtype, shape: shape.to_vec(), values }
    }

    /// Values rounded to the dtype.
    pub(crate) fn new(dtype: Dtype, shape: &[usize], values: Vec<f64>) -> Self {
        Self::raw(dtype, shape, values.into_iter().map(|value| round(dtype, value)).collect())
    }

    /// One value for each index, not rounded.
    pub(crate) fn build(dtype: Dtype, shape: &[usize], value: impl FnMut(&[usize]) -> f64) -> Self {
        let mut value = value;
        let values = indices(shape).iter().map(|index| value(index)).collect();
        Self::raw(dtype, shape, values)
    }

    /// Reproducible values without pattern: floats within ±4, integers over the range of a byte, booleans.
    pub(crate) fn sample(dtype: Dtype, shape: &[usize], seed: u64) -> Self {
        let mut random = Random(seed);
        let count = shape.iter().product();
        let value = |random: &mut Random| match dtype {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => random.between(-4.0, 4.0),
            Dtype::I32 | Dtype::I8 => random.between(-128.0, 128.0).floor(),
            Dtype::U32 | Dtype::U8 => random.between(0.0, 256.0).floor(),
            Dtype::Bool => random.between(0.0, 2.0).floor(),
        };
        Self::new(dtype, shape, (0..count).map(|_| value(&mut random)).collect())
    }

    /// Reproducible indices below `extent`.
    pub(crate) fn sample_indices(shape: &[usize], extent: usize, seed: u64) -> Self {
        let mut random = Random(seed);
        let count = shape.iter().product();
        let values = (0..count).map(|_| random.between(0.0, extent as f64).floor()).collect();
        Self::new(Dtype::I32, shape, values)
    }

    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        self.values[flat(&self.shape, index)]
    }

    /// The value at an index of a shape that this one broadcasts to.
    pub(crate) fn spread_at(&self, index: &[usize]) -> f64 {
        let added = index.len() - self.rank();
        let own: Vec<usize> = self
            .shape
            .iter()
            .zip(&index[added..])
            .map(|(&extent, &i)| if extent == 1 { 0 } else { i })
            .collect();
        self.at(&own)
    }

    /// Each value through a function, not rounded.
    pub(crate) fn map(&self, function: impl Fn(f64) -> f64) -> Self {
        Self::raw(self.dtype, &self.shape, self.values.iter().map(|&value| function(value)).collect())
    }

    /// Axis `i` of the result is axis `axes[i]`.
    pub(crate) fn transposed(&self, axes: &[usize]) -> Self {
        let shape: Vec<usize> = axes.iter().map(|&axis| self.shape[axis]).collect();
        Self::build(self.dtype, &shape, |index| {
            let mut own = vec![0; index.len()];
            axes.iter().zip(index).for_each(|(&axis, &i)| own[axis] = i);
            self.at(&own)
        })
    }

    /// The same values in the nearest representation of another float type.
    pub(crate) fn rounded(&self, dtype: Dtype) -> Self {
        Self::new(dtype, &self.shape, self.values.clone())
    }

    /// The box from `start` of extents `shape`.
    pub(crate) fn boxed(&self, start: &[usize], shape: &[usize]) -> Self {
        Self::build(self.dtype, shape, |index| {
            let own: Vec<usize> = index.iter().zip(start).map(|(i, start)| i + start).collect();
            self.at(&own)
        })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &value in &self.values {
            match self.dtype {
                Dtype::F32 => bytes.extend((value as f32).to_le_bytes()),
                Dtype::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
                Dtype::Bf16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
                Dtype::I32 => bytes.extend((value as i32).to_le_bytes()),
                Dtype::U32 => bytes.extend((value as u32).to_le_bytes()),
                Dtype::I8 => bytes.extend((value as i8).to_le_bytes()),
                Dtype::U8 | Dtype::Bool => bytes.push(value as u8),
            }
        }
        bytes
    }

    pub(crate) fn from_bytes(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Self {
        let value = |bytes: &[u8]| match (dtype, bytes) {
            (Dtype::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).into(),
            (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).into(),
            (Dtype::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).into(),
            (Dtype::I32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).into(),
            (Dtype::U32, &[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]).into(),
            (Dtype::I8, &[a]) => i8::from_le_bytes([a]).into(),
            (_, bytes) => bytes[0].into(),
        };
        Self::raw(dtype, shape, bytes.chunks_exact(dtype.size()).map(value).collect())
    }

    pub(crate) fn upload(&self, device: &Device) -> Result<Tensor, Broken> {
        Ok(device.upload(&self.bytes(), self.dtype, &self.shape)?)
    }

    pub(crate) fn download(device: &Device, x: &Tensor) -> Result<Self, Broken> {
        let bytes = device.download(x)?;
        let needed = x.elements() * x.dtype().size();
        if bytes.len() != needed {
            return Err(Broken::new(format!("download of {x:?} gave {} bytes, not {needed}", bytes.len())));
        }
        Ok(Self::from_bytes(x.dtype(), x.shape(), &bytes))
    }

    /// The same tensor as a device may meet it: dense, as a transposed view, and as a box cut out of a larger one
    /// whose other elements would poison a result.
    pub(crate) fn forms(&self, device: &Device) -> Result<Vec<(&'static str, Tensor)>, Broken> {
        let mut forms = vec![("dense", self.upload(device)?)];
        if self.rank() >= 2 {
            let reversed: Vec<usize> = (0..self.rank()).rev().collect();
            let turned = self.transposed(&reversed).upload(device)?;
            forms.push(("transposed", device.transpose(&turned, &reversed)?));
        }
        if self.rank() >= 1 {
            let larger: Vec<usize> = self.shape.iter().map(|extent| extent + 3).collect();
            let poison = if self.dtype.is_float() { f64::NAN } else { 1.0 };
            let around = Self::build(self.dtype, &larger, |index| {
                let inside = index.iter().zip(&self.shape).all(|(&i, &extent)| i >= 1 && i <= extent);
                if !inside {
                    return poison;
                }
                self.at(&index.iter().map(|i| i - 1).collect::<Vec<_>>())
            });
            let ranges: Vec<_> = self.shape.iter().map(|extent| 1..extent + 1).collect();
            forms.push(("sliced", device.slice(&around.upload(device)?, &ranges)?));
        }
        Ok(forms)
    }
}

/// The nearest value of a dtype.
pub(crate) fn round(dtype: Dtype, value: f64) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(value as f32),
        Dtype::F16 => f16::from_f64(value).into(),
        Dtype::Bf16 => bf16::from_f64(value).into(),
        _ => value,
    }
}

/// Every index of a shape, in row-major order.
pub(crate) fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |all, &extent| {
        all.iter()
            .flat_map(|index| {
                (0..extent).map(|i| {
                    let mut longer = index.clone();
                    longer.push(i);
                    longer
                })
            })
            .collect()
    })
}

/// Row-major place of an index.
pub(crate) fn flat(shape: &[usize], index: &[usize]) -> usize {
    assert_eq!(shape.len(), index.len(), "a reference used an index of the wrong rank");
    shape.iter().zip(index).fold(0, |place, (&extent, &i)| {
        assert!(i < extent, "a reference left its shape {shape:?} at {index:?}");
        place * extent + i
    })
}

/// `index` with the entry of one axis replaced.
pub(crate) fn with(index: &[usize], axis: usize, i: usize) -> Vec<usize> {
    let mut other = index.to_vec();
    other[axis] = i;
    other
}

/// `shape` with the extent of one axis replaced.
pub(crate) fn resized(shape: &[usize], axis: usize, extent: usize) -> Vec<usize> {
    with(shape, axis, extent)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        low + (high - low) * (bits >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_run_row_major() {
        assert_eq!(indices(&[2, 2]), [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(indices(&[]), [[0usize; 0]]);
        assert!(indices(&[3, 0]).is_empty());
    }

    #[test]
    fn bytes_come_back_as_the_same_values() {
        for dtype in Dtype::ALL {
            let sample = Host::sample(dtype, &[2, 3], 1);
            assert_eq!(Host::from_bytes(dtype, &[2, 3], &sample.bytes()), sample);
        }
    }
}
