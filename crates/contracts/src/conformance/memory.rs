//! Values, evaluation and bytes: contract points 1, 3 and 4 of the port.

use super::{
    Broken, Outcome, behaviours,
    expect::{holds, same},
    host::Host,
};
use crate::tensor::{
    Binary, Device, Dtype, KvAppend, KvWrite, Precision, Result, Rope, Tensor, Unary, Weight,
};

behaviours!("memory":
    operations_by_value_keep_older_handles,
    operations_by_value_on_last_handles,
    views_keep_their_base,
    an_update_of_a_repeated_view_changes_one_element,
    one_operand_twice,
    evaluation_in_any_order,
    asynchronous_evaluation,
    long_chains_evaluate,
    appends_reuse_the_last_handle,
    an_append_to_a_shared_plane_copies_it_once,
    counters_follow_live_values,
    a_peak_begins_anew,
    trimming_keeps_values,
);

/// An operation that takes `x` by value.
type ByValue<'a> = (&'static str, Box<dyn Fn(Tensor) -> Result<Tensor> + 'a>);

/// Every operation by value, for `x` of `f32 [4, 2, 6]`; values are changed everywhere.
fn by_value(device: &Device) -> std::result::Result<Vec<ByValue<'_>>, Broken> {
    let full = |value: f32| Host::build(Dtype::F32, &[4, 2, 6], |_| value.into()).upload(device);
    let (update, operand) = (full(50.0)?, full(2.0)?);
    let indices = Host::build(Dtype::I32, &[4, 2, 6], |index| index[2] as f64).upload(device)?;
    let positions = device.upload_i32(&[9, 8, 7, 6], &[4])?;
    let rope = Rope { frequencies: device.upload_f32(&[1.0, 0.5], &[2])?, interleaved: false, scale: 2.0 };
    let values = update.clone();
    Ok(vec![
        ("slice_update", Box::new(move |x| device.slice_update(x, &update, &[0, 0, 0]))),
        ("put_along_axis", Box::new(move |x| device.put_along_axis(x, &indices, &values, 2))),
        ("unary", Box::new(|x| device.unary(Unary::Square, x))),
        ("binary", Box::new(move |x| device.binary(Binary::Add, x, &operand))),
        ("rope", Box::new(move |x| device.rope(x, &rope, &positions))),
    ])
}

/// A clone that stays behind keeps its value, whether it was evaluated before or not.
pub fn operations_by_value_keep_older_handles(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[4, 2, 6], 210);
    for (name, operation) in by_value(device)? {
        for evaluated in [false, true] {
            let x = host.upload(device)?;
            if evaluated {
                device.eval(&[&x])?;
            }
            let result = operation(x.clone())?;
            device.eval(&[&result])?;
            same(format!("{name}, evaluated {evaluated}"), device, &x, &host)?;
        }
    }
    let plane = Host::sample(Dtype::F32, &[2, 1, 4, 6], 211);
    let kept = plane.upload(device)?;
    let tokens = Host::build(Dtype::F32, &[1, 1, 6], |_| 9.0).upload(device)?;
    let appended = device.kv_append(kept.clone(), &tokens, &[KvWrite { tokens: 0..1, row: 1, column: 2 }])?;
    device.eval(&[&appended])?;
    same("kv_append", device, &kept, &plane)?;
    let weight = Weight::Dense(Host::sample(Dtype::F32, &[6, 6], 212).upload(device)?);
    let prepared = device.prepare_linear(&[weight])?;
    let residual = Host::sample(Dtype::F32, &[3, 6], 213);
    let kept = residual.upload(device)?;
    device.eval(&[&device.linear_add(kept.clone(), &kept, &prepared, Precision::Exact)?])?;
    same("linear_add", device, &kept, &residual)
}

/// The last handle and a shared one give the same result, in chains too.
pub fn operations_by_value_on_last_handles(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[4, 2, 6], 214);
    for (name, operation) in by_value(device)? {
        let kept = host.upload(device)?;
        let twice = operation(operation(kept.clone())?)?;
        let expected = Host::download(device, &twice)?;
        for evaluated in [false, true] {
            let x = host.upload(device)?;
            if evaluated {
                device.eval(&[&x])?;
            }
            let result = operation(operation(x)?)?;
            same(format!("{name}, evaluated {evaluated}"), device, &result, &expected)?;
        }
        holds(format!("{name} changes something"), expected != host)?;
    }
    Ok(())
}

/// A view shows the value that its base had, whatever happens to the base's last handle.
pub fn views_keep_their_base(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[4, 2, 6], 215);
    for evaluated in [false, true] {
        for (name, operation) in by_value(device)? {
            let x = host.upload(device)?;
            if evaluated {
                device.eval(&[&x])?;
            }
            let views = [
                ("slice", device.slice(&x, &[1..3, 0..2, 0..6])?, host.boxed(&[1, 0, 0], &[2, 2, 6])),
                ("transpose", device.transpose(&x, &[2, 1, 0])?, host.transposed(&[2, 1, 0])),
                (
                    "reshape",
                    device.reshape(&x, &[8, 6])?,
                    Host::raw(Dtype::F32, &[8, 6], host.values.clone()),
                ),
            ];
            let result = operation(x)?;
            device.eval(&[&result])?;
            for (view_name, view, expected) in views {
                same(format!("{view_name} under {name}, evaluated {evaluated}"), device, &view, &expected)?;
            }
        }
    }
    Ok(())
}

