//! Layers that carry a state: held to their definitions, and overrides to the bodies.

use super::{
    Broken, Outcome, behaviours,
    expect::{near, same},
    golden::Golden,
    host::Host,
    state::{Expected, Heads, Linear, Short, spans, upload},
    tolerance::unit,
};
use crate::tensor::{Convolution, Device, Dtype, Recurred, Rule, Scan, fused};

behaviours!("recurrence":
    convolution_carries_its_tail,
    convolution_is_its_body,
    scan_follows_its_rule,
    scan_is_its_body,
    scan_by_hand,
    convolution_equals_mlx,
    scans_equal_mlx,
    given_states_stay,
);

const FLOATS: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

/// Rows of several tokens, of one, and of none; channels that fill no vector.
const COUNTS: [&[usize]; 4] = [&[3, 1, 0, 5], &[1, 1], &[9], &[]];

const HEADS: [Heads; 3] = [
    Heads { shared: 1, heads: 1, value_width: 3, key_width: 5 },
    Heads { shared: 2, heads: 6, value_width: 18, key_width: 32 },
    Heads { shared: 2, heads: 2, value_width: 16, key_width: 19 },
];

fn shorts(dtype: Dtype) -> impl Iterator<Item = Short> {
    COUNTS.into_iter().flat_map(move |counts| {
        [([5, 4], false, false), ([21, 3], true, true), ([16, 1], true, false), ([3, 2], false, true)].map(
            |(extents, bias, silu)| {
                let bias = bias.then(|| Host::sample(dtype, &extents[..1], 302));
                Short { bias, silu, ..Short::sample(dtype, counts, extents) }
            },
        )
    })
}

fn linears(dtype: Dtype) -> impl Iterator<Item = Linear> {
    COUNTS.into_iter().flat_map(move |counts| {
        let of = move |rule| HEADS.map(|heads| Linear::sample(dtype, counts, heads, rule));
        [Rule::Delta, Rule::Sum].into_iter().flat_map(of)
    })
}

fn hold(device: &Device, place: &str, got: &Recurred, expected: &Expected, factor: f64) -> Outcome {
    let (outputs, bounds) = &expected.outputs;
    near(format!("{place}, outputs"), device, &got.outputs, outputs, |i| factor * bounds[i])?;
    if got.states.len() != expected.states.len() {
        return Err(Broken::new(format!("{place}: gave states: {}", got.states.len())));
    }
    for (row, (got, (state, bounds))) in got.states.iter().zip(&expected.states).enumerate() {
        near(format!("{place}, state of row {row}"), device, got, state, |i| factor * bounds[i])?;
    }
    Ok(())
}

/// What a body gave, with the bounds of its definition.
fn of_body(device: &Device, body: &Recurred, expected: Expected) -> Result<Expected, Broken> {
    let download = |x| Host::download(device, x);
    let states = body.states.iter().zip(expected.states);
    Ok(Expected {
        outputs: (download(&body.outputs)?, expected.outputs.1),
        states: states
            .map(|(state, (_, bounds))| Ok((download(state)?, bounds)))
            .collect::<Result<Vec<_>, Broken>>()?,
    })
}

/// Rows of any number of tokens after tails of their own, every number of taps, with and without bias and SiLU.
pub fn convolution_carries_its_tail(device: &Device) -> Outcome {
    for short in FLOATS.into_iter().flat_map(shorts) {
        let place = format!("{:?} {:?} {:?}", short.x.dtype, short.counts, short.weight.shape);
        let got = short.with(device, |x, rows, how| device.convolve(x, rows, how))?;
        hold(device, &place, &got, &short.expected(), 1.0)?;
    }
    Ok(())
}

/// An override of `convolve` and its body agree.
pub fn convolution_is_its_body(device: &Device) -> Outcome {
    for short in FLOATS.into_iter().flat_map(shorts) {
        let place = format!("{:?} {:?} {:?}", short.x.dtype, short.counts, short.weight.shape);
        let own = short.with(device, |x, rows, how| device.convolve(x, rows, how))?;
        let body = short.with(device, |x, rows, how| fused::convolve(device, x, rows, how))?;
        hold(device, &place, &own, &of_body(device, &body, short.expected())?, 2.0)?;
    }
    Ok(())
}

/// Both rules, value heads that share key heads, widths that fill no vector, rows of any number of tokens.
pub fn scan_follows_its_rule(device: &Device) -> Outcome {
    for linear in FLOATS.into_iter().flat_map(linears) {
        let place = format!("{:?} {:?} {:?}", linear.rule, linear.counts, linear.values);
        let got = linear.with(device, |how, rows| device.scan(how, rows))?;
        hold(device, &place, &got, &linear.expected(), 1.0)?;
    }
    Ok(())
}

/// An override of `scan` and its body agree.
pub fn scan_is_its_body(device: &Device) -> Outcome {
    for linear in FLOATS.into_iter().flat_map(linears) {
        let place = format!("{:?} {:?} {:?}", linear.rule, linear.counts, linear.values.shape);
        let own = linear.with(device, |how, rows| device.scan(how, rows))?;
        let body = linear.with(device, |how, rows| fused::scan(device, how, rows))?;
        hold(device, &place, &own, &of_body(device, &body, linear.expected())?, 2.0)?;
    }
    Ok(())
}

