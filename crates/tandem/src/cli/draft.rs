//! What proposes tokens: `--draft` and `--draft-tokens`.

use clap::{Args, ValueEnum};
use tandem_engine::{self as engine, Drafting};

/// How tokens are proposed, which the model verifies several in a step. Answers are the same with and without.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Speed")]
pub(crate) struct Proposals {
    /// What proposes tokens that the model verifies, several in a step, where that saves time.
    #[arg(long, value_enum, default_value_t = Draft::Grammar, env = "TANDEM_DRAFT")]
    pub draft: Draft,

    /// Most tokens that are proposed at once.
    #[arg(long, value_name = "N", default_value_t = 10, env = "TANDEM_DRAFT_TOKENS", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub draft_tokens: u32,
}

/// What proposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Draft {
    /// Nothing.
    Off,
    /// What an answer's grammar leaves no choice of.
    Grammar,
    /// What followed where the text has stood as it stands now: for answers that copy or repeat.
    Ngram,
}

impl Proposals {
    /// As the engine takes it.
    pub(crate) fn drafting(self) -> Drafting {
        let with = |draft| Drafting { draft, tokens: self.draft_tokens as usize, ..Drafting::default() };
        match self.draft {
            Draft::Off => Drafting::OFF,
            Draft::Grammar => with(engine::Draft::Off),
            Draft::Ngram => with(engine::Draft::Past(engine::Runs::default())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_says_what_proposes() {
        let drafting = |draft| Proposals { draft, draft_tokens: 3 }.drafting();
        assert_eq!(drafting(Draft::Off), Drafting::OFF);
        let grammar = drafting(Draft::Grammar);
        assert_eq!((grammar.draft, grammar.grammars, grammar.tokens), (engine::Draft::Off, true, 3));
        assert_eq!(drafting(Draft::Ngram).draft, engine::Draft::Past(engine::Runs::new(3, 1)));
    }
}
