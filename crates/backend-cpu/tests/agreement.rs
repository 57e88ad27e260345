//! The same bits from every instruction set and number of threads, and for a row alone as in company.
//!
//! The port's suite holds each device to a reference; this holds them all to each other, on shapes that no
//! tile divides.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::num::NonZeroUsize;
use tandem_backend_cpu::isa::Isa;
use tandem_backend_cpu::{Options, open};
use tandem_contracts::tensor::{
    Activation, Affine, Attend, Binary, Convolution, Device, Dtype, Plane, Precision, Quantized, Recurred,
    Reduce, Result, Rope, RowSpan, Rule, Run, Scan, StateSpan, Tensor, TurboBook, TurboKeys, TurboValues,
    Unary, Weight,
};

/// The portable device on one thread first, which the others are held to.
fn devices() -> Vec<Device> {
    let device = |isa, threads| {
        let threads = NonZeroUsize::new(threads).expect("at least one thread");
        open(Options { threads, isa, ..Options::default() }).expect("the device opens")
    };
    let mut devices = vec![device(Isa::Portable, 1)];
    devices.extend(Isa::available().map(|isa| device(isa, 2)));
    devices.extend([1, 3, 4].map(|threads| device(Isa::detected(), threads)));
    devices
}

/// Runs a computation on every device and compares the bytes; NaN counts as itself.
fn agree(
    devices: &[Device],
    compute: impl Fn(&Device) -> Result<Tensor>,
) -> std::result::Result<(), TestCaseError> {
    let bytes = |device: &Device| compute(device).and_then(|tensor| device.download(&tensor));
    let expected = bytes(&devices[0]).map_err(|error| TestCaseError::fail(error.to_string()))?;
    for (index, device) in devices.iter().enumerate().skip(1) {
        let got = bytes(device).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(got.len(), expected.len());
        let differing = got.iter().zip(&expected).position(|(a, b)| a != b);
        prop_assert!(differing.is_none(), "device {index} differs at byte {differing:?}");
    }
    Ok(())
}

fn run<S: Strategy>(
    cases: u32,
    strategy: S,
    test: impl Fn(S::Value) -> std::result::Result<(), TestCaseError>,
) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(error) = TestRunner::new(config).run(&strategy, test) {
        panic!("{error}");
    }
}

/// Numbers without a pattern, about normal in size, from a seed.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next() + next() + next()).collect()
}

fn tensor(device: &Device, seed: u64, shape: &[usize], dtype: Dtype) -> Result<Tensor> {
    let count = shape.iter().product();
    device.cast(&device.upload_f32(&numbers(seed, count), shape)?, dtype)
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16])
}

#[test]
fn elementwise_operations() {
    let devices = devices();
    let unary = prop::sample::select(Unary::ALL.to_vec()).prop_filter("floats", |op| op.takes(Dtype::F32));
    let binary = prop::sample::select(Binary::ALL.to_vec()).prop_filter("floats", |op| op.takes(Dtype::F32));
    let shape = (1usize..7, prop_oneof![1usize..70, 9000usize..9100]);
    run(48, (unary, binary, shape, dtype(), any::<u64>()), |(unary, binary, (rows, width), dtype, seed)| {
        let positive =
            |device: &Device, seed| device.unary(Unary::Abs, tensor(device, seed, &[rows, width], dtype)?);
        agree(&devices, |device| device.unary(unary, positive(device, seed)?))?;
        agree(&devices, |device| {
            let other = tensor(device, seed ^ 1, &[rows, 1], dtype)?;
            device.binary(binary, positive(device, seed)?, &other)
        })?;
        let activation = [Activation::Silu, Activation::Gelu, Activation::GeluTanh][rows % 3];
        agree(&devices, |device| device.gated(&tensor(device, seed, &[rows, 2 * width], dtype)?, activation))
    });
}

