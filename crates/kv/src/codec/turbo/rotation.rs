//! The rotation of values: random signs, then the orthonormal Walsh-Hadamard transform.
//!
//! `rotate(x) = H (x * sign)`, `turn_back(y) = (H y) * sign`; H is symmetric and its own inverse. The transform is the
//! butterfly with strides 1, 2, 4 and so on, each step a sum and a difference, and one product with
//! `1 / sqrt(width)` at the end: every element has one arithmetic.

use tandem_contracts::{
    tensor::{Binary, Device, Dtype, Result, Scalar, Tensor},
    threefry::threefry,
};

/// Key words of the generator that draws the signs.
const KEY: [u32; 2] = [0, 42];

/// The rotation of heads of one width, a power of two.
#[derive(Debug)]
pub(super) struct Rotation {
    device: Device,
    width: usize,
    /// `f32 [width]`, each 1 or -1.
    signs: Tensor,
    /// `1 / sqrt(width)`.
    norm: Tensor,
}

impl Rotation {
    pub(super) fn open(device: &Device, width: usize) -> Result<Self> {
        let norm = (1.0 / (width as f64).sqrt()) as f32;
        Ok(Self {
            device: device.clone(),
            width,
            signs: device.upload_f32(&signs(width), &[width])?,
            norm: device.full(Scalar::Float(norm), Dtype::F32, &[])?,
        })
    }

    /// Of `f32 [.., width]`.
    pub(super) fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        self.transform(self.device.binary(Binary::Multiply, x.clone(), &self.signs)?)
    }

    /// Of `f32 [.., width]`; the inverse of [`Rotation::rotate`].
    pub(super) fn turn_back(&self, y: &Tensor) -> Result<Tensor> {
        self.device.binary(Binary::Multiply, self.transform(y.clone())?, &self.signs)
    }

    fn transform(&self, x: Tensor) -> Result<Tensor> {
        let device = &self.device;
        let shape = x.shape().to_vec();
        let heads = x.elements() / self.width;
        let mut x = x;
        let mut stride = 1;
        while stride < self.width {
            let pairs = heads * self.width / (2 * stride);
            x = device.reshape(&x, &[pairs, 2, stride])?;
            let a = device.slice(&x, &[0..pairs, 0..1, 0..stride])?;
            let b = device.slice(&x, &[0..pairs, 1..2, 0..stride])?;
            let sum = device.binary(Binary::Add, a.clone(), &b)?;
            let difference = device.binary(Binary::Subtract, a, &b)?;
            x = device.concat(&[&sum, &difference], 1)?;
            stride *= 2;
        }
        device.binary(Binary::Multiply, device.reshape(&x, &shape)?, &self.norm)
    }
}

/// Signs of the elements of a head: word `i` of the first half and word `i + width / 2` come from one block of the
/// generator, and a word of at least 2^31 is a minus.
fn signs(width: usize) -> Vec<f32> {
    let half = width / 2;
    let mut signs = vec![1.0; width];
    for (i, block) in (0..half as u32).map(|i| threefry(KEY, [i, i + half as u32])).enumerate() {
        for (at, word) in [i, i + half].into_iter().zip(block) {
            // Halfway cases round to even, so the last 128 words below 2^31 reach it too.
            if word as f32 >= 2_147_483_648.0 {
                signs[at] = -1.0;
            }
        }
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_contracts::fake;

    /// Bit `i` is set where element `i` is negative.
    fn words(width: usize) -> Vec<u64> {
        let word = |signs: &[f32]| {
            signs.iter().enumerate().fold(0, |word, (i, &sign)| word | u64::from(sign < 0.0) << i)
        };
        signs(width).chunks(64).map(word).collect()
    }

    /// Where `mx.random.bernoulli(0.5, (width,), key=mx.random.key(42))` of mlx 0.32.2 is false: its generator is the
    /// same, and it too compares words with 2^31.
    #[test]
    fn signs_are_those_of_mlx() {
        assert_eq!(words(64), [0x62de_4802_b769_548e]);
        assert_eq!(words(128), [0x6a9c_0250_6a39_df0d, 0x1460_59de_4a83_37d5]);
        assert_eq!(
            words(256),
            [0x10cd_4a11_62e6_3012, 0xd39c_5ec9_a96d_146f, 0xb227_5d73_3a2f_f29b, 0xfe8b_c357_5730_d96b]
        );
        assert_eq!(
            words(512),
            [
                0x62fb_e30d_7036_4bbd,
                0x5cca_d261_d439_e463,
                0xe9dd_1243_9b47_7c8f,
                0x77ba_caba_542a_de30,
                0x9a4c_1518_1187_3e84,
                0x5d81_721f_3204_a3c5,
                0x8ea7_9bc2_8a82_1452,
                0x296b_9d6d_520e_4bef
            ]
        );
    }

    #[test]
    fn one_element_spreads_over_its_column_of_the_matrix() {
        let device = fake::open();
        let rotation = Rotation::open(&device, 64).unwrap();
        let mut x = vec![0.0; 64];
        x[5] = 8.0;
        let y = rotation.rotate(&device.upload_f32(&x, &[64]).unwrap()).unwrap().to_vec::<f32>().unwrap();
        // Sylvester's matrix: -1 to the number of bits that both indices have; divided by 8, times the sign.
        let sign = signs(64)[5];
        let column: Vec<f32> =
            (0..64_u32).map(|i| if (i & 5).count_ones() % 2 == 0 { sign } else { -sign }).collect();
        assert_eq!(y, column);
    }

    #[test]
    fn turning_back_undoes_rotating() {
        let device = fake::open();
        for width in [64, 256] {
            let rotation = Rotation::open(&device, width).unwrap();
            // Whole numbers and a root that is a power of two: nothing is rounded.
            let x: Vec<f32> = (0..2 * width).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
            let tensor = device.upload_f32(&x, &[2, width]).unwrap();
            let back = rotation.turn_back(&rotation.rotate(&tensor).unwrap()).unwrap();
            assert_eq!(back.to_vec::<f32>().unwrap(), x);
        }
    }
}
