//! Linear recurrences over matrices: the gated delta rule and the state space of Mamba-2.
//!
//! # The arithmetic
//!
//! In f32, for one row of a head's state (an element of the value) and one token:
//!
//! ```text
//! s = s * decay
//! d = (v - sum s * k) * rate      or, by the sum rule, v * rate
//! s = fma(k, d, s)
//! o = sum s * q
//! ```
//!
//! where a sum is the tree of lanes, and lane `l` the fused chain over elements `l, l + 16, ..`. Narrow operands are
//! widened first, and outputs rounded once.
//!
//! # The work
//!
//! Rows of a state do not see each other, so sixteen of one head, which share the loads of keys and queries and whose
//! sums are taken together, go through all tokens while they stay in the nearest cache.

use crate::device::CpuDevice;
use crate::isa::Isa;
use crate::operation::{copy, creation};
use crate::pool::Disjoint;
use crate::simd::{Kernel, LANES, Simd, dispatch};
use crate::value::{Draft, Value};
use std::ops::Range;
use tandem_contracts::tensor::{Dtype, Recurred, Result, Rule, Scan, StateSpan, Tensor, shape};

pub(crate) fn scan(device: &CpuDevice, how: &Scan<'_>, rows: &[StateSpan<'_>]) -> Result<Recurred> {
    device.own("scan", &[how.queries, how.keys, how.values, how.decay, how.rate])?;
    rows.iter().try_for_each(|row| device.own("scan", &[row.state]))?;
    let result = shape::scan(how, rows)?;
    let wide = |x| wide(device, x);
    let (queries, keys, values) = (wide(how.queries)?, wide(how.keys)?, wide(how.values)?);
    let (decay, rate) = (wide(how.decay)?, wide(how.rate)?);
    let call = Call {
        isa: device.pool.isa(),
        queries: queries.slice().unwrap_or_default(),
        keys: keys.slice().unwrap_or_default(),
        values: values.slice().unwrap_or_default(),
        decay: decay.slice().unwrap_or_default(),
        rate: rate.slice().unwrap_or_default(),
        rule: how.rule,
        extents: Extents::of(how),
    };
    let tokens: Vec<Range<usize>> = rows.iter().map(|row| row.tokens.clone()).collect();
    let mut states = Vec::with_capacity(rows.len());
    for row in rows {
        states.push(device.copy("scan", device.value("scan", row.state)?)?);
    }
    let mut outputs = device.fresh("scan", Dtype::F32, &result)?;
    call.run(device, &tokens, &mut states, &mut outputs);
    let outputs = device.finish(outputs);
    let dtype = how.values.dtype();
    Ok(Recurred {
        outputs: if dtype == Dtype::F32 { outputs } else { creation::cast(device, &outputs, dtype)? },
        states: states.into_iter().map(|state| device.finish(state)).collect(),
    })
}

/// Contiguous, in f32.
fn wide(device: &CpuDevice, x: &Tensor) -> Result<Value> {
    let value = device.value("scan", x)?;
    if value.dtype == Dtype::F32 {
        return device.contiguous("scan", value);
    }
    let mut draft = device.fresh("scan", Dtype::F32, value.layout.shape())?;
    copy::cast(&device.pool, value, &mut draft);
    Ok(device.settle(draft))
}

#[derive(Clone, Copy)]
struct Extents {
    shared: usize,
    heads: usize,
    value_width: usize,
    key_width: usize,
}

impl Extents {
    fn of(how: &Scan<'_>) -> Self {
        let (keys, values) = (how.keys.shape(), how.values.shape());
        Self { shared: keys[1], heads: values[1], value_width: values[2], key_width: keys[2] }
    }

    /// Up to sixteen rows of a head's state at a time.
    fn blocks(self) -> usize {
        self.value_width.div_ceil(LANES)
    }
}

/// Everything that the parts of a call share.
struct Call<'a> {
    isa: Isa,
    queries: &'a [f32],
    keys: &'a [f32],
    values: &'a [f32],
    decay: &'a [f32],
    rate: &'a [f32],
    rule: Rule,
    extents: Extents,
}

