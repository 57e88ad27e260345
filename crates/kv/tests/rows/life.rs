//! Random lives of rows that are stepped together, in any layout.

use crate::{
    kit_of,
    naive::{Naive, Side, append, packed},
    recurrent::inputs,
};
use proptest::prelude::*;
use std::{fmt, num::NonZeroUsize, ops::Range, rc::Rc};
use tandem_contracts::{
    model::Slot,
    tensor::{Device, Dtype, ErrorKind, Tensor},
};
use tandem_kv::{
    Kind,
    bank::Paging,
    policy::Encoding,
    ragged::{RaggedRow, View},
    rows::{Part, Rows},
};

/// What lies between rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    Ragged,
    /// Steps of at most so many tokens are taken side by side.
    Padded(usize),
    /// Blocks of so many positions, for so many tokens.
    Paged(usize, usize),
}

impl Layout {
    pub(crate) fn of(self) -> tandem_kv::Layout {
        match self {
            Self::Ragged => tandem_kv::Layout::Ragged,
            Self::Padded(most) => tandem_kv::Layout::Padded { most },
            Self::Paged(block, most) => {
                let block = NonZeroUsize::new(block).unwrap();
                tandem_kv::Layout::Paged(Paging { block, tokens: 1, most })
            }
        }
    }

    pub(crate) fn open(self, naive: &Naive) -> Box<dyn Rows> {
        self.of().open(Rc::clone(&naive.kit))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// For each row the tokens that it wants, and how many of them it keeps; modulo what there is.
    Step(Vec<(usize, usize)>),
    /// Some layers are written, then the step of all rows is given up.
    GiveUp {
        tokens: usize,
        layers: usize,
    },
    Trim {
        row: usize,
        tokens: usize,
    },
    Fork {
        row: usize,
    },
    Discard {
        row: usize,
    },
    /// The row leaves and comes back under another slot, as bytes or as it is.
    Return {
        row: usize,
        stored: bool,
    },
    /// Rows take part in steps in another order.
    Swap {
        row: usize,
        with: usize,
    },
}

pub(crate) fn actions() -> impl Strategy<Value = Vec<Action>> {
    let row = any::<usize>();
    let action = prop_oneof![
        8 => prop::collection::vec((0..9_usize, any::<usize>()), 1..5).prop_map(Action::Step),
        4 => (prop::collection::vec(0..2_usize, 4), any::<usize>())
            .prop_map(|(tokens, keep)| Action::Step(tokens.into_iter().map(|one| (one, keep)).collect())),
        1 => (1..9_usize, 0..3_usize).prop_map(|(tokens, layers)| Action::GiveUp { tokens, layers }),
        2 => (row, any::<usize>()).prop_map(|(row, tokens)| Action::Trim { row, tokens }),
        2 => row.prop_map(|row| Action::Fork { row }),
        1 => row.prop_map(|row| Action::Discard { row }),
        1 => (row, any::<bool>()).prop_map(|(row, stored)| Action::Return { row, stored }),
        1 => (row, row).prop_map(|(row, with)| Action::Swap { row, with }),
    ];
    prop::collection::vec(action, 1..14)
}

/// A model's layers, and how they are stored.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) plain: Dtype,
    pub(crate) encoding: Encoding,
    pub(crate) start: usize,
}

pub(crate) struct Life {
    naive: Naive,
    rows: Box<dyn Rows>,
    /// Rows, in the order of their parts, and the tokens that each should hold.
    held: Vec<(Slot, Vec<u32>)>,
    slots: u32,
    next: u32,
    /// Whether a step may find no room.
    scarce: bool,
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.held)
    }
}

const MODEL: &[u8] = b"a model";

impl Life {
    pub(crate) fn new(device: &Device, model: &Model, layout: Layout) -> Self {
        let Model { kinds, plain, encoding, start } = model.clone();
        let naive = Naive::new(kit_of(plain, device, &kinds, encoding, start));
        let rows = layout.open(&naive);
        let mut life = Self { naive, rows, held: Vec::new(), slots: 0, next: 0, scarce: false };
        life.join(None, Vec::new());
        life
    }

    fn join(&mut self, row: Option<RaggedRow>, tokens: Vec<u32>) {
        let slot = self.slot();
        let row = row.unwrap_or_else(|| RaggedRow::new(Rc::clone(&self.naive.kit)));
        self.rows.join(slot, row).unwrap();
        self.held.push((slot, tokens));
    }