/// Repeated elements share memory, but each is a value of its own.
pub fn an_update_of_a_repeated_view_changes_one_element(device: &Device) -> Outcome {
    let row = Host::sample(Dtype::F32, &[1, 6], 216);
    let repeated = device.broadcast(&row.upload(device)?, &[4, 6])?;
    let update = device.upload_f32(&[99.0], &[1, 1])?;
    let updated = device.slice_update(repeated, &update, &[2, 3])?;
    let expected =
        Host::build(Dtype::F32, &[4, 6], |index| if index == [2, 3] { 99.0 } else { row.spread_at(index) });
    same("slice_update", device, &updated, &expected)?;
    let repeated = device.broadcast(&row.upload(device)?, &[4, 6])?;
    let squares = device.unary(Unary::Square, repeated)?;
    let expected = Host::build(Dtype::F32, &[4, 6], |index| row.spread_at(index).powi(2)).rounded(Dtype::F32);
    same("unary", device, &squares, &expected)
}

/// A value may be both operands, also through a view of itself.
pub fn one_operand_twice(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[5, 5], 217);
    let x = host.upload(device)?;
    let doubled = device.binary(Binary::Add, x.clone(), &x)?;
    same("both", device, &doubled, &host.map(|x| 2.0 * x))?;
    let x = host.upload(device)?;
    let turned = device.transpose(&x, &[1, 0])?;
    let sum = device.binary(Binary::Subtract, x, &turned)?;
    let expected = Host::build(Dtype::F32, &[5, 5], |index| host.at(index) - host.at(&[index[1], index[0]]));
    same("its transpose", device, &sum, &expected.rounded(Dtype::F32))?;
    let x = host.upload(device)?;
    let row = device.slice(&x, &[0..1, 0..5])?;
    let shifted = device.slice_update(x, &row, &[4, 0])?;
    let expected = Host::build(Dtype::F32, &[5, 5], |index| host.at(&[index[0] % 4, index[1]]));
    same("its row", device, &shifted, &expected)
}

/// Nothing, one value twice, and an ancestor after its descendant.
pub fn evaluation_in_any_order(device: &Device) -> Outcome {
    device.eval(&[])?;
    let host = Host::sample(Dtype::F32, &[3], 218);
    let x = host.upload(device)?;
    let negative = device.unary(Unary::Negate, x.clone())?;
    let doubled = device.binary(Binary::Add, negative.clone(), &negative)?;
    device.eval(&[&doubled, &doubled, &x])?;
    device.eval(&[&doubled, &negative])?;
    same("x", device, &x, &host)?;
    same("negative", device, &negative, &host.map(|x| -x))?;
    same("doubled", device, &doubled, &host.map(|x| -2.0 * x))
}

/// What was started is there after `synchronize`, and without it.
pub fn asynchronous_evaluation(device: &Device) -> Outcome {
    device.synchronize()?;
    let host = Host::sample(Dtype::F32, &[7], 219);
    for wait in [true, false] {
        let squares = device.unary(Unary::Abs, host.upload(device)?)?;
        device.async_eval(&[&squares])?;
        if wait {
            device.synchronize()?;
        }
        same(format!("wait {wait}"), device, &squares, &host.map(f64::abs))?;
    }
    device.async_eval(&[])?;
    Ok(())
}

/// Thousands of operations between evaluations, and thousands that are never evaluated.
pub fn long_chains_evaluate(device: &Device) -> Outcome {
    let chain = || {
        let one = device.upload_f32(&[1.0], &[1])?;
        (0..2000).try_fold(device.upload_f32(&[0.0], &[1])?, |x, _| device.binary(Binary::Add, x, &one))
    };
    drop(chain()?);
    same("sum", device, &chain()?, &Host::build(Dtype::F32, &[1], |_| 2000.0))
}

/// Bytes of one plane of the tests below: `f32 [2, 4, 256, 32]`.
const PLANE: [usize; 4] = [2, 4, 256, 32];
const PLANE_BYTES: usize = 2 * 4 * 256 * 32 * 4;
/// Bytes that an append of one token writes.
const TOKEN_BYTES: usize = 4 * 32 * 4;
const APPENDS: usize = 100;

