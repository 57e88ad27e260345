//! Tests of policies: by hand, and what must hold for every threshold.

use super::*;
use crate::{LayerShape, RecurrentShape};
use proptest::prelude::*;
use tandem_contracts::tensor::Affine;

const SHAPE: LayerShape = LayerShape { heads: 2, key_width: 64, value_width: 64 };
const FULL: Kind = Kind::Full(SHAPE);
const WINDOW: Kind = Kind::Window { shape: SHAPE, window: 16, keep: 0 };
const RECURRENT: Kind =
    Kind::Recurrent(RecurrentShape { heads: 2, value_width: 8, key_width: 8, channels: 48, taps: 4 });
const SHARED: Kind = Kind::Shared { donor: 0 };
const PLAIN: Scheme = Scheme::plain(Dtype::Bf16);
const AFFINE: Scheme = Scheme::affine(Affine { bits: 8, group: 64 }, Dtype::Bf16);
const TURBO: Scheme = Scheme::turbo(8, 3);

fn request(encoding: Encoding, start: usize) -> Request {
    Request { plain: Dtype::Bf16, encoding, start }
}

fn by_layer(named: &[(usize, Scheme)]) -> Request {
    request(Encoding::ByLayer(named.to_vec()), 4)
}

#[test]
fn affine_takes_every_layer_with_keys() {
    let kinds = [FULL, WINDOW, RECURRENT, SHARED];
    let (policy, exemptions) = Policy::new(&kinds, &request(Encoding::Uniform(AFFINE), 7)).unwrap();
    let (plain, coded) = (Transition::never(PLAIN), Transition::at(7, PLAIN, AFFINE));
    assert_eq!(policy.layers(), [coded, coded, plain, plain]);
    assert_eq!(exemptions, [Exemption { layer: 2, reason: Reason::Recurrent }]);
}

#[test]
fn turbo_takes_windows_as_it_takes_whole_rows() {
    let (policy, exemptions) =
        Policy::new(&[WINDOW, FULL, RECURRENT], &request(Encoding::Uniform(TURBO), 0)).unwrap();
    let (plain, coded) = (Transition::never(PLAIN), Transition::never(TURBO));
    assert_eq!(policy.layers(), [coded, coded, plain]);
    let lines: Vec<String> = exemptions.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["layer 2 stays plain: it has no keys"]);
}

#[test]
fn unnamed_layers_stay_plain() {
    let (policy, exemptions) =
        Policy::new(&[FULL, FULL, WINDOW], &by_layer(&[(2, AFFINE), (0, TURBO)])).unwrap();
    let expected =
        [Transition::at(4, PLAIN, TURBO), Transition::never(PLAIN), Transition::at(4, PLAIN, AFFINE)];
    assert_eq!(policy.layers(), expected);
    assert!(exemptions.is_empty());
    let (none, _) = Policy::new(&[FULL], &by_layer(&[])).unwrap();
    assert_eq!(none, Policy::plain(1, Dtype::Bf16));
}

#[test]
fn named_layers_are_refused_rather_than_left() {
    let kinds = [FULL, WINDOW, RECURRENT, SHARED];
    let kind =
        |named: &[(usize, Scheme)]| Policy::new(&kinds, &by_layer(named)).map_err(|error| error.kind());
    assert_eq!(kind(&[(4, AFFINE)]).unwrap_err(), ErrorKind::Index);
    assert_eq!(kind(&[(0, AFFINE), (0, TURBO)]).unwrap_err(), ErrorKind::Index);
    assert_eq!(kind(&[(2, AFFINE)]).unwrap_err(), ErrorKind::Unsupported);
    assert_eq!(kind(&[(3, AFFINE)]).unwrap_err(), ErrorKind::Unsupported);
}

