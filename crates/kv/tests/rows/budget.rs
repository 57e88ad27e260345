//! What is projected for rows, against what the device has allocated for them.

use crate::{
    SHAPE, affine, kit,
    life::Layout,
    naive::{Naive, Side, packed},
    recurrent::{DELTA, SHORT, inputs},
};
use std::rc::Rc;
use tandem_contracts::{
    fake::Fake,
    model::Slot,
    tensor::{Backend, Device, Dtype, ErrorKind},
};
use tandem_kv::{
    Kind,
    codec::Scheme,
    policy::Encoding,
    ragged::RaggedRow,
    rows::{Part, Rows},
};

/// Longest step of a row.
const STEP: usize = 7;
/// Tokens that rows come to.
const LENGTHS: [usize; 3] = [9, 26, 17];
/// Tokens of each that come first, alone, in long steps.
const PROMPT: usize = 8;
/// Columns by which planes grow.
const GROWTH: usize = 4;

/// A step of so many tokens of each of some rows, evaluated.
fn step(naive: &Naive, rows: &mut dyn Rows, slots: &[u32], tokens: usize) {
    let part = |(at, &slot): (usize, &u32)| Part { slot: Slot(slot), tokens: at * tokens..(at + 1) * tokens };
    rows.begin(&slots.iter().enumerate().map(part).collect::<Vec<_>>()).unwrap();
    let ids = vec![7; slots.len() * tokens];
    for layer in naive.own() {
        if let Kind::Recurrent(_) = naive.kit.blueprint().kinds()[layer] {
            let net = naive.alone.borrow_mut().net(&naive.kit, layer);
            rows.recur(layer, &inputs(&naive.kit, &ids, layer), &net).unwrap();
            continue;
        }
        let [keys, values] = [Side::Keys, Side::Values].map(|side| packed(&naive.kit, &ids, layer, side));
        rows.append(layer, &keys, &values).unwrap();
    }
    let planes = rows.commit(&vec![tokens; slots.len()]).unwrap();
    naive.device().eval(&planes.iter().collect::<Vec<_>>()).unwrap();
}

/// The most bytes that rows held between steps, which took their prompts in long steps and then went on together;
/// and those that stay behind.
fn most(naive: &Naive, fake: &Fake, rows: &mut dyn Rows, lengths: &[usize]) -> (usize, usize) {
    let before = fake.memory().active;
    let (mut held, mut most) = (vec![0; lengths.len()], 0);
    let slots = 0..lengths.len() as u32;
    for slot in slots.clone() {
        rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
        for range in naive.kit.blueprint().policy().split(0..PROMPT) {
            for first in range.clone().step_by(STEP) {
                step(naive, rows, &[slot], STEP.min(range.end - first));
                most = most.max(fake.memory().active - before);
            }
        }
        held[slot as usize] = PROMPT;
    }
    loop {
        let going: Vec<u32> =
            slots.clone().filter(|&slot| held[slot as usize] < lengths[slot as usize]).collect();
        if going.is_empty() {
            slots.for_each(|slot| rows.discard(Slot(slot)));
            return (most, fake.memory().active - before);
        }
        step(naive, rows, &going, 1);
        going.iter().for_each(|&slot| held[slot as usize] += 1);
        most = most.max(fake.memory().active - before);
    }
}

