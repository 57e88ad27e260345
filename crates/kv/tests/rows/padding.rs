//! Planes that rows share: how large they are, what is copied, and that nobody reads padding.

use crate::{
    SHAPE, affine, kit,
    life::Layout,
    naive::{Naive, Side, packed},
};
use std::rc::Rc;
use tandem_contracts::{
    fake,
    model::Slot,
    tensor::{Attend, Device, Dtype, Tensor},
};
use tandem_kv::{
    Kind,
    bank::BankRows,
    codec::Scheme,
    policy::Encoding,
    ragged::RaggedRow,
    rows::{Part, Rows},
};

fn cpu() -> Device {
    tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap()
}

fn open(device: &Device, kinds: &[Kind], scheme: Scheme, start: usize) -> (Naive, Box<dyn Rows>) {
    let naive = Naive::new(kit(device, kinds, Encoding::Uniform(scheme), start));
    let rows = Layout::Padded(1).open(&naive);
    (naive, rows)
}

/// Parts of rows, by slot, with so many tokens each.
fn parts(tokens: &[(u32, usize)]) -> Vec<Part> {
    let mut next = 0;
    let part = |&(slot, count): &(u32, usize)| {
        next += count;
        Part { slot: Slot(slot), tokens: next - count..next }
    };
    tokens.iter().map(part).collect()
}

/// A step of rows, with tokens that say whose and where they are; gives the planes.
fn step(naive: &Naive, rows: &mut dyn Rows, tokens: &[(u32, usize)]) -> Vec<Tensor> {
    let ids: Vec<u32> = tokens
        .iter()
        .flat_map(|&(slot, count)| {
            let first = rows.tokens(Slot(slot)).unwrap();
            (first..first + count).map(move |position| slot * 1000 + position as u32)
        })
        .collect();
    rows.begin(&parts(tokens)).unwrap();
    for layer in naive.own() {
        let [keys, values] = [Side::Keys, Side::Values].map(|side| packed(&naive.kit, &ids, layer, side));
        rows.append(layer, &keys, &values).unwrap();
    }
    let keep: Vec<usize> = tokens.iter().map(|&(_, count)| count).collect();
    let planes = rows.commit(&keep).unwrap();
    naive.device().eval(&planes.iter().collect::<Vec<_>>()).unwrap();
    planes
}

fn join(naive: &Naive, rows: &mut dyn Rows, slot: u32) {
    rows.join(Slot(slot), RaggedRow::new(Rc::clone(&naive.kit))).unwrap();
}

/// Rows and columns of every plane.
fn extents(planes: &[Tensor]) -> Vec<[usize; 2]> {
    let mut extents: Vec<_> = planes.iter().map(|plane| [plane.shape()[0], plane.shape()[2]]).collect();
    extents.dedup();
    extents
}

#[test]
fn planes_are_as_wide_as_the_longest_row() {
    let device = cpu();
    let (naive, mut rows) = open(&device, &[Kind::Full(SHAPE)], Scheme::plain(Dtype::Bf16), 0);
    for (slot, tokens) in [(1, 3), (2, 21), (3, 10)] {
        join(&naive, &mut *rows, slot);
        // A prompt, in planes of the row's own.
        assert_eq!(extents(&step(&naive, &mut *rows, &[(slot, tokens)])), [[1, tokens.div_ceil(4) * 4]]);
    }
    // 21 tokens and one more, in fours.
    let every = [(1, 1), (2, 1), (3, 1)];
    assert_eq!(extents(&step(&naive, &mut *rows, &every)), [[3, 24]]);
    assert_eq!(extents(&step(&naive, &mut *rows, &every)), [[3, 24]]);
    // A long step of one row leaves the others where they are.
    join(&naive, &mut *rows, 4);
    assert_eq!(extents(&step(&naive, &mut *rows, &[(1, 1), (4, 5), (2, 1), (3, 1)])), [[1, 8], [3, 24]]);
    // What only the longest row needed goes with it: 13 tokens and one more.
    rows.discard(Slot(2));
    assert_eq!(extents(&step(&naive, &mut *rows, &[(3, 1), (1, 1)])), [[2, 16]]);
    let row = rows.leave(Slot(3)).unwrap();
    assert_eq!(extents(&row.planes().cloned().collect::<Vec<_>>()), [[1, 16]]);
    assert_eq!(extents(&step(&naive, &mut *rows, &[(1, 1)])), [[1, 8]]);
}

