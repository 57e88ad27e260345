//! Batch invariance: the bits of an element depend on its own operands and on nothing else.
//!
//! Devices that do not promise it ([`Traits::batch_invariant`](crate::tensor::Traits::batch_invariant)) pass
//! without being tried.

use super::{
    Broken, Outcome,
    affine::Codes,
    behaviours,
    expect::{same, same_bits},
    host::{Host, with},
    span::{Cache, Row, Stored, run, spans},
};
use crate::tensor::{
    Activation, Affine, Attend, Binary, Device, Dtype, Linear, Reduce, Result, Rope, Tensor, Unary, Weight,
};

behaviours!("invariance":
    products_of_rows,
    gathered_products_of_rows,
    plain_products_of_rows,
    layers_of_rows,
    elements_at_any_place,
    reductions_in_order,
    attention_alone_and_in_company,
    attention_whole_and_in_chunks,
    attention_over_any_storage,
    attention_over_padded_planes,
    attention_over_codes,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Rows of the first axis.
fn rows(device: &Device, x: &Tensor, first: usize, end: usize) -> Result<Tensor> {
    let mut ranges: Vec<_> = x.shape().iter().map(|&extent| 0..extent).collect();
    ranges[0] = first..end;
    device.slice(x, &ranges)
}

/// Dense copy of some rows: what a call of its own would have uploaded.
fn alone(device: &Device, x: &Host, first: usize, end: usize) -> std::result::Result<Tensor, Broken> {
    let (mut start, mut size) = (vec![0; x.rank()], x.shape.clone());
    (start[0], size[0]) = (first, end - first);
    x.boxed(&start, &size).upload(device)
}

/// Parts of a call that are compared with the whole: single rows and spans that fill no block.
const PARTS: [(usize, usize); 6] = [(0, 1), (16, 17), (36, 37), (0, 3), (5, 22), (20, 37)];
const TOKENS: usize = 37;

/// Tries parts of `x` alone against the same rows of the whole.
fn compare(
    device: &Device,
    place: &str,
    x: &Host,
    function: impl Fn(&Tensor, usize, usize) -> std::result::Result<Tensor, Broken>,
) -> Outcome {
    let whole = function(&x.upload(device)?, 0, x.shape[0])?;
    for (first, end) in PARTS {
        let part = function(&alone(device, x, first, end)?, first, end)?;
        let of_whole = rows(device, &whole, first, end)?;
        same_bits(format!("{place}, rows {first}..{end}"), device, &part, &of_whole)?;
    }
    for (form, view) in x.forms(device)? {
        same_bits(format!("{place}, {form}"), device, &function(&view, 0, x.shape[0])?, &whole)?;
    }
    Ok(())
}

fn weights(device: &Device) -> std::result::Result<Vec<(&'static str, Linear)>, Broken> {
    let mut prepared = Vec::new();
    for (name, format) in
        [("4 bits", Affine { bits: 4, group: 32 }), ("6 bits", Affine { bits: 6, group: 64 })]
    {
        let weight = Codes::sample(format, Dtype::F32, &[35, 128], 170).weight(device)?;
        prepared.push((name, device.prepare_linear(&[weight])?));
    }
    for (name, dtype) in [("f32", Dtype::F32), ("bf16", Dtype::Bf16)] {
        let weight = Weight::Dense(Host::sample(dtype, &[35, 128], 171).upload(device)?);
        prepared.push((name, device.prepare_linear(&[weight])?));
    }
    Ok(prepared)
}

/// Prepared weights: a row alone, in a few and in many, in each precision and dtype.
pub fn products_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for (name, weight) in weights(device)? {
        for &precision in device.traits().precisions {
            for dtype in [Dtype::F32, Dtype::Bf16] {
                let x = Host::sample(dtype, &[TOKENS, 128], 172);
                let place = format!("{name} {dtype:?} {precision:?}");
                compare(device, &place, &x, |x, _, _| Ok(device.linear(x, &weight, precision)?))?;
            }
            let x = Host::sample(Dtype::F32, &[TOKENS, 128], 172);
            let scale = Host::sample(Dtype::F32, &[128], 173).upload(device)?;
            compare(device, &format!("norm_linear {name} {precision:?}"), &x, |x, _, _| {
                Ok(device.norm_linear(x, (&scale, 1e-5), &weight, precision)?)
            })?;
        }
    }
    Ok(())
}

