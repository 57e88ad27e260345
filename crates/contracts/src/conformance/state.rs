//! Recurrences on the host: their definitions, one token after the other in `f64`, with a bound for each element.
//!
//! The bounds are a running error analysis (Higham, Accuracy and Stability of Numerical Algorithms, section 3.3): each
//! step of the definition carries the error of its operands on and adds that of its own roundings.

use super::{
    Broken,
    host::{Host, with},
    tolerance::{accumulated, roundings, unit},
};
use crate::tensor::{Convolution, Device, Dtype, Recurred, Rule, Scan, StateSpan, Tensor};
use std::ops::Range;

/// What a device should give, and how far off each element may be.
pub(super) struct Expected {
    pub(super) outputs: (Host, Vec<f64>),
    pub(super) states: Vec<(Host, Vec<f64>)>,
}

/// Tokens of each row among packed ones.
pub(super) fn ranges(counts: &[usize]) -> Vec<Range<usize>> {
    let mut first = 0;
    let range = |&count: &usize| {
        first += count;
        first - count..first
    };
    counts.iter().map(range).collect()
}

pub(super) fn spans<'a>(counts: &[usize], states: &'a [Tensor]) -> Vec<StateSpan<'a>> {
    ranges(counts).into_iter().zip(states).map(|(tokens, state)| StateSpan { tokens, state }).collect()
}

pub(super) fn upload(device: &Device, hosts: &[Host]) -> Result<Vec<Tensor>, Broken> {
    hosts.iter().map(|host| host.upload(device)).collect()
}

/// Operands of a short convolution.
#[derive(Clone, Debug)]
pub(super) struct Short {
    pub(super) counts: Vec<usize>,
    pub(super) x: Host,
    pub(super) weight: Host,
    pub(super) bias: Option<Host>,
    pub(super) silu: bool,
    pub(super) tails: Vec<Host>,
}

impl Short {
    pub(super) fn sample(dtype: Dtype, counts: &[usize], [channels, taps]: [usize; 2]) -> Self {
        Self {
            counts: counts.to_vec(),
            x: Host::sample(dtype, &[counts.iter().sum(), channels], 300),
            weight: Host::sample(dtype, &[channels, taps], 301),
            bias: None,
            silu: false,
            tails: (0..counts.len() as u64)
                .map(|row| Host::sample(dtype, &[taps - 1, channels], 310 + row))
                .collect(),
        }
    }

