//! Appends to planes, and attention over row spans.

use super::{
    Outcome, behaviours,
    expect::{near, same, same_bits},
    golden::Golden,
    host::Host,
    span::{Cache, Call, Row, run, spans},
    tolerance::{roundings, unit},
};
use crate::tensor::{Affine, Attend, Device, Dtype, KvAppend, KvWrite, fused};

behaviours!("attention":
    kv_append_writes_rows_at_their_columns,
    kv_append_casts_to_the_plane,
    kv_append_is_its_body,
    appends_to_planes_together_are_those_to_each,
    causal_attention_of_one_row,
    heads_share_keys,
    values_of_another_width_and_dtype,
    rows_of_mixed_lengths,
    windows_hide_older_positions,
    windows_may_keep_first_positions,
    without_causality_all_is_seen,
    soft_caps_and_sinks,
    runs_in_any_storage,
    affine_planes,
    longer_than_a_block,
    calls_without_queries,
    attention_equals_mlx,
    attend_is_its_body,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];
const SCALE: f32 = 0.4;

fn check(device: &Device, call: &Call<'_>, how: &Attend<'_>, sinks: Option<&Host>, place: &str) -> Outcome {
    let uploaded = sinks.map(|sinks| sinks.upload(device)).transpose()?;
    let how = Attend { sinks: uploaded.as_ref(), ..*how };
    let (expected, bounds) = call.expected(&how, sinks);
    near(place, device, &call.attend(device, &how)?, &expected, |i| bounds[i])
}

fn writes() -> [KvWrite; 4] {
    [
        KvWrite { tokens: 0..1, row: 2, column: 4 },
        KvWrite { tokens: 1..4, row: 0, column: 1 },
        KvWrite { tokens: 4..4, row: 1, column: 5 },
        // Tokens may be left out, and may be written twice.
        KvWrite { tokens: 2..5, row: 1, column: 0 },
    ]
}

/// Each row's tokens at its own columns; everything else as it was. Every float type, dense and strided tokens.
pub fn kv_append_writes_rows_at_their_columns(device: &Device) -> Outcome {
    for dtype in FLOATS {
        let (plane, tokens) = (Host::sample(dtype, &[3, 2, 5, 4], 130), Host::sample(dtype, &[6, 2, 4], 131));
        let expected = Host::build(dtype, &plane.shape, |index| {
            let [row, head, column, i] = index[..] else { panic!("planes have four axes") };
            let write = writes().into_iter().find(|write| {
                write.row == row && (write.column..write.column + write.tokens.len()).contains(&column)
            });
            match write {
                Some(write) => tokens.at(&[write.tokens.start + column - write.column, head, i]),
                None => plane.at(index),
            }
        });
        for (form, tokens) in tokens.forms(device)? {
            let result = device.kv_append(plane.upload(device)?, &tokens, &writes())?;
            same(format!("{dtype:?}, {form}"), device, &result, &expected)?;
        }
        for (form, strided) in plane.forms(device)? {
            let result = device.kv_append(strided, &tokens.upload(device)?, &writes())?;
            same(format!("{dtype:?}, into {form}"), device, &result, &expected)?;
        }
        let untouched = device.kv_append(plane.upload(device)?, &tokens.upload(device)?, &[])?;
        same("no writes", device, &untouched, &plane)?;
    }
    Ok(())
}

/// Tokens of another float type are cast as [`crate::tensor::Backend::cast`] does, wherever they lie.
pub fn kv_append_casts_to_the_plane(device: &Device) -> Outcome {
    for (held, given) in pairs() {
        let (plane, tokens) =
            (Host::sample(held, &[3, 2, 5, 20], 257), Host::sample(given, &[6, 2, 20], 258));
        for (form, tokens) in tokens.forms(device)? {
            let cast = device.cast(&tokens, held)?;
            let expected = device.kv_append(plane.upload(device)?, &cast, &writes())?;
            let result = device.kv_append(plane.upload(device)?, &tokens, &writes())?;
            same_bits(format!("{given:?} into {held:?}, {form}"), device, &result, &expected)?;
        }
    }
    Ok(())
}