    fn slot(&mut self) -> Slot {
        self.slots += 1;
        Slot(self.slots % 7 * 100 + self.slots)
    }

    /// Parts of a step in which each row wants so many tokens, as far as no threshold forbids it, and packed tokens.
    fn plan(&mut self, wanted: impl Iterator<Item = usize>) -> (Vec<Part>, Vec<u32>) {
        // Somebody else's tokens stand before those of the rows; but a state belongs to every token.
        let mut tokens = if self.carries() { Vec::new() } else { vec![u32::MAX; 2] };
        let mut parts = Vec::new();
        for ((slot, held), wanted) in self.held.iter().zip(wanted) {
            let limit = self.naive.kit.blueprint().policy().limit(held.len());
            let count = limit.map_or(wanted, |limit| limit.min(wanted));
            if count > 0 {
                let first = tokens.len();
                tokens.extend((0..count as u32).map(|i| self.next + i));
                self.next += count as u32;
                parts.push(Part { slot: *slot, tokens: first..first + count });
            }
        }
        (parts, tokens)
    }

    /// Whether a layer carries a state.
    fn carries(&self) -> bool {
        self.naive.kit.blueprint().kinds().iter().any(|kind| matches!(kind, Kind::Recurrent(_)))
    }

    /// Takes tokens through the first `layers` layers that keep something; gives the outputs of those that carry a state.
    fn append(&mut self, tokens: &[u32], layers: usize) -> Vec<(usize, Tensor)> {
        let mut outputs = Vec::new();
        for layer in self.naive.own().take(layers) {
            if let Kind::Recurrent(_) = self.naive.kit.blueprint().kinds()[layer] {
                let net = self.naive.alone.borrow_mut().net(&self.naive.kit, layer);
                let inputs = inputs(&self.naive.kit, tokens, layer);
                outputs.push((layer, self.rows.recur(layer, &inputs, &net).unwrap()));
                continue;
            }
            let [keys, values] =
                [Side::Keys, Side::Values].map(|side| packed(&self.naive.kit, tokens, layer, side));
            self.rows.append(layer, &keys, &values).unwrap();
        }
        outputs
    }

    fn begin(&mut self, parts: &[Part]) -> bool {
        match self.rows.begin(parts) {
            Ok(()) => true,
            Err(error) => {
                assert!(self.scarce && error.kind() == ErrorKind::Memory, "{error}");
                false
            }
        }
    }

    /// Of each layer that has keys.
    fn views(&self) -> Vec<Option<Vec<View>>> {
        let kinds = self.naive.kit.blueprint().kinds().iter().enumerate();
        kinds
            .map(|(layer, kind)| match kind {
                Kind::Recurrent(_) => None,
                _ => Some(self.rows.views(layer).unwrap()),
            })
            .collect()
    }

