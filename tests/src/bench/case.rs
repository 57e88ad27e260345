//! What is measured.

use std::fmt;
use tandem_contracts::{
    model::{Code, Codes, StatePolicy},
    tensor::Affine,
};

/// One kind of work on one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// A prompt of so many tokens, from nothing, in one row.
    Prefill {
        /// Tokens of the prompt.
        tokens: usize,
    },
    /// Tokens one at a time, in one row that holds `depth` tokens already.
    Decode {
        /// Tokens held before the clock starts.
        depth: usize,
        /// Tokens measured.
        tokens: usize,
        /// How keys and values are kept.
        cache: Cache,
    },
    /// Tokens one at a time for each of some rows, in common steps.
    Batch {
        /// Rows.
        rows: usize,
        /// Tokens of each row's prompt, before the clock starts.
        prompt: usize,
        /// Tokens measured of each row.
        tokens: usize,
    },
}

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// As 16-bit floats.
    Floats,
    /// In 8 bits: affine in groups of 32 here, `q8_0` there.
    Bytes,
}

impl Cache {
    /// Ours.
    pub fn policy(self) -> StatePolicy {
        match self {
            Self::Floats => StatePolicy::Plain,
            Self::Bytes => {
                let codes = Codes::Uniform(Code::Affine(Affine { bits: 8, group: 32 }));
                StatePolicy::Encoded { codes, start: 0 }
            }
        }
    }
}

impl Case {
    /// The cases of the table: prefill, decode without and with context, batches.
    pub fn standard() -> Vec<Self> {
        let mut cases = vec![
            Self::Prefill { tokens: 512 },
            Self::Decode { depth: 0, tokens: 128, cache: Cache::Floats },
            Self::Decode { depth: 2048, tokens: 32, cache: Cache::Floats },
            Self::Decode { depth: 2048, tokens: 32, cache: Cache::Bytes },
        ];
        cases.extend([1, 2, 4, 8, 16].map(|rows| Self::Batch { rows, prompt: 128, tokens: 64 }));
        cases
    }

    /// The cases that are repeated with one thread.
    pub fn single() -> Vec<Self> {
        vec![Self::Prefill { tokens: 512 }, Self::Decode { depth: 0, tokens: 128, cache: Cache::Floats }]
    }

    /// Tokens that the clock covers, of all rows together.
    pub fn measured(self) -> usize {
        match self {
            Self::Prefill { tokens } | Self::Decode { tokens, .. } => tokens,
            Self::Batch { rows, tokens, .. } => rows * tokens,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Prefill { tokens } => format!("prefill {tokens}"),
            Self::Decode { depth, tokens, cache: Cache::Floats } => {
                format!("decode {tokens} at depth {depth}")
            }
            Self::Decode { depth, tokens, cache: Cache::Bytes } => {
                format!("decode {tokens} at depth {depth}, 8-bit cache")
            }
            Self::Batch { rows, tokens, .. } => format!("decode {tokens}, batch of {rows}"),
        };
        f.pad(&text)
    }
}
