//! TurboQuant: the transform, the encoders and attention over their codes, and whether tokens are finite.

use super::{
    Broken, Outcome, behaviours,
    expect::{holds, near, refused, same, same_bits},
    host::Host,
    span::{Cache, Call, Row, Stored, run, spans},
    tolerance::{roundings, unit},
};
use crate::tensor::{
    Attend, Device, Dtype, ErrorKind, Tensor, TurboBook, TurboKeys, TurboValues, fused, turbo::GROUP,
};

behaviours!("turbo":
    hadamard_is_the_matrix,
    hadamard_is_its_body,
    tokens_are_finite_or_not,
    keys_are_encoded_as_by_the_body,
    values_are_encoded_as_by_the_body,
    attention_over_turbo_codes,
    attention_over_turbo_codes_is_its_body,
    what_does_not_fit_is_refused,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const WIDTH: usize = 64;

/// Row `i` of Sylvester's matrix, orthonormal, with a vector.
fn turned(x: &[f64], i: usize) -> f64 {
    let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    x.iter().enumerate().map(|(j, x)| sign(j) * x).sum::<f64>() / (x.len() as f64).sqrt()
}

/// Against the definition. A butterfly of `log2(width)` steps and a product round that often, relative to the sum of
/// magnitudes.
pub fn hadamard_is_the_matrix(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for shape in [vec![1], vec![3, 2], vec![2, 3, 32], vec![2, 128], vec![0, 64]] {
            let host = Host::sample(dtype, &shape, 300);
            let width = shape[shape.len() - 1];
            let head = |i: usize| &host.values[i / width * width..(i / width + 1) * width];
            let values = (0..host.values.len()).map(|i| turned(head(i), i % width)).collect();
            let expected = Host::raw(dtype, &shape, values);
            let steps = f64::from(width.ilog2() + 2);
            let bound = |i: usize| {
                let size = head(i).iter().map(|x| x.abs()).sum::<f64>() / (width as f64).sqrt();
                steps * unit(Dtype::F32) * size + roundings(dtype, 1.0, size)
            };
            for (form, x) in host.forms(device)? {
                near(
                    format!("{dtype:?} {shape:?}, {form}"),
                    device,
                    &device.hadamard(&x)?,
                    &expected,
                    bound,
                )?;
            }
        }
    }
    Ok(())
}

/// An override has the body's bits.
pub fn hadamard_is_its_body(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for width in [1, 2, 8, 32, 64, 256] {
            let x = Host::sample(dtype, &[2, 3, width], 301).upload(device)?;
            let body = fused::hadamard(device, &x)?;
            same_bits(format!("{dtype:?}, {width} wide"), device, &device.hadamard(&x)?, &body)?;
        }
    }
    Ok(())
}

/// One bad element marks its own token, in whichever operand, and a token that was marked stays so. The largest numbers
/// of a dtype are finite.
pub fn tokens_are_finite_or_not(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let most = match dtype {
            Dtype::F16 => 65504.0,
            Dtype::Bf16 => f64::from(half::bf16::MAX),
            _ => f64::from(f32::MAX),
        };
        for width in [1, 16, 37, 64] {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut host = Host::sample(dtype, &[5, 2, width], 302);
                host.values[..2 * width].fill(most);
                host.values[0] = -most;
                host.values[3 * width + width - 1] = bad;
                host.values[8 * width] = bad;
                let mut other = Host::sample(Dtype::F32, &[5, 3], 306);
                other.values[2 * 3 + 1] = bad;
                let other = other.upload(device)?;
                let before = Host::raw(Dtype::Bool, &[5], vec![1.0, 1.0, 1.0, 0.0, 1.0]);
                for (form, x) in host.forms(device)? {
                    let place = |what: &str| format!("{dtype:?}, {width} wide, {bad}, {form}, {what}");
                    let flags = |flags: [f64; 5]| Host::raw(Dtype::Bool, &[5], flags.to_vec());
                    let alone = flags([1.0, 0.0, 1.0, 1.0, 0.0]);
                    same(place("alone"), device, &device.finite(None, &[&x])?, &alone)?;
                    let both = flags([1.0, 0.0, 0.0, 1.0, 0.0]);
                    same(place("both"), device, &device.finite(None, &[&x, &other])?, &both)?;
                    let all = flags([1.0, 0.0, 0.0, 0.0, 0.0]);
                    let before = before.upload(device)?;
                    same(place("before"), device, &device.finite(Some(before), &[&other, &x])?, &all)?;
                }
            }
        }
    }
    let nothing = Host::sample(Dtype::F32, &[0, 8], 303).upload(device)?;
    let none = Host::raw(Dtype::Bool, &[0], vec![]);
    same("no tokens", device, &device.finite(None, &[&nothing])?, &none)?;
    let empty = Host::sample(Dtype::F32, &[2, 0], 307).upload(device)?;
    let fine = Host::raw(Dtype::Bool, &[2], vec![1.0, 1.0]);
    same("no elements", device, &device.finite(None, &[&empty])?, &fine)
}

