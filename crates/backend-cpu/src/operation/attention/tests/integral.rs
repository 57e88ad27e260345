//! Codes as integers against the arithmetic that the port states for `fast`, bit for bit: every format, as many vectors
//! as share loads and as do not, and runs that no block divides.

use super::{block_sum, naive, numbers};
use crate::isa::Isa;
use crate::operation::turbo::transform;
use crate::{Options, open};
use std::num::NonZeroUsize;
use std::ops::Range;
use tandem_contracts::tensor::attention::BLOCK;
use tandem_contracts::tensor::{
    Affine, Attend, Device, Dtype, Plane, Precision, Quantized, RowSpan, Run, Tensor, TurboBook, turbo,
};

/// The largest whole number that stands for an element.
const MOST: f32 = 16256.0;

/// Codes on the host, with what is done with them.
struct Coded {
    codes: Vec<i64>,
    /// Scales; biases or zero points, if there are any.
    factors: [Vec<f32>; 2],
    group: usize,
    width: usize,
    /// Keys that are `(code + b) * a`; else `code * a + b`.
    shifted: bool,
    /// What one of a code counts.
    unit: f32,
    signs: Option<Vec<f32>>,
}

/// Numbers and what one counts.
fn whole(xs: &[f32]) -> (Vec<i64>, f32) {
    let most = xs.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    if most < 2f32.powi(-100) {
        return (vec![0; xs.len()], 0.0);
    }
    let scale = MOST / most;
    let whole = |x: &f32| (x * scale).clamp(-MOST, MOST).round_ties_even() as i64;
    (xs.iter().map(whole).collect(), most * (1.0 / MOST))
}

impl Coded {
    fn factor(&self, factor: usize, position: usize, group: usize) -> f32 {
        self.factors[factor].get(position * self.width / self.group + group).copied().unwrap_or(0.0)
    }

    fn score(&self, query: &[f32], position: usize) -> f32 {
        let (numbers, step) = whole(query);
        let codes = &self.codes[position * self.width..][..self.width];
        let mut score = 0.0f32;
        for (group, (numbers, codes)) in numbers.chunks(self.group).zip(codes.chunks(self.group)).enumerate()
        {
            let dot = numbers.iter().zip(codes).map(|(n, code)| n * code).sum::<i64>() as f32;
            let sum = numbers.iter().sum::<i64>() as f32;
            let [a, b] = [0, 1].map(|factor| self.factor(factor, position, group));
            score = if self.shifted {
                b.mul_add(sum, dot).mul_add(a, score)
            } else {
                b.mul_add(sum, dot.mul_add(a, score))
            };
        }
        score * step
    }

    fn mix(&self, line: &[f32; BLOCK], places: Range<usize>) -> Vec<f32> {
        let first = places.start / BLOCK * BLOCK;
        let mut mixed = vec![0.0; self.width];
        for (group, mixed) in mixed.chunks_mut(self.group).enumerate() {
            let (mut weights, mut biases) = ([0.0; BLOCK], [0.0; BLOCK]);
            for k in places.clone() {
                weights[k - first] = line[k - first] * self.factor(0, k, group);
                biases[k - first] = line[k - first] * self.factor(1, k, group);
            }
            let (numbers, step) = whole(&weights);
            let (unit, bias) = (step * self.unit, block_sum(&biases));
            for (i, mixed) in mixed.iter_mut().enumerate() {
                let code = |k: usize| self.codes[k * self.width + group * self.group + i];
                let dot: i64 = places.clone().map(|k| numbers[k - first] * code(k)).sum();
                *mixed = (dot as f32).mul_add(unit, bias);
            }
        }
        mixed
    }
}

/// Codes of a stream of bits.
fn codes(device: &Device, packed: &Tensor, bits: usize) -> Vec<i64> {
    let bytes = device.download(packed).unwrap();
    let bit = |at: usize| i64::from(bytes[at / 8] >> (at % 8) & 1);
    (0..bytes.len() * 8 / bits).map(|i| (0..bits).map(|k| bit(i * bits + k) << k).sum()).collect()
}

fn floats(device: &Device, x: &Tensor) -> Vec<f32> {
    device.cast(x, Dtype::F32).unwrap().to_vec().unwrap()
}

