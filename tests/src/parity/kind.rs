//! Which checks to run, by the cache that they are about.

use clap::ValueEnum;

/// A kind of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// The ordinary cache: logits of a prompt, greedy answers to all prompts.
    Plain,
    /// The same prompt fed in chunks of 1, 5 and 16.
    Chunks,
    /// Rows in common steps, and one that joins late.
    Batch,
    /// Tokens and drafts that are taken back.
    Trim,
    /// Rings that keep the first tokens and the last ones.
    Rotating,
    /// Keys and values in 8 bits.
    Kvq8,
    /// Keys and values in 4 bits.
    Kvq4,
    /// A row that goes through bytes.
    PromptCache,
}

impl Kind {
    /// The kind of a golden run, by its name.
    pub(super) fn of(run: &str) -> Option<Self> {
        let kinds = [
            ("batchgen", Self::Batch),
            ("rotating", Self::Rotating),
            ("kvq8", Self::Kvq8),
            ("kvq4", Self::Kvq4),
            ("prompt_cache", Self::PromptCache),
        ];
        kinds.into_iter().find(|(start, _)| run.starts_with(start)).map(|(_, kind)| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_golden_run_has_a_kind() {
        assert_eq!(Kind::of("batchgen_late_join"), Some(Kind::Batch));
        assert_eq!(Kind::of("rotating16_keep4_p40"), Some(Kind::Rotating));
        assert_eq!(Kind::of("kvq8g64_start16_p24"), Some(Kind::Kvq8));
        assert_eq!(Kind::of("kvq4g32_start0_p24"), Some(Kind::Kvq4));
        assert_eq!(Kind::of("prompt_cache_save_load"), Some(Kind::PromptCache));
        assert_eq!(Kind::of("trim5_rollback"), None);
    }
}