/// Heads of groups that are ordinary, shifted, constant, zero, tiny, or too narrow for where they lie.
fn heads(dtype: Dtype, seed: u64) -> Host {
    let sample = Host::sample(dtype, &[3, 2, 2 * WIDTH], seed);
    let values = sample.values.iter().enumerate().map(|(i, x)| match i / GROUP % 8 {
        1 => x + 3.0,
        2 => 0.1,
        3 => 0.0,
        4 => x * 1e-9,
        5 => 100.0 + x * 1e-6,
        6 => x * 500.0,
        _ => *x,
    });
    Host::new(dtype, &sample.shape, values.collect())
}

/// An override has the body's codes, scales and zero points, bit for bit.
pub fn keys_are_encoded_as_by_the_body(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for bits in [2, 4, 5, 8] {
            for (form, x) in heads(dtype, 304).forms(device)? {
                let place = |plane: &str| format!("{dtype:?} {bits} bits, {form}: {plane}");
                let own = device.encode_turbo_keys(&x, bits)?;
                let body = fused::encode_turbo_keys(device, &x, bits)?;
                holds(place("bits"), own.bits == bits)?;
                same_bits(place("codes"), device, &own.codes, &body.codes)?;
                same_bits(place("scales"), device, &own.scales, &body.scales)?;
                same_bits(place("zeros"), device, &own.zeros, &body.zeros)?;
            }
        }
    }
    Ok(())
}

/// An override has the body's codes and scales, bit for bit.
pub fn values_are_encoded_as_by_the_body(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for bits in [2, 3, 4, 5, 8] {
            let book = book(device, bits, 2 * WIDTH)?;
            for (form, x) in heads(dtype, 305).forms(device)? {
                let place = |plane: &str| format!("{dtype:?} {bits} bits, {form}: {plane}");
                let own = device.encode_turbo_values(&x, &book)?;
                let body = fused::encode_turbo_values(device, &x, &book)?;
                same_bits(place("codes"), device, &own.codes, &body.codes)?;
                same_bits(place("scales"), device, &own.scales, &body.scales)?;
            }
        }
    }
    Ok(())
}

/// Levels over about three deviations, with the boundaries midway, and signs without pattern.
pub(super) fn book(device: &Device, bits: u8, width: usize) -> Result<TurboBook, Broken> {
    let count = 1_usize << bits;
    let levels: Vec<f32> = (0..count).map(|i| (i as f32 + 0.5) * 6.0 / count as f32 - 3.0).collect();
    let boundaries: Vec<f32> = levels.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
    let signs: Vec<f32> = (0..width).map(|i| if i * 7 % 11 % 3 == 0 { -1.0 } else { 1.0 }).collect();
    Ok(TurboBook {
        bits,
        levels: device.upload_f32(&levels, &[count])?,
        boundaries: device.upload_f32(&boundaries, &[count - 1])?,
        signs: device.upload_f32(&signs, &[width])?,
    })
}

/// Codes `[.., extent]` of so many bits, as numbers `[.., width]`.
fn unpacked(codes: &Host, bits: u8, width: usize) -> Host {
    let (bits, mut shape) = (usize::from(bits), codes.shape.clone());
    let extent = shape[shape.len() - 1];
    let rows: usize = shape[..shape.len() - 1].iter().product();
    if let Some(last) = shape.last_mut() {
        *last = width;
    }
    let code = |row: usize, i: usize| {
        if bits == 8 {
            return codes.values[row * extent + i];
        }
        let bit = |at: usize| codes.values[row * extent + at / 8] as u32 >> (at % 8) & 1;
        f64::from((0..bits).map(|k| bit(i * bits + k) << k).sum::<u32>())
    };
    let values = (0..rows).flat_map(|row| (0..width).map(move |i| (row, i)));
    Host::raw(Dtype::F32, &shape, values.map(|(row, i)| code(row, i)).collect())
}

