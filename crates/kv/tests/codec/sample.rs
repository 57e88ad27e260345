//! Heads to encode: ordinary ones, and those at the edges of the method.

use proptest::prelude::*;

/// Elements of a group.
pub(crate) const GROUP: usize = 32;

/// Groups of one head, of very different sizes.
pub(crate) fn head(width: usize) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(group(), width / GROUP).prop_map(|groups| groups.concat())
}

fn group() -> impl Strategy<Value = Vec<f32>> {
    let unit = prop::collection::vec(-1.0..1.0_f32, GROUP);
    // Exponents from where scales vanish as f16 to where they exceed it.
    let spread = prop_oneof![4 => -3..3_i32, 2 => -40..24_i32];
    let offset = prop_oneof![3 => Just(0.0_f32), 1 => -4.0..4.0_f32, 1 => -70_000.0..70_000.0_f32];
    let constant = prop_oneof![Just(0.0_f32), Just(-0.0), -2.0..2.0_f32, -70_000.0..70_000.0_f32];
    prop_oneof![
        6 => (unit.clone(), spread, offset).prop_map(|(unit, spread, offset)| {
            unit.iter().map(|x| x * 2_f32.powi(spread) + offset).collect()
        }),
        1 => constant.prop_map(|value| vec![value; GROUP]),
        // Few distinct values, so that codes and ties repeat.
        1 => unit.prop_map(|unit| unit.iter().map(|x| (x * 2.0).round()).collect()),
    ]
}

/// Samples of a normal variable by the polar method (Marsaglia and Bray, 1964), from a small congruential generator.
pub(crate) fn normal(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    };
    let mut samples = Vec::with_capacity(count + 1);
    while samples.len() < count {
        let (a, b) = (uniform(), uniform());
        let square = a * a + b * b;
        if square > 0.0 && square < 1.0 {
            let factor = (-2.0 * square.ln() / square).sqrt();
            samples.extend([(a * factor) as f32, (b * factor) as f32]);
        }
    }
    samples.truncate(count);
    samples
}