#[test]
fn layers() {
    let devices = devices();
    let shape = (1usize..40, 1usize..600);
    run(32, (shape, dtype(), any::<u64>()), |((rows, width), dtype, seed)| {
        let x = |device: &Device| tensor(device, seed, &[rows, width], dtype);
        let parameter = |device: &Device, seed| tensor(device, seed, &[width], dtype);
        agree(&devices, |device| device.rms_norm(&x(device)?, Some(&parameter(device, 1)?), 1e-5))?;
        agree(&devices, |device| {
            let (weight, bias) = (parameter(device, 1)?, parameter(device, 2)?);
            device.layer_norm(&x(device)?, Some(&weight), Some(&bias), 1e-5)
        })?;
        for axis in 0..2 {
            agree(&devices, |device| device.softmax(&x(device)?, axis))?;
            agree(&devices, |device| device.reduce(Reduce::Sum, &x(device)?, axis))?;
            agree(&devices, |device| device.cumsum(&x(device)?, axis))?;
            agree(&devices, |device| device.argsort(&x(device)?, axis))?;
        }
        agree(&devices, |device| {
            let other = device.transpose(&tensor(device, seed ^ 2, &[37, width], dtype)?, &[1, 0])?;
            device.matmul(&x(device)?, &other)
        })?;
        let taps = 1 + seed as usize % rows.min(4);
        agree(&devices, |device| {
            let x = device.reshape(&x(device)?, &[1, rows, width])?;
            device.conv1d(&x, &tensor(device, seed ^ 3, &[width, taps], dtype)?)
        })
    });
}

/// Products fused with what is before and behind them have the bits of the single operations, on every device.
#[test]
fn branches() {
    let devices = devices();
    let groups = prop::sample::select(vec![32usize, 64]);
    let shape = (1usize..40, 1usize..4, 3usize..90, groups);
    run(24, (shape, any::<u64>()), |((tokens, blocks, outputs, group), seed)| {
        // Of one to three parts, of several formats.
        let (width, parts) = (blocks * group, 1 + seed as usize % 3);
        let weight = |device: &Device| {
            let format = |part: usize| Affine {
                bits: [4, 8][(seed as usize + part) % 2],
                group: if part == 1 { 32 } else { group as u16 },
            };
            let own = |part: usize| outputs * (part + 1) / parts - outputs * part / parts;
            let affine = |part: usize| {
                let plain = tensor(device, seed ^ part as u64, &[own(part), width], Dtype::F32)?;
                Ok(Weight::Affine(device.quantize(&plain, format(part))?))
            };
            device.prepare_linear(&(0..parts).map(affine).collect::<Result<Vec<_>>>()?)
        };
        let compute = |device: &Device, branch: usize, fused: bool| {
            let (weight, fast) = (weight(device)?, Precision::Fast);
            let x =
                tensor(device, seed ^ 1, &[tokens, if branch == 2 { 2 * width } else { width }], Dtype::F32)?;
            let scale = tensor(device, 2, &[width], Dtype::F32)?;
            let residual = tensor(device, 3, &[tokens, outputs], Dtype::F32)?;
            let add =
                |x: &Tensor| device.binary(Binary::Add, residual.clone(), &device.linear(x, &weight, fast)?);
            match (branch, fused) {
                (0, true) => device.norm_linear(&x, (&scale, 1e-5), &weight, fast),
                (0, false) => device.linear(&device.rms_norm(&x, Some(&scale), 1e-5)?, &weight, fast),
                (1, true) => device.linear_add(residual, &x, &weight, fast),
                (1, false) => add(&x),
                (_, true) => device.gated_linear_add(residual, (&x, Activation::Silu), &weight, fast),
                (_, false) => add(&device.gated(&x, Activation::Silu)?),
            }
        };
        for branch in 0..3 {
            let bytes = |device: &Device, fused| {
                let computed = compute(device, branch, fused).and_then(|tensor| device.download(&tensor));
                computed.map_err(|error| TestCaseError::fail(error.to_string()))
            };
            let expected = bytes(&devices[0], false)?;
            for (index, device) in devices.iter().enumerate() {
                prop_assert!(bytes(device, true)? == expected, "branch {branch} on device {index}");
            }
        }
        Ok(())
    });
}

#[test]
fn rotary_positions() {
    let devices = devices();
    let shape = (1usize..20, 1usize..5, 1usize..50, any::<bool>());
    run(24, (shape, dtype(), any::<u64>()), |((tokens, heads, pairs, interleaved), dtype, seed)| {
        agree(&devices, |device| {
            let frequencies = tensor(device, seed ^ 1, &[pairs], Dtype::F32)?;
            let positions: Vec<i32> = (0..tokens).map(|i| (seed % 200_000) as i32 + 7 * i as i32).collect();
            let positions = device.upload_i32(&positions, &[tokens])?;
            let x = tensor(device, seed, &[tokens, heads, 2 * pairs + 3], dtype)?;
            device.rope(x, &Rope { frequencies, interleaved, scale: 0.9 }, &positions)
        })
    });
}

