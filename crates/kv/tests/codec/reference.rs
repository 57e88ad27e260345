//! TurboQuant for one head, in plain loops, as its formulas are written.

use crate::sample::GROUP;
use half::{bf16, f16};

const EPSILON: f32 = 1e-8;

/// Fields of an encoded head, before packing.
#[derive(Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) codes: Vec<i32>,
    pub(crate) scales: Vec<f16>,
    pub(crate) zeros: Vec<f16>,
    /// Whether the head could be stored.
    pub(crate) sound: bool,
}

impl Head {
    fn new(x: &[f32]) -> Self {
        let sound = x.iter().all(|x| x.is_finite());
        Self { codes: Vec::new(), scales: Vec::new(), zeros: Vec::new(), sound }
    }

    fn settled(mut self) -> Self {
        self.sound &= self.scales.iter().chain(&self.zeros).all(|stored| stored.is_finite());
        self
    }
}

pub(crate) fn encode_keys(x: &[f32], bits: u8) -> Head {
    let mut head = Head::new(x);
    for group in x.chunks(GROUP) {
        let most = group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = group.iter().copied().fold(f32::INFINITY, f32::min);
        let (low, high, steps) = match bits {
            8 => (-127.0, 127.0, 254.0),
            _ => (0.0, 2_f32.powi(bits.into()) - 1.0, 2_f32.powi(bits.into()) - 1.0),
        };
        let scale = (most - least) / steps;
        let zero = match bits {
            8 => (most + least) / (2.0 * (scale + EPSILON)),
            _ => least / (scale + EPSILON),
        };
        let zero = zero.round_ties_even();
        if f16::from_f32(scale) == f16::ZERO || f16::from_f32(zero).is_infinite() {
            let mean = group.iter().fold(0.0, |sum, x| sum + x) / GROUP as f32;
            head.codes.extend([1; GROUP]);
            head.scales.push(f16::from_f32(mean + 0.0));
            head.zeros.push(f16::ZERO);
            continue;
        }
        for x in group {
            let code = (x / (scale + EPSILON) - zero).round_ties_even();
            head.codes.push(code.clamp(low, high) as i32);
        }
        head.scales.push(f16::from_f32(scale));
        head.zeros.push(f16::from_f32(zero + 0.0));
    }
    head.settled()
}

pub(crate) fn decode_keys(head: &Head) -> Vec<bf16> {
    let value = |(i, &code): (usize, &i32)| {
        let (scale, zero) = (head.scales[i / GROUP].to_f32(), head.zeros[i / GROUP].to_f32());
        bf16::from_f32((code as f32 + zero) * scale)
    };
    head.codes.iter().enumerate().map(value).collect()
}

/// What the values' codec knows besides the head.
#[derive(Debug)]
pub(crate) struct Book {
    /// Ascending.
    pub(crate) levels: Vec<f32>,
    /// 1 or -1 for each element.
    pub(crate) signs: Vec<f32>,
}

impl Book {
    fn boundary(&self, index: usize) -> f32 {
        (self.levels[index] + self.levels[index + 1]) / 2.0
    }
}

pub(crate) fn encode_values(x: &[f32], book: &Book) -> Head {
    let mut head = Head::new(x);
    let signed: Vec<f32> = x.iter().zip(&book.signs).map(|(x, sign)| x * sign).collect();
    for group in hadamard(signed).chunks(GROUP) {
        let mean = group.iter().fold(0.0, |sum, y| sum + y * y) / GROUP as f32;
        let scale = mean.sqrt();
        for y in group {
            let unit = y / (scale + EPSILON);
            let below = (0..book.levels.len() - 1).filter(|&index| book.boundary(index) < unit);
            head.codes.push(below.count() as i32);
        }
        head.scales.push(f16::from_f32(scale));
    }
    head.settled()
}

pub(crate) fn decode_values(head: &Head, book: &Book) -> Vec<bf16> {
    let rotated = head.codes.iter().enumerate();
    let rotated = rotated.map(|(i, &code)| book.levels[code as usize] * head.scales[i / GROUP].to_f32());
    let turned = hadamard(rotated.collect());
    turned.iter().zip(&book.signs).map(|(x, sign)| bf16::from_f32(x * sign)).collect()
}

/// The orthonormal transform by its butterfly, the smallest stride first.
fn hadamard(mut x: Vec<f32>) -> Vec<f32> {
    let width = x.len();
    let mut stride = 1;
    while stride < width {
        for i in (0..width).filter(|i| i / stride % 2 == 0) {
            (x[i], x[i + stride]) = (x[i] + x[i + stride], x[i] - x[i + stride]);
        }
        stride *= 2;
    }
    let norm = (1.0 / (width as f64).sqrt()) as f32;
    x.iter().map(|x| x * norm).collect()
}

/// Codes as they are stored: bytes at 8 bits, else a little-endian bit stream.
pub(crate) fn pack(codes: &[i32], bits: u8) -> Vec<u8> {
    let bits = usize::from(bits);
    let mut bytes = vec![0; codes.len() * bits / 8];
    for (i, code) in codes.iter().enumerate() {
        for bit in 0..bits {
            let at = i * bits + bit;
            bytes[at / 8] |= ((code >> bit & 1) as u8) << (at % 8);
        }
    }
    bytes
}