    /// Calls `function` with the operands on a device.
    pub(super) fn with(
        &self,
        device: &Device,
        function: impl FnOnce(&Tensor, &[StateSpan<'_>], &Convolution<'_>) -> crate::tensor::Result<Recurred>,
    ) -> Result<Recurred, Broken> {
        let (x, weight) = (self.x.upload(device)?, self.weight.upload(device)?);
        let bias = self.bias.as_ref().map(|bias| bias.upload(device)).transpose()?;
        let tails = upload(device, &self.tails)?;
        let how = Convolution { weight: &weight, bias: bias.as_ref(), silu: self.silu };
        Ok(function(&x, &spans(&self.counts, &tails), &how)?)
    }

    /// The input at `place` of a row's tail and tokens.
    fn input(&self, row: usize, place: usize, channel: usize) -> f64 {
        let tail = &self.tails[row];
        match place.checked_sub(tail.shape[0]) {
            None => tail.at(&[place, channel]),
            Some(token) => self.x.at(&[ranges(&self.counts)[row].start + token, channel]),
        }
    }

    pub(super) fn expected(&self) -> Expected {
        let (dtype, channels, taps) = (self.x.dtype, self.weight.shape[0], self.weight.shape[1]);
        let (mut values, mut bounds) = (Vec::new(), Vec::new());
        for (row, &count) in self.counts.iter().enumerate() {
            for (token, channel) in (0..count).flat_map(|t| (0..channels).map(move |channel| (t, channel))) {
                let term =
                    |tap: usize| self.input(row, token + tap, channel) * self.weight.at(&[channel, tap]);
                let bias = self.bias.as_ref().map_or(0.0, |bias| bias.at(&[channel]));
                let size = (0..taps).map(|tap| term(tap).abs()).sum::<f64>() + bias.abs();
                let sum = (0..taps).map(term).sum::<f64>() + bias;
                // A body in 16 bits rounds the sum, the biased sum, the gate and their product; the slope of SiLU is
                // below 1.1.
                let narrow = if dtype == Dtype::F32 { 0.0 } else { 6.0 * unit(dtype) * size };
                let error = 2.0 * accumulated(dtype, taps + 1, size, sum) + narrow;
                let value = if self.silu { sum / (1.0 + (-sum).exp()) } else { sum };
                values.push(value);
                bounds.push(if self.silu { 1.1 * error + roundings(dtype, 16.0, size) } else { error });
            }
        }
        let states = self.counts.iter().enumerate().map(|(row, &count)| {
            let tail = Host::build(dtype, &[taps - 1, channels], |index| {
                self.input(row, count + index[0], index[1])
            });
            let exact = vec![0.0; tail.values.len()];
            (tail, exact)
        });
        Expected { states: states.collect(), outputs: (Host::raw(dtype, &self.x.shape, values), bounds) }
    }
}

/// Operands of a linear recurrence.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    pub(super) counts: Vec<usize>,
    pub(super) queries: Host,
    pub(super) keys: Host,
    pub(super) values: Host,
    pub(super) decay: Host,
    pub(super) rate: Host,
    pub(super) rule: Rule,
    pub(super) states: Vec<Host>,
}

/// Heads and widths of a recurrence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) shared: usize,
    pub(super) heads: usize,
    pub(super) value_width: usize,
    pub(super) key_width: usize,
}

impl Linear {
    pub(super) fn sample(dtype: Dtype, counts: &[usize], heads: Heads, rule: Rule) -> Self {
        let tokens = counts.iter().sum();
        let Heads { shared, heads, value_width, key_width } = heads;
        // Keys of about unit length, as models have them: long ones would let the state explode.
        let small = 0.4 / (key_width as f64).sqrt();
        let sample = |shape: &[usize], seed, factor: f64| {
            Host::sample(dtype, shape, seed).map(|x| x * factor).rounded(dtype)
        };
        let gate = |seed| {
            let gate = Host::sample(Dtype::F32, &[tokens, heads], seed).map(|x| (x + 4.0) / 8.0);
            gate.rounded(Dtype::F32)
        };
        Self {
            counts: counts.to_vec(),
            queries: sample(&[tokens, shared, key_width], 320, small),
            keys: sample(&[tokens, shared, key_width], 321, small),
            values: sample(&[tokens, heads, value_width], 322, 1.0),
            decay: gate(323),
            rate: gate(324),
            rule,
            states: (0..counts.len() as u64)
                .map(|row| Host::sample(Dtype::F32, &[heads, value_width, key_width], 330 + row))
                .collect(),
        }
    }