#[test]
fn codes() {
    let devices = devices();
    let shape = (1usize..20, prop::sample::select(vec![64usize, 128, 256]));
    let bits = (prop::sample::select(vec![4u8, 8]), prop::sample::select(vec![2u8, 4, 5, 8]));
    run(16, (shape, bits, dtype(), any::<u64>()), |((heads, width), (bits, key_bits), dtype, seed)| {
        let x = |device: &Device| tensor(device, seed, &[heads, width], dtype);
        let format = Affine { bits, group: 64 };
        for plane in 0..3 {
            agree(&devices, |device| {
                let Quantized { codes, scales, biases, .. } = device.quantize(&x(device)?, format)?;
                Ok([codes, scales, biases][plane].clone())
            })?;
            agree(&devices, |device| {
                let TurboKeys { codes, scales, zeros, .. } =
                    device.encode_turbo_keys(&x(device)?, key_bits)?;
                Ok([codes, scales, zeros][plane].clone())
            })?;
            agree(&devices, |device| {
                let book = book(device, [2, 3, 8][plane], width)?;
                let TurboValues { codes, scales, .. } = device.encode_turbo_values(&x(device)?, &book)?;
                Ok(if seed % 2 == 0 { codes } else { scales })
            })?;
        }
        agree(&devices, |device| device.dequantize(&device.quantize(&x(device)?, format)?))?;
        agree(&devices, |device| device.hadamard(&x(device)?))?;
        agree(&devices, |device| device.finite(None, &[&x(device)?]))
    });
}

/// Levels over three deviations, and signs without a pattern.
fn book(device: &Device, bits: u8, width: usize) -> Result<TurboBook> {
    let count = 1usize << bits;
    let levels: Vec<f32> = (0..count).map(|i| (i as f32 + 0.5) * 6.0 / count as f32 - 3.0).collect();
    let boundaries: Vec<f32> = levels.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
    let signs: Vec<f32> = numbers(7, width).iter().map(|x| 1f32.copysign(*x)).collect();
    Ok(TurboBook {
        bits,
        levels: device.upload_f32(&levels, &[count])?,
        boundaries: device.upload_f32(&boundaries, &[count - 1])?,
        signs: device.upload_f32(&signs, &[width])?,
    })
}

/// One row's attention over codes of every kind, for as many queries and heads as are read in place and as are not.
#[test]
fn attention_over_codes() {
    let devices = devices();
    let shape = (1usize..300, 1usize..4, 1usize..4, prop::sample::select(vec![64usize, 128]));
    let bits = (prop::sample::select(vec![3u8, 4, 6, 8]), prop::sample::select(vec![2u8, 4, 5, 8]));
    let precision = prop::sample::select(vec![Precision::Exact, Precision::Fast]);
    let strategy = (shape, bits, dtype(), precision, any::<u64>());
    run(32, strategy, |((length, shared, group, width), (bits, key_bits), dtype, precision, seed)| {
        let plane = |device: &Device, seed| tensor(device, seed, &[1, shared, length, width], dtype);
        let runs = [Run { row: 0, column: 0, positions: 0..length }];
        let queries = if seed % 2 == 0 { 1 } else { length.min(5) };
        let attend = |device: &Device, keys: Plane<'_>, values: Plane<'_>| {
            let q = tensor(device, seed ^ 3, &[queries, shared * group, width], Dtype::F32)?;
            let span = RowSpan { queries: 0..queries, position: length - queries, keys, values, runs: &runs };
            device.attend(&q, &[span], &Attend { precision, ..Attend::causal(0.1) })
        };
        agree(&devices, |device| {
            let format = Affine { bits, group: 32 };
            let keys = device.quantize(&plane(device, seed ^ 1)?, format)?;
            let values = device.quantize(&plane(device, seed ^ 2)?, format)?;
            attend(device, Plane::Affine(&keys), Plane::Affine(&values))
        })?;
        agree(&devices, |device| {
            let keys = device.encode_turbo_keys(&plane(device, seed ^ 1)?, key_bits)?;
            let book = book(device, [2, 3, 4, 8][length % 4], width)?;
            let values = device.encode_turbo_values(&plane(device, seed ^ 2)?, &book)?;
            attend(device, Plane::TurboKeys(&keys), Plane::TurboValues(&values))
        })
    });
}

