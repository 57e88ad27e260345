//! Weights that become codes while they are loaded: the same bits as those of a folder that MLX quantised.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use tandem_contracts::{
    model::Wanted,
    tensor::{Affine, Device, Precision},
};
use tandem_models::Options;
use tandem_tests::{
    device::Backend,
    drive::{Driver, Logits},
    fixtures,
    parity::Case,
};

/// A golden model, the same after `mlx_lm`'s `quantize_model`, and the codes that it was asked for.
const PAIRS: [(&str, &str, Affine); 4] = [
    ("llama", "llama-q4g64", Affine { bits: 4, group: 64 }),
    ("llama", "llama-q8g32", Affine { bits: 8, group: 32 }),
    ("qwen3", "qwen3-q4g32", Affine { bits: 4, group: 32 }),
    ("qwen3", "qwen3-q3g64", Affine { bits: 3, group: 64 }),
];

fn logits(case: &Case, device: &Device, quantize: Option<Affine>, precision: Precision) -> Vec<Logits> {
    let options = Options { quantize, precision: Some(precision), ..Options::default() };
    let mut driver = Driver::load_with(case.checkpoint().unwrap(), device, options).unwrap();
    let slot = driver.open().unwrap();
    driver.step(&[(slot, &case.run("p24").unwrap().prompt, Wanted::All)]).unwrap()
}

fn hold(backend: Backend) {
    let device = backend.open().unwrap();
    for (dense, coded, format) in PAIRS {
        let [dense, coded] =
            [dense, coded].map(|name| Case::read(&fixtures().join("tiny").join(name)).unwrap());
        for &precision in device.traits().precisions {
            let expected = logits(&coded, &device, None, precision);
            assert_ne!(logits(&dense, &device, None, precision), expected);
            assert_eq!(
                logits(&dense, &device, Some(format), precision),
                expected,
                "{} {precision:?}",
                coded.name
            );
        }
    }
}

#[test]
fn fake_gives_the_codes_of_mlx() {
    hold(Backend::Fake);
}

#[test]
fn cpu_gives_the_codes_of_mlx() {
    hold(Backend::Cpu);
}

#[cfg(feature = "mlx")]
#[test]
fn mlx_gives_its_own_codes() {
    hold(Backend::Mlx);
}