/// Experts chosen by a row do not depend on the choices of others.
pub fn gathered_products_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let stack = Codes::sample(Affine { bits: 4, group: 32 }, Dtype::F32, &[5, 9, 64], 174).weight(device)?;
    let experts = device.prepare_linear(&[stack])?;
    let choice = Host::sample_indices(&[TOKENS, 2], 5, 175);
    let x = Host::sample(Dtype::F32, &[TOKENS, 64], 176);
    for &precision in device.traits().precisions {
        compare(device, &format!("{precision:?}"), &x, |x, first, end| {
            let choice = alone(device, &choice, first, end)?;
            Ok(device.gather_linear(x, &experts, &choice, precision)?)
        })?;
    }
    Ok(())
}

/// Plain matrix products, whatever the number of rows.
pub fn plain_products_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let b = Host::sample(dtype, &[65, 19], 177).upload(device)?;
        let x = Host::sample(dtype, &[TOKENS, 65], 178);
        compare(device, &format!("{dtype:?}"), &x, |x, _, _| Ok(device.matmul(x, &b)?))?;
    }
    Ok(())
}

/// Norms, rotary positions, softmax and gated activations.
pub fn layers_of_rows(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let x = Host::sample(dtype, &[TOKENS, 38], 179);
        let [weight, bias] = [180, 181].map(|seed| Host::sample(dtype, &[38], seed).upload(device));
        let (weight, bias) = (weight?, bias?);
        let place = |name: &str| format!("{name} {dtype:?}");
        compare(device, &place("rms_norm"), &x, |x, _, _| Ok(device.rms_norm(x, Some(&weight), 1e-5)?))?;
        compare(device, &place("layer_norm"), &x, |x, _, _| {
            Ok(device.layer_norm(x, Some(&weight), Some(&bias), 1e-5)?)
        })?;
        compare(device, &place("softmax"), &x, |x, _, _| Ok(device.softmax(x, 1)?))?;
        for activation in [Activation::Silu, Activation::GeluTanh, Activation::Gelu] {
            compare(device, &place("gated"), &x, |x, _, _| Ok(device.gated(x, activation)?))?;
        }
        let positions = Host::sample_indices(&[TOKENS], 500, 182);
        let frequencies = device.upload_f32(&[1.0, 0.3, 0.1, 0.03, 0.01], &[5])?;
        let rope = Rope { frequencies, interleaved: false, scale: 1.0 };
        let x = Host::sample(dtype, &[TOKENS, 2, 11], 183);
        compare(device, &place("rope"), &x, |x, first, end| {
            Ok(device.rope(x.clone(), &rope, &alone(device, &positions, first, end)?)?)
        })?;
    }
    Ok(())
}

/// Elementwise functions give one result for one operand, in the body and in the tail of a vector loop.
pub fn elements_at_any_place(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let x = Host::sample(dtype, &[TOKENS], 184).map(|x| x.abs() + 0.1).rounded(dtype);
        for op in Unary::ALL.into_iter().filter(|op| op.takes(dtype)) {
            compare(device, &format!("{op:?} {dtype:?}"), &x, |x, _, _| Ok(device.unary(op, x.clone())?))?;
        }
        let y = Host::sample(dtype, &[TOKENS], 185);
        for op in [Binary::Add, Binary::Multiply, Binary::Divide, Binary::Power] {
            compare(device, &format!("{op:?} {dtype:?}"), &x, |x, first, end| {
                Ok(device.binary(op, x.clone(), &alone(device, &y, first, end)?)?)
            })?;
        }
    }
    Ok(())
}

/// Sums of f32 along each axis are those of a plain loop in ascending order, bit for bit, from any storage.
pub fn reductions_in_order(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let host = Host::sample(Dtype::F32, &[9, 131, 3], 186);
    for axis in 0..3 {
        let extent = host.shape[axis];
        let sum = |index: &[usize]| {
            let values = (0..extent).map(|i| host.at(&with(index, axis, i)) as f32);
            f64::from(values.fold(0.0f32, |sum, x| sum + x))
        };
        let expected = Host::build(Dtype::F32, &with(&host.shape, axis, 1), sum);
        for (form, x) in host.forms(device)? {
            let place = format!("axis {axis}, {form}");
            same(place, device, &device.reduce(Reduce::Sum, &x, axis)?, &expected)?;
        }
    }
    Ok(())
}

const SCALE: f32 = 0.4;