/// A packed attention call over rows that own their planes.
#[derive(Clone, Debug)]
struct Call {
    /// Length and queries of each row.
    rows: Vec<(usize, usize)>,
    shared: usize,
    group: usize,
    width: usize,
    value_width: usize,
    dtype: Dtype,
    window: Option<usize>,
    soft_cap: Option<f32>,
    sinks: bool,
    seed: u64,
}

impl Call {
    fn strategy() -> impl Strategy<Value = Self> {
        let row = (1usize..400, 1usize..40).prop_map(|(length, queries)| (length, queries.min(length)));
        let long = (2000usize..2300).prop_map(|length| (length, 1));
        let rows = prop::collection::vec(prop_oneof![4 => row, 1 => long], 1..4);
        let widths = prop::sample::select(vec![(64, 64), (16, 48), (20, 7), (128, 128), (80, 96)]);
        let options = (prop::option::of(1usize..200), prop::option::of(1.0f32..30.0), any::<bool>());
        (rows, 1usize..4, 1usize..6, widths, dtype(), options, any::<u64>()).prop_map(
            |(rows, shared, group, (width, value_width), dtype, (window, soft_cap, sinks), seed)| Self {
                rows,
                shared,
                group,
                width,
                value_width,
                dtype,
                window,
                soft_cap,
                sinks,
                seed,
            },
        )
    }

    fn heads(&self) -> usize {
        self.shared * self.group
    }

    fn how<'a>(&self, sinks: &'a Tensor) -> Attend<'a> {
        Attend {
            window: self.window,
            keep: self.window.map_or(0, |window| self.seed as usize % window),
            soft_cap: self.soft_cap,
            sinks: self.sinks.then_some(sinks),
            ..Attend::causal(0.2)
        }
    }

    fn planes(&self, device: &Device) -> Result<Vec<[Tensor; 2]>> {
        let plane = |row: usize, length, width, seed: u64| {
            let seed = self.seed ^ (row as u64 * 2 + seed);
            tensor(device, seed, &[1, self.shared, length, width], self.dtype)
        };
        let rows = self.rows.iter().enumerate();
        rows.map(|(row, &(length, _))| {
            Ok([plane(row, length, self.width, 10)?, plane(row, length, self.value_width, 11)?])
        })
        .collect()
    }

    fn queries(&self, device: &Device) -> Result<Tensor> {
        let tokens = self.rows.iter().map(|row| row.1).sum();
        tensor(device, self.seed, &[tokens, self.heads(), self.width], Dtype::F32)
    }

    fn sinks(&self, device: &Device) -> Result<Tensor> {
        tensor(device, self.seed ^ 5, &[self.heads()], Dtype::F32)
    }

    /// All rows in one call.
    fn whole(&self, device: &Device) -> Result<Tensor> {
        let (q, planes, sinks) = (self.queries(device)?, self.planes(device)?, self.sinks(device)?);
        let runs: Vec<[Run; 1]> =
            self.rows.iter().map(|row| [Run { row: 0, column: 0, positions: 0..row.0 }]).collect();
        let mut next = 0;
        let mut spans = Vec::new();
        for ((&(length, queries), [keys, values]), runs) in self.rows.iter().zip(&planes).zip(&runs) {
            let (keys, values) = (Plane::Plain(keys), Plane::Plain(values));
            let queries = next..next + queries;
            next = queries.end;
            spans.push(RowSpan { position: length - queries.len(), queries, keys, values, runs });
        }
        device.attend(&q, &spans, &self.how(&sinks))
    }

    /// Each query in a call of its own, its row's positions cut into runs at odd places.
    fn alone(&self, device: &Device) -> Result<Tensor> {
        let (q, planes, sinks) = (self.queries(device)?, self.planes(device)?, self.sinks(device)?);
        let (mut next, mut results) = (0, Vec::new());
        for (&(length, queries), [keys, values]) in self.rows.iter().zip(&planes) {
            for query in 0..queries {
                let position = length - queries + query;
                let own = device.slice(&q, &[next..next + 1, 0..self.heads(), 0..self.width])?;
                next += 1;
                let cuts = [0, length / 3, length / 3 + length / 5, length];
                let runs: Vec<Run> = cuts
                    .windows(2)
                    .filter(|cut| cut[0] < cut[1])
                    .map(|cut| Run { row: 0, column: cut[0], positions: cut[0]..cut[1] })
                    .collect();
                let (keys, values) = (Plane::Plain(keys), Plane::Plain(values));
                let span = RowSpan { queries: 0..1, position, keys, values, runs: &runs };
                results.push(device.attend(&own, &[span], &self.how(&sinks))?);
            }
        }
        device.concat(&results.iter().collect::<Vec<_>>(), 0)
    }
}