fn upload(device: &Device, seed: usize, shape: [usize; 4]) -> Tensor {
    device.upload_f32(&numbers(seed, shape.iter().product()), &shape).unwrap()
}

/// Three rows of the planes' heads, of which the middle one is attended to.
const LENGTH: usize = 150;

/// Where the positions lie: in order, but for a hole.
fn runs() -> [Run; 2] {
    [Run { row: 0, column: 0, positions: 0..70 }, Run { row: 0, column: 80, positions: 70..LENGTH - 10 }]
}

/// Codes of the positions among those of all columns.
fn live<T: Copy>(all: &[T], each: usize) -> Vec<T> {
    let column = |position: usize| if position < 70 { position } else { position + 10 };
    (0..LENGTH - 10).flat_map(|position| all[column(position) * each..][..each].to_vec()).collect()
}

fn check(
    (isa, device): (Isa, &Device),
    (keys, values): (Plane<'_>, Plane<'_>),
    (host_keys, host_values): (&Coded, &Coded),
    what: &str,
) {
    let (width, length) = (host_keys.width, LENGTH - 10);
    for (queries, heads, window) in
        [(1, 1, None), (1, 2, Some(100)), (1, 3, None), (3, 3, Some(60)), (9, 4, None)]
    {
        let q = numbers(7, queries * heads * width);
        let uploaded = device.upload_f32(&q, &[queries, heads, width]).unwrap();
        let how = Attend { window, precision: Precision::Fast, ..Attend::causal(0.2) };
        let (position, runs) = (length - queries, runs());
        let span = RowSpan { queries: 0..queries, position, keys, values, runs: &runs };
        let got = device.attend(&uploaded, &[span], &how).unwrap().to_vec::<f32>().unwrap();
        for (vector, got) in got.chunks(host_values.width).enumerate() {
            let q: Vec<f32> = q[vector * width..][..width].iter().map(|x| x * how.scale).collect();
            let place = (position + vector / heads, length, host_values.width);
            let score = |k: usize| host_keys.score(&q, k);
            let mut expected =
                naive(place, &score, &|line, places| host_values.mix(line, places), &how, None);
            if let Some(signs) = &host_values.signs {
                transform(&mut expected);
                expected.iter_mut().zip(signs).for_each(|(x, sign)| *x *= sign);
            }
            assert_eq!(got, expected, "{what}, {isa}: vector {vector} of {queries} queries, {heads} heads");
        }
    }
}

fn devices() -> impl Iterator<Item = (Isa, Device)> {
    Isa::available().map(|isa| {
        let threads = NonZeroUsize::new(2).unwrap();
        (isa, open(Options { threads, isa, ..Options::default() }).unwrap())
    })
}

#[test]
fn affine_codes_have_the_stated_arithmetic() {
    for (isa, device) in devices() {
        for (bits, group, width) in
            [(8, 64, 64), (4, 64, 64), (8, 32, 96), (3, 32, 64), (6, 128, 128), (2, 32, 32)]
        {
            let plane = |seed| {
                let x = upload(&device, seed, [1, 1, LENGTH, width]);
                device.quantize(&device.cast(&x, Dtype::Bf16).unwrap(), Affine { bits, group }).unwrap()
            };
            let host = |plane: &Quantized| {
                let group = usize::from(group);
                let factor = |x: &Tensor| live(&floats(&device, x), width / group);
                Coded {
                    codes: live(&codes(&device, &plane.codes, bits.into()), width),
                    factors: [factor(&plane.scales), factor(&plane.biases)],
                    group,
                    width,
                    shifted: false,
                    unit: 1.0,
                    signs: None,
                }
            };
            let (keys, values) = (plane(2), plane(3));
            let planes = (Plane::Affine(&keys), Plane::Affine(&values));
            let what = format!("{bits} bits in groups of {group}, {width} wide");
            check((isa, &device), planes, (&host(&keys), &host(&values)), &what);
        }
    }
}