    fn step(&mut self, wanted: &[(usize, usize)]) {
        let (parts, tokens) = self.plan(wanted.iter().map(|&(tokens, _)| tokens));
        if parts.is_empty() || !self.begin(&parts) {
            return;
        }
        let outputs = self.append(&tokens, usize::MAX);
        let views = self.views();
        let sound = self.rows.sound().unwrap().map(|sound| sound.to_vec::<i32>().unwrap());
        assert!(sound.is_none_or(|sound| sound == vec![1; parts.len()]));
        let mut keeps = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let of = self.held.iter().position(|(slot, _)| *slot == part.slot).unwrap();
            let (count, keep) = (part.tokens.len(), wanted[of].1);
            let held = &mut self.held[of].1;
            let position = held.len();
            held.extend(&tokens[part.tokens.clone()]);
            let own: Vec<Option<View>> =
                views.iter().map(|views| views.as_ref().map(|views| views[index].clone())).collect();
            let positions: Range<usize> = position..position + count;
            self.naive.check_views(&own, held, positions.clone());
            for output in &outputs {
                let (kit, step) = (&self.naive.kit, (&held[..], positions.clone()));
                self.naive.alone.borrow_mut().check(kit, output, &part.tokens, step);
            }
            // Mostly all, as in ordinary steps.
            let keep = if keep % 3 == 0 { keep % (count + 1) } else { count };
            held.truncate(position + keep);
            keeps.push(keep);
        }
        drop(views);
        let planes = self.rows.commit(&keeps).unwrap();
        self.naive.device().eval(&planes.iter().collect::<Vec<_>>()).unwrap();
    }

    fn give_up(&mut self, tokens: usize, layers: usize) {
        let (parts, tokens) = self.plan(std::iter::repeat(tokens));
        if self.begin(&parts) {
            self.append(&tokens, layers);
            self.rows.roll_back();
        }
    }

    fn trim(&mut self, row: usize, tokens: usize) {
        let (slot, held) = &mut self.held[row];
        let kept = tokens % (held.len() + 1);
        let floor = self.rows.floor(*slot).unwrap();
        assert!(floor <= held.len());
        if kept < floor {
            assert_eq!(self.rows.trim(*slot, kept).unwrap_err().kind(), ErrorKind::Index);
        } else {
            self.rows.trim(*slot, kept).unwrap();
            held.truncate(kept);
        }
    }

    fn fork(&mut self, row: usize) {
        let (from, tokens) = self.held[row].clone();
        let to = self.slot();
        self.rows.fork(from, to).unwrap();
        self.held.push((to, tokens));
    }

    fn come_back(&mut self, row: usize, stored: bool) {
        let (slot, tokens) = self.held.swap_remove(row);
        let mut row = self.rows.leave(slot).unwrap();
        assert_eq!((row.tokens(), self.rows.contains(slot)), (tokens.len(), false));
        if stored {
            let bytes = row.snapshot(MODEL).unwrap();
            // A row that ends at its threshold is converted or not, as its next step would have it converted anyway.
            let mut layers = self.naive.kit.blueprint().policy().layers().iter();
            if layers.all(|layer| layer.boundary() != Some(tokens.len())) {
                assert_eq!(bytes, self.alone(&tokens).snapshot(MODEL).unwrap());
            }
            row = RaggedRow::restore(Rc::clone(&self.naive.kit), MODEL, &bytes).unwrap();
        }
        self.naive.alone.borrow_mut().check_states(&self.naive.kit, &row, &tokens);
        self.join(Some(row), tokens);
    }

    /// A row that was never with others, and got these tokens in as few steps as can be.
    fn alone(&self, tokens: &[u32]) -> RaggedRow {
        let mut row = RaggedRow::new(Rc::clone(&self.naive.kit));
        for step in self.naive.kit.blueprint().policy().split(0..tokens.len()) {
            row.begin(step.len()).unwrap();
            append(&self.naive, &mut [(&mut row, 0..step.len())], &tokens[step.clone()], usize::MAX);
            row.commit(step.len()).unwrap();
        }
        row
    }

    fn discard(&mut self, row: usize) {
        let (slot, _) = self.held.swap_remove(row);
        self.rows.discard(slot);
        if self.held.is_empty() {
            self.join(None, Vec::new());
        }
    }

    pub(crate) fn run(&mut self, action: &Action) {
        let count = self.held.len();
        match *action {
            Action::Step(ref wanted) => self.step(wanted),
            Action::GiveUp { tokens, layers } => self.give_up(tokens, layers),
            Action::Trim { row, tokens } => self.trim(row % count, tokens),
            Action::Fork { row } if count < 4 => self.fork(row % count),
            Action::Fork { .. } => {}
            Action::Discard { row } => self.discard(row % count),
            Action::Return { row, stored } => self.come_back(row % count, stored),
            Action::Swap { row, with } => self.held.swap(row % count, with % count),
        }
        for (slot, tokens) in &self.held {
            assert_eq!(self.rows.tokens(*slot).unwrap(), tokens.len());
        }
    }
}

/// Runs a life, and at its end one more step of every row, so that nothing stays unread.
pub(crate) fn live(device: &Device, model: &Model, layout: Layout, actions: &[Action]) {
    let mut life = Life::new(device, model, layout);
    actions.iter().for_each(|action| life.run(action));
    life.step(&[(1, 1); 4]);
}

/// Runs a life in a pool of so many tokens, in which steps may find no room; at its end no block is missing.
pub(crate) fn live_in(device: &Device, model: &Model, (block, most): (usize, usize), actions: &[Action]) {
    let mut life = Life::new(device, model, Layout::Paged(block, most));
    life.scarce = true;
    actions.iter().for_each(|action| life.run(action));
    while life.held.len() > 1 {
        life.discard(0);
    }
    life.discard(0);
    life.scarce = false;
    let mut left = most;
    while left > 0 {
        let before = life.held[0].1.len();
        life.step(&[(left, 1)]);
        left -= life.held[0].1.len() - before;
    }
}