/// Every dtype of a plane with every dtype of tokens.
fn pairs() -> impl Iterator<Item = (Dtype, Dtype)> {
    FLOATS.into_iter().flat_map(|held| FLOATS.map(move |given| (held, given)))
}

/// An override leaves the very bytes that the provided body leaves.
pub fn kv_append_is_its_body(device: &Device) -> Outcome {
    for (held, given) in pairs() {
        let plane = Host::sample(held, &[3, 2, 5, 4], 132);
        let tokens = Host::sample(given, &[6, 2, 4], 133).upload(device)?;
        let own = device.kv_append(plane.upload(device)?, &tokens, &writes())?;
        let body = fused::kv_append(device, plane.upload(device)?, &tokens, &writes())?;
        same_bits(format!("{given:?} into {held:?}"), device, &own, &body)?;
    }
    Ok(())
}

/// Planes and tokens of any dtypes in one call, one of them with an older handle, which sees nothing.
pub fn appends_to_planes_together_are_those_to_each(device: &Device) -> Outcome {
    let hosts: Vec<(Host, Host)> = pairs()
        .map(|(held, given)| (Host::sample(held, &[3, 2, 5, 20], 259), Host::sample(given, &[6, 2, 20], 260)))
        .collect();
    let mut operands = Vec::new();
    for (plane, tokens) in &hosts {
        operands.push((plane.upload(device)?, tokens.upload(device)?));
    }
    let (writes, older) = (writes(), operands[0].0.clone());
    let appends = operands.iter_mut().map(|(plane, tokens)| KvAppend { plane, tokens, writes: &writes });
    let mut appends: Vec<_> = appends.collect();
    device.kv_append_each(&mut appends)?;
    for ((plane, _), (result, tokens)) in hosts.iter().zip(&operands) {
        let expected = fused::kv_append(device, plane.upload(device)?, tokens, &writes)?;
        same_bits(format!("{:?} into {:?}", tokens.dtype(), plane.dtype), device, result, &expected)?;
    }
    same("the older handle", device, &older, &hosts[0].0)
}

/// A whole prompt, its tail and a single last token, in every dtype of queries.
pub fn causal_attention_of_one_row(device: &Device) -> Outcome {
    for dtype in FLOATS {
        for queries in [7, 3, 1] {
            let q = Host::sample(dtype, &[queries, 2, 8], 134);
            let (keys, values) =
                (Cache::plain(dtype, [1, 2, 7, 8], 135), Cache::plain(dtype, [1, 2, 7, 8], 136));
            let call = Call { q: &q, rows: &[Row::plain(0, 7, queries)], keys: &keys, values: &values };
            check(device, &call, &Attend::causal(SCALE), None, &format!("{dtype:?} {queries} queries"))?;
        }
    }
    Ok(())
}

/// Query head `h` reads key head `h / (heads / key heads)`: all its own, shared by two, by three, and one for all.
pub fn heads_share_keys(device: &Device) -> Outcome {
    for (heads, shared) in [(4, 4), (4, 2), (6, 2), (5, 1)] {
        let q = Host::sample(Dtype::F32, &[3, heads, 8], 137);
        let shape = [1, shared, 6, 8];
        let (keys, values) = (Cache::plain(Dtype::F32, shape, 138), Cache::plain(Dtype::F32, shape, 139));
        let call = Call { q: &q, rows: &[Row::plain(0, 6, 3)], keys: &keys, values: &values };
        check(device, &call, &Attend::causal(SCALE), None, &format!("{heads} heads on {shared}"))?;
    }
    Ok(())
}

