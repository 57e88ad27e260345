//! Rounds of drafts, of which rows keep unequal parts, through a conversion and a window that goes round: a script.

use crate::{
    SHAPE, affine, kit,
    life::Layout,
    naive::{Naive, Side, append, packed},
};
use std::rc::Rc;
use tandem_contracts::{fake, model::Slot, tensor::Dtype};
use tandem_kv::{
    Kind,
    codec::Scheme,
    policy::Encoding,
    ragged::{RaggedRow, View},
    rows::{Part, Rows},
};

const START: usize = 10;
const WINDOW: usize = 8;
const ROUNDS: usize = 16;
const DRAFTS: usize = 4;
const MODEL: &[u8] = b"a model";

/// A row, and the tokens that it should hold.
struct Held {
    slot: Slot,
    tokens: Vec<u32>,
}

struct Script {
    naive: Naive,
    rows: Box<dyn Rows>,
    held: Vec<Held>,
    next: u32,
}

impl Script {
    fn new(layout: Layout, scheme: Scheme) -> Self {
        let kinds = [Kind::Window { shape: SHAPE, window: WINDOW, keep: 0 }, Kind::Full(SHAPE)];
        let naive = Naive::new(kit(&fake::open(), &kinds, Encoding::Uniform(scheme), START));
        let rows = layout.open(&naive);
        Self { naive, rows, held: Vec::new(), next: 0 }
    }

    /// A row with so many tokens.
    fn join(&mut self, tokens: usize) {
        let slot = Slot(self.held.len() as u32);
        self.rows.join(slot, RaggedRow::new(Rc::clone(&self.naive.kit))).unwrap();
        self.held.push(Held { slot, tokens: Vec::new() });
        let last = self.held.len() - 1;
        for step in self.naive.kit.blueprint().policy().split(0..tokens) {
            self.step(&[last], &[(step.len(), step.len())]);
        }
    }

    /// A step of these rows, each with so many tokens of which it keeps the first ones. What is read is checked.
    fn step(&mut self, order: &[usize], counts: &[(usize, usize)]) {
        let (mut parts, mut ids) = (Vec::new(), Vec::new());
        for (&row, &(count, _)) in order.iter().zip(counts) {
            parts.push(Part { slot: self.held[row].slot, tokens: ids.len()..ids.len() + count });
            ids.extend((0..count as u32).map(|at| self.next + at));
            self.next += count as u32;
        }
        self.rows.begin(&parts).unwrap();
        for layer in self.naive.own() {
            let [keys, values] =
                [Side::Keys, Side::Values].map(|side| packed(&self.naive.kit, &ids, layer, side));
            self.rows.append(layer, &keys, &values).unwrap();
        }
        let views: Vec<Vec<View>> = [0, 1].map(|layer| self.rows.views(layer).unwrap()).to_vec();
        for (index, (&row, part)) in order.iter().zip(&parts).enumerate() {
            let tokens = &mut self.held[row].tokens;
            let position = tokens.len();
            tokens.extend(&ids[part.tokens.clone()]);
            let own: Vec<_> = views.iter().map(|layer| Some(layer[index].clone())).collect();
            self.naive.check_views(&own, tokens, position..position + counts[index].0);
            tokens.truncate(position + counts[index].1);
        }
        drop(views);
        let keep: Vec<usize> = counts.iter().map(|&(_, keep)| keep).collect();
        self.rows.commit(&keep).unwrap();
    }

    /// A round of all rows, in another order each time; none drafts across its threshold.
    fn round(&mut self, round: usize) {
        let count = self.held.len();
        let order: Vec<usize> = (0..count).map(|at| (at + round) % count).collect();
        let counts: Vec<(usize, usize)> = order
            .iter()
            .map(|&row| {
                let limit = self.naive.kit.blueprint().policy().limit(self.held[row].tokens.len());
                let drafts = limit.map_or(DRAFTS, |limit| limit.min(DRAFTS));
                (drafts, ((round + row) % DRAFTS + 1).min(drafts))
            })
            .collect();
        self.step(&order, &counts);
    }

    /// That a row is, byte for byte, the one that got its tokens alone.
    fn check_bytes(&mut self, slot: Slot, tokens: &[u32]) {
        let mut alone = RaggedRow::new(Rc::clone(&self.naive.kit));
        for step in self.naive.kit.blueprint().policy().split(0..tokens.len()) {
            alone.begin(step.len()).unwrap();
            append(&self.naive, &mut [(&mut alone, 0..step.len())], &tokens[step.clone()], usize::MAX);
            alone.commit(step.len()).unwrap();
        }
        let row = self.rows.leave(slot).unwrap();
        assert_eq!(row.tokens(), tokens.len());
        assert_eq!(row.snapshot(MODEL).unwrap(), alone.snapshot(MODEL).unwrap());
        self.rows.join(slot, row).unwrap();
    }
}

#[test]
fn sixteen_ragged_rounds_keep_what_each_row_would_alone() {
    let layouts = [Layout::Ragged, Layout::Padded(DRAFTS), Layout::Padded(1), Layout::Paged(4, 1000)];
    for layout in layouts {
        for scheme in [affine(8), affine(4), Scheme::turbo(8, 3), Scheme::plain(Dtype::Bf16)] {
            for lengths in [&[0][..], &[0, 5, 11], &[9, 15, 21]] {
                let mut script = Script::new(layout, scheme);
                lengths.iter().for_each(|&tokens| script.join(tokens));
                let copy = Slot(9);
                let mut copied = Vec::new();
                for round in 0..ROUNDS {
                    if round == ROUNDS / 2 {
                        let first = &script.held[0];
                        script.rows.fork(first.slot, copy).unwrap();
                        copied = first.tokens.clone();
                    }
                    script.round(round);
                }
                for row in 0..lengths.len() {
                    let Held { slot, tokens } = &script.held[row];
                    let (slot, tokens) = (*slot, tokens.clone());
                    // Every fourth token is kept, and all of four rounds are ten.
                    assert!(tokens.len() > START + WINDOW);
                    script.check_bytes(slot, &tokens);
                }
                script.check_bytes(copy, &copied);
            }
        }
    }
}