#[test]
fn rows_take_what_is_projected_within_one_growth() {
    let full = Kind::Full(SHAPE);
    let window = |keep| Kind::Window { shape: SHAPE, window: 6, keep };
    let models: [&[Kind]; 5] = [
        &[full, full],
        &[window(0)],
        &[window(2)],
        &[DELTA, SHORT],
        &[full, window(0), Kind::Shared { donor: 0 }, DELTA],
    ];
    let layouts = [Layout::Ragged, Layout::Padded(1), Layout::Padded(STEP + 1), Layout::Paged(GROWTH, 1000)];
    for kinds in models {
        for scheme in [Scheme::plain(Dtype::Bf16), affine(8), affine(4), Scheme::turbo(8, 3)] {
            for start in [0, 4] {
                let fake = Fake::open();
                let device: Device = fake.clone();
                let naive = Naive::new(kit(&device, kinds, Encoding::Uniform(scheme), start));
                // Constants of codecs, and weights, appear when they are first used.
                let warm = |layout: Layout| most(&naive, &fake, &mut *layout.open(&naive), &[PROMPT + 1]);
                warm(Layout::Ragged);
                for layout in layouts {
                    let (held, left) = most(&naive, &fake, &mut *layout.open(&naive), &LENGTHS);
                    let need = layout.of().need(naive.kit.blueprint(), &LENGTHS, STEP).unwrap();
                    // A step of one that shares planes may begin at the end of the longest, beyond 32 tokens, where planes
                    // grow by twice as much.
                    let growth = match layout {
                        Layout::Padded(most) => most.min(STEP) + 2 * GROWTH,
                        Layout::Ragged | Layout::Paged(..) => GROWTH,
                    };
                    let columns = |scheme: Scheme| -> usize {
                        let shapes = kinds.iter().filter_map(|kind| kind.shape());
                        shapes.map(|shape| growth * scheme.bytes_per_token(shape).unwrap()).sum()
                    };
                    let (growth, plain) = (columns(scheme), columns(Scheme::plain(Dtype::Bf16)));
                    let what = format!("{kinds:?}, {scheme} from {start} on, {layout:?}: {held} of {need}");
                    assert!(held <= need && left == 0, "{what}");
                    // Pools of rows before their threshold are counted whole, as if one row stayed there to the end; and
                    // layers of shared planes at moments of their own, which these rows have in common.
                    let alone = matches!(layout, Layout::Ragged) || start == 0;
                    let before = if alone { 0 } else { plain };
                    assert!(need - held <= LENGTHS.len() * (growth + before), "{what}");
                    if start == 0
                        && matches!(layout, Layout::Ragged)
                        && kinds.iter().all(|kind| *kind == full)
                    {
                        assert_eq!(held, need, "{what}");
                    }
                }
            }
        }
    }
}

/// A row that joins those that are long is before the threshold when they are behind it: a layer that is encoded then and
/// one that stays plain are both at their largest.
#[test]
fn layers_are_projected_at_their_own_largest_moments() {
    const LENGTHS: [usize; 3] = [26, 26, 12];
    let full = Kind::Full(SHAPE);
    for layout in [Layout::Ragged, Layout::Padded(1), Layout::Padded(STEP + 1), Layout::Paged(GROWTH, 1000)] {
        let fake = Fake::open();
        let device: Device = fake.clone();
        let naive = Naive::new(kit(&device, &[full, full], Encoding::ByLayer(vec![(0, affine(4))]), 12));
        most(&naive, &fake, &mut *layout.open(&naive), &[13]);
        let mut rows = layout.open(&naive);
        let before = fake.memory().active;
        for slots in [&[0u32, 1][..], &[2]] {
            for &slot in slots {
                rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
            }
            (0..LENGTHS[slots[0] as usize]).for_each(|_| step(&naive, &mut *rows, slots, 1));
        }
        let held = fake.memory().active - before;
        let need = layout.of().need(naive.kit.blueprint(), &LENGTHS, 1).unwrap();
        assert!(held <= need, "{layout:?}: {held} of {need}");
    }
}

#[test]
fn absurd_lengths_are_merely_too_large() {
    let fake = Fake::open();
    let device: Device = fake;
    let naive = Naive::new(kit(&device, &[Kind::Full(SHAPE), DELTA], Encoding::None, 0));
    for layout in [Layout::Ragged, Layout::Padded(9), Layout::Paged(4, usize::MAX)] {
        let need = |rows: &[usize]| layout.of().need(naive.kit.blueprint(), rows, usize::MAX);
        let (none, most) = (need(&[]).unwrap(), need(&[usize::MAX]).unwrap());
        assert_eq!((none, most), (0, usize::MAX), "{layout:?}");
    }
    let pool = Layout::Paged(4, 12).of();
    let need = |rows: &[usize]| pool.need(naive.kit.blueprint(), rows, 1).map_err(|error| error.kind());
    assert!(need(&[8, 4]).is_ok());
    assert_eq!(need(&[8, 5]), Err(ErrorKind::Memory));
}