/// Values wider and narrower than keys; planes and queries of different float types.
pub fn values_of_another_width_and_dtype(device: &Device) -> Outcome {
    for (q_dtype, keys, values) in [
        (Dtype::F32, Dtype::F16, Dtype::F16),
        (Dtype::F32, Dtype::Bf16, Dtype::F32),
        (Dtype::F16, Dtype::F32, Dtype::Bf16),
    ] {
        for width in [1, 5, 12] {
            let q = Host::sample(q_dtype, &[4, 2, 8], 140);
            let (keys, values) =
                (Cache::plain(keys, [1, 1, 5, 8], 141), Cache::plain(values, [1, 1, 5, width], 142));
            let call = Call { q: &q, rows: &[Row::plain(0, 5, 4)], keys: &keys, values: &values };
            check(device, &call, &Attend::causal(SCALE), None, &format!("{q_dtype:?} values {width} wide"))?;
        }
    }
    Ok(())
}

/// Five rows in one call: single tokens and spans, short and long, one at its first position, one without queries,
/// in planes with more rows and columns than are live.
fn mixed() -> (Host, Vec<Row>, Cache, Cache) {
    let rows = vec![
        Row::plain(3, 9, 1),
        Row::plain(0, 4, 4),
        Row { queries: 0, position: 0, runs: vec![] },
        Row::plain(5, 1, 1),
        Row::plain(1, 11, 5),
    ];
    let tokens = rows.iter().map(|row| row.queries).sum();
    let q = Host::sample(Dtype::F32, &[tokens, 4, 8], 143);
    let shape = [6, 2, 12, 8];
    (q, rows, Cache::plain(Dtype::F32, shape, 144), Cache::plain(Dtype::F32, shape, 145))
}

/// Rows of a call do not see each other.
pub fn rows_of_mixed_lengths(device: &Device) -> Outcome {
    let (q, rows, keys, values) = mixed();
    let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
    check(device, &call, &Attend::causal(SCALE), None, "five rows")
}

/// Windows of one, a few, and more than there is; with several queries each sees its own.
pub fn windows_hide_older_positions(device: &Device) -> Outcome {
    let (q, rows, keys, values) = mixed();
    let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
    for window in [1, 3, 100] {
        let how = Attend { window: Some(window), ..Attend::causal(SCALE) };
        check(device, &call, &how, None, &format!("window {window}"))?;
    }
    Ok(())
}

/// The row's first positions stay visible beside the last ones: in one block, across several, where the positions
/// between them are stored and where they are not.
pub fn windows_may_keep_first_positions(device: &Device) -> Outcome {
    let (q, rows, keys, values) = mixed();
    let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
    for (window, keep) in [(2, 1), (5, 2), (5, 4), (100, 3)] {
        let how = Attend { window: Some(window), keep, ..Attend::causal(SCALE) };
        check(device, &call, &how, None, &format!("{keep} kept of {window}"))?;
    }
    let shape = [1, 1, 210, 4];
    let (keys, values) = (Cache::plain(Dtype::F32, shape, 163), Cache::plain(Dtype::F32, shape, 164));
    let q = Host::sample(Dtype::F32, &[70, 2, 4], 165);
    let ring = Row { queries: 70, position: 320, runs: vec![run(0, 0, 0..70), run(0, 70, 250..390)] };
    for row in [Row::plain(0, 210, 70), ring] {
        let call = Call { q: &q, rows: &[row], keys: &keys, values: &values };
        for (window, keep) in [(10, 3), (64, 3), (100, 70), (140, 70), (71, 70)] {
            for causal in [true, false] {
                let how = Attend { causal, window: Some(window), keep, ..Attend::causal(SCALE) };
                check(device, &call, &how, None, &format!("{keep} kept of {window}, causal {causal}"))?;
            }
        }
    }
    Ok(())
}

/// Without causality a query sees later positions of its row too; a window still hides older ones.
pub fn without_causality_all_is_seen(device: &Device) -> Outcome {
    let (q, rows, keys, values) = mixed();
    let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
    for window in [None, Some(2)] {
        let how = Attend { causal: false, window, ..Attend::causal(SCALE) };
        check(device, &call, &how, None, &format!("window {window:?}"))?;
    }
    Ok(())
}

