//! Tests of sessions whose layers have experts.

use super::{PLAIN, part, run};
use crate::{
    Options,
    sample::{self, ROUTED, Routed},
};
use proptest::prelude::*;
use tandem_contracts::{
    fake,
    model::{Session, Slot, Wanted},
    tensor::Device,
};

/// Tokens of each row.
const LENGTH: usize = 10;

fn open(model: &Routed, device: &Device) -> Box<dyn Session> {
    sample::load(&(model.config)(), &(model.weights)(), device, Options::default()).unwrap()
}

/// Logits behind each token of a row that is alone, one token in each step.
fn alone(model: &Routed, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut session = open(model, &fake::open());
    session.open(Slot(0), &PLAIN, None).unwrap();
    let step =
        |(position, id): (usize, &u32)| run(session.as_mut(), vec![part(0, position, &[*id], Wanted::Last)]);
    ids.iter().enumerate().flat_map(step).collect()
}

/// Which rows of three are in a step, in order, with how many tokens.
fn steps() -> impl Strategy<Value = Vec<Vec<(usize, usize)>>> {
    let order = Just(vec![0, 1, 2]).prop_shuffle();
    let step = (order, prop::collection::vec(0..5_usize, 3))
        .prop_map(|(order, counts)| order.into_iter().zip(counts).collect());
    prop::collection::vec(step, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_tokens_experts_do_not_depend_on_chunks_company_or_order(
        steps in steps(),
        ids in prop::collection::vec(prop::collection::vec(0..sample::VOCABULARY as u32, LENGTH), 3),
        shared in any::<bool>(),
    ) {
        for model in &ROUTED {
            let expected: Vec<_> = ids.iter().map(|ids| alone(model, ids)).collect();
            let device = if shared { fake::open_for_shared_planes() } else { fake::open() };
            let mut session = open(model, &device);
            (0..3).for_each(|slot| session.open(Slot(slot), &PLAIN, None).unwrap());
            let mut held = [0; 3];
            for step in &steps {
                let (mut rows, mut wanted) = (Vec::new(), Vec::new());
                for &(row, count) in step {
                    let end = LENGTH.min(held[row] + count);
                    let tokens = held[row]..end;
                    if !tokens.is_empty() {
                        rows.push(part(row as u32, tokens.start, &ids[row][tokens.clone()], Wanted::All));
                        wanted.extend_from_slice(&expected[row][tokens]);
                        held[row] = end;
                    }
                }
                if !rows.is_empty() {
                    prop_assert_eq!(run(session.as_mut(), rows), wanted);
                }
            }
        }
    }
}