#[test]
fn attention() {
    let devices = devices();
    run(24, Call::strategy(), |call| {
        agree(&devices, |device| call.whole(device))?;
        let last = &devices[devices.len() - 1..];
        let both = |device: &Device| {
            Ok::<_, tandem_contracts::tensor::Error>([call.whole(device)?, call.alone(device)?])
        };
        for device in last {
            let [whole, alone] = both(device).map_err(|error| TestCaseError::fail(error.to_string()))?;
            let bits =
                |x: &Tensor| x.to_vec::<f32>().map(|x| x.into_iter().map(f32::to_bits).collect::<Vec<_>>());
            prop_assert_eq!(bits(&whole).ok(), bits(&alone).ok());
        }
        Ok(())
    });
}

/// Outputs and states, one after the other.
fn joined(device: &Device, recurred: Recurred) -> Result<Tensor> {
    let all: Vec<Tensor> = [recurred.outputs]
        .into_iter()
        .chain(recurred.states)
        .map(|x| device.reshape(&device.cast(&x, Dtype::F32)?, &[x.elements()]))
        .collect::<Result<_>>()?;
    device.concat(&all.iter().collect::<Vec<_>>(), 0)
}

/// Rows of so many tokens each, after these states.
fn carried<'a>(counts: &[usize], states: &'a [Tensor]) -> Vec<StateSpan<'a>> {
    let mut first = 0;
    let span = |(count, state): (&usize, &'a Tensor)| {
        first += count;
        StateSpan { tokens: first - count..first, state }
    };
    counts.iter().zip(states).map(span).collect()
}

#[test]
fn layers_that_carry_a_state() {
    let devices = devices();
    let counts = prop::collection::vec(prop_oneof![4 => 0usize..9, 1 => 100usize..140], 1..5);
    let heads =
        (1usize..4, 1usize..4, prop_oneof![1usize..50, Just(128)], prop_oneof![1usize..50, Just(128)]);
    run(64, (counts, heads, 1usize..6, dtype(), any::<u64>()), |(counts, heads, taps, dtype, seed)| {
        let (shared, group, value_width, key_width) = heads;
        let tokens: usize = counts.iter().sum();
        let states = |device: &Device, shape: &[usize], dtype| -> Result<Vec<Tensor>> {
            (0..counts.len() as u64).map(|row| tensor(device, seed ^ (row + 9), shape, dtype)).collect()
        };
        let channels = value_width * group;
        agree(&devices, |device| {
            let (x, weight) = (
                tensor(device, seed, &[tokens, channels], dtype)?,
                tensor(device, seed ^ 1, &[channels, taps], dtype)?,
            );
            let bias = tensor(device, seed ^ 2, &[channels], dtype)?;
            let how = Convolution { weight: &weight, bias: (taps > 2).then_some(&bias), silu: taps % 2 == 0 };
            let tails = states(device, &[taps - 1, channels], dtype)?;
            joined(device, device.convolve(&x, &carried(&counts, &tails), &how)?)
        })?;
        let values = [tokens, shared * group, value_width];
        agree(&devices, |device| {
            // Longer keys would let the state grow without end.
            let small = |seed, shape: &[usize]| {
                let factor = device.cast(&device.upload_f32(&[0.05], &[1])?, dtype)?;
                device.binary(Binary::Multiply, tensor(device, seed, shape, dtype)?, &factor)
            };
            let gate = |seed| device.unary(Unary::Sigmoid, tensor(device, seed, &values[..2], Dtype::F32)?);
            let scan = Scan {
                queries: &small(seed ^ 3, &[tokens, shared, key_width])?,
                keys: &small(seed ^ 4, &[tokens, shared, key_width])?,
                values: &tensor(device, seed ^ 5, &values, dtype)?,
                decay: &gate(seed ^ 6)?,
                rate: &gate(seed ^ 7)?,
                rule: if taps % 2 == 0 { Rule::Delta } else { Rule::Sum },
            };
            let states = states(device, &[values[1], value_width, key_width], Dtype::F32)?;
            joined(device, device.scan(&scan, &carried(&counts, &states))?)
        })
    });
}
