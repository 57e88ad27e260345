//! Layers that carry a state: neither company nor chunks change a bit.

use super::FLOATS;
use crate::{
    conformance::{
        Broken, Outcome, behaviours,
        expect::same_bits,
        host::Host,
        state::{Heads, Linear, Short, ranges},
    },
    tensor::{Device, Dtype, Recurred, Result, Rule},
};
use std::ops::Range;

behaviours!("invariance":
    convolution_alone_and_in_chunks,
    scan_alone_and_in_chunks,
);

const COUNTS: [usize; 3] = [1, 11, 4];

/// Ways to cut a row of 11 tokens.
const CUTS: [&[usize]; 4] = [&[11], &[1; 11], &[4, 7], &[10, 1]];

/// Runs row 1 alone in chunks; `step` gives what comes of a chunk after a state.
fn compare(
    device: &Device,
    place: &str,
    whole: &Recurred,
    (state, step): (&Host, impl Fn(Range<usize>, Host) -> std::result::Result<Recurred, Broken>),
) -> Outcome {
    let own = ranges(&COUNTS)[1].clone();
    for cuts in CUTS {
        let place = format!("{place} in chunks {cuts:?}");
        let mut state = state.clone();
        for chunk in ranges(cuts) {
            let got = step(chunk.clone(), state)?;
            let (first, end) = (own.start + chunk.start, own.start + chunk.end);
            let of_whole = super::rows(device, &whole.outputs, first, end)?;
            same_bits(format!("{place}, tokens {chunk:?}"), device, &got.outputs, &of_whole)?;
            if chunk.end == own.len() {
                same_bits(format!("{place}, state"), device, &got.states[0], &whole.states[1])?;
            }
            state = Host::download(device, &got.states[0])?;
        }
    }
    Ok(())
}

/// A row of a batch against the same row alone, whole and in chunks.
pub fn convolution_alone_and_in_chunks(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    for dtype in FLOATS {
        for silu in [false, true] {
            let bias = silu.then(|| Host::sample(dtype, &[21], 303));
            let short = Short { bias, silu, ..Short::sample(dtype, &COUNTS, [21, 4]) };
            let run = |short: &Short| short.with(device, |x, rows, how| device.convolve(x, rows, how));
            let step = |chunk, tail| run(&short.part(1, chunk, tail));
            compare(device, &format!("{dtype:?} silu {silu}"), &run(&short)?, (&short.tails[1], step))?;
        }
    }
    Ok(())
}

/// The same of both rules.
pub fn scan_alone_and_in_chunks(device: &Device) -> Outcome {
    if !device.traits().batch_invariant {
        return Ok(());
    }
    let heads = Heads { shared: 2, heads: 4, value_width: 35, key_width: 40 };
    for (dtype, rule) in [(Dtype::F32, Rule::Delta), (Dtype::F32, Rule::Sum), (Dtype::Bf16, Rule::Delta)] {
        let linear = Linear::sample(dtype, &COUNTS, heads, rule);
        let run = |linear: &Linear| linear.with(device, |how, rows| -> Result<_> { device.scan(how, rows) });
        let step = |chunk, state| run(&linear.part(1, chunk, state));
        compare(device, &format!("{dtype:?} {rule:?}"), &run(&linear)?, (&linear.states[1], step))?;
    }
    Ok(())
}
