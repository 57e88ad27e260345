//! What a model's way to write calls determines of them: rules, cut from what its template renders.
//!
//! ```text
//!   a call of each function, its first argument once with each of many values
//!     --template, tokeniser--> tokens of whole texts
//!     what all of them share behind what begins a call   --> its scaffold
//!     what is left once a name's tokens tell which it is --> the name's rest, and the first argument's key
//!     what all of them share behind the value            --> what closes the call
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `probe` | arguments that a call may have, far enough apart to show what is the model's own to choose |
//! | `rendering` | a text with the places of its tokens |
//! | `branch` | rules of scaffolds and names, where functions part |
//! | `close` | rules of what closes a call |
//! | `kept` | what was cut before |
//!
//! Invariants: every id was cut from the tokens of a whole text that the template rendered and that the tokens spell; where one
//! function cannot be cut so, there are no rules at all, as none of its calls could be told from another's.

mod branch;
mod close;
mod kept;
mod probe;
mod rendering;

use super::{
    Tokenizer,
    reply::{Functions, Style},
};
use branch::Path;
pub use kept::Kept;
use rendering::Rendering;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tandem_contracts::{
    fill::{Kind, Rule},
    text::{TokenId, Vocabulary},
};

/// Most functions for which rules are cut: each is rendered many times.
const FUNCTIONS: usize = 64;

/// Renders a turn that ends with these calls; none is the conversation before it. Nothing where the template refuses.
pub type Render<'a> = &'a dyn Fn(Option<Vec<Value>>) -> Option<String>;

/// What may be called, and how it is written.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// The functions.
    pub functions: &'a Functions,
    /// The way that calls are written.
    pub style: Style,
    /// Whether a turn may hold several.
    pub several: bool,
}

/// The renderings of one function's calls.
struct Function<'a> {
    name: &'a str,
    schema: &'a Value,
    /// One call, with other arguments in each.
    alone: Vec<Rendering>,
    /// Two, the first as the first of those.
    twice: Option<Rendering>,
}

/// The rules of calls; none where they cannot be cut.
pub fn rules(tokenizer: &Tokenizer, calls: &Calls<'_>, render: Render<'_>) -> Vec<Rule> {
    let before = render(None).unwrap_or_default();
    let functions = calls.functions.iter().take(FUNCTIONS + 1);
    let rendered: Option<Vec<_>> =
        functions.map(|(name, schema)| Function::render(tokenizer, calls, (name, schema), render)).collect();
    let Some(rendered) = rendered.filter(|rendered| (1..=FUNCTIONS).contains(&rendered.len())) else {
        return Vec::new();
    };
    // A marker in front of another one, as of a list of calls, determines what is between the two.
    let markers = calls.style.markers();
    let mut cut: Vec<Vec<Path>> = Vec::new();
    for marker in &markers {
        let paths: Option<Vec<Path>> =
            rendered.iter().map(|it| it.path(tokenizer, marker, &before, calls)).collect();
        cut.extend(paths.filter(|paths| branch::begin_alike(paths)));
    }
    // The one that stands nearest to the name has the shortest way to it.
    cut.sort_by_key(|paths| paths.first().map(|path| path.name));
    let mut rules = Vec::new();
    for (index, paths) in cut.iter().enumerate() {
        let all = branch::rules(paths);
        rules.extend(all.into_iter().filter(|rule| index == 0 || rule.kind == Kind::Scaffold));
    }
    if !rules.is_empty() {
        rules.extend(close::rules(tokenizer, &rendered, calls.several));
    }
    rules
}

impl<'a> Function<'a> {
    fn render(
        tokenizer: &Tokenizer,
        calls: &Calls<'_>,
        (name, schema): (&'a str, &'a Value),
        render: Render<'_>,
    ) -> Option<Self> {
        let call = |arguments: &Value, index: usize| {
            // Ids that differ from their first letter on: they are nobody's to know.
            let random = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let id = calls.style.call_id(name, index, random);
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        };
        let mut arguments = probe::arguments(schema)?;
        // At least two, so that ids differ.
        arguments.extend(arguments.first().cloned());
        let alone = arguments
            .iter()
            .enumerate()
            .map(|(index, arguments)| Rendering::new(tokenizer, render(Some(vec![call(arguments, index)]))?));
        let alone: Vec<Rendering> = alone.collect::<Option<_>>()?;
        let twice = render(Some(vec![call(arguments.first()?, 0), call(arguments.first()?, 1)]));
        let twice = twice.and_then(|text| Rendering::new(tokenizer, text));
        Some(Self { name, schema, alone, twice })
    }

    /// The tokens that all calls of it share, from the marker on.
    fn path(&self, tokenizer: &Tokenizer, marker: &str, before: &str, calls: &Calls<'_>) -> Option<Path> {
        let first = self.alone.first()?;
        let shared = first.text.bytes().zip(before.bytes()).take_while(|(one, other)| one == other).count();
        let shared = (0..=shared).rev().find(|&end| first.text.is_char_boundary(end))?;
        let begin = shared + first.text[shared..].find(marker)?;
        let name = begin + first.text[begin..].find(self.name)?;
        let place = first.boundary(begin)?;
        let of = |index: usize| first.index_from(index) - place;
        let (marked, name) = (of(begin + marker.len()), of(name + self.name.len()));
        let twice = self.twice.iter().filter(|_| calls.several);
        let mut tokens = first.tokens[place..].to_vec();
        for other in self.alone.iter().chain(twice) {
            let other = &other.tokens[other.boundary(begin)?..];
            tokens.truncate(tokens.iter().zip(other).take_while(|(one, other)| one == other).count());
        }
        tokens.truncate(until_end(tokenizer, &tokens));
        // What comes behind is the model's own to choose, and might be of one token with the last.
        tokens.pop_if(|last| may_grow(tokenizer, *last));
        (tokens.len() >= marked).then_some(Path { tokens, marked, name })
    }
}

/// Whether a longer token begins with this one and goes on with a word.
fn may_grow(tokenizer: &Tokenizer, token: TokenId) -> bool {
    let Some(bytes) = tokenizer.token_bytes(token) else { return true };
    let longer = |other: TokenId| tokenizer.token_bytes(other)?.strip_prefix(bytes)?.first().copied();
    (0..tokenizer.len() as TokenId)
        .filter_map(longer)
        .any(|next| next.is_ascii_alphanumeric() || !next.is_ascii())
}

/// How many tokens stand before the first that ends an answer.
fn until_end(tokenizer: &Tokenizer, tokens: &[TokenId]) -> usize {
    tokens.iter().position(|token| tokenizer.end_tokens().contains(token)).unwrap_or(tokens.len())
}

/// The tokens at which a copy of what stood before ends: ends of lines, and what separates parts of a chat.
pub fn delimiters(tokenizer: &Tokenizer) -> BTreeSet<TokenId> {
    let ends = |token: &TokenId| {
        tokenizer.is_special(*token) || tokenizer.token_bytes(*token).is_some_and(|it| it.ends_with(b"\n"))
    };
    (0..tokenizer.len() as TokenId).filter(ends).collect()
}
