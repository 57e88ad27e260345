//! What proposes tokens: `--draft` and `--draft-tokens`.

use clap::Args;
use std::{fmt, path::PathBuf, str::FromStr};
use tandem_engine::{self as engine, Drafting};

/// How tokens are proposed, which the model verifies several in a step. Answers are the same with and without.
#[derive(Args, Debug, Clone)]
#[command(next_help_heading = "Speed")]
pub(crate) struct Proposals {
    /// Guess several of the next tokens and let the model check them in one step, where that saves time; no answer changes.
    /// `grammar` guesses what a form that is asked for, such as a JSON schema, leaves no choice of; `ngram` also what followed
    /// the same words before in the text; `model:PATH` also what a smaller model of the same vocabulary says; `off` nothing.
    #[arg(long, value_name = "HOW", default_value_t = Draft::Grammar, env = "TANDEM_DRAFT")]
    pub draft: Draft,

    /// Most tokens that are guessed at once.
    #[arg(long, value_name = "N", default_value_t = 10, env = "TANDEM_DRAFT_TOKENS", hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub draft_tokens: u32,
}

/// What proposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Draft {
    /// Nothing.
    Off,
    /// What an answer's grammar leaves no choice of.
    Grammar,
    /// What followed where the text has stood as it stands now.
    Ngram,
    /// A smaller model: its folder or GGUF file.
    Model(PathBuf),
}

/// A text that names nothing that proposes.
#[derive(Debug)]
pub(crate) struct Unknown;

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("takes off, grammar, ngram, or model: with a model's folder or GGUF file behind it")
    }
}

impl std::error::Error for Unknown {}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Grammar => f.write_str("grammar"),
            Self::Ngram => f.write_str("ngram"),
            Self::Model(path) => write!(f, "model:{}", path.display()),
        }
    }
}

impl FromStr for Draft {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match (text, text.strip_prefix("model:")) {
            ("off", _) => Ok(Self::Off),
            ("grammar", _) => Ok(Self::Grammar),
            ("ngram", _) => Ok(Self::Ngram),
            (_, Some(path)) if !path.is_empty() => Ok(Self::Model(path.into())),
            _ => Err(Unknown),
        }
    }
}

impl Proposals {
    /// As the engine takes it.
    pub(crate) fn drafting(&self) -> Drafting {
        let with = |draft| Drafting { draft, tokens: self.draft_tokens as usize, ..Drafting::default() };
        match self.draft {
            Draft::Off => Drafting::OFF,
            Draft::Grammar => with(engine::Draft::Off),
            Draft::Ngram => with(engine::Draft::Past(engine::Runs::default())),
            Draft::Model(_) => with(engine::Draft::Mounted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_says_what_proposes() {
        let drafting = |text: &str| {
            let draft: Draft = text.parse().expect("a word");
            assert_eq!(draft.to_string(), text);
            Proposals { draft, draft_tokens: 3 }.drafting()
        };
        assert_eq!(drafting("off"), Drafting::OFF);
        let grammar = drafting("grammar");
        assert_eq!((grammar.draft, grammar.grammars, grammar.tokens), (engine::Draft::Off, true, 3));
        assert_eq!(drafting("ngram").draft, engine::Draft::Past(engine::Runs::new(6, 1)));
        assert_eq!(drafting("model:a/b").draft, engine::Draft::Mounted);
        assert!(["", "n-gram", "model", "model:"].iter().all(|text| text.parse::<Draft>().is_err()));
    }
}
