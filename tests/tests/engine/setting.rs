//! A golden model on an engine, what is asked of it, and what proposes.

use std::{collections::BTreeMap, path::PathBuf};
use tandem_contracts::{
    model::{Slot, StatePolicy},
    request::{Event, Outcome, Request, Score, Scoring, Usage},
    sampling::Sampling,
    tensor::{Device, Error, ErrorKind, Precision},
    text::TokenId,
};
use tandem_engine::{
    Config, Draft, DraftSource, Drafting, EngineHandle, Mixing, Models, PrefixLimits, Runs, Subscription,
};
use tandem_models::Options;
use tandem_spec::draft::{Ask, DraftProvider, Guess};
use tandem_tests::{
    device::Backend,
    host::{Machine, request},
    parity::Case,
};

/// Tokens of an answer: enough for rows to meet each other at many lengths.
pub(super) const ANSWER: usize = 12;

#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) prompt: Vec<TokenId>,
    pub(super) sampling: Sampling,
    pub(super) scoring: Scoring,
}

impl Wish {
    pub(super) fn submit(&self, engine: &EngineHandle) -> Subscription {
        let Self { prompt, sampling, scoring } = self.clone();
        let request = Request { sampling, scoring, ..request(prompt, ANSWER) };
        engine.submit(request).unwrap()
    }
}

/// Tokens and their scores.
pub(super) type Answer = (Vec<TokenId>, Vec<Score>);

pub(super) fn answer(mut subscription: Subscription) -> (Answer, Usage) {
    let (mut all, mut all_scores) = (Vec::new(), Vec::new());
    while let Some(event) = subscription.recv() {
        match event {
            Event::Delta { tokens, scores, .. } => {
                all.extend(tokens);
                all_scores.extend(scores);
            }
            Event::Finished { outcome: Outcome::Length, usage } => return ((all, all_scores), usage),
            Event::Finished { outcome, .. } => panic!("{outcome:?}"),
            Event::Progress { .. } | Event::Prompt { .. } => {}
        }
    }
    panic!("no end");
}

/// What proposes.
#[derive(Clone, Debug)]
pub(super) enum Proposer {
    Nothing,
    /// The rows' own past.
    Past,
    /// One that knows whole rows.
    Seer(Seer),
    /// The model itself, in a session of its own.
    Itself,
}

/// Knows what rows come to, and proposes something else at as many of a hundred places.
#[derive(Clone, Debug)]
pub(super) struct Seer {
    rows: Vec<Vec<TokenId>>,
    wrong: usize,
    histories: BTreeMap<Slot, Vec<TokenId>>,
}

impl Proposer {
    /// One that knows these rows, and errs at as many of a hundred places.
    pub(super) fn seer(rows: &[Vec<TokenId>], wrong: usize) -> Self {
        Self::Seer(Seer { rows: rows.to_vec(), wrong, histories: BTreeMap::new() })
    }

    /// Each of them in turn: the past, one that is always right, one that never is, one that errs now and then, the model.
    pub(super) fn turn(rows: &[Vec<TokenId>], number: usize) -> Self {
        match number % 5 {
            0 => Self::Past,
            1 => Self::seer(rows, 0),
            2 => Self::seer(rows, 100),
            3 => Self::seer(rows, 40),
            _ => Self::Itself,
        }
    }
}

impl DraftProvider for Seer {
    fn namespace(&self) -> String {
        "seer".to_owned()
    }

    fn adapters(&self) -> bool {
        true
    }

    fn open(&mut self, slot: Slot, history: &[TokenId]) {
        self.histories.insert(slot, history.to_vec());
    }

    fn commit(&mut self, slot: Slot, tokens: &[TokenId]) {
        self.histories.get_mut(&slot).unwrap().extend(tokens);
    }

    fn propose(&mut self, asks: &[Ask]) -> Vec<Guess> {
        let guess = |ask: &Ask| {
            let history = &self.histories[&ask.slot];
            let known = self.rows.iter().find(|row| row.len() > history.len() && row.starts_with(history));
            let rest = known.map_or(&[][..], |row| &row[history.len()..]);
            let spoilt = |(index, &token): (usize, &TokenId)| {
                let dice = (history.len() + index) * 7919 % 100;
                if dice < self.wrong { token ^ 1 } else { token }
            };
            // One that errs now and then also has now and then nothing to say.
            let most =
                if !self.wrong.is_multiple_of(100) && history.len().is_multiple_of(4) { 0 } else { ask.most };
            Guess { tokens: rest.iter().enumerate().map(spoilt).take(most).collect(), sort: history.len() }
        };
        asks.iter().map(guess).collect()
    }

    fn close(&mut self, slot: Slot) {
        self.histories.remove(&slot);
    }
}

/// A model, where and how it runs.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) backend: Backend,
    pub(super) folder: PathBuf,
    pub(super) precision: Precision,
    pub(super) state: StatePolicy,
}

impl Setting {
    fn engine(&self, config: Config, proposer: Proposer) -> Option<EngineHandle> {
        let Setting { backend, folder, precision, state } = self.clone();
        let broken = |error: &dyn ToString| Error::new(ErrorKind::Data, "load", error.to_string());
        let open = Box::new(move || backend.open().map_err(|error| broken(&error)));
        let build = move |device: &Device| {
            let case = Case::read(&folder).map_err(|error| broken(&error))?;
            let options = Options { precision: Some(precision), ..Options::default() };
            let load = || {
                let checkpoint = case.checkpoint().map_err(|error| broken(&error))?;
                checkpoint.load(device, options).map_err(|error| broken(&error))
            };
            let draft = match proposer {
                Proposer::Nothing | Proposer::Past => None,
                Proposer::Seer(seer) => Some(DraftSource::Provider(Box::new(seer))),
                Proposer::Itself => Some(DraftSource::Model(load()?)),
            };
            Ok(Models { model: load()?, draft })
        };
        let config = Config { state, ..config };
        let engine = tandem_engine::spawn(open, build, config, Machine::clock()).unwrap();
        // Where the model's heads have no such code, no request can ever be cached.
        if engine.longest(None) == Some(0) {
            engine.shutdown();
            return None;
        }
        Some(engine)
    }

    pub(super) fn alone(&self) -> Option<EngineHandle> {
        let config = Config { max_rows: 1, prefix: PrefixLimits::OFF, ..Config::default() };
        self.engine(config, Proposer::Nothing)
    }

    /// Few rows, short steps, kept states.
    pub(super) fn together(
        &self,
        mixing: Mixing,
        max_rows: usize,
        proposer: Proposer,
    ) -> Option<EngineHandle> {
        let prefix = PrefixLimits { bytes: 64 << 20, shortest: 2, boundary: 4 };
        let (step_tokens, prompt_chunk) = (17, 7);
        let draft = match proposer {
            Proposer::Nothing => None,
            Proposer::Past => Some(Draft::Past(Runs::default())),
            Proposer::Seer(_) | Proposer::Itself => Some(Draft::Mounted),
        };
        let always = |draft| Drafting { draft, tokens: 4, adaptive: false, ..Drafting::default() };
        let drafting = draft.map_or(Drafting::OFF, always);
        let config =
            Config { max_rows, step_tokens, prompt_chunk, mixing, prefix, drafting, ..Config::default() };
        self.engine(config, proposer)
    }
}