/// A factor of a value's group.
fn factor(plane: &Host, i: usize) -> f64 {
    plane.values[i / GROUP]
}

/// `(code + zero) * scale`, exact.
fn keys_of(device: &Device, keys: &TurboKeys) -> Result<Host, Broken> {
    let (scales, zeros) = (Host::download(device, &keys.scales)?, Host::download(device, &keys.zeros)?);
    let width = scales.shape[scales.rank() - 1] * GROUP;
    let codes = unpacked(&Host::download(device, &keys.codes)?, keys.bits, width);
    let value = |(i, code): (usize, &f64)| (code + factor(&zeros, i)) * factor(&scales, i);
    Ok(Host::raw(Dtype::F32, &codes.shape, codes.values.iter().enumerate().map(value).collect()))
}

/// `levels[code] * scale`, exact.
fn rotated(device: &Device, values: &TurboValues) -> Result<Host, Broken> {
    let (scales, levels) =
        (Host::download(device, &values.scales)?, Host::download(device, &values.book.levels)?);
    let width = scales.shape[scales.rank() - 1] * GROUP;
    let codes = unpacked(&Host::download(device, &values.codes)?, values.book.bits, width);
    let value = |(i, code): (usize, &f64)| levels.values[*code as usize] * factor(&scales, i);
    Ok(Host::raw(Dtype::F32, &codes.shape, codes.values.iter().enumerate().map(value).collect()))
}

/// Planes `[2, 2, 9, width]` of keys and values.
pub(super) fn planes(
    device: &Device,
    [key_bits, value_bits]: [u8; 2],
    [columns, width]: [usize; 2],
) -> Result<(TurboKeys, TurboValues), Broken> {
    let shape = [2, 2, columns, width];
    let keys = Host::sample(Dtype::F32, &shape, 306).upload(device)?;
    let values = Host::sample(Dtype::F32, &shape, 307).upload(device)?;
    let book = book(device, value_bits, width)?;
    Ok((device.encode_turbo_keys(&keys, key_bits)?, device.encode_turbo_values(&values, &book)?))
}

/// The bits of keys and values that are tried.
const BITS: [[u8; 2]; 5] = [[8, 3], [4, 4], [2, 2], [5, 5], [8, 8]];

fn rows() -> [Row; 2] {
    [Row::plain(1, 9, 2), Row { queries: 1, position: 7, runs: vec![run(0, 3, 2..5), run(0, 0, 5..8)] }]
}

/// Against the definition: scores with keys as they are stored, a mix of rotated values, turned back once.
pub fn attention_over_turbo_codes(device: &Device) -> Outcome {
    let q = Host::sample(Dtype::F32, &[3, 4, WIDTH], 308);
    let how = Attend { window: Some(6), ..Attend::causal(0.1) };
    for bits in BITS {
        let (keys, values) = planes(device, bits, [9, WIDTH])?;
        let (stored_keys, stored_values) = (keys_of(device, &keys)?, rotated(device, &values)?);
        let signs = Host::download(device, &values.book.signs)?;
        let (rows, cache) = (rows(), [Cache::Plain(stored_keys), Cache::Plain(stored_values)]);
        let call = Call { q: &q, rows: &rows, keys: &cache[0], values: &cache[1] };
        let (mixed, errors) = call.expected(&how, None);
        let head = |i: usize| i / WIDTH * WIDTH..(i / WIDTH + 1) * WIDTH;
        let result = |i: usize| turned(&mixed.values[head(i)], i % WIDTH) * signs.values[i % WIDTH];
        let expected = Host::raw(Dtype::F32, &mixed.shape, (0..mixed.values.len()).map(result).collect());
        // Errors of the mix spread over the head, and each step of the butterfly rounds.
        let steps = f64::from(WIDTH.ilog2() + 2) * unit(Dtype::F32);
        let bound = |i: usize| {
            let error = |j: usize| 2.0 * errors[j] + steps * mixed.values[j].abs();
            head(i).map(error).sum::<f64>() / (WIDTH as f64).sqrt()
        };
        let (keys, values) = (Stored::TurboKeys(keys), Stored::TurboValues(values));
        let got = device.attend(&q.upload(device)?, &spans(&rows, keys.plane(), values.plane()), &how)?;
        near(format!("{bits:?} bits"), device, &got, &expected, bound)?;
    }
    Ok(())
}