#[test]
fn windows_stay_as_wide_as_a_window() {
    let device = cpu();
    let kinds = [Kind::Window { shape: SHAPE, window: 6, keep: 0 }];
    let (naive, mut rows) = open(&device, &kinds, Scheme::plain(Dtype::Bf16), 0);
    for (slot, tokens) in [(1, 3), (2, 50), (3, 7)] {
        join(&naive, &mut *rows, slot);
        step(&naive, &mut *rows, &[(slot, tokens)]);
    }
    // Five positions before the query, and itself.
    for _ in 0..20 {
        assert_eq!(extents(&step(&naive, &mut *rows, &[(1, 1), (2, 1), (3, 1)])), [[3, 8]]);
    }
}

/// Merging, growing, filtering and extracting allocate what they give, and nothing in between.
#[test]
fn live_columns_are_copied_once() {
    let device = cpu();
    for scheme in [Scheme::plain(Dtype::F32), affine(8)] {
        let (naive, mut rows) = open(&device, &[Kind::Full(SHAPE)], scheme, 0);
        for (slot, tokens) in [(1, 310), (2, 440), (3, 430)] {
            join(&naive, &mut *rows, slot);
            step(&naive, &mut *rows, &[(slot, tokens)]);
        }
        let token = scheme.bytes_per_token(SHAPE).unwrap() as u64;
        let allocated = |change: &mut dyn FnMut()| {
            let before = device.memory().allocated;
            change();
            (device.memory().allocated - before) / token
        };
        let every = parts(&[(1, 1), (2, 1), (3, 1)]);
        // Three rows of 448 columns; a copy of one, of 320; and two rows of 448.
        let merged = allocated(&mut || rows.begin(&every).unwrap());
        assert!((3 * 448..3 * 450).contains(&merged), "{scheme}: {merged}");
        rows.roll_back();
        let mut left = None;
        let extracted = allocated(&mut || left = Some(rows.leave(Slot(1)).unwrap()));
        assert!((320..330).contains(&extracted), "{scheme}: {extracted}");
        let filtered = allocated(&mut || rows.begin(&every[1..]).unwrap());
        assert!((2 * 448..2 * 450).contains(&filtered), "{scheme}: {filtered}");
        rows.roll_back();
        // Steps that fit write in place, as often as they like.
        let stepped = allocated(&mut || {
            for _ in 0..3 {
                step(&naive, &mut *rows, &[(2, 1), (3, 1)]);
            }
        });
        assert!(stepped < 100, "{scheme}: {stepped}");
    }
}

/// A row that comes alone brings its planes along.
#[test]
fn a_row_alone_is_not_copied() {
    let device = cpu();
    let kit = kit(&device, &[Kind::Full(SHAPE)], Encoding::None, 0);
    let naive = Naive::new(Rc::clone(&kit));
    let mut rows = BankRows::padded(kit, 1);
    join(&naive, &mut rows, 1);
    step(&naive, &mut rows, &[(1, 401)]);
    let before = device.memory().allocated;
    rows.begin(&parts(&[(1, 1)])).unwrap();
    assert_eq!(device.memory().allocated, before);
}

/// A row that passes its threshold beside one that does not holds one layer twice at a time, never all.
#[test]
fn conversions_take_one_layer_at_a_time() {
    let device = cpu();
    let (naive, mut rows) = open(&device, &[Kind::Full(SHAPE); 16], affine(8), 1024);
    for (slot, tokens) in [(1, 1023), (2, 900)] {
        join(&naive, &mut *rows, slot);
        step(&naive, &mut *rows, &[(slot, tokens)]);
    }
    step(&naive, &mut *rows, &[(1, 1), (2, 1)]);
    let plain = 1024 * 16 * Scheme::plain(Dtype::Bf16).bytes_per_token(SHAPE).unwrap();
    let before = device.memory().active;
    device.reset_peak();
    rows.begin(&parts(&[(1, 1), (2, 1)])).unwrap();
    // The codes of all layers are about half of it.
    let peak = device.memory().peak - before;
    assert!(peak < plain, "{peak} over a row of {plain}");
}

