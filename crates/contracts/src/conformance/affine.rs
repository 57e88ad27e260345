//! Affine codes on the host, by the definition of the format: [`Affine`].

use super::{Broken, host::Host};
use crate::tensor::{Affine, Device, Dtype, Quantized, Weight};

/// Every format that a device takes.
pub(super) fn formats() -> Vec<Affine> {
    [2, 3, 4, 5, 6, 8]
        .into_iter()
        .flat_map(|bits| [32, 64, 128].map(|group| Affine { bits, group }))
        .collect()
}

/// The three planes on the host.
#[derive(Clone, Debug)]
pub(super) struct Codes {
    pub(super) codes: Host,
    pub(super) scales: Host,
    pub(super) biases: Host,
    pub(super) format: Affine,
}

impl Codes {
    /// Random codes for values of a shape, with scales about `1 / 2^bits` so that values stay within about ±1.
    pub(super) fn sample(format: Affine, scales: Dtype, shape: &[usize], seed: u64) -> Self {
        let (rows, width) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let with = |last: usize| rows.iter().copied().chain([last]).collect::<Vec<usize>>();
        // Four random bytes make a word.
        let bytes = Host::sample(Dtype::U8, &with(4 * format.words(width)), seed);
        let codes = Host::from_bytes(Dtype::U32, &with(format.words(width)), &bytes.bytes());
        let step = 2f64.powi(-i32::from(format.bits));
        let scale =
            Host::sample(scales, &with(format.groups(width)), seed + 1).map(|x| (x / 4.0 + 2.0) / 2.0 * step);
        let bias = Host::sample(scales, &with(format.groups(width)), seed + 2).map(|x| -0.5 - x / 8.0);
        Self { codes, scales: scale.rounded(scales), biases: bias.rounded(scales), format }
    }

    /// Codes of the values, as unsigned integers.
    pub(super) fn codes(&self) -> Host {
        let (bits, width) = (usize::from(self.format.bits), self.width());
        let words = self.format.words(width);
        let mut shape = self.scales.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = width;
        }
        let rows: usize = shape[..shape.len() - 1].iter().product();
        let code = |row: usize, i: usize| -> u32 {
            // Each bit has its own word, since a code may cross into the next one.
            let bit = |at: usize| self.codes.values[row * words + at / 32] as u32 >> (at % 32) & 1;
            (0..bits).map(|k| bit(i * bits + k) << k).sum()
        };
        let values = (0..rows).flat_map(|row| (0..width).map(move |i| (row, i)));
        Host::raw(Dtype::U32, &shape, values.map(|(row, i)| code(row, i).into()).collect())
    }

    fn width(&self) -> usize {
        self.scales.shape[self.scales.rank() - 1] * usize::from(self.format.group)
    }

    fn of_group(&self, plane: &Host, index: &[usize]) -> f64 {
        let mut group = index.to_vec();
        if let Some(last) = group.last_mut() {
            *last /= usize::from(self.format.group);
        }
        plane.at(&group)
    }

    /// `scale * code + bias`, exact.
    pub(super) fn values(&self) -> Host {
        let codes = self.codes();
        Host::build(self.scales.dtype, &codes.shape, |index| {
            self.of_group(&self.scales, index) * codes.at(index) + self.of_group(&self.biases, index)
        })
    }

    /// `fma(scale, code, bias)` in f32, rounded to the dtype of the scales.
    pub(super) fn rounded(&self) -> Host {
        let codes = self.codes();
        let value = |index: &[usize]| {
            let (scale, bias) = (self.of_group(&self.scales, index), self.of_group(&self.biases, index));
            f64::from((scale as f32).mul_add(codes.at(index) as f32, bias as f32))
        };
        Host::build(self.scales.dtype, &codes.shape, value).rounded(self.scales.dtype)
    }

    /// `|scale * code| + |bias|`: what a rounding of an intermediate result is relative to.
    pub(super) fn magnitudes(&self) -> Host {
        let codes = self.codes();
        Host::build(self.scales.dtype, &codes.shape, |index| {
            (self.of_group(&self.scales, index) * codes.at(index)).abs()
                + self.of_group(&self.biases, index).abs()
        })
    }

    pub(super) fn upload(&self, device: &Device) -> Result<Quantized, Broken> {
        Ok(Quantized {
            codes: self.codes.upload(device)?,
            scales: self.scales.upload(device)?,
            biases: self.biases.upload(device)?,
            format: self.format,
        })
    }

    /// The planes in each form that [`Host::forms`] gives.
    pub(super) fn forms(&self, device: &Device) -> Result<Vec<(&'static str, Quantized)>, Broken> {
        let planes = self.codes.forms(device)?.into_iter().zip(self.scales.forms(device)?);
        Ok(planes
            .zip(self.biases.forms(device)?)
            .map(|(((form, codes), (_, scales)), (_, biases))| {
                (form, Quantized { codes, scales, biases, format: self.format })
            })
            .collect())
    }

    pub(super) fn weight(&self, device: &Device) -> Result<Weight, Broken> {
        Ok(Weight::Affine(self.upload(device)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_consecutive_bits_of_little_endian_words() {
        // 32 codes of 5 bits: code i is i, packed by hand as a big number.
        let mut words = [0u32; 5];
        for i in 0..32u32 {
            for bit in (0..5).filter(|bit| i >> bit & 1 == 1) {
                let at = i * 5 + bit;
                words[at as usize / 32] |= 1 << (at % 32);
            }
        }
        let plane = |value: f64| Host::raw(Dtype::F32, &[1], vec![value]);
        let planes = Codes {
            codes: Host::raw(Dtype::U32, &[5], words.map(f64::from).to_vec()),
            scales: plane(0.5),
            biases: plane(-1.0),
            format: Affine { bits: 5, group: 32 },
        };
        let expected: Vec<f64> = (0..32).map(|i| f64::from(i) * 0.5 - 1.0).collect();
        assert_eq!(planes.values().values, expected);
    }
}