#[test]
fn heads_that_no_codec_takes_are_refused() {
    let odd = Kind::Full(LayerShape { key_width: 80, ..SHAPE });
    for scheme in [AFFINE, TURBO] {
        let refused = Policy::new(&[FULL, odd], &request(Encoding::Uniform(scheme), 0));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Shape);
    }
    let integers = Request { plain: Dtype::I32, ..request(Encoding::None, 0) };
    assert_eq!(Policy::new(&[FULL], &integers).unwrap_err().kind(), ErrorKind::Dtype);
}

/// A policy with these thresholds, one for each layer.
fn thresholds(starts: &[usize]) -> Policy {
    let layers = starts.iter().map(|&start| Transition::at(start, PLAIN, AFFINE)).collect();
    Policy { plain: Dtype::Bf16, layers }
}

#[test]
fn steps_by_hand() {
    let policy = thresholds(&[10, 0, 4]);
    assert_eq!(policy.split(0..12), [0..4, 4..10, 10..12]);
    assert_eq!(policy.split(3..4), vec![3..4]);
    assert_eq!(policy.split(4..4), Vec::<Range<usize>>::new());
    assert_eq!(policy.split(10..5000), vec![10..5000]);
    assert_eq!([0, 4, 9, 10].map(|position| policy.limit(position)), [Some(4), Some(6), Some(1), None]);
    assert_eq!([4, 5, 10, 11].map(|tokens| policy.floor(tokens)), [0, 4, 4, 10]);
}

proptest! {
    /// Steps cover the positions in order, none is empty, and in none does any layer change its scheme.
    #[test]
    fn no_step_crosses_a_threshold(
        starts in prop::collection::vec(0..40_usize, 1..5),
        first in 0..50_usize,
        count in 0..50_usize,
    ) {
        let policy = thresholds(&starts);
        let steps = policy.split(first..first + count);
        prop_assert_eq!(steps.iter().cloned().flatten().collect::<Vec<_>>(), (first..first + count).collect::<Vec<_>>());
        for step in &steps {
            prop_assert!(!step.is_empty());
            for layer in policy.layers() {
                prop_assert_eq!(layer.scheme(step.start), layer.scheme(step.end - 1));
            }
        }
        // As few as there can be: one more for each threshold inside.
        let inside: std::collections::BTreeSet<_> =
            starts.iter().filter(|&&start| first < start && start < first + count).collect();
        prop_assert_eq!(steps.len(), inside.len() + usize::from(count > 0));
    }

    /// Cutting a prefix off and going on is the same as cutting the whole.
    #[test]
    fn steps_do_not_depend_on_where_a_prefix_ended(
        starts in prop::collection::vec(0..40_usize, 1..5),
        middle in 0..50_usize,
        end in 0..50_usize,
    ) {
        let policy = thresholds(&starts);
        let (middle, end) = (middle.min(end), middle.max(end));
        let mut cuts: Vec<usize> = policy.split(0..end).iter().map(|step| step.end).collect();
        let mut parts = policy.split(0..middle);
        parts.extend(policy.split(middle..end));
        let ends: Vec<usize> = parts.iter().map(|step| step.end).collect();
        if middle > 0 && !cuts.contains(&middle) {
            cuts.push(middle);
            cuts.sort_unstable();
        }
        prop_assert_eq!(ends, cuts);
    }

    /// A row shortened to its floor or further up is stored as a fresh row of that length would be from its next step on.
    #[test]
    fn floors_keep_precision_a_function_of_position(
        starts in prop::collection::vec(0..40_usize, 1..5),
        tokens in 0..50_usize,
    ) {
        let policy = thresholds(&starts);
        let floor = policy.floor(tokens);
        prop_assert!(floor <= tokens);
        for kept in 0..=tokens {
            let same = policy.layers().iter().all(|layer| {
                // What the row holds is what the next query of a fresh row reads, or can still become it.
                layer.stored(tokens).is_none_or(|held| held == layer.scheme(kept) || held == PLAIN)
            });
            prop_assert_eq!(same, kept >= floor, "{} of {}", kept, tokens);
        }
    }
}
