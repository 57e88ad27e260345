//! In every step of any life, whatever the layout, every row holds what it would hold alone.

use crate::{
    SHAPE, affine,
    life::{Action, Layout, Model, actions, live, live_in},
    recurrent::{DELTA, SHORT, SPACE},
};
use proptest::prelude::*;
use tandem_contracts::{
    fake,
    tensor::{Affine, Device, Dtype},
};
use tandem_kv::{Kind, LayerShape, codec::Scheme, policy::Encoding};

/// Small, as most of the time goes into reading planes.
const NARROW: LayerShape = LayerShape { heads: 2, key_width: 32, value_width: 32 };
const FULL: Kind = Kind::Full(NARROW);

fn window(window: usize) -> Kind {
    Kind::Window { shape: NARROW, window, keep: 0 }
}

/// A window some of whose positions are the row's first ones.
fn keeping() -> impl Strategy<Value = Kind> {
    (2..10_usize, any::<usize>()).prop_map(|(window, keep)| Kind::Window {
        shape: NARROW,
        window,
        keep: 1 + keep % (window - 1),
    })
}

fn keeping_windows() -> impl Strategy<Value = Vec<Kind>> {
    keeping().prop_map(|kind| vec![kind, FULL])
}

/// Layers that carry a state alone, and among others that read keys.
fn states() -> impl Strategy<Value = Vec<Kind>> {
    Just(vec![DELTA, SPACE, SHORT])
}

fn states_among_keys() -> impl Strategy<Value = Vec<Kind>> {
    (keeping(), 1..10_usize).prop_map(|(kind, size)| {
        vec![DELTA, kind, SPACE, Kind::Shared { donor: 1 }, window(size), SHORT, FULL]
    })
}

fn dtype() -> impl Strategy<Value = Dtype> {
    prop::sample::select(vec![Dtype::F32, Dtype::F16, Dtype::Bf16])
}

/// Layers of these kinds, plain or with codes, from the first token on or later.
fn model(kinds: impl Strategy<Value = Vec<Kind>>) -> impl Strategy<Value = Model> {
    let bits = prop::sample::select(vec![None, Some(8), Some(4)]);
    (kinds, dtype(), bits, dtype(), 0..12_usize).prop_map(|(kinds, plain, bits, scales, start)| {
        let scheme =
            bits.map_or(Scheme::plain(plain), |bits| Scheme::affine(Affine { bits, group: 32 }, scales));
        Model { kinds, plain, encoding: Encoding::Uniform(scheme), start }
    })
}

fn whole() -> impl Strategy<Value = Vec<Kind>> {
    Just(vec![FULL, FULL])
}

fn windows() -> impl Strategy<Value = Vec<Kind>> {
    (1..10_usize).prop_map(|size| vec![window(size), FULL])
}

/// Layers that read others.
fn shared() -> impl Strategy<Value = Vec<Kind>> {
    Just(vec![FULL, window(5), Kind::Shared { donor: 1 }, Kind::Shared { donor: 0 }])
}

fn padded() -> impl Strategy<Value = Layout> {
    (1..10_usize).prop_map(Layout::Padded)
}

fn paged() -> impl Strategy<Value = Layout> {
    (1..7_usize).prop_map(|block| Layout::Paged(block, 10_000))
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Ragged), padded(), paged()]
}

thread_local! {
    static CPU: Device = tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap();
}

fn on_the_cpu(model: &Model, layout: Layout, actions: &[Action]) {
    CPU.with(|cpu| live(cpu, model, layout, actions));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn ragged_whole_rows(model in model(whole()), actions in actions()) {
        on_the_cpu(&model, Layout::Ragged, &actions);
    }

    #[test]
    fn ragged_windows(model in model(windows()), actions in actions()) {
        on_the_cpu(&model, Layout::Ragged, &actions);
    }

    #[test]
    fn ragged_windows_that_keep_first_positions(model in model(keeping_windows()), actions in actions()) {
        on_the_cpu(&model, Layout::Ragged, &actions);
    }

    #[test]
    fn ragged_states(model in model(states()), actions in actions()) {
        on_the_cpu(&model, Layout::Ragged, &actions);
    }

    #[test]
    fn ragged_states_among_keys(model in model(states_among_keys()), actions in actions()) {
        on_the_cpu(&model, Layout::Ragged, &actions);
    }

    #[test]
    fn layers_that_read_others(model in model(shared()), layout in layout(), actions in actions()) {
        on_the_cpu(&model, layout, &actions);
    }

    #[test]
    fn turbo_rows(
        layout in layout(),
        actions in actions(),
        start in 0..12_usize,
        (keys, values) in prop::sample::select(vec![(8, 3), (4, 2), (5, 5)]),
        (window, keep) in (2..10_usize, 0..2_usize),
    ) {
        let encoding = Encoding::Uniform(Scheme::turbo(keys, values));
        let ring = Kind::Window { shape: SHAPE, window, keep };
        let kinds = vec![Kind::Full(SHAPE), ring, Kind::Shared { donor: 0 }];
        on_the_cpu(&Model { kinds, plain: Dtype::Bf16, encoding, start }, layout, &actions);
    }

    #[test]
    fn padded_whole_rows(model in model(whole()), layout in padded(), actions in actions()) {
        on_the_cpu(&model, layout, &actions);
    }

    #[test]
    fn padded_windows(model in model(windows()), layout in padded(), actions in actions()) {
        on_the_cpu(&model, layout, &actions);
    }

    #[test]
    fn paged_rows(model in model(windows()), layout in paged(), actions in actions()) {
        on_the_cpu(&model, layout, &actions);
    }

    #[test]
    fn paged_rows_without_room(model in model(whole()), block in 1..7_usize, blocks in 1..12_usize, actions in actions()) {
        CPU.with(|cpu| live_in(cpu, &model, (block, block * blocks), &actions));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn on_a_lazy_device(model in model(windows()), layout in layout(), actions in actions()) {
        live(&fake::open(), &model, layout, &actions);
    }

    #[test]
    fn states_among_banks(model in model(states_among_keys()), layout in layout(), actions in actions()) {
        on_the_cpu(&model, layout, &actions);
    }

    #[test]
    fn states_on_a_lazy_device(model in model(states()), layout in layout(), actions in actions()) {
        live(&fake::open(), &model, layout, &actions);
    }

    #[test]
    fn layers_stored_each_its_own_way(
        layout in layout(),
        actions in actions(),
        size in 1..10_usize,
        start in 0..12_usize,
    ) {
        let kinds = vec![FULL, window(size), FULL];
        let encoding = Encoding::ByLayer(vec![(0, affine(4)), (1, affine(8))]);
        on_the_cpu(&Model { kinds, plain: Dtype::Bf16, encoding, start }, layout, &actions);
    }
}
