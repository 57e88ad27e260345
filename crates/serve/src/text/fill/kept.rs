//! What has been cut for a model's requests: the turns of a conversation ask for the same rules again and again.

use super::{Calls, Render, delimiters, rules};
use crate::text::Tokenizer;
use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};
use tandem_contracts::{fill::Rule, text::TokenId};

/// Sets of functions whose rules are kept.
const KEPT: usize = 16;
/// Most bytes of what they are kept by.
const KEY: usize = 64 << 10;

/// Rules of the sets of functions that were asked for last.
#[derive(Debug, Default)]
pub struct Kept {
    /// By what they depend on, the last first.
    rules: Mutex<VecDeque<(String, Arc<[Rule]>)>>,
    delimiters: OnceLock<Arc<BTreeSet<TokenId>>>,
}

impl Kept {
    /// The rules of calls, cut where they are not kept.
    pub fn rules(&self, tokenizer: &Tokenizer, calls: &Calls<'_>, render: Render<'_>) -> Arc<[Rule]> {
        let functions = calls.functions.iter().map(|(name, schema)| format!("{name:?}{schema}"));
        let key = format!("{}{}", u8::from(calls.several), functions.collect::<String>());
        if key.len() > KEY {
            return rules(tokenizer, calls, render).into();
        }
        let kept = || self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept().iter().find(|(known, _)| *known == key).map(|(_, rules)| Arc::clone(rules));
        let rules: Arc<[Rule]> = known.unwrap_or_else(|| rules(tokenizer, calls, render).into());
        let mut kept = kept();
        kept.retain(|(known, _)| *known != key);
        kept.push_front((key, Arc::clone(&rules)));
        kept.truncate(KEPT);
        rules
    }

    /// The ids at which copies end.
    pub fn delimiters(&self, tokenizer: &Tokenizer) -> Arc<BTreeSet<TokenId>> {
        Arc::clone(self.delimiters.get_or_init(|| Arc::new(delimiters(tokenizer))))
    }
}