/// One head, a value of 1 and keys of 2, two tokens: small enough to be followed by hand, and exact.
pub fn scan_by_hand(device: &Device) -> Outcome {
    let upload = |values: &[f32], shape: &[usize]| device.upload_f32(values, shape);
    let queries = upload(&[1.0, 0.0, 1.0, 1.0], &[2, 1, 2])?;
    let keys = upload(&[1.0, 0.0, 0.0, 1.0], &[2, 1, 2])?;
    let values = upload(&[6.0, 5.0], &[2, 1, 1])?;
    let (decay, rate) = (upload(&[0.5, 0.25], &[2, 1])?, upload(&[0.5, 1.0], &[2, 1])?);
    let state = [upload(&[4.0, 8.0], &[1, 1, 2])?];
    // Delta: [2, 4] knows 2 of key 0, so (6 - 2) / 2 is added: [4, 4]; then [1, 1] knows 1, and 4 is added: [1, 5].
    // Sum: [2, 4] and 3: [5, 4]; then [1.25, 1] and 5: [1.25, 6].
    for (rule, outputs, left) in
        [(Rule::Delta, [4.0, 6.0], [1.0, 5.0]), (Rule::Sum, [5.0, 7.25], [1.25, 6.0])]
    {
        let how = Scan { queries: &queries, keys: &keys, values: &values, decay: &decay, rate: &rate, rule };
        let got = device.scan(&how, &spans(&[2], &state))?;
        let expected = Host::new(Dtype::F32, &[2, 1, 1], outputs.to_vec());
        same(format!("{rule:?}, outputs"), device, &got.outputs, &expected)?;
        let expected = Host::new(Dtype::F32, &[1, 1, 2], left.to_vec());
        same(format!("{rule:?}, state"), device, &got.states[0], &expected)?;
    }
    Ok(())
}

/// The short convolution of mlx-lm's models.
pub fn convolution_equals_mlx(device: &Device) -> Outcome {
    let get = |name: &str| Golden::RECURRENCE.get(&format!("convolution.{name}"));
    let (x, weight, bias, tails) = (get("x")?, get("weight")?, Some(get("bias")?), vec![get("tail")?]);
    let short = Short { counts: vec![5], x, weight, bias, silu: true, tails };
    let Expected { outputs: (_, bounds), .. } = short.expected();
    let got = short.with(device, |x, rows, how| device.convolve(x, rows, how))?;
    // Twice: MLX errs as well.
    near("outputs", device, &got.outputs, &get("y")?, |i| 2.0 * bounds[i])?;
    same("the tail", device, &got.states[0], &get("left")?)
}

/// The gated delta rule of mlx-lm, and its state space, which it computes as attention over the chunk.
pub fn scans_equal_mlx(device: &Device) -> Outcome {
    let get = |name: &str| Golden::RECURRENCE.get(&format!("scan.{name}"));
    for (name, rule, decay) in [("delta", Rule::Delta, "decay"), ("space", Rule::Sum, "space.decay")] {
        let linear = Linear {
            counts: vec![5],
            queries: get("queries")?,
            keys: get("keys")?,
            values: get("values")?,
            decay: get(decay)?,
            rate: get("rate")?,
            rule,
            states: vec![get("state")?],
        };
        let got = linear.with(device, |how, rows| device.scan(how, rows))?;
        // The attention form sums in another order and takes exponents of sums: within some roundings of the size.
        near(name, device, &got.outputs, &get(name)?, |_| 128.0 * unit(Dtype::F32))?;
        near(name, device, &got.states[0], &get(&format!("{name}.left"))?, |_| 128.0 * unit(Dtype::F32))?;
    }
    Ok(())
}

/// States that were given are what they were, though they are used again.
pub fn given_states_stay(device: &Device) -> Outcome {
    let short = Short::sample(Dtype::F32, &[2, 3], [5, 4]);
    let (x, weight, tails) =
        (short.x.upload(device)?, short.weight.upload(device)?, upload(device, &short.tails)?);
    let how = Convolution { weight: &weight, bias: None, silu: false };
    let linear = Linear::sample(Dtype::F32, &[2, 3], HEADS[0], Rule::Delta);
    let states = upload(device, &linear.states)?;
    let first = device.convolve(&x, &spans(&short.counts, &tails), &how)?;
    drop(first);
    let again = device.convolve(&x, &spans(&short.counts, &tails), &how)?;
    hold(device, "convolution", &again, &short.expected(), 1.0)?;
    for (tail, host) in tails.iter().zip(&short.tails) {
        same("a tail", device, tail, host)?;
    }
    let got = linear.with(device, |how, _| {
        device.scan(how, &spans(&linear.counts, &states))?;
        device.scan(how, &spans(&linear.counts, &states))
    })?;
    hold(device, "scan", &got, &linear.expected(), 1.0)?;
    for (state, host) in states.iter().zip(&linear.states) {
        same("a state", device, state, host)?;
    }
    Ok(())
}
