//! Attention: neither company, chunks, storage nor padding change a bit.

use super::{FLOATS, alone, rows};
use crate::{
    conformance::{
        Broken, Outcome,
        affine::{Codes, formats},
        behaviours,
        expect::same_bits,
        host::{Host, flat},
        span::{Cache, Row, Stored, run, spans},
        turbo,
    },
    tensor::{Affine, Attend, Device, Dtype, Quantized, Tensor, fused},
};

behaviours!("invariance":
    attention_alone_and_in_company,
    attention_whole_and_in_chunks,
    attention_over_any_storage,
    attention_over_padded_planes,
    attention_over_codes,
    attention_over_codes_is_that_over_their_values,
    attention_over_turbo_codes_is_that_over_their_values,
);

const SCALE: f32 = 0.4;

/// Where a position lies: row and column of a plane.
type Place<'a> = &'a dyn Fn(usize) -> (usize, usize);

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

fn ways() -> [Attend<'static>; 4] {
    let causal = Attend::causal(SCALE);
    let window = Attend { window: Some(50), ..causal };
    [causal, Attend { keep: 7, ..window }, window, Attend { soft_cap: Some(3.0), ..causal }]
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
        let moved = |host: &Host, rows: usize, columns: usize, place: Place<'_>| {
            let mut plane = Host::build(dtype, &[rows, 2, columns, 8], |_| 100.0);
            for head in 0..2 {
                for (p, i) in (0..length).flat_map(|p| (0..8).map(move |i| (p, i))) {
                    let (row, column) = place(p);
                    let to = flat(&plane.shape, &[row, head, column, i]);
                    plane.values[to] = host.at(&[0, head, p, i]);
                }
            }
            plane.upload(device)
        };
        let straight = |p: usize| (0, p);
        let cut = |cuts: &[usize], place: Place<'_>| {
            let ends = cuts.iter().copied().chain([length]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            starts.zip(ends).map(|(start, end)| run(place(start).0, place(start).1, start..end)).collect()
        };
        let sixteens: Vec<usize> = (1..9).map(|i| i * 16).collect();
        let storages: [(&str, usize, usize, Place<'_>, Vec<usize>); 5] = [
            ("cut at a block", 1, length, &straight, vec![64, 128]),
            ("cut anywhere", 1, length, &straight, vec![1, 63, 65, 100, 139]),
            ("cut everywhere", 1, length, &straight, (1..length).collect()),
            ("a ring", 1, length, &ring, vec![90]),
            ("blocks", 9, 16, &blocks, sixteens),
        ];
        // Storage is the same for narrow floats; one way of seeing is enough for them.
        let count = if dtype == Dtype::F32 { 4 } else { 1 };
        for how in ways().into_iter().take(count) {
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

/// In `exact` codes are read as their values in f32: attention over either has the same bits, for one vector, a few and many, in
/// every format, with factors of every dtype, as keys, as values and as both.
pub fn attention_over_codes_is_that_over_their_values(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for (i, format) in formats().into_iter().enumerate() {
        let (width, dtype) = (usize::from(format.group).max(64), FLOATS[i % 3]);
        let shape = [1, 1, 90, width];
        let (keys, values) =
            (Codes::sample(format, dtype, &shape, 210), Codes::sample(format, dtype, &shape, 213));
        let codes = [Stored::Affine(keys.upload(device)?), Stored::Affine(values.upload(device)?)];
        let floats = [plain(device, &keys)?, plain(device, &values)?];
        for (heads, queries) in [(1, 1), (3, 1), (3, 10)] {
            let q = Host::sample(Dtype::F32, &[queries, heads, width], 216).upload(device)?;
            let runs = vec![run(0, 0, 0..50), run(0, 50, 50..90)];
            let rows = [Row { queries, position: 90 - queries, runs }];
            let attend = |keys: &Stored, values: &Stored| {
                device.attend(&q, &spans(&rows, keys.plane(), values.plane()), &Attend::causal(0.2))
            };
            let expected = attend(&floats[0], &floats[1])?;
            for (keys, values) in [(&codes, &codes), (&codes, &floats), (&floats, &codes)] {
                let place = format!("{format:?} {dtype:?}, {queries} queries of {heads} heads");
                same_bits(place, device, &attend(&keys[0], &values[1])?, &expected)?;
            }
        }
    }
    Ok(())
}

/// In `exact` TurboQuant's keys are read as their values in f32, and its values mixed as the rotated ones, then turned back: the
/// same bits as in three steps, for one vector, a few and many, and in chunks.
pub fn attention_over_turbo_codes_is_that_over_their_values(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for (bits, width) in [([8, 3], 64), ([4, 4], 128), ([2, 2], 64), ([5, 5], 64), ([8, 8], 256)] {
        let (keys, values) = turbo::planes(device, bits, [90, width])?;
        let signs = values.book.signs.clone();
        let (plain_keys, plain_values) = turbo::floats(device, &keys, &values)?;
        let (keys, values) = (Stored::TurboKeys(keys), Stored::TurboValues(values));
        let (plain_keys, plain_values) = (Stored::Plain(plain_keys), Stored::Plain(plain_values));
        for (heads, queries) in [(2, 1), (6, 1), (6, 10)] {
            let host = Host::sample(Dtype::F32, &[queries, heads, width], 217);
            let q = host.upload(device)?;
            let runs = vec![run(1, 0, 0..50), run(1, 50, 50..90)];
            let rows = [Row { queries, position: 90 - queries, runs }];
            let how = Attend::causal(0.1);
            let attend = |keys: &Stored, values: &Stored| {
                device.attend(&q, &spans(&rows, keys.plane(), values.plane()), &how)
            };
            let place = |what: &str| format!("{bits:?} bits, {queries} queries of {heads} heads: {what}");
            let mixed = attend(&plain_keys, &plain_values)?;
            same_bits(place("keys"), device, &attend(&keys, &plain_values)?, &mixed)?;
            let expected = fused::turn_back(device, &mixed, &signs)?;
            let whole = attend(&keys, &values)?;
            same_bits(place("both"), device, &whole, &expected)?;
            let last = [Row::plain(1, 90, 1)];
            let own = alone(device, &host, queries - 1, queries)?;
            let own = device.attend(&own, &spans(&last, keys.plane(), values.plane()), &how)?;
            let of_whole = self::rows(device, &whole, queries - 1, queries)?;
            same_bits(place("the last alone"), device, &own, &of_whole)?;
        }
    }
    Ok(())
}

/// The values of codes in f32.
fn plain(device: &Device, codes: &Codes) -> std::result::Result<Stored, Broken> {
    let Quantized { codes, scales, biases, format } = codes.upload(device)?;
    let (scales, biases) = (device.cast(&scales, Dtype::F32)?, device.cast(&biases, Dtype::F32)?);
    Ok(Stored::Plain(device.dequantize(&Quantized { codes, scales, biases, format })?))
}

/// Codes too, in every precision: chunks and runs do not change the bits.
pub fn attention_over_codes(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let (shape, format) = ([1, 2, 80, 32], Affine { bits: 4, group: 32 });
    let keys = Cache::affine(format, Dtype::F32, shape, 200).upload(device)?;
    let values = Cache::affine(format, Dtype::F32, shape, 203).upload(device)?;
    let q = Host::sample(Dtype::F32, &[10, 4, 32], 206);
    for &precision in device.traits().precisions {
        let how = Attend { precision, ..Attend::causal(0.2) };
        let attend = |q: &Tensor, row: Row| {
            Ok::<_, Broken>(device.attend(q, &spans(&[row], keys.plane(), values.plane()), &how)?)
        };
        let whole = attend(&q.upload(device)?, Row::plain(0, 80, 10))?;
        let chunk = attend(&alone(device, &q, 2, 5)?, Row::plain(0, 75, 3))?;
        same_bits(format!("a chunk, {precision:?}"), device, &chunk, &rows(device, &whole, 2, 5)?)?;
        let runs = vec![run(0, 0, 0..33), run(0, 33, 33..64), run(0, 64, 64..80)];
        let split = attend(&q.upload(device)?, Row { queries: 10, position: 70, runs })?;
        same_bits(format!("runs, {precision:?}"), device, &split, &whole)?;
    }
    Ok(())
}
