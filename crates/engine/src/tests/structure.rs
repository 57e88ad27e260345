//! Rows that a grammar binds.

use super::{
    rig::{Numbers, Rig, config, read, request},
    session::VOCABULARY,
};
use proptest::prelude::*;
use tandem_contracts::{
    grammar::{Matcher, Progress},
    request::{Failure, Outcome, Request},
    sampling::Sampling,
    text::TokenId,
};

/// Allows ids that are `step` more than the last one, or up to two more than that, by the vocabulary's size; is complete after
/// so many tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct Climb {
    pub(crate) taken: Vec<TokenId>,
    pub(crate) step: TokenId,
    pub(crate) length: usize,
    /// Tokens after which it fails.
    pub(crate) fails: Option<usize>,
    pub(crate) panics: Option<usize>,
    /// Whether there is one token at each place and no other.
    pub(crate) strict: bool,
}

impl Climb {
    pub(crate) fn new(step: TokenId, length: usize) -> Self {
        Self { step, length, ..Self::default() }
    }

    fn next(&self) -> Vec<TokenId> {
        let last = self.taken.last().copied().unwrap_or(0);
        let width = if self.strict { 1 } else { 3 };
        (0..width).map(|more| (last + self.step + more) % VOCABULARY as TokenId).collect()
    }
}

impl Matcher for Climb {
    fn allowed(&mut self) -> Result<Vec<u32>, Failure> {
        assert_ne!(self.panics, Some(self.taken.len()), "as scripted");
        if self.fails == Some(self.taken.len()) {
            return Err(Failure { message: "too much".to_owned() });
        }
        let mut set = vec![0; VOCABULARY.div_ceil(32)];
        self.next().iter().for_each(|&token| set[token as usize / 32] |= 1 << (token % 32));
        Ok(set)
    }

    fn accept(&mut self, token: TokenId) -> Result<Progress, Failure> {
        if !self.next().contains(&token) {
            return Err(Failure { message: format!("not allowed: {token}") });
        }
        self.taken.push(token);
        Ok(if self.taken.len() >= self.length { Progress::Complete } else { Progress::Open })
    }

    fn take_back(&mut self, tokens: usize) -> Result<(), Failure> {
        self.taken.truncate(self.taken.len() - tokens);
        Ok(())
    }

    fn forced(&mut self, most: usize) -> Vec<TokenId> {
        let mut ahead = self.clone();
        let mut forced = Vec::new();
        while self.strict && forced.len() < most && ahead.taken.len() < ahead.length {
            let next = ahead.next()[0];
            ahead.taken.push(next);
            forced.push(next);
        }
        forced
    }

    fn prefix(&mut self, tokens: &[TokenId]) -> Result<usize, Failure> {
        let mut ahead = self.clone();
        Ok(tokens
            .iter()
            .take_while(|&&token| ahead.taken.len() < ahead.length && ahead.accept(token).is_ok())
            .count())
    }
}

pub(crate) fn bound(request: Request, grammar: Climb) -> Request {
    Request { grammar: Some(Box::new(grammar)), ..request }
}

/// Whether every token may follow the one before.
fn climbs(tokens: &[TokenId], grammar: &Climb) -> bool {
    let mut check = Climb { taken: Vec::new(), ..grammar.clone() };
    tokens.iter().all(|&token| check.accept(token).is_ok())
}

#[test]
fn an_answer_follows_its_grammar_to_the_end() {
    let mut rig = Rig::new(config());
    let grammar = Climb::new(5, 6);
    let mut free = rig.submit(request(&[1, 2, 3], 9));
    let mut tied = rig.submit(bound(request(&[1, 2, 3], 9), grammar.clone()));
    rig.finish();
    let (free, tied) = (read(&mut free), read(&mut tied));
    assert_eq!((free.outcome(), tied.outcome()), (&Outcome::Length, &Outcome::End));
    // The last token of a grammar is delivered.
    assert_eq!((tied.tokens.len(), tied.usage().completion_tokens), (6, 6));
    assert!(climbs(&tied.tokens, &grammar) && !climbs(&free.tokens, &grammar));
    rig.assert_balanced();
}

#[test]
fn a_grammar_is_cut_at_the_length_and_at_a_stop() {
    let mut rig = Rig::new(config());
    let mut cut = rig.submit(bound(request(&[1, 2], 2), Climb::new(5, 6)));
    rig.finish();
    let cut = read(&mut cut);
    assert_eq!((cut.outcome(), cut.tokens.len()), (&Outcome::Length, 2));
    let text = Box::new(Numbers { stop: Some(cut.tokens[1]), ..Numbers::default() });
    let mut stopped = rig.submit(Request { text, ..bound(request(&[1, 2], 6), Climb::new(5, 6)) });
    rig.finish();
    assert_eq!(read(&mut stopped).outcome(), &Outcome::Stop(3));
    rig.assert_balanced();
}

#[test]
fn a_grammar_that_fails_ends_its_own_row() {
    let mut rig = Rig::new(config());
    let fails = Climb { fails: Some(2), ..Climb::new(5, 6) };
    let panics = Climb { panics: Some(1), ..Climb::new(5, 6) };
    let mut rows = [
        rig.submit(bound(request(&[1, 2], 6), fails)),
        rig.submit(request(&[1, 2], 6)),
        rig.submit(bound(request(&[1, 2], 6), panics)),
        rig.submit(bound(request(&[1, 2], 6), Climb::new(2, 3))),
    ];
    rig.finish();
    let answers: Vec<_> = rows.iter_mut().map(read).collect();
    assert_eq!((answers[0].failure(), answers[0].tokens.len()), ("too much", 2));
    assert_eq!(answers[1].outcome(), &Outcome::Length);
    assert_eq!(
        (answers[2].failure(), answers[2].tokens.len()),
        ("the answer's grammar could not be followed", 1)
    );
    assert_eq!(answers[3].outcome(), &Outcome::End);
    rig.assert_balanced();
}

proptest! {
    #[test]
    fn bound_rows_do_not_depend_on_their_company(
        rows in prop::collection::vec((1_u32..9, 1_usize..9, prop_oneof![Just(0.0_f32), Just(0.8)], any::<bool>()), 1..6),
    ) {
        let wish = |&(step, length, temperature, tied): &(u32, usize, f32, bool)| {
            let sampling = Sampling { temperature, seed: u64::from(step), ..Sampling::default() };
            let request = Request { sampling, ..request(&[step, 2, 3], 7) };
            if tied { bound(request, Climb::new(step, length)) } else { request }
        };
        let mut rig = Rig::new(config());
        let mut together: Vec<_> = rows.iter().map(|row| rig.submit(wish(row))).collect();
        rig.finish();
        for (row, subscription) in rows.iter().zip(&mut together) {
            let mut alone = Rig::new(config());
            let mut expected = alone.submit(wish(row));
            alone.finish();
            let answer = read(subscription);
            prop_assert_eq!(&answer, &read(&mut expected));
            prop_assert!(!row.3 || climbs(&answer.tokens, &Climb::new(row.0, row.1)));
        }
        rig.assert_balanced();
    }
}
