//! What an engine asks of a loaded model: steps over slots.
//!
//! ```text
//!   planner --Step--> Session --Stepped--> sampler
//!                     (slots -> cache rows, weights, device)
//! ```
//!
//! A [`Step`] is a plain value without tensors, so that planner tests are text. It has no phases: a row's tokens
//! continue what its slot holds, whether they are a prompt's chunk, one decoded token, or a window of drafts that
//! is to be verified; rows of every kind share one step. Slots cross this boundary, caches never do.
//!
//! Invariants of every implementation:
//!
//! 1. On a batch-invariant device a row's logits depend on that row's own tokens only: not on its company, its
//!    chunks, or the order of rows.
//! 2. A step that returns an error has changed no slot's token count.
//! 3. Positions are read once per step, before anything is appended.

use crate::{
    execution::ModelFacts,
    tensor::{Affine, Error, ErrorKind, Result, Tensor},
    text::TokenId,
};
use std::{any::Any, fmt};

/// Names one live row of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Names a set of mounted adapters; [`AdapterSet::BASE`] is the bare model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterSet(pub u32);

impl AdapterSet {
    /// The model without adapters.
    pub const BASE: Self = Self(0);
}

/// Where a row's tokens of this step come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// Known ids, at least one.
    Ids(Vec<TokenId>),
    /// The one token that this slot sampled last, on a deferred device, and that the host has not read
    /// ([`Session::register`]).
    Register(Slot),
}

impl TokenSource {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        match self {
            Self::Ids(ids) => ids.len(),
            Self::Register(_) => 1,
        }
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Which of a row's tokens want logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// None: more of the prompt follows in a later step.
    None,
    /// The last one.
    Last,
    /// Every one: a verification window.
    All,
}

impl Wanted {
    /// How many of `tokens` tokens want logits.
    pub fn count(self, tokens: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Last => tokens.min(1),
            Self::All => tokens,
        }
    }
}

/// One row's part of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowStep {
    /// The row.
    pub slot: Slot,
    /// Tokens that the slot holds already. The session refuses a step that disagrees with its own count, so that
    /// a planner and a cache can never drift apart unseen.
    pub position: usize,
    /// The tokens to process.
    pub tokens: TokenSource,
    /// Which of them want logits.
    pub wanted: Wanted,
    /// Adapters of this row.
    pub adapters: AdapterSet,
}

/// One forward pass over the packed tokens of its rows, in order. A slot occurs at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The rows.
    pub rows: Vec<RowStep>,
}

impl Step {
    /// Packed tokens in all.
    pub fn tokens(&self) -> usize {
        self.rows.iter().map(|row| row.tokens.len()).sum()
    }

    /// Rows of logits that the step gives.
    pub fn wanted(&self) -> usize {
        self.rows.iter().map(|row| row.wanted.count(row.tokens.len())).sum()
    }
}

/// What a step gives. Nothing has been evaluated on a deferred device: the engine evaluates both together, once.
#[derive(Clone, Debug)]
pub struct Stepped {
    /// `[wanted, vocabulary]` in f32, in the order of rows and of tokens; absent when no token wants logits.
    pub logits: Option<Tensor>,
    /// Cache planes that the step has written; none where it stays open so that drafts can be taken back ([`Session::trim`]):
    /// what its rows do next is made of those.
    pub touched: Vec<Tensor>,
    /// `i32 [rows]`, in the order of the step: 0 where keys or values of a row are not finite, or were not as they were to
    /// be stored; such a row must end. Absent where no layer keeps keys.
    pub sound: Option<Tensor>,
}

/// The state of a row that no step can reach: finished, stored, or about to be resumed.
pub trait RowState: Any + fmt::Debug {
    /// Tokens that it holds.
    fn tokens(&self) -> usize;

    /// Device bytes that it keeps alive.
    fn bytes(&self) -> usize;

    /// Fewest tokens to which it may be shortened for reuse.
    fn reuse_floor(&self) -> usize;

    /// A second owner of the same state; later appends to one are not seen by the other.
    ///
    /// # Errors
    /// The device's own.
    fn fork(&self) -> Result<Box<dyn RowState>>;

    /// Everything on the device that it is made of: on a deferred device to be evaluated before it is kept, as it would hold
    /// on to what it is computed from.
    fn planes(&self) -> Vec<Tensor>;

    /// For the session that made it to find its own type again.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// How a row's keys and values are kept. Rows of one policy can share a step.
///
/// Precision is a function of position alone: a query before `start` reads every key as the model computed it, one from
/// `start` on reads every key encoded, its own included. So no step of a row crosses `start` ([`StatePolicy::limit`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum StatePolicy {
    /// As the model computes them.
    #[default]
    Plain,
    /// Encoded from a position on.
    Encoded {
        /// Which layers, and how.
        codes: Codes,
        /// Position of the first query that reads codes.
        start: usize,
    },
}

/// Which layers of a model are encoded, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// Every layer that can be.
    Uniform(Code),
    /// These layers, by index; the others stay plain.
    ByLayer(Vec<(usize, Code)>),
}

/// How one layer's keys and values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Affine codes of both.
    Affine(Affine),
    /// TurboQuant.
    Turbo {
        /// Bits of a key's element: 2, 4, 5 or 8.
        keys: u8,
        /// Bits of a value's element: 2, 3, 4, 5 or 8.
        values: u8,
    },
}