/// Caps below and above the scores, sinks below and above them, both, with a window and with a negative scale.
pub fn soft_caps_and_sinks(device: &Device) -> Outcome {
    let (q, rows, keys, values) = mixed();
    let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
    let sinks = Host::new(Dtype::F32, &[4], vec![-3.0, 0.0, 2.5, 30.0]);
    for soft_cap in [None, Some(1.5), Some(50.0)] {
        for sinks in [None, Some(&sinks)] {
            for (window, scale) in [(None, SCALE), (Some(4), -SCALE)] {
                let how = Attend { window, soft_cap, ..Attend::causal(scale) };
                check(device, &call, &how, sinks, &format!("cap {soft_cap:?}, sinks {}", sinks.is_some()))?;
            }
        }
    }
    Ok(())
}

/// Rings, kept prefixes, pieces in several plane rows, pieces out of order in memory, and gaps in the positions.
pub fn runs_in_any_storage(device: &Device) -> Outcome {
    let shape = [4, 2, 10, 8];
    let (keys, values) = (Cache::plain(Dtype::F32, shape, 146), Cache::plain(Dtype::F32, shape, 147));
    let cases = [
        ("a ring", Row { queries: 2, position: 10, runs: vec![run(1, 4, 4..10), run(1, 0, 10..12)] }),
        ("a kept prefix", Row { queries: 1, position: 40, runs: vec![run(0, 0, 0..3), run(0, 3, 36..41)] }),
        (
            "blocks",
            Row { queries: 3, position: 9, runs: vec![run(3, 6, 0..4), run(0, 2, 4..8), run(2, 0, 8..12)] },
        ),
        (
            "queries in two runs",
            Row { queries: 4, position: 2, runs: vec![run(2, 5, 0..4), run(2, 1, 4..6)] },
        ),
        (
            "single columns",
            Row { queries: 1, position: 3, runs: (0..4).map(|i| run(i, 9 - i, i..i + 1)).collect() },
        ),
    ];
    for (name, row) in &cases {
        let q = Host::sample(Dtype::F32, &[row.queries, 4, 8], 148);
        let call = Call { q: &q, rows: std::slice::from_ref(row), keys: &keys, values: &values };
        for window in [None, Some(5)] {
            let how = Attend { window, ..Attend::causal(SCALE) };
            check(device, &call, &how, None, &format!("{name}, window {window:?}"))?;
        }
    }
    let rows: Vec<Row> = cases.iter().map(|(_, row)| row.clone()).collect();
    let q = Host::sample(Dtype::F32, &[11, 4, 8], 149);
    let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
    check(device, &call, &Attend::causal(SCALE), None, "all in one call")
}

/// Codes of several widths as keys, values or both, with scales of each dtype.
pub fn affine_planes(device: &Device) -> Outcome {
    let shape = [2, 2, 8, 32];
    let q = Host::sample(Dtype::F32, &[3, 4, 32], 150);
    let rows =
        [Row::plain(1, 8, 2), Row { queries: 1, position: 6, runs: vec![run(0, 3, 2..5), run(0, 0, 5..7)] }];
    let plain = Cache::plain(Dtype::F32, shape, 151);
    for (bits, dtype) in [(4, Dtype::F32), (8, Dtype::F16), (3, Dtype::Bf16), (6, Dtype::F32)] {
        let codes = |seed| Cache::affine(Affine { bits, group: 32 }, dtype, shape, seed);
        for (keys, values) in
            [(codes(152), codes(155)), (codes(152), plain.clone()), (plain.clone(), codes(155))]
        {
            let call = Call { q: &q, rows: &rows, keys: &keys, values: &values };
            for &precision in device.traits().precisions {
                let how = Attend { precision, ..Attend::causal(SCALE) };
                check(device, &call, &how, None, &format!("{bits} bits, {dtype:?}, {precision:?}"))?;
            }
        }
    }
    Ok(())
}

