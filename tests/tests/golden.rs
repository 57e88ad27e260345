//! The golden models on every device: greedy tokens, logits, chunks, batches, trims.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use std::collections::BTreeSet;
use tandem_tests::{
    device::Backend,
    fixtures,
    parity::{self, Case, Tolerances},
};

/// Runs one golden model, and fails with the table.
fn hold(backend: Backend, name: &str) {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml")).unwrap();
    let case = Case::read(&fixtures().join("tiny").join(name)).unwrap();
    let report = parity::run(&case, &backend.open().unwrap(), tolerances.of(backend).unwrap()).unwrap();
    assert!(report.holds(), "\n{}", parity::render(&[report]));
}

macro_rules! goldens {
    ($($test:ident: $name:literal),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];

        mod fake {
            $(#[test] fn $test() { super::hold(super::Backend::Fake, $name); })*
        }

        mod cpu {
            $(#[test] fn $test() { super::hold(super::Backend::Cpu, $name); })*
        }

        #[cfg(feature = "mlx")]
        mod mlx {
            $(#[test] fn $test() { super::hold(super::Backend::Mlx, $name); })*
        }
    };
}

goldens! {
    llama3_scaling: "llama",
    biases_and_a_tied_head: "llama_bias_tied",
    linear_scaling: "llama_ropelinear",
    windows: "llama_swa",
    yarn_scaling: "llama_yarn",
    affine_4_bits: "llama-q4g64",
    affine_8_bits: "llama-q8g32",
    mxfp8_weights: "llama-mxfp8",
    nvfp4_weights: "llama-nvfp4",
    layers_without_positions: "smollm3",
}

#[test]
fn every_golden_model_has_a_test() {
    let folders = parity::cases(&fixtures().join("tiny"), None).unwrap();
    let found: BTreeSet<_> = folders.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(found, NAMES.iter().copied().collect());
}
