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
    hold_case(backend, &Case::read(&fixtures().join("tiny").join(name)).unwrap());
}

/// A golden model from a GGUF file, held to the same goldens.
fn hold_gguf(backend: Backend, name: &str, file: &str) {
    let (folder, file) = (fixtures().join("tiny").join(name), fixtures().join("gguf").join(file));
    hold_case(backend, &Case::read_gguf(&folder, &file).unwrap());
}

fn hold_case(backend: Backend, case: &Case) {
    let tolerances = Tolerances::read(&fixtures().join("parity.toml")).unwrap();
    let tolerance = tolerances.of(backend, &case.family).unwrap();
    let report = parity::run(case, &backend.open().unwrap(), &tolerance, None).unwrap();
    assert!(report.holds(), "\n{}", parity::render(&[report]));
}

macro_rules! goldens {
    ($($test:ident: $name:literal),* $(,)?) => {
        const NAMES: &[&str] = &[$($name),*];

        mod fake {
            $(#[test] fn $test() { super::hold(super::Backend::Fake, $name); })*
            #[test] fn gguf_file() { super::hold_gguf(super::Backend::Fake, "llama", "llama.gguf"); }
            #[test] fn gguf_file_of_gemma3() { super::hold_gguf(super::Backend::Fake, "gemma3_tied", "gemma3.gguf"); }
            #[test] fn gguf_file_of_qwen2() { super::hold_gguf(super::Backend::Fake, "qwen2", "qwen2.gguf"); }
            #[test] fn gguf_file_of_qwen3() { super::hold_gguf(super::Backend::Fake, "qwen3", "qwen3.gguf"); }
        }

        mod cpu {
            $(#[test] fn $test() { super::hold(super::Backend::Cpu, $name); })*
            #[test] fn gguf_file() { super::hold_gguf(super::Backend::Cpu, "llama", "llama.gguf"); }
            #[test] fn gguf_file_of_gemma3() { super::hold_gguf(super::Backend::Cpu, "gemma3_tied", "gemma3.gguf"); }
            #[test] fn gguf_file_of_qwen2() { super::hold_gguf(super::Backend::Cpu, "qwen2", "qwen2.gguf"); }
            #[test] fn gguf_file_of_qwen3() { super::hold_gguf(super::Backend::Cpu, "qwen3", "qwen3.gguf"); }
        }

        #[cfg(feature = "mlx")]
        mod mlx {
            $(#[test] fn $test() { super::hold(super::Backend::Mlx, $name); })*
            #[test] fn gguf_file() { super::hold_gguf(super::Backend::Mlx, "llama", "llama.gguf"); }
            #[test] fn gguf_file_of_gemma3() { super::hold_gguf(super::Backend::Mlx, "gemma3_tied", "gemma3.gguf"); }
            #[test] fn gguf_file_of_qwen2() { super::hold_gguf(super::Backend::Mlx, "qwen2", "qwen2.gguf"); }
            #[test] fn gguf_file_of_qwen3() { super::hold_gguf(super::Backend::Mlx, "qwen3", "qwen3.gguf"); }
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
    growing_queries: "ministral3",
    input_biases: "qwen2",
    norms_of_heads: "qwen3",
    affine_3_bits: "qwen3-q3g64",
    affine_4_bits_in_small_groups: "qwen3-q4g32",
    joined_matrices: "phi3",
    dynamic_scaling: "llama_dynamic",
    long_scaling: "phi3_longrope",
    llama_by_another_name: "mistral",
    scaled_branches: "minicpm",
    scaled_scores: "granite",
    parallel_branches: "cohere2",
    norms_around_branches: "glm4",
    norms_behind_branches: "olmo3",
    values_of_keys: "gemma4",
    affine_4_bits_in_large_groups: "llama_wide-q4g128",
    affine_6_bits: "qwen3_wide-q6g64",
    affine_8_bits_in_groups_of_64: "qwen2-q8g64",
    affine_8_bits_in_large_groups: "llama_wide-q8g128",
    bounded_scores: "gemma2",
    two_rotary_bases: "gemma3_text",
    two_rotary_bases_and_a_tied_head: "gemma3_tied",
    shared_keys_and_layer_inputs: "gemma4_text",
    experts: "mixtral",
    experts_in_some_layers: "qwen3_moe",
    experts_beside_a_gated_unit: "gemma4_moe",
    sinks_and_clamped_experts: "gpt_oss",
    mxfp4_experts: "gpt_oss_wide-mxfp4",
    state_spaces: "mamba2",
    short_convolutions: "lfm2",
    delta_nets_and_gated_heads: "qwen3_5",
    delta_nets_joined_by_key_head: "qwen3_next",
    delta_nets_and_experts_in_company: "qwen3_5_moe",
}

#[test]
fn every_golden_model_has_a_test() {
    let folders = parity::cases(&fixtures().join("tiny"), None).unwrap();
    let found: BTreeSet<_> = folders.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(found, NAMES.iter().copied().collect());
}