/// Positions across several blocks, with windows that begin inside one.
pub fn longer_than_a_block(device: &Device) -> Outcome {
    let shape = [1, 1, 150, 4];
    let (keys, values) = (Cache::plain(Dtype::F32, shape, 158), Cache::plain(Dtype::F32, shape, 159));
    let q = Host::sample(Dtype::F32, &[70, 2, 4], 160);
    let call = Call { q: &q, rows: &[Row::plain(0, 150, 70)], keys: &keys, values: &values };
    for window in [None, Some(64), Some(65), Some(100)] {
        let how = Attend { window, ..Attend::causal(SCALE) };
        check(device, &call, &how, None, &format!("window {window:?}"))?;
    }
    Ok(())
}

/// No rows, and only rows without queries, give nothing.
pub fn calls_without_queries(device: &Device) -> Outcome {
    let q = Host::raw(Dtype::F32, &[0, 2, 8], vec![]).upload(device)?;
    let plane = Host::sample(Dtype::F32, &[1, 2, 4, 5], 161).upload(device)?;
    let keys = Host::sample(Dtype::F32, &[1, 2, 4, 8], 162).upload(device)?;
    let nothing = device.attend(&q, &[], &Attend::causal(SCALE))?;
    same("no rows", device, &nothing, &Host::raw(Dtype::F32, &[0, 2, 8], vec![]))?;
    let rows = [Row { queries: 0, position: 3, runs: vec![run(0, 0, 0..3)] }];
    let (keys, values) = (crate::tensor::Plane::Plain(&keys), crate::tensor::Plane::Plain(&plane));
    let nothing = device.attend(&q, &spans(&rows, keys, values), &Attend::causal(SCALE))?;
    same("an idle row", device, &nothing, &Host::raw(Dtype::F32, &[0, 2, 5], vec![]))
}

/// MLX's scaled-dot-product attention, causal and with sinks: 4 heads on 2, the last 3 of 7 positions.
pub fn attention_equals_mlx(device: &Device) -> Outcome {
    let get = |name: &str| Golden::LAYERS.get(&format!("attention.{name}"));
    let (q, keys, values) = (get("q")?, Cache::Plain(get("keys")?), Cache::Plain(get("values")?));
    let sinks = get("sinks")?;
    let call = Call { q: &q, rows: &[Row::plain(0, 7, 3)], keys: &keys, values: &values };
    for (name, sinks) in [("causal", None), ("sunk", Some(&sinks))] {
        let uploaded = sinks.map(|sinks| sinks.upload(device)).transpose()?;
        let how = Attend { sinks: uploaded.as_ref(), ..Attend::causal(0.35) };
        let (_, bounds) = call.expected(&how, sinks);
        // Twice: MLX errs as well.
        near(name, device, &call.attend(device, &how)?, &get(name)?, |i| 2.0 * bounds[i])?;
    }
    Ok(())
}

/// An override agrees with the provided body. Its sums may be cut into blocks, so it is held to the bound of both
/// and not to the bits.
pub fn attend_is_its_body(device: &Device) -> Outcome {
    let (q, rows, keys, values) = mixed();
    let sinks = device.upload_f32(&[-1.0, 0.0, 1.0, 2.0], &[4])?;
    let (stored_keys, stored_values) = (keys.upload(device)?, values.upload(device)?);
    let how = Attend { window: Some(6), soft_cap: Some(4.0), sinks: Some(&sinks), ..Attend::causal(SCALE) };
    let uploaded = q.upload(device)?;
    let packed = spans(&rows, stored_keys.plane(), stored_values.plane());
    let own = device.attend(&uploaded, &packed, &how)?;
    let body = Host::download(device, &fused::attend(device, &uploaded, &packed, &how)?)?;
    // Values are within 4, so that every weight's relative error counts by at most that.
    let error = 256.0 * unit(Dtype::F32) * 4.0;
    near("body", device, &own, &body, |i| error + roundings(Dtype::F32, 2.0, body.values[i]))
}
