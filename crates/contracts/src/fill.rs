//! What a request tells of its own answer before anything of it is chosen: tokens that follow others, and whether the answer
//! may copy what stood before.
//!
//! Whoever makes a [`Fill`] knows texts; whoever follows it knows ids alone. Invariant: a rule's ids are cut from tokens of a
//! whole text, so that they are those that the model's tokeniser would have written.

use crate::text::TokenId;
use std::{collections::BTreeSet, sync::Arc};

/// What a request determines of its answer, and what it may copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// In order of preference, where several have equally long triggers.
    pub rules: Arc<[Rule]>,
    /// Where spans are copied that stood in prompt or answer before: the ids at which a copy ends.
    pub echo: Option<Arc<BTreeSet<TokenId>>>,
}

/// Tokens that come behind others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The last tokens of prompt and answer; at least one.
    pub trigger: Vec<TokenId>,
    /// What comes behind them.
    pub emit: Vec<TokenId>,
    /// What it is.
    pub kind: Kind,
}

/// What a rule's tokens are part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// What stands between a call's beginning and the function's name.
    Scaffold,
    /// The rest of a name, as far as what has been chosen of it tells which.
    Name,
    /// What stands between a name and the first thing that is the model's own to choose.
    Key,
    /// What closes a call behind its last argument.
    Close,
    /// What ends the turn behind its last call.
    TurnEnd,
}

impl Kind {
    /// As it stands in statistics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scaffold => "scaffold",
            Self::Name => "name",
            Self::Key => "key",
            Self::Close => "close",
            Self::TurnEnd => "turn-end",
        }
    }
}