/// Planes of a few rows longer than a block, with queries for the last positions of one of them.
struct Setting {
    q: Host,
    keys: Stored,
    values: Stored,
}

impl Setting {
    const LENGTH: usize = 140;
    const QUERIES: usize = 24;

    fn new(device: &Device, dtype: Dtype) -> std::result::Result<Self, Broken> {
        let shape = [3, 2, Self::LENGTH + 9, 8];
        Ok(Self {
            q: Host::sample(dtype, &[Self::QUERIES, 4, 8], 190),
            keys: Cache::plain(dtype, shape, 191).upload(device)?,
            values: Cache::plain(dtype, shape, 192).upload(device)?,
        })
    }

    /// Row 1 of the planes, whole, with its last positions as queries.
    fn whole(&self, device: &Device, how: &Attend<'_>) -> std::result::Result<Tensor, Broken> {
        let rows = [Row::plain(1, Self::LENGTH, Self::QUERIES)];
        Ok(device.attend(
            &self.q.upload(device)?,
            &spans(&rows, self.keys.plane(), self.values.plane()),
            how,
        )?)
    }
}

fn ways() -> [Attend<'static>; 3] {
    let causal = Attend::causal(SCALE);
    [causal, Attend { window: Some(50), ..causal }, Attend { soft_cap: Some(3.0), ..causal }]
}

/// A row's queries among other rows' queries, before them and after them.
pub fn attention_alone_and_in_company(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let setting = Setting::new(device, dtype)?;
        for how in ways() {
            let whole = setting.whole(device, &how)?;
            let own = Row::plain(1, Setting::LENGTH, Setting::QUERIES);
            let rows_around = [Row::plain(0, 5, 2), own, Row::plain(2, 77, 1)];
            let others = Host::sample(dtype, &[3, 4, 8], 193);
            let q = device.concat(
                &[&alone(device, &others, 0, 2)?, &setting.q.upload(device)?, &alone(device, &others, 2, 3)?],
                0,
            )?;
            let packed = spans(&rows_around, setting.keys.plane(), setting.values.plane());
            let company = rows(device, &device.attend(&q, &packed, &how)?, 2, 2 + Setting::QUERIES)?;
            same_bits(format!("{dtype:?} {how:?}"), device, &company, &whole)?;
        }
    }
    Ok(())
}

/// Chunks of a prompt, down to single tokens, whose later keys are not written yet.
pub fn attention_whole_and_in_chunks(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let setting = Setting::new(device, dtype)?;
        for how in ways() {
            let whole = setting.whole(device, &how)?;
            let first = Setting::LENGTH - Setting::QUERIES;
            for (start, end) in [(0, 1), (0, 13), (13, 24), (7, 8), (23, 24)] {
                let rows_of_chunk = [Row::plain(1, first + end, end - start)];
                let packed = spans(&rows_of_chunk, setting.keys.plane(), setting.values.plane());
                let chunk = device.attend(&alone(device, &setting.q, start, end)?, &packed, &how)?;
                let place = format!("{dtype:?} queries {start}..{end}, {how:?}");
                same_bits(place, device, &chunk, &rows(device, &whole, start, end)?)?;
            }
        }
    }
    Ok(())
}