    /// Calls `function` with the operands on a device.
    pub(super) fn with(
        &self,
        device: &Device,
        function: impl FnOnce(&Scan<'_>, &[StateSpan<'_>]) -> crate::tensor::Result<Recurred>,
    ) -> Result<Recurred, Broken> {
        let [queries, keys, values, decay, rate] =
            [&self.queries, &self.keys, &self.values, &self.decay, &self.rate]
                .map(|host| host.upload(device));
        let states = upload(device, &self.states)?;
        let how = Scan {
            queries: &queries?,
            keys: &keys?,
            values: &values?,
            decay: &decay?,
            rate: &rate?,
            rule: self.rule,
        };
        Ok(function(&how, &spans(&self.counts, &states))?)
    }

    pub(super) fn expected(&self) -> Expected {
        let mut outputs = Host::build(self.values.dtype, &self.values.shape, |_| 0.0);
        let mut bounds = vec![0.0; outputs.values.len()];
        let [_, heads, value_width] = [0, 1, 2].map(|axis| self.values.shape[axis]);
        let mut states = Vec::new();
        for (range, state) in ranges(&self.counts).into_iter().zip(&self.states) {
            let mut state = state.clone();
            let mut errors = vec![0.0; state.values.len()];
            let width = self.keys.shape[2];
            for (head, i) in (0..heads).flat_map(|head| (0..value_width).map(move |i| (head, i))) {
                let own = (head * value_width + i) * width..(head * value_width + i + 1) * width;
                for token in range.clone() {
                    let row = (&mut state.values[own.clone()], &mut errors[own.clone()]);
                    let (output, bound) = self.step([token, head, i], row);
                    let place = (token * heads + head) * value_width + i;
                    outputs.values[place] = output;
                    bounds[place] = bound + roundings(self.values.dtype, 1.0, output);
                }
            }
            states.push((state, errors));
        }
        Expected { outputs: (outputs, bounds), states }
    }

    /// One token's step of one row of a head's state; gives its output and the error of that.
    fn step(&self, [token, head, i]: [usize; 3], (state, errors): (&mut [f64], &mut [f64])) -> (f64, f64) {
        let u = unit(Dtype::F32);
        let (width, shared) = (state.len(), head / (self.values.shape[1] / self.keys.shape[1]));
        let sum_error = (width as f64 + 2.0) * u;
        let at = |x: &Host, j: usize| x.at(&[token, shared, j]);
        let (decay, rate) = (self.decay.at(&[token, head]), self.rate.at(&[token, head]));
        let dot = |x: &Host, state: &[f64], errors: &[f64]| {
            let terms = (0..width).map(|j| state[j] * at(x, j));
            let size: f64 = terms.clone().map(f64::abs).sum();
            let carried: f64 = (0..width).map(|j| errors[j] * at(x, j).abs()).sum();
            (terms.sum::<f64>(), carried + sum_error * size)
        };
        for (state, error) in state.iter_mut().zip(&mut *errors) {
            *state *= decay;
            *error = *error * decay.abs() + 2.0 * u * state.abs();
        }
        let value = self.values.at(&[token, head, i]);
        let (mut change, mut error) = (value, 0.0);
        if self.rule == Rule::Delta {
            let (known, known_error) = dot(&self.keys, state, errors);
            change -= known;
            error = known_error + 2.0 * u * change.abs();
        }
        change *= rate;
        error = error * rate.abs() + 2.0 * u * change.abs();
        for j in 0..width {
            let key = at(&self.keys, j);
            state[j] += key * change;
            errors[j] += key.abs() * error + 2.0 * u * ((key * change).abs() + state[j].abs());
        }
        dot(&self.queries, state, errors)
    }

    /// The same with only some tokens of one row, from `state`.
    pub(super) fn part(&self, row: usize, tokens: Range<usize>, state: Host) -> Self {
        let first = ranges(&self.counts)[row].start;
        let own = |x: &Host| part(x, first + tokens.start..first + tokens.end);
        Self {
            counts: vec![tokens.len()],
            queries: own(&self.queries),
            keys: own(&self.keys),
            values: own(&self.values),
            decay: own(&self.decay),
            rate: own(&self.rate),
            rule: self.rule,
            states: vec![state],
        }
    }
}

impl Short {
    /// The same with only some tokens of one row, after `tail`.
    pub(super) fn part(&self, row: usize, tokens: Range<usize>, tail: Host) -> Self {
        let first = ranges(&self.counts)[row].start;
        let x = part(&self.x, first + tokens.start..first + tokens.end);
        Self { counts: vec![tokens.len()], x, tails: vec![tail], ..self.clone() }
    }
}

/// Some of the first axis.
fn part(x: &Host, range: Range<usize>) -> Host {
    let mut start = vec![0; x.rank()];
    start[0] = range.start;
    x.boxed(&start, &with(&x.shape, 0, range.len()))
}