/// 100 appends through last handles, alone or with others, each evaluated: no copy of the plane lives beside it, and what is handed out
/// is a small multiple of what is written.
pub fn appends_reuse_the_last_handle(device: &Device) -> Outcome {
    let mut plane = Host::build(Dtype::F32, &PLANE, |_| 0.0).upload(device)?;
    let tokens = Host::build(Dtype::F32, &[1, 4, 32], |index| (index[1] * 32 + index[2]) as f64);
    let uploaded = tokens.upload(device)?;
    // The first append may have to make the plane its own.
    plane = device.kv_append(plane, &uploaded, &[KvWrite { tokens: 0..1, row: 1, column: 0 }])?;
    device.eval(&[&plane, &uploaded])?;
    device.reset_peak();
    let before = device.memory();
    for column in 0..APPENDS {
        let writes = [KvWrite { tokens: 0..1, row: 1, column }];
        if column % 2 == 0 {
            plane = device.kv_append(plane, &uploaded, &writes)?;
        } else {
            let append = KvAppend { plane: &mut plane, tokens: &uploaded, writes: &writes };
            device.kv_append_each(&mut [append])?;
        }
        device.eval(&[&plane])?;
    }
    let after = device.memory();
    let expected = Host::build(Dtype::F32, &PLANE, |index| {
        let written = index[0] == 1 && index[2] < APPENDS;
        if written { tokens.at(&[0, index[1], index[3]]) } else { 0.0 }
    });
    same("the plane", device, &plane, &expected)?;
    let beside = after.peak.saturating_sub(before.active);
    if beside > PLANE_BYTES / 2 {
        return Err(Broken::new(format!("{beside} bytes beside a plane of {PLANE_BYTES}: appends copy it")));
    }
    // The body copies a token three times on its way (cut, turned, reshaped); devices may round sizes up.
    let (handed_out, written) = (after.allocated - before.allocated, APPENDS * TOKEN_BYTES);
    if handed_out > 8 * written as u64 {
        return Err(Broken::new(format!("{handed_out} bytes handed out to append {written}")));
    }
    Ok(())
}

/// With an older handle alive an append copies, and both values are right.
pub fn an_append_to_a_shared_plane_copies_it_once(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &PLANE, 220);
    let mut plane = host.upload(device)?;
    let tokens = Host::build(Dtype::F32, &[1, 4, 32], |_| 7.0).upload(device)?;
    device.eval(&[&plane, &tokens])?;
    let snapshot = plane.clone();
    device.reset_peak();
    let before = device.memory();
    for column in 0..10 {
        plane = device.kv_append(plane, &tokens, &[KvWrite { tokens: 0..1, row: 0, column }])?;
        device.eval(&[&plane])?;
    }
    let beside = device.memory().peak.saturating_sub(before.active);
    same("the older handle", device, &snapshot, &host)?;
    let expected =
        Host::build(
            Dtype::F32,
            &PLANE,
            |index| {
                if index[0] == 0 && index[2] < 10 { 7.0 } else { host.at(index) }
            },
        );
    same("the plane", device, &plane, &expected)?;
    holds(format!("{beside} bytes are one copy"), (PLANE_BYTES..2 * PLANE_BYTES).contains(&beside))
}

/// `active` grows by what becomes alive and falls when it goes; prepared weights count.
pub fn counters_follow_live_values(device: &Device) -> Outcome {
    device.synchronize()?;
    let before = device.memory();
    let bytes = 64 * 1024 * 4;
    let x = device.upload_f32(&vec![1.0; 64 * 1024], &[64, 1024])?;
    device.eval(&[&x])?;
    let with_x = device.memory();
    holds("an upload is alive", with_x.active >= before.active + bytes)?;
    holds("the peak is no lower", with_x.peak >= with_x.active)?;
    let weight = device.prepare_linear(&[Weight::Dense(x)])?;
    let once = device.linear(&device.upload_f32(&[1.0; 1024], &[1, 1024])?, &weight, Precision::Exact)?;
    device.eval(&[&once])?;
    holds("a prepared weight is alive", device.memory().active >= before.active + bytes / 2)?;
    let bytes_of_weight = weight.bytes();
    drop((weight, once));
    device.synchronize()?;
    let after = device.memory();
    holds(format!("{bytes_of_weight} bytes went"), after.active < before.active + bytes / 4)?;
    holds("what was handed out stays counted", after.allocated >= before.allocated)
}

/// `reset_peak` brings the peak down to what is alive, from where it rises again.
pub fn a_peak_begins_anew(device: &Device) -> Outcome {
    let bytes = 64 * 1024 * 4;
    let x = device.upload_f32(&vec![1.0; 64 * 1024], &[64 * 1024])?;
    device.eval(&[&x])?;
    drop(x);
    device.synchronize()?;
    device.reset_peak();
    let quiet = device.memory();
    holds("the peak fell", quiet.peak < quiet.active + bytes / 2)?;
    let x = device.upload_f32(&vec![1.0; 64 * 1024], &[64 * 1024])?;
    device.eval(&[&x])?;
    holds("the peak rose", device.memory().peak >= quiet.active + bytes)
}

/// `trim` gives back only what nobody holds.
pub fn trimming_keeps_values(device: &Device) -> Outcome {
    let host = Host::sample(Dtype::F32, &[100], 221);
    let (x, gone) = (host.upload(device)?, host.upload(device)?);
    device.eval(&[&x, &gone])?;
    drop(gone);
    device.synchronize()?;
    let before = device.memory().cached;
    device.trim();
    holds("the cache shrank", device.memory().cached <= before)?;
    same("x", device, &x, &host)
}
