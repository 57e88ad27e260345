//! Random weights in the layout of model files, and products on them by plain loops.

use half::{bf16, f16};

use super::super::{Part, Values, Weight};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    F32,
    F16,
    Bf16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Affine { bits: u32, group: usize, number: Number },
    Dense(Number),
}

impl Kind {
    pub(super) fn group(self) -> Option<usize> {
        match self {
            Self::Affine { group, .. } => Some(group),
            Self::Dense(_) => None,
        }
    }
}

/// Numbers in one format, as the weight holds them.
enum Numbers {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

impl Numbers {
    fn new(number: Number, values: &[f32]) -> Self {
        match number {
            Number::F32 => Self::F32(values.to_vec()),
            Number::F16 => Self::F16(values.iter().map(|value| f16::from_f32(*value)).collect()),
            Number::Bf16 => Self::Bf16(values.iter().map(|value| bf16::from_f32(*value)).collect()),
        }
    }

    fn values(&self) -> Values<'_> {
        match self {
            Self::F32(values) => Values::F32(values),
            Self::F16(values) => Values::F16(values),
            Self::Bf16(values) => Values::Bf16(values),
        }
    }

    fn set(&mut self, index: usize, value: f32) {
        match self {
            Self::F32(values) => values[index] = value,
            Self::F16(values) => values[index] = f16::from_f32(value),
            Self::Bf16(values) => values[index] = bf16::from_f32(value),
        }
    }
}

pub(super) struct Matrix {
    pub(super) kind: Kind,
    rows: usize,
    width: usize,
    /// One for each input, unpacked; none for a dense weight.
    codes: Vec<u8>,
    words: Vec<u32>,
    /// Scales, or the dense weights.
    scales: Numbers,
    biases: Numbers,
}

/// A step of splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Numbers of mixed sizes and signs.
pub(super) fn activations(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut value = || {
        let word = next(&mut state);
        let unit = (word >> 40) as f32 / (1 << 23) as f32 - 1.0;
        unit * [0.01, 1.0, 1.0, 20.0][word as usize & 3]
    };
    (0..count).map(|_| value()).collect()
}

impl Matrix {
    pub(super) fn random(kind: Kind, experts: usize, rows: usize, width: usize, seed: u64) -> Self {
        let total = experts * rows * width;
        let mut state = seed ^ 0x55;
        let mut matrix = match kind {
            Kind::Affine { bits, group, number } => {
                let codes =
                    (0..total).map(|_| (next(&mut state) >> 20) as u8 & u8::MAX >> (8 - bits)).collect();
                let scales = activations(total / group, seed ^ 1);
                let biases = activations(total / group, seed ^ 2);
                let (scales, biases) = (Numbers::new(number, &scales), Numbers::new(number, &biases));
                Self { kind, rows, width, codes, words: Vec::new(), scales, biases }
            }
            Kind::Dense(number) => {
                let scales = Numbers::new(number, &activations(total, seed ^ 3));
                let biases = Numbers::new(number, &[]);
                Self { kind, rows, width, codes: Vec::new(), words: Vec::new(), scales, biases }
            }
        };
        matrix.pack();
        matrix
    }

    pub(super) fn fill_codes(&mut self, code: u8) {
        self.codes.fill(code);
        self.pack();
    }

    /// Changes a scale and a bias, or a dense weight.
    pub(super) fn set_factor(&mut self, index: usize, value: f32) {
        self.scales.set(index, value);
        if self.kind.group().is_some() {
            self.biases.set(index + 1, value);
        }
    }

    /// Puts codes into words bit by bit.
    fn pack(&mut self) {
        let Kind::Affine { bits, .. } = self.kind else { return };
        self.words = vec![0; self.codes.len() * bits as usize / 32];
        for (index, code) in self.codes.iter().enumerate() {
            for bit in 0..bits as usize {
                let at = index * bits as usize + bit;
                self.words[at / 32] |= u32::from(code >> bit & 1) << (at % 32);
            }
        }
    }

    pub(super) fn part(&self) -> Part<'_> {
        let weight = match self.kind {
            Kind::Affine { bits, group, .. } => Weight::Affine {
                bits,
                group,
                codes: &self.words,
                scales: self.scales.values(),
                biases: self.biases.values(),
            },
            Kind::Dense(_) => Weight::Dense(self.scales.values()),
        };
        Part { rows: self.rows, width: self.width, weight }
    }

    /// The weights of a row (counted over all experts).
    pub(super) fn row(&self, row: usize) -> Vec<f32> {
        let weight = |k: usize| match self.kind {
            Kind::Affine { group, .. } => {
                let factor = (row * self.width + k) / group;
                let (scale, bias) = (self.scales.values().at(factor), self.biases.values().at(factor));
                scale.mul_add(f32::from(self.codes[row * self.width + k]), bias)
            }
            Kind::Dense(_) => self.scales.values().at(row * self.width + k),
        };
        (0..self.width).map(weight).collect()
    }

    pub(super) fn exact(&self, expert: usize, x: &[f32]) -> Vec<f32> {
        let output = |row: usize| {
            self.row(expert * self.rows + row).iter().zip(x).fold(0.0, |y, (w, x)| x.mul_add(*w, y))
        };
        (0..self.rows).map(output).collect()
    }

    pub(super) fn fast(&self, expert: usize, x: &[f32]) -> Vec<f32> {
        let Kind::Affine { group, .. } = self.kind else { return self.exact(expert, x) };
        let quantised: Vec<(f32, Vec<i32>)> = x.chunks(group).map(quantise).collect();
        let output = |row: usize| {
            let row = expert * self.rows + row;
            let mut y = 0.0f32;
            for (index, (d, codes)) in quantised.iter().enumerate() {
                let start = row * self.width + index * group;
                let weights = &self.codes[start..start + group];
                let dot: i32 = weights.iter().zip(codes).map(|(w, x)| i32::from(*w) * x).sum();
                let sum: i32 = codes.iter().sum();
                y = (dot as f32).mul_add(self.scales.values().at(start / group) * d, y);
                y = self.biases.values().at(start / group).mul_add(d * sum as f32, y);
            }
            y
        };
        (0..self.rows).map(output).collect()
    }
}

fn quantise(group: &[f32]) -> (f32, Vec<i32>) {
    if group.iter().any(|x| !x.is_finite()) {
        return (f32::NAN, vec![0; group.len()]);
    }
    let largest = group.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    if largest < 2.0f32.powi(-115) {
        return (0.0, vec![0; group.len()]);
    }
    let factor = 2032.0 / largest;
    (largest / 2032.0, group.iter().map(|x| (x * factor).round_ties_even() as i32).collect())
}
