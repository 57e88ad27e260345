//! What is measured.

use std::fmt;

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

impl Case {
    /// The cases of the table: prefill, decode without and with context, batches.
    pub fn standard() -> Vec<Self> {
        let mut cases = vec![
            Self::Prefill { tokens: 512 },
            Self::Decode { depth: 0, tokens: 128 },
            Self::Decode { depth: 2048, tokens: 32 },
        ];
        cases.extend([1, 2, 4, 8, 16].map(|rows| Self::Batch { rows, prompt: 128, tokens: 64 }));
        cases
    }

    /// The cases that are repeated with one thread.
    pub fn single() -> Vec<Self> {
        vec![Self::Prefill { tokens: 512 }, Self::Decode { depth: 0, tokens: 128 }]
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
            Self::Decode { depth, tokens } => format!("decode {tokens} at depth {depth}"),
            Self::Batch { rows, tokens, .. } => format!("decode {tokens}, batch of {rows}"),
        };
        f.pad(&text)
    }
}
