//! One choice of a chat on its way: its text taken apart, its calls named, its reasoning counted.
//!
//! Invariants: a token counts as reasoning if the text that it begins stands inside reasoning, tags included, however
//! text and tokens were merged on their way; each call has an id of its own.

use crate::{
    model::ModelText,
    text::{
        Detokenizer, Shown,
        reply::{self, Expected, Reply, Style},
    },
};
use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};
use tandem_contracts::text::TokenId;

/// A piece of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallPiece {
    /// Which call of the choice.
    pub(crate) index: usize,
    /// Id and name, in the call's first piece.
    pub(crate) head: Option<(String, String)>,
    /// More of its arguments.
    pub(crate) arguments: String,
}

/// What a piece of a reply is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Text(String),
    Reasoning(String),
    Call(CallPiece),
}

/// What chats expect of their choices.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) expected: Expected,
    pub(crate) shown: Shown,
}

/// A choice that has not ended.
#[derive(Debug)]
pub(crate) struct Replying {
    reply: Reply,
    style: Style,
    detokenizer: Detokenizer,
    /// Bytes of the text up to the last token.
    reached: usize,
    /// Where the text of each token begins.
    starts: Vec<usize>,
    called: bool,
}

impl Replying {
    pub(crate) fn new(text: &ModelText, plan: &Plan) -> Self {
        Self {
            reply: Reply::new(plan.expected.clone()),
            style: plan.expected.style,
            detokenizer: Detokenizer::showing(Arc::clone(&text.tokenizer), plan.shown.clone()),
            reached: 0,
            starts: Vec::new(),
            called: false,
        }
    }

    /// Takes more text, and the tokens that came with it.
    pub(crate) fn push(&mut self, text: &str, tokens: &[TokenId]) -> Vec<Said> {
        for &token in tokens {
            self.starts.push(self.reached);
            let mut text = String::new();
            self.detokenizer.push(token, &mut text);
            self.reached += text.len();
        }
        let parts = self.reply.push(text);
        self.said(parts)
    }

    /// The text ends here: gives what was held back.
    pub(crate) fn finish(&mut self) -> Vec<Said> {
        let parts = self.reply.finish();
        self.said(parts)
    }

    /// Whether anything was called.
    pub(crate) fn called(&self) -> bool {
        self.called
    }

    /// Tokens of reasoning.
    pub(crate) fn reasoning_tokens(&self) -> usize {
        let spans = self.reply.reasoning();
        self.starts.iter().filter(|start| spans.iter().any(|span| span.contains(start))).count()
    }

    fn said(&mut self, parts: Vec<reply::Part>) -> Vec<Said> {
        let said = parts.into_iter().map(|part| match part {
            reply::Part::Text(text) => Said::Text(text),
            reply::Part::Reasoning(text) => Said::Reasoning(text),
            reply::Part::Call { index, name } => {
                self.called = true;
                let id = self.style.call_id(&name, index, RandomState::new().hash_one(index));
                Said::Call(CallPiece { index, head: Some((id, name)), arguments: String::new() })
            }
            reply::Part::Arguments { index, text } => {
                Said::Call(CallPiece { index, head: None, arguments: text })
            }
        });
        said.collect()
    }
}