#[test]
fn turbo_codes_have_the_stated_arithmetic() {
    for (isa, device) in devices() {
        for (key_bits, bits, width) in [(8u8, 3u8, 64usize), (4, 4, 128), (5, 2, 32)] {
            let keys =
                device.encode_turbo_keys(&upload(&device, 2, [1, 1, LENGTH, width]), key_bits).unwrap();
            let levels: Vec<f32> =
                (0..1 << bits).map(|i| (i as f32 + 0.5) * 5.0 / (1 << bits) as f32 - 2.5).collect();
            let bounds: Vec<f32> = levels.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
            let signs: Vec<f32> = numbers(9, width).iter().map(|x| 1f32.copysign(*x)).collect();
            let book = TurboBook {
                bits,
                levels: device.upload_f32(&levels, &[levels.len()]).unwrap(),
                boundaries: device.upload_f32(&bounds, &[bounds.len()]).unwrap(),
                signs: device.upload_f32(&signs, &[width]).unwrap(),
            };
            let values =
                device.encode_turbo_values(&upload(&device, 3, [1, 1, LENGTH, width]), &book).unwrap();
            let factor = |x: &Tensor| live(&floats(&device, x), width / turbo::GROUP);
            let sign = |code: i64| if key_bits == 8 && code > 127 { code - 256 } else { code };
            let host_keys = Coded {
                codes: live(&codes(&device, &keys.codes, key_bits.into()), width)
                    .into_iter()
                    .map(sign)
                    .collect(),
                factors: [factor(&keys.scales), factor(&keys.zeros)],
                group: turbo::GROUP,
                width,
                shifted: true,
                unit: 1.0,
                signs: None,
            };
            // Levels as whole numbers of the largest one's 127th part.
            let unit = levels[0].abs() / 127.0;
            let level = |code: i64| (levels[code as usize] / unit).round_ties_even() as i64;
            let host_values = Coded {
                codes: live(&codes(&device, &values.codes, bits.into()), width)
                    .into_iter()
                    .map(level)
                    .collect(),
                factors: [factor(&values.scales), Vec::new()],
                group: turbo::GROUP,
                width,
                shifted: false,
                unit,
                signs: Some(signs),
            };
            let planes = (Plane::TurboKeys(&keys), Plane::TurboValues(&values));
            check((isa, &device), planes, (&host_keys, &host_values), &format!("{key_bits} and {bits} bits"));
        }
    }
}

/// Factors of hidden positions leave no trace, those of visible ones that are no numbers show.
#[test]
fn strange_factors_are_seen_where_they_are_visible() {
    for (_, device) in devices() {
        let (length, width) = (70, 64);
        let quantise = |seed| {
            let x = upload(&device, seed, [1, 1, length, width]);
            device.quantize(&x, Affine { bits: 8, group: 64 }).unwrap()
        };
        let (keys, values) = (quantise(2), quantise(3));
        let q = device.upload_f32(&numbers(7, width), &[1, 1, width]).unwrap();
        let attend = |positions: &[usize], factor: f32| {
            let spoilt = |plane: &Quantized| {
                let mut scales = floats(&device, &plane.scales);
                positions.iter().for_each(|position| scales[*position] = factor);
                let scales = device.upload_f32(&scales, &[1, 1, length, 1]).unwrap();
                Quantized { scales, ..plane.clone() }
            };
            let (keys, values) = (spoilt(&keys), spoilt(&values));
            let runs = [Run { row: 0, column: 0, positions: 0..length }];
            let (keys, values) = (Plane::Affine(&keys), Plane::Affine(&values));
            let span = RowSpan { queries: 0..1, position: 65, keys, values, runs: &runs };
            let how = Attend { window: Some(64), precision: Precision::Fast, ..Attend::causal(0.2) };
            device.attend(&q, &[span], &how).unwrap().to_vec::<f32>().unwrap()
        };
        let hidden = [0, 1, 66, 67, 69];
        assert_eq!(attend(&hidden, f32::NAN), attend(&hidden, 1.0));
        assert_eq!(attend(&hidden, f32::INFINITY), attend(&hidden, 1.0));
        assert!(attend(&hidden, f32::NAN).iter().all(|x| x.is_finite()));
        assert!(attend(&[10], f32::NAN).iter().all(|x| x.is_nan()));
    }
}