/// An override agrees with the provided body, within the bound of both.
pub fn attention_over_turbo_codes_is_its_body(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let q = Host::sample(dtype, &[3, 4, WIDTH], 309).upload(device)?;
        for bits in BITS {
            let (keys, values) = planes(device, bits, [9, WIDTH])?;
            let (keys, values) = (Stored::TurboKeys(keys), Stored::TurboValues(values));
            let (rows, how) = (rows(), Attend::causal(0.1));
            let packed = spans(&rows, keys.plane(), values.plane());
            let body = Host::download(device, &fused::attend(device, &q, &packed, &how)?)?;
            // Values are within 8 or so, so that every weight's relative error counts by at most that.
            let error = 2048.0 * unit(Dtype::F32) * 8.0;
            near(
                format!("{dtype:?} {bits:?} bits"),
                device,
                &device.attend(&q, &packed, &how)?,
                &body,
                |i| error + roundings(dtype, 2.0, body.values[i]),
            )?;
        }
    }
    Ok(())
}

/// Widths and bits that there are not, other dtypes, books for other heads, and values where keys belong.
pub fn what_does_not_fit_is_refused(device: &Device) -> Outcome {
    let x = |dtype, width| Host::sample(dtype, &[2, width], 310).upload(device);
    let (floats, integers) = (x(Dtype::F32, WIDTH)?, x(Dtype::I32, WIDTH)?);
    let book = book(device, 3, WIDTH)?;
    refused("a transform of 48", device.hadamard(&x(Dtype::F32, 48)?), ErrorKind::Shape)?;
    refused("a transform of integers", device.hadamard(&integers), ErrorKind::Dtype)?;
    refused("finite integers", device.finite(None, &[&integers]), ErrorKind::Dtype)?;
    refused("nothing that is finite", device.finite(None, &[]), ErrorKind::Shape)?;
    let more = Host::sample(Dtype::F32, &[3, 2], 308).upload(device)?;
    refused("other tokens", device.finite(None, &[&floats, &more]), ErrorKind::Shape)?;
    refused("flags that are numbers", device.finite(Some(more), &[&floats]), ErrorKind::Dtype)?;
    refused("keys of 3 bits", device.encode_turbo_keys(&floats, 3), ErrorKind::Unsupported)?;
    refused("keys of integers", device.encode_turbo_keys(&integers, 8), ErrorKind::Dtype)?;
    refused("keys of 48", device.encode_turbo_keys(&x(Dtype::F32, 48)?, 8), ErrorKind::Shape)?;
    refused("values of 32", device.encode_turbo_values(&x(Dtype::F32, 32)?, &book), ErrorKind::Shape)?;
    let few = TurboBook { bits: 4, ..book.clone() };
    refused("a book of 3 bits for 4", device.encode_turbo_values(&floats, &few), ErrorKind::Shape)?;
    let (keys, values) = planes(device, [8, 3], [9, WIDTH])?;
    let q = Host::sample(Dtype::F32, &[3, 4, WIDTH], 311).upload(device)?;
    let attend = |keys: &Stored, values: &Stored| {
        device.attend(&q, &spans(&rows(), keys.plane(), values.plane()), &Attend::causal(0.1))
    };
    let narrow = TurboKeys { bits: 4, ..keys.clone() };
    let (keys, values) = (Stored::TurboKeys(keys), Stored::TurboValues(values));
    refused("values as keys", attend(&values, &values), ErrorKind::Unsupported)?;
    refused("keys as values", attend(&keys, &keys), ErrorKind::Unsupported)?;
    refused("signed codes of 4 bits", attend(&Stored::TurboKeys(narrow), &values), ErrorKind::Dtype)
}

/// The same keys, and the same rotated values, as floats.
pub(super) fn floats(
    device: &Device,
    keys: &TurboKeys,
    values: &TurboValues,
) -> Result<(Tensor, Tensor), Broken> {
    Ok((fused::turbo_keys(device, keys)?, fused::turbo_values(device, values)?))
}
