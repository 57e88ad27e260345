//! Sessions: what is proposed after which tokens, and what becomes of it.

use super::*;
use proptest::prelude::*;

const SMALL: Limits = Limits { longest: 6, shortest: 2, run: 2, candidates: 3, indexed: 1000 };
const END: TokenId = 99;

fn rule(trigger: &[TokenId], emit: &[TokenId], kind: Kind) -> Rule {
    Rule { trigger: trigger.to_vec(), emit: emit.to_vec(), kind }
}

fn strict(rules: &[Rule]) -> Fill {
    Fill { rules: rules.into(), echo: None }
}

fn echo(delimiters: &[TokenId]) -> Fill {
    Fill { echo: Some(Arc::new(delimiters.iter().copied().collect())), ..Fill::default() }
}

fn session(fill: &Fill, prompt: &[TokenId]) -> Session {
    Session::new(fill, prompt, &[END], SMALL)
}

fn asserted(ids: &[TokenId], kind: Kind) -> Option<Proposal> {
    Some(Proposal { ids: ids.to_vec(), policy: Policy::Assert, origin: Origin::Rule(kind) })
}

fn copied(ids: &[TokenId], policy: Policy) -> Option<Proposal> {
    Some(Proposal { ids: ids.to_vec(), policy, origin: Origin::Echo })
}

#[test]
fn the_longest_trigger_at_the_end_wins_and_the_first_among_equals() {
    let fill = strict(&[
        rule(&[7], &[1, 1], Kind::Scaffold),
        rule(&[6, 7], &[2, 2], Kind::Name),
        rule(&[6, 7], &[3, 3], Kind::Key),
        rule(&[5, 7], &[4, 4], Kind::Key),
        rule(&[], &[5, 5], Kind::Key),
    ]);
    // The prompt's tokens are part of the history.
    assert_eq!(session(&fill, &[6]).push(7, 9), Ok(asserted(&[2, 2], Kind::Name)));
    assert_eq!(session(&fill, &[6, 8]).push(7, 9), Ok(asserted(&[1, 1], Kind::Scaffold)));
    assert_eq!(session(&fill, &[6, 7]).push(8, 9), Ok(None));
    let mut chained = session(&fill, &[]);
    assert_eq!(chained.push(7, 9), Ok(asserted(&[1, 1], Kind::Scaffold)));
    chained.commit(2).expect("committed");
    // What was filled in is part of it too.
    let fill = strict(&[rule(&[1, 1, 7], &[8, 8], Kind::Key), rule(&[7], &[1, 1], Kind::Scaffold)]);
    let mut chained = session(&fill, &[]);
    assert_eq!(chained.push(7, 9), Ok(asserted(&[1, 1], Kind::Scaffold)));
    chained.commit(2).expect("committed");
    assert_eq!(chained.push(7, 9), Ok(asserted(&[8, 8], Kind::Key)));
}

#[test]
fn spans_are_cut_to_what_may_come_and_short_ones_are_dropped() {
    let long: Vec<TokenId> = (10..20).collect();
    for (emit, budget, expected) in [
        (&long[..], 9, Some(&long[..6])),
        (&long[..], 3, Some(&long[..3])),
        (&long[..], 2, Some(&long[..2])),
        (&long[..], 1, None),
        (&long[..], 0, None),
        (&[1], 9, None),
        (&[1, 2, END, 3], 9, Some(&[1, 2])),
        (&[1, END, 2, 3], 9, None),
        (&[END, 1, 2], 9, None),
    ] {
        let fill = strict(&[rule(&[7], emit, Kind::TurnEnd)]);
        let expected = expected.and_then(|ids| asserted(ids, Kind::TurnEnd));
        assert_eq!(session(&fill, &[]).push(7, budget), Ok(expected), "{emit:?} {budget}");
    }
}