/// The same keys as one run, as runs cut at every sort of place, as a ring, and as blocks in other plane rows.
pub fn attention_over_any_storage(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let (length, queries) = (Setting::LENGTH, Setting::QUERIES);
    for dtype in FLOATS {
        let shape = [1, 2, length, 8];
        let (keys, values) = (Host::sample(dtype, &shape, 194), Host::sample(dtype, &shape, 195));
        let q = Host::sample(dtype, &[queries, 4, 8], 196).upload(device)?;
        // Position p of the one row lies in this row and column of the other planes.
        let ring = |p: usize| (0, (p + 50) % length);
        let blocks = |p: usize| (8 - p / 16, p % 16);
        let moved = |host: &Host, rows: usize, columns: usize, place: &dyn Fn(usize) -> (usize, usize)| {
            let mut plane = Host::build(dtype, &[rows, 2, columns, 8], |_| 100.0);
            for head in 0..2 {
                for (p, i) in (0..length).flat_map(|p| (0..8).map(move |i| (p, i))) {
                    let (row, column) = place(p);
                    let to = super::host::flat(&plane.shape, &[row, head, column, i]);
                    plane.values[to] = host.at(&[0, head, p, i]);
                }
            }
            plane.upload(device)
        };
        let straight = |p: usize| (0, p);
        let cut = |cuts: &[usize], place: &dyn Fn(usize) -> (usize, usize)| {
            let ends = cuts.iter().copied().chain([length]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            starts.zip(ends).map(|(start, end)| run(place(start).0, place(start).1, start..end)).collect()
        };
        let sixteens: Vec<usize> = (1..9).map(|i| i * 16).collect();
        type Place<'a> = &'a dyn Fn(usize) -> (usize, usize);
        let storages: [(&str, usize, usize, Place<'_>, Vec<usize>); 5] = [
            ("cut at a block", 1, length, &straight, vec![64, 128]),
            ("cut anywhere", 1, length, &straight, vec![1, 63, 65, 100, 139]),
            ("cut everywhere", 1, length, &straight, (1..length).collect()),
            ("a ring", 1, length, &ring, vec![90]),
            ("blocks", 9, 16, &blocks, sixteens),
        ];
        for how in ways() {
            let whole = {
                let rows = [Row { queries, position: length - queries, runs: cut(&[], &straight) }];
                let (keys, values) =
                    (Stored::Plain(keys.upload(device)?), Stored::Plain(values.upload(device)?));
                device.attend(&q, &spans(&rows, keys.plane(), values.plane()), &how)?
            };
            for (name, plane_rows, columns, place, cuts) in &storages {
                let stored = |host: &Host| moved(host, *plane_rows, *columns, *place).map(Stored::Plain);
                let (keys, values) = (stored(&keys)?, stored(&values)?);
                let rows = [Row { queries, position: length - queries, runs: cut(cuts, *place) }];
                let result = device.attend(&q, &spans(&rows, keys.plane(), values.plane()), &how)?;
                same_bits(format!("{dtype:?} {name}, {how:?}"), device, &result, &whole)?;
            }
        }
    }
    Ok(())
}

/// Columns and rows of a plane that no run names do not matter, nor does their number.
pub fn attention_over_padded_planes(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        let shape = [1, 2, 70, 8];
        let q = Host::sample(dtype, &[3, 4, 8], 197).upload(device)?;
        let planes = [Host::sample(dtype, &shape, 198), Host::sample(dtype, &shape, 199)];
        let padded = planes.clone().map(|plane| {
            Host::build(dtype, &[4, 2, 96, 8], |index| {
                let live = index[0] == 2 && (11..81).contains(&index[2]);
                if live { plane.at(&[0, index[1], index[2] - 11, index[3]]) } else { 1000.0 }
            })
        });
        let attend = |[keys, values]: &[Host; 2], row: usize, column: usize| {
            let (keys, values) = (Stored::Plain(keys.upload(device)?), Stored::Plain(values.upload(device)?));
            let rows = [Row { queries: 3, position: 67, runs: vec![run(row, column, 0..70)] }];
            let how = Attend::causal(SCALE);
            Ok::<_, Broken>(device.attend(&q, &spans(&rows, keys.plane(), values.plane()), &how)?)
        };
        same_bits(format!("{dtype:?}"), device, &attend(&padded, 2, 11)?, &attend(&planes, 0, 0)?)?;
    }
    Ok(())
}

/// Codes too: chunks and runs do not change the bits.
pub fn attention_over_codes(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let (shape, format) = ([1, 2, 80, 32], Affine { bits: 4, group: 32 });
    let keys = Cache::affine(format, Dtype::F32, shape, 200).upload(device)?;
    let values = Cache::affine(format, Dtype::F32, shape, 203).upload(device)?;
    let q = Host::sample(Dtype::F32, &[10, 4, 32], 206);
    let how = Attend::causal(0.2);
    let attend = |q: &Tensor, row: Row| {
        Ok::<_, Broken>(device.attend(q, &spans(&[row], keys.plane(), values.plane()), &how)?)
    };
    let whole = attend(&q.upload(device)?, Row::plain(0, 80, 10))?;
    let chunk = attend(&alone(device, &q, 2, 5)?, Row::plain(0, 75, 3))?;
    same_bits("a chunk", device, &chunk, &rows(device, &whole, 2, 5)?)?;
    let runs = vec![run(0, 0, 0..33), run(0, 33, 33..64), run(0, 64, 64..80)];
    let split = attend(&q.upload(device)?, Row { queries: 10, position: 70, runs })?;
    same_bits("runs", device, &split, &whole)
}