impl StatePolicy {
    /// The most tokens of a step that begins at `position`; none where nothing limits it.
    pub fn limit(&self, position: usize) -> Option<usize> {
        match self {
            Self::Encoded { start, .. } if position < *start => Some(start - position),
            Self::Encoded { .. } | Self::Plain => None,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Affine(Affine { bits, group }) => write!(f, "affine {bits} bit, groups of {group}"),
            Self::Turbo { keys, values } => write!(f, "TurboQuant k{keys}v{values}"),
        }
    }
}

/// Facts about a loaded model. Values, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Tokens that a row may hold.
    pub context: usize,
    /// Width of the logits; may exceed the tokeniser's vocabulary.
    pub vocabulary: usize,
    /// Whether a row may be shortened at any time; see [`Session::trim`].
    pub trimmable: bool,
    /// What it can do beside, as plans of requests ask.
    pub execution: ModelFacts,
}

/// Drives one loaded model. One implementation serves every family; tests of planners use a fake.
pub trait Session: fmt::Debug {
    /// What the model can do.
    fn capabilities(&self) -> &Capabilities;

    /// Device bytes that rows take together at most under `policy`, each on its way to as many tokens as `rows` says, in
    /// steps that give no row more than `step` tokens. Rows that share planes may take more than each would alone.
    ///
    /// # Errors
    /// The model cannot keep its rows so; or `Memory`, where it cannot keep these together.
    fn project_bytes(&self, policy: &StatePolicy, rows: &[usize], step: usize) -> Result<usize>;

    /// Layers that stay plain although `policy` would have them encoded, or that lie in no blocks although rows are paged,
    /// each with its reason: lines for people.
    ///
    /// # Errors
    /// The model cannot keep its rows so.
    fn exemptions(&self, policy: &StatePolicy) -> Result<Vec<String>>;

    /// Opens a row: fresh, or continuing a stored state.
    ///
    /// # Errors
    /// The slot is open, the model cannot keep rows so, or the state is not of this session and policy.
    fn open(&mut self, slot: Slot, policy: &StatePolicy, state: Option<Box<dyn RowState>>) -> Result<()>;

    /// Closes a row and hands out its state.
    ///
    /// # Errors
    /// The slot is not open, or the row cannot be taken out and stays: it can be discarded only.
    fn close(&mut self, slot: Slot) -> Result<Box<dyn RowState>>;

    /// Closes a row and drops what it holds, whatever its state; does nothing where the slot is not open.
    fn discard(&mut self, slot: Slot);

    /// A stored state as bytes that [`Session::restore`] takes back; `model` is a name that no other model has.
    ///
    /// # Errors
    /// The state is not of this session, or the device's own: planes are evaluated and downloaded.
    fn snapshot(&self, state: &dyn RowState, model: &[u8]) -> Result<Vec<u8>>;

    /// The state that [`Session::snapshot`] made these bytes of, to be opened under the same policy.
    ///
    /// # Errors
    /// `Data`, with the reason, where the bytes are not those of a state of this model and policy; or as
    /// [`Session::open`].
    fn restore(&mut self, policy: &StatePolicy, model: &[u8], bytes: &[u8]) -> Result<Box<dyn RowState>>;

    /// Opens `to` as a copy of `from`.
    ///
    /// # Errors
    /// `from` is not open, or `to` is.
    fn fork(&mut self, from: Slot, to: Slot) -> Result<()>;

    /// Shortens a row to its first `tokens` tokens. Every row that takes more than one token in a step with
    /// [`Wanted::All`] can be shortened by some or all of them as long as nothing but this has been asked of the session
    /// since: that is how drafts are taken back where layers carry states of fixed size.
    ///
    /// # Errors
    /// The slot is not open, holds fewer tokens, or cannot be shortened that far; nothing has changed then.
    fn trim(&mut self, slot: Slot, tokens: usize) -> Result<()>;

    /// Takes the tokens that these slots have sampled, `i32` and one for each, before anybody has read them:
    /// [`TokenSource::Register`] means them in the next step.
    ///
    /// # Errors
    /// Another dtype or number of tokens, or a session that keeps no register ([`ModelFacts::registers`]).
    fn register(&mut self, slots: &[Slot], sampled: &Tensor) -> Result<()> {
        let _ = (slots, sampled);
        Err(Error::new(ErrorKind::Unsupported, "register", "this session keeps no register"))
    }

    /// Runs one forward pass and advances its rows.
    ///
    /// # Errors
    /// A malformed step (unknown or repeated slot, rows of different policies, wrong position, no token or more than
    /// [`StatePolicy::limit`], an id outside the vocabulary, a row past the context, adapters that are not mounted), or
    /// the device's own; no slot's count has changed then.
    fn step(&mut self, step: &Step) -> Result<Stepped>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_where_precision_changes() {
        let codes = Codes::Uniform(Code::Turbo { keys: 8, values: 3 });
        let policy = StatePolicy::Encoded { codes, start: 5 };
        assert_eq!([0, 4, 5, 9].map(|position| policy.limit(position)), [Some(5), Some(1), None, None]);
        assert_eq!(StatePolicy::Plain.limit(0), None);
    }

    #[test]
    fn a_step_counts_its_tokens_and_its_logits() {
        let row = |slot, tokens: TokenSource, wanted| RowStep {
            slot: Slot(slot),
            position: 0,
            tokens,
            wanted,
            adapters: AdapterSet::BASE,
        };
        let step = Step {
            rows: vec![
                row(0, TokenSource::Ids(vec![1, 2, 3]), Wanted::None),
                row(1, TokenSource::Register(Slot(1)), Wanted::Last),
                row(2, TokenSource::Ids(vec![4, 5]), Wanted::All),
            ],
        };
        assert_eq!((step.tokens(), step.wanted()), (6, 3));
    }
}
