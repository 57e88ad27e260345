//! Random lives of rows in a batch: steps shared by several rows, rounds kept in part, failures, trims, forks, leaves
//! and reorderings; in every step every row holds what it would hold alone.

use crate::{
    SHAPE, affine, kit,
    naive::{Naive, Pair, append},
};
use proptest::prelude::*;
use std::rc::Rc;
use tandem_contracts::{
    fake,
    tensor::{Device, Dtype},
};
use tandem_kv::{Kind, LayerShape, codec::Scheme, policy::Encoding, ragged::RaggedRow};

#[derive(Clone, Debug)]
enum Action {
    /// For each row the tokens that it wants, and how many of them it keeps; modulo what there is.
    Step(Vec<(usize, usize)>),
    /// Some layers are written, then the step is given up.
    GiveUp {
        row: usize,
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
    Leave {
        row: usize,
    },
    Swap {
        row: usize,
        with: usize,
    },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let row = any::<usize>();
    let action = prop_oneof![
        8 => prop::collection::vec((0..9_usize, any::<usize>()), 1..4).prop_map(Action::Step),
        1 => (row, 1..9_usize, 0..3_usize)
            .prop_map(|(row, tokens, layers)| Action::GiveUp { row, tokens, layers }),
        2 => (row, any::<usize>()).prop_map(|(row, tokens)| Action::Trim { row, tokens }),
        1 => row.prop_map(|row| Action::Fork { row }),
        1 => row.prop_map(|row| Action::Leave { row }),
        1 => (row, row).prop_map(|(row, with)| Action::Swap { row, with }),
    ];
    prop::collection::vec(action, 1..14)
}

struct Batch {
    naive: Naive,
    pairs: Vec<Pair>,
    next: u32,
}

impl Batch {
    fn new(naive: Naive) -> Self {
        let row = RaggedRow::new(Rc::clone(&naive.kit));
        Self { naive, pairs: vec![Pair { row, tokens: Vec::new() }], next: 0 }
    }

    /// As many of `wanted` tokens as no threshold forbids.
    fn allowed(&self, row: usize, wanted: usize) -> usize {
        let limit = self.naive.kit.blueprint().policy().limit(self.pairs[row].tokens.len());
        limit.map_or(wanted, |limit| limit.min(wanted))
    }

    fn step(&mut self, wanted: &[(usize, usize)]) {
        let counts: Vec<usize> = wanted
            .iter()
            .take(self.pairs.len())
            .enumerate()
            .map(|(row, &(tokens, _))| self.allowed(row, tokens))
            .collect();
        // Somebody else's tokens stand before those of the rows.
        let mut tokens = vec![u32::MAX; 2];
        let mut rows = Vec::new();
        for (pair, &count) in self.pairs.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            let first = tokens.len();
            tokens.extend((0..count as u32).map(|i| self.next + i));
            self.next += count as u32;
            pair.row.begin(count).unwrap();
            rows.push((&mut pair.row, first..first + count));
        }
        let ranges: Vec<_> = rows.iter().map(|(_, range)| range.clone()).collect();
        append(&self.naive, &mut rows, &tokens, usize::MAX);
        drop(rows);
        let keeps = wanted.iter().map(|&(_, keep)| keep);
        let stepped = self.pairs.iter_mut().zip(&counts).zip(keeps).filter(|((_, count), _)| **count > 0);
        for (((pair, &count), keep), range) in stepped.zip(ranges) {
            let position = pair.tokens.len();
            pair.tokens.extend(&tokens[range]);
            self.naive.check(&pair.row, &pair.tokens, position..position + count);
            // Mostly all, as in ordinary steps.
            let keep = if keep % 3 == 0 { keep % (count + 1) } else { count };
            pair.row.commit(keep).unwrap();
            pair.tokens.truncate(position + keep);
            let sound = pair.row.take_sound().unwrap().map(|sound| sound.to_vec::<i32>().unwrap());
            assert!(sound.is_none_or(|sound| sound == [1]));
        }
    }

    fn give_up(&mut self, row: usize, tokens: usize, layers: usize) {
        let row = row % self.pairs.len();
        let tokens = self.allowed(row, tokens);
        let row = &mut self.pairs[row].row;
        row.begin(tokens).unwrap();
        append(&self.naive, &mut [(&mut *row, 0..tokens)], &vec![u32::MAX; tokens], layers);
        row.roll_back();
    }