/// Rows that come together hold one layer twice at a time, also where operations wait until they are needed.
#[test]
fn rows_come_together_one_layer_at_a_time() {
    const LAYERS: usize = 16;
    for device in [cpu(), fake::open()] {
        let (naive, mut rows) = open(&device, &[Kind::Full(SHAPE); LAYERS], Scheme::plain(Dtype::Bf16), 0);
        for (slot, tokens) in [(1, 255), (2, 200)] {
            join(&naive, &mut *rows, slot);
            step(&naive, &mut *rows, &[(slot, tokens)]);
        }
        let before = device.memory().active;
        device.reset_peak();
        step(&naive, &mut *rows, &[(1, 1), (2, 1)]);
        let layer = 256 * Scheme::plain(Dtype::Bf16).bytes_per_token(SHAPE).unwrap();
        // Of two rows, beside what stays: the shorter one has grown to the longer one in all.
        let after = device.memory().active;
        let extra = device.memory().peak - after;
        assert!(after > before && extra < 4 * layer, "{extra} beside layers of {layer}");
    }
}

const WINDOW: usize = 70;

/// What attention gives for a last step of rows, for each of its tokens in both layers, when every row has come from
/// steps of this length and, before its last step, from one that was given up and is not finite.
fn attended(naive: &Naive, rows: &mut dyn Rows, last: &[(u32, usize, usize)]) -> Vec<Vec<u8>> {
    let device = naive.device();
    for &(slot, tokens, _) in last {
        join(naive, rows, slot);
        for range in naive.kit.blueprint().policy().split(0..tokens) {
            step(naive, rows, &[(slot, range.len())]);
        }
    }
    let tokens: Vec<(u32, usize)> = last.iter().map(|&(slot, _, tokens)| (slot, tokens)).collect();
    let count: usize = tokens.iter().map(|&(_, tokens)| tokens).sum();
    rows.begin(&parts(&tokens)).unwrap();
    let nan = device.upload_f32(&vec![f32::NAN; count * 2 * 64], &[count, 2, 64]).unwrap();
    naive.own().for_each(|layer| rows.append(layer, &nan, &nan).unwrap());
    rows.roll_back();
    let ids: Vec<u32> = last
        .iter()
        .flat_map(|&(slot, held, tokens)| (held..held + tokens).map(move |at| slot * 1000 + at as u32))
        .collect();
    let parts = parts(&tokens);
    rows.begin(&parts).unwrap();
    let mut outputs = vec![Vec::new(); count];
    for layer in naive.own() {
        let [keys, values] = [Side::Keys, Side::Values].map(|side| packed(&naive.kit, &ids, layer, side));
        rows.append(layer, &keys, &values).unwrap();
        let views = rows.views(layer).unwrap();
        let spans: Vec<_> =
            views.iter().zip(&parts).map(|(view, part)| view.span(part.tokens.clone())).collect();
        let how = Attend { window: (layer == 1).then_some(WINDOW), ..Attend::causal(0.125) };
        let given = device.download(&device.attend(&keys, &spans, &how).unwrap()).unwrap();
        for (output, given) in outputs.iter_mut().zip(given.chunks(given.len() / count)) {
            output.extend(given);
        }
    }
    let sound = rows.sound().unwrap().map(|sound| sound.to_vec::<i32>().unwrap());
    assert!(sound.is_none_or(|sound| sound == vec![1; parts.len()]));
    outputs
}

/// Rows of any lengths, beside padding and leftovers that are not finite, attend as each does alone.
#[test]
fn nobody_reads_what_is_not_a_token() {
    let kinds = [Kind::Full(SHAPE), Kind::Window { shape: SHAPE, window: WINDOW, keep: 0 }];
    // Tokens before the step, and in it: some before the threshold, some at it, some beyond it and beyond the window.
    let last = [(1, 5, 3), (2, 90, 2), (3, 150, 1), (4, 80, 10), (5, 91, 1), (6, 0, 1)];
    for scheme in [Scheme::plain(Dtype::Bf16), affine(8), affine(4), Scheme::turbo(8, 3)] {
        for layout in [Layout::Padded(1), Layout::Padded(10), Layout::Padded(1000), Layout::Paged(32, 10_000)]
        {
            let device = cpu();
            let naive = Naive::new(kit(&device, &kinds, Encoding::Uniform(scheme), 90));
            let together = attended(&naive, &mut *layout.open(&naive), &last);
            let alone = last.iter().flat_map(|one| {
                attended(&naive, &mut *Layout::Ragged.open(&naive), std::slice::from_ref(one))
            });
            assert!(together.into_iter().eq(alone), "{scheme}, {layout:?}");
        }
    }
}