impl Call<'_> {
    fn run(&self, device: &CpuDevice, rows: &[Range<usize>], states: &mut [Draft], outputs: &mut Draft) {
        let Extents { heads, value_width, key_width, .. } = self.extents;
        let tokens = outputs.layout.shape()[0];
        let out = Disjoint::new(outputs.elements::<f32>());
        let states: Vec<Disjoint<'_, f32>> =
            states.iter_mut().map(|state| Disjoint::new(state.elements::<f32>())).collect();
        let each = heads * self.extents.blocks();
        let cost = (tokens * LANES * key_width).div_ceil(rows.len().max(1));
        device.spread(rows.len() * each, cost, |range| {
            for unit in range {
                let (row, head, block) =
                    (unit / each, unit % each / self.extents.blocks(), unit % self.extents.blocks());
                let values = block * LANES..value_width.min((block + 1) * LANES);
                let first = (head * value_width + values.start) * key_width;
                // SAFETY: units do not overlap, and each belongs to one part.
                let state = unsafe { states[row].range(first..first + values.len() * key_width) };
                let tokens = rows[row].clone();
                dispatch(self.isa, Block { call: self, tokens, head, values, state, out });
            }
        });
    }

    /// A head's keys or queries at a token.
    #[inline(always)]
    fn vector<'x>(&self, x: &'x [f32], token: usize, head: usize) -> &'x [f32] {
        let Extents { shared, heads, key_width, .. } = self.extents;
        &x[(token * shared + head / (heads / shared)) * key_width..][..key_width]
    }
}

/// Up to sixteen rows of one head's state, and all tokens of a row.
struct Block<'a> {
    call: &'a Call<'a>,
    tokens: Range<usize>,
    head: usize,
    /// Elements of the value.
    values: Range<usize>,
    /// `[values, key width]`
    state: &'a mut [f32],
    /// `[tokens, heads, value width]`
    out: Disjoint<'a, f32>,
}

impl Kernel for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { call, tokens, head, values, state, out } = self;
        let Extents { heads, value_width, key_width, .. } = call.extents;
        for token in tokens {
            let (keys, queries) =
                (call.vector(call.keys, token, head), call.vector(call.queries, token, head));
            let gate = token * heads + head;
            let decay = simd.splat(call.decay[gate]);
            let rate = simd.splat(call.rate[gate]);
            let own = gate * value_width + values.start..gate * value_width + values.end;

            let mut known = [simd.splat(0.0); LANES];
            for (known, state) in known.iter_mut().zip(state.chunks_exact_mut(key_width.max(1))) {
                *known = fade(simd, state, keys, decay);
            }
            let mut change = simd.load_part(&call.values[own.clone()], 0.0);
            if call.rule == Rule::Delta {
                change = simd.sub(change, simd.sums(&known));
            }
            let mut changes = [0.0; LANES];
            simd.store(&mut changes, simd.mul(change, rate));

            let mut given = [simd.splat(0.0); LANES];
            for ((given, state), &change) in
                given.iter_mut().zip(state.chunks_exact_mut(key_width.max(1))).zip(&changes)
            {
                *given = learn(simd, state, (keys, queries), simd.splat(change));
            }
            // SAFETY: each token's values of a head belong to one unit.
            let out = unsafe { out.range(own) };
            simd.store_part(out, simd.sums(&given));
        }
    }
}

/// A state's row times the decay; gives the lanes of its product with the keys.
#[inline(always)]
fn fade<S: Simd>(simd: S, state: &mut [f32], keys: &[f32], decay: S::Lanes) -> S::Lanes {
    let (state, state_rest) = state.as_chunks_mut::<LANES>();
    let (keys, keys_rest) = keys.as_chunks::<LANES>();
    let mut sum = simd.splat(0.0);
    for (state, keys) in state.iter_mut().zip(keys) {
        let now = simd.mul(simd.load(state), decay);
        simd.store(state, now);
        sum = simd.fma(now, simd.load(keys), sum);
    }
    if !state_rest.is_empty() {
        let now = simd.mul(simd.load_part(state_rest, 0.0), decay);
        simd.store_part(state_rest, now);
        sum = simd.fma(now, simd.load_part(keys_rest, 0.0), sum);
    }
    sum
}

/// A state's row with what a token adds; gives the lanes of its product with the queries.
#[inline(always)]
fn learn<S: Simd>(
    simd: S,
    state: &mut [f32],
    (keys, queries): (&[f32], &[f32]),
    change: S::Lanes,
) -> S::Lanes {
    let (state, state_rest) = state.as_chunks_mut::<LANES>();
    let (keys, keys_rest) = keys.as_chunks::<LANES>();
    let (queries, queries_rest) = queries.as_chunks::<LANES>();
    let mut sum = simd.splat(0.0);
    for ((state, keys), queries) in state.iter_mut().zip(keys).zip(queries) {
        let now = simd.fma(simd.load(keys), change, simd.load(state));
        simd.store(state, now);
        sum = simd.fma(now, simd.load(queries), sum);
    }
    if !state_rest.is_empty() {
        let now = simd.fma(simd.load_part(keys_rest, 0.0), change, simd.load_part(state_rest, 0.0));
        simd.store_part(state_rest, now);
        sum = simd.fma(now, simd.load_part(queries_rest, 0.0), sum);
    }
    sum
}