    fn trim(&mut self, row: usize, tokens: usize) {
        let row = row % self.pairs.len();
        let Pair { row, tokens: held } = &mut self.pairs[row];
        let kept = tokens % (held.len() + 1);
        let floor = row.floor();
        assert!(floor <= held.len());
        if kept < floor {
            assert!(row.trim(kept).is_err());
        } else {
            row.trim(kept).unwrap();
            held.truncate(kept);
        }
    }

    fn run(&mut self, action: &Action) {
        let count = self.pairs.len();
        match *action {
            Action::Step(ref wanted) => self.step(wanted),
            Action::GiveUp { row, tokens, layers } => self.give_up(row, tokens, layers),
            Action::Trim { row, tokens } => self.trim(row, tokens),
            Action::Fork { row } if count < 4 => {
                let Pair { row, tokens } = &self.pairs[row % count];
                self.pairs.push(Pair { row: row.fork().unwrap(), tokens: tokens.clone() });
            }
            Action::Fork { .. } => {}
            Action::Leave { row } => {
                self.pairs.swap_remove(row % count);
                if self.pairs.is_empty() {
                    let row = RaggedRow::new(Rc::clone(&self.naive.kit));
                    self.pairs.push(Pair { row, tokens: Vec::new() });
                }
            }
            Action::Swap { row, with } => self.pairs.swap(row % count, with % count),
        }
        for Pair { row, tokens } in &self.pairs {
            assert_eq!(row.tokens(), tokens.len());
        }
    }
}

/// Runs a life, and at its end one more step of every row, so that nothing stays unread.
fn live(kinds: &[Kind], encoding: Encoding, start: usize, actions: &[Action]) {
    live_on(&fake::open(), kinds, encoding, start, actions);
}

fn live_on(device: &Device, kinds: &[Kind], encoding: Encoding, start: usize, actions: &[Action]) {
    let mut batch = Batch::new(Naive::new(kit(device, kinds, encoding, start)));
    actions.iter().for_each(|action| batch.run(action));
    batch.step(&[(1, 1); 4]);
}

/// Small, as most of the time goes into reading planes.
const NARROW: LayerShape = LayerShape { heads: 2, key_width: 32, value_width: 32 };
const FULL: Kind = Kind::Full(NARROW);

fn windows() -> impl Strategy<Value = [Kind; 2]> {
    (1..10_usize).prop_map(|window| [Kind::Window { shape: NARROW, window }, FULL])
}

fn scheme() -> impl Strategy<Value = Scheme> {
    prop::sample::select(vec![Scheme::plain(Dtype::Bf16), affine(8), affine(4)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whole_rows(actions in actions(), scheme in scheme(), start in 0..12_usize) {
        live(&[FULL, FULL], Encoding::Uniform(scheme), start, &actions);
    }

    #[test]
    fn windows_and_whole_rows(kinds in windows(), actions in actions(), scheme in scheme(), start in 0..12_usize) {
        live(&kinds, Encoding::Uniform(scheme), start, &actions);
    }
}

thread_local! {
    static CPU: Device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn on_the_cpu(kinds in windows(), actions in actions(), scheme in scheme(), start in 0..12_usize) {
        CPU.with(|cpu| live_on(cpu, &kinds, Encoding::Uniform(scheme), start, &actions));
    }

    #[test]
    fn layers_that_read_others(actions in actions(), scheme in scheme(), start in 0..12_usize) {
        let window = Kind::Window { shape: NARROW, window: 5 };
        let kinds = [FULL, window, Kind::Shared { donor: 1 }, Kind::Shared { donor: 0 }];
        live(&kinds, Encoding::Uniform(scheme), start, &actions);
    }

    #[test]
    fn layers_stored_each_its_own_way(actions in actions(), window in 1..10_usize, start in 0..12_usize) {
        let kinds = [FULL, Kind::Window { shape: NARROW, window }, FULL];
        live(&kinds, Encoding::ByLayer(vec![(0, affine(4)), (1, affine(8))]), start, &actions);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn turbo_rows(actions in actions(), start in 0..12_usize, bits in prop::sample::select(vec![(8, 3), (4, 2), (5, 5)])) {
        live(&[Kind::Full(SHAPE)], Encoding::Uniform(Scheme::turbo(bits.0, bits.1)), start, &actions);
    }
}