#[test]
fn copies_are_asserted_where_two_places_agree_to_a_delimiter() {
    let twice = [1, 2, 3, 4, 9, 1, 2, 3, 4, 9, 1];
    assert_eq!(session(&echo(&[9]), &twice).push(2, 8), Ok(copied(&[3, 4, 9], Policy::Assert)));
    // Once is a guess, and so is what ends at no delimiter, or is shorter than it was.
    assert_eq!(session(&echo(&[9]), &twice[5..]).push(2, 8), Ok(copied(&[3, 4, 9], Policy::Verify)));
    assert_eq!(session(&echo(&[]), &twice).push(2, 3), Ok(copied(&[3, 4, 9], Policy::Verify)));
    assert_eq!(session(&echo(&[9]), &twice).push(2, 2), Ok(copied(&[3, 4], Policy::Verify)));
    // A copy of one token is none.
    assert_eq!(session(&echo(&[3]), &twice).push(2, 8), Ok(None));
    // It never holds a token that ends the answer.
    let ended = [1, 2, 3, 4, END, 1, 2, 3, 4, END, 1];
    assert_eq!(session(&echo(&[END]), &ended).push(2, 8), Ok(copied(&[3, 4], Policy::Verify)));
    // A fork says so.
    let mut forked = session(&echo(&[9]), &[1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 1]);
    assert_eq!(forked.push(2, 8), Ok(copied(&[3, 4], Policy::Verify)));
    assert_eq!(forked.tally().branch_stops, 1);
}

/// What closes a call in a text that is none closes nothing.
#[test]
fn a_call_is_closed_where_a_rule_has_begun_it() {
    let fill = strict(&[rule(&[1], &[2, 3], Kind::Scaffold), rule(&[7], &[8, 9], Kind::Close)]);
    let mut one = session(&fill, &[1, 2, 3]);
    assert_eq!(one.push(7, 9), Ok(None));
    assert_eq!(one.push(1, 9), Ok(asserted(&[2, 3], Kind::Scaffold)));
    one.commit(2).expect("committed");
    assert_eq!((one.push(5, 9), one.push(7, 9)), (Ok(None), Ok(asserted(&[8, 9], Kind::Close))));
    one.commit(2).expect("committed");
    assert_eq!(one.push(7, 9), Ok(None));
    // Nor where the call has been closed without the rule.
    assert_eq!(one.push(1, 9), Ok(asserted(&[2, 3], Kind::Scaffold)));
    one.commit(2).expect("committed");
    one.observe(&[6, 9]).expect("observed");
    assert_eq!(one.push(7, 9), Ok(None));
}

#[test]
fn rules_come_before_copies() {
    let fill = Fill { rules: strict(&[rule(&[2], &[5, 5], Kind::Name)]).rules, ..echo(&[]) };
    assert_eq!(session(&fill, &[1, 2, 3, 4, 1]).push(2, 8), Ok(asserted(&[5, 5], Kind::Name)));
}

#[test]
fn each_span_is_settled_once() {
    let fill = strict(&[rule(&[7], &[1, 2, 3], Kind::Name)]);
    let mut one = session(&fill, &[]);
    assert_eq!((one.commit(0), one.refuse()), (Err(Error::Settled), Err(Error::Settled)));
    assert_eq!(one.doubt(1), Err(Error::Settled));
    assert!(one.push(7, 9).is_ok_and(|span| span.is_some()));
    assert_eq!(one.push(7, 9), Err(Error::Unsettled));
    assert_eq!(one.observe(&[7]), Err(Error::Unsettled));
    assert_eq!(one.commit(4), Err(Error::Beyond { taken: 4, proposed: 3 }));
    // Nothing of it has happened.
    assert_eq!(one.pending(), asserted(&[1, 2, 3], Kind::Name).as_ref());
    assert_eq!((one.tally().decode_steps, one.tally().events), (1, 0));
    assert_eq!((one.commit(2), one.commit(0)), (Ok(()), Err(Error::Settled)));
    assert_eq!(one.history, [7, 1, 2]);
    let texts = [Error::Unsettled, Error::Settled, Error::Beyond { taken: 4, proposed: 3 }];
    assert!(texts.iter().all(|error| error.to_string().starts_with(|c: char| c.is_lowercase())));
}

