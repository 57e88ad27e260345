//! Where the calls of several functions part, by their tokens.
//!
//! ```text
//!   <tool_call> \n {" name ": " get _ weather ", " arguments ...       rule:  <tool_call>          -> \n {" name ": " get _
//!                                   time ", " arguments ...            rule:  <tool_call> .. time  -> ", " arguments ..
//! ```
//!
//! Behind what begins a call comes all that every call shares. There the model chooses; each choice has a rule of its own, whose
//! trigger is everything from the call's beginning on.

use std::collections::BTreeMap;
use tandem_contracts::{
    fill::{Kind, Rule},
    text::TokenId,
};
use tandem_spec::fill::Limits;

/// What all calls of one function share, from what begins one on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) tokens: Vec<TokenId>,
    /// How many of them begin the call.
    pub(super) marked: usize,
    /// How many of them there are up to the name's end.
    pub(super) name: usize,
}

/// Whether all calls begin with the same tokens.
pub(super) fn begin_alike(paths: &[Path]) -> bool {
    let Some(first) = paths.first().filter(|first| first.marked > 0) else { return false };
    let beginning = &first.tokens[..first.marked];
    paths.iter().all(|path| path.marked == first.marked && path.tokens.starts_with(beginning))
}

/// The rules of calls that begin alike.
pub(super) fn rules(paths: &[Path]) -> Vec<Rule> {
    let mut rules = Vec::new();
    if let Some(first) = paths.first() {
        follow(&paths.iter().collect::<Vec<_>>(), first.marked, &mut rules);
    }
    rules
}

/// Rules of paths that are the same up to `chosen`, of which something is known to come.
fn follow(paths: &[&Path], chosen: usize, rules: &mut Vec<Rule>) {
    let Some(first) = paths.first() else { return };
    let same = |end: &usize| paths.iter().all(|path| path.tokens.get(*end) == first.tokens.get(*end));
    let common = (chosen..first.tokens.len()).take_while(same).count() + chosen;
    let longest = Limits::default().longest;
    let mut begin = chosen;
    // What is longer than one span goes on behind the next token that is chosen.
    while begin < common {
        let end = common.min(begin + longest);
        let kind = match begin {
            _ if begin == first.marked => Kind::Scaffold,
            _ if begin < first.name => Kind::Name,
            _ => Kind::Key,
        };
        let (trigger, emit) = (first.tokens[..begin].to_vec(), first.tokens[begin..end].to_vec());
        rules.extend((emit.len() > 1).then_some(Rule { trigger, emit, kind }));
        begin = end + 1;
    }
    let mut parts: BTreeMap<TokenId, Vec<&Path>> = BTreeMap::new();
    for path in paths {
        if let Some(&token) = path.tokens.get(common) {
            parts.entry(token).or_default().push(path);
        }
    }
    if parts.len() > 1 {
        parts.into_values().for_each(|part| follow(&part, common + 1, rules));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(tokens: &[TokenId], name: usize) -> Path {
        Path { tokens: tokens.to_vec(), marked: 1, name }
    }

    fn cut(paths: &[Path]) -> Vec<(usize, Vec<TokenId>, Kind)> {
        rules(paths).into_iter().map(|rule| (rule.trigger.len(), rule.emit, rule.kind)).collect()
    }

    #[test]
    fn calls_part_where_their_tokens_do() {
        let paths =
            [path(&[1, 2, 3, 4, 5, 6], 5), path(&[1, 2, 3, 7, 5, 5, 8], 4), path(&[1, 2, 3, 7, 9, 5, 5], 5)];
        assert_eq!(
            cut(&paths),
            [
                (1, vec![2, 3], Kind::Scaffold),
                (4, vec![5, 6], Kind::Name),
                (5, vec![5, 8], Kind::Key),
                (5, vec![5, 5], Kind::Key),
            ]
        );
        assert_eq!(cut(&paths[..1]), [(1, vec![2, 3, 4, 5, 6], Kind::Scaffold)]);
        // One that ends where others go on has nothing more to come.
        assert_eq!(
            cut(&[path(&[1, 2, 3], 3), path(&[1, 2, 3, 4, 5, 6], 5)]),
            [(1, vec![2, 3], Kind::Scaffold)]
        );
        assert_eq!(cut(&[path(&[1, 2], 2), path(&[1, 3, 4], 2)]), []);
    }

    #[test]
    fn long_spans_go_on_behind_the_next_token() {
        let tokens: Vec<TokenId> = (0..70).collect();
        let rules = rules(&[path(&tokens, 10)]);
        let spans: Vec<_> = rules.iter().map(|rule| (rule.trigger.len(), rule.emit.len())).collect();
        assert_eq!(spans, [(1, 32), (34, 32), (67, 3)]);
        assert!(rules.iter().all(|rule| rule.emit[0] == rule.trigger.len() as TokenId));
    }

    #[test]
    fn calls_begin_alike_or_have_no_rules() {
        assert!(begin_alike(&[path(&[1, 2], 2), path(&[1, 3], 2)]));
        assert!(!begin_alike(&[path(&[1, 2], 2), path(&[2, 2], 2)]) && !begin_alike(&[]));
        assert!(!begin_alike(&[Path { marked: 0, ..path(&[1], 1) }]));
    }
}
