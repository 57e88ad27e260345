//! Layers that carry a state of fixed size from token to token, in place of keys and values.
//!
//! A packed call carries tokens of many rows. Each [`StateSpan`] says which tokens are its own and what the row's earlier
//! tokens left behind; the call gives that state after the row's last token. States are values: one that is given is as
//! it was afterwards, so that a step can be given up, or be done again with fewer tokens.
//!
//! On an invariant device the tokens of a row are taken one after the other, whatever their number, company, chunks or
//! threads, so that a row's bits depend on its own tokens alone.

use super::Tensor;
use std::ops::Range;

/// One row's part of a packed call.
#[derive(Clone, Debug)]
pub struct StateSpan<'a> {
    /// The row's tokens among the packed ones. Spans are in order, do not overlap, and cover all tokens.
    pub tokens: Range<usize>,
    /// What the row's tokens before these left; zeros where there were none.
    pub state: &'a Tensor,
}

/// What comes of a packed call.
#[derive(Clone, Debug)]
pub struct Recurred {
    /// One for each token.
    pub outputs: Tensor,
    /// One for each row, after its last token.
    pub states: Vec<Tensor>,
}

/// A short causal convolution, each channel by itself:
/// `y[t, c] = sum_k x[t - (taps - 1) + k, c] * weight[c, k] + bias[c]`, then perhaps `y * sigmoid(y)`.
///
/// A row's state is its tail: the inputs of its last `taps - 1` tokens, `[taps - 1, channels]` of the dtype of `x`.
#[derive(Clone, Copy, Debug)]
pub struct Convolution<'a> {
    /// `[channels, taps]`; the last tap is that of the token itself.
    pub weight: &'a Tensor,
    /// `[channels]`.
    pub bias: Option<&'a Tensor>,
    /// Whether SiLU follows.
    pub silu: bool,
}

/// A linear recurrence over a matrix for each value head. For each token, in this order:
///
/// ```text
///   S = S * decay
///   d = (v - S k) * rate        Rule::Delta      or  d = v * rate      Rule::Sum
///   S = S + d k^T
///   o = S q
/// ```
///
/// With [`Rule::Delta`] it is the gated delta rule (Yang, Kautz and Hatamizadeh, arXiv:2412.06464). With [`Rule::Sum`]
/// it is the selective state space of Mamba-2 (Dao and Gu, arXiv:2405.21060), whose `C`, `B` and `x` are queries, keys
/// and values, whose `exp(dt * A)` is the decay and whose `dt` is the rate.
///
/// A row's state is `S`, `f32 [value heads, value width, key width]`. The arithmetic is in f32; the bodies' sums run over
/// the key width in ascending order, those of an adapter in the order that it states.
#[derive(Clone, Copy, Debug)]
pub struct Scan<'a> {
    /// `[tokens, key heads, key width]`.
    pub queries: &'a Tensor,
    /// Like the queries.
    pub keys: &'a Tensor,
    /// `[tokens, value heads, value width]`; value head `h` reads key head `h / (value heads / key heads)`.
    pub values: &'a Tensor,
    /// `f32 [tokens, value heads]`.
    pub decay: &'a Tensor,
    /// Like the decay.
    pub rate: &'a Tensor,
    /// What is added.
    pub rule: Rule,
}

/// What a token adds to the state of a [`Scan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The difference between its value and what the state already gives for its key.
    Delta,
    /// Its value.
    Sum,
}