#[test]
fn what_becomes_of_spans_is_counted() {
    let fill = Fill { rules: strict(&[rule(&[7], &[5, 6, 8], Kind::Name)]).rules, ..echo(&[9]) };
    let mut one = session(&fill, &[1, 2, 3, 4, 9, 1, 2, 3, 4, 9]);
    assert_eq!(one.push(7, 9).map(|span| span.is_some()), Ok(true));
    one.commit(3).expect("committed");
    assert_eq!(one.push(7, 9).map(|span| span.is_some()), Ok(true));
    one.commit(1).expect("committed");
    one.observe(&[5, 1]).expect("observed");
    // A copy that nobody can verify.
    assert_eq!(one.push(2, 9), Ok(copied(&[3, 4, 9], Policy::Assert)));
    one.refuse().expect("refused");
    one.waste();
    let Tally { events, injected, strict, echo, wasted_samples, decode_steps, .. } = *one.tally();
    assert_eq!((events, injected, strict, echo, wasted_samples, decode_steps), (2, 4, 2, 1, 1, 5));
    assert_eq!(one.tally().spans().collect::<Vec<_>>(), [(1, 1), (3, 1)]);
}

#[test]
fn a_span_that_is_doubted_is_verified_in_part() {
    let fill = strict(&[rule(&[7], &[1, 2, 3], Kind::Name)]);
    let mut one = session(&fill, &[]);
    one.push(7, 9).expect("pushed");
    assert_eq!(one.doubt(2), Ok(&[1, 2][..]));
    assert_eq!(one.commit(3), Err(Error::Beyond { taken: 3, proposed: 2 }));
    one.commit(1).expect("committed");
    let verify = one.tally().verify;
    assert_eq!((verify.events, verify.accepted, verify.rejected, one.tally().events), (1, 1, 1, 0));
    one.push(7, 9).expect("pushed");
    one.refuse().expect("refused");
    assert_eq!((one.tally().verify.unsupported, one.tally().verify.events), (1, 1));
    assert_eq!(one.history, [7, 1, 7]);
}

#[test]
fn past_a_bound_nothing_is_noted() {
    let limits = Limits { indexed: 4, ..SMALL };
    let mut one = Session::new(&echo(&[]), &[1, 2, 3, 4, 5, 6], &[], limits);
    assert_eq!(one.tally().index_truncated, 2);
    assert_eq!(one.push(5, 9), Ok(None));
    assert_eq!(one.push(6, 9), Ok(None));
    assert_eq!((one.push(1, 9), one.push(2, 9)), (Ok(None), Ok(copied(&[3, 4, 5, 6, 5, 6], Policy::Verify))));
}

proptest! {
    /// By its statement: the rule that counts, found by a look at all of them.
    #[test]
    fn a_rule_fits_the_end_and_no_longer_one_does(
        rules in prop::collection::vec((prop::collection::vec(0_u32..3, 0..4), prop::collection::vec(10_u32..14, 0..9)), 0..8),
        prompt in prop::collection::vec(0_u32..3, 0..6),
        (sampled, budget) in (0_u32..3, 0_usize..9),
    ) {
        let rules: Vec<Rule> = rules.iter().map(|(trigger, emit)| rule(trigger, emit, Kind::Key)).collect();
        let history = [&prompt[..], &[sampled]].concat();
        let fitting = rules.iter().filter(|rule| !rule.trigger.is_empty() && history.ends_with(&rule.trigger));
        // Of equals `max_by_key` takes the last.
        let best = fitting.rev().max_by_key(|rule| rule.trigger.len());
        let ids = best.map(|rule| {
            let end = rule.emit.iter().position(|id| *id == 13).unwrap_or(rule.emit.len());
            rule.emit[..end.min(6).min(budget)].to_vec()
        });
        let expected = ids.filter(|ids| ids.len() >= 2).and_then(|ids| asserted(&ids, Kind::Key));
        let mut session = Session::new(&strict(&rules), &prompt, &[13], SMALL);
        prop_assert_eq!(session.push(sampled, budget), Ok(expected));
    }
}
