//! Tests of families with experts.

use super::{declaration, gemma4, logits, read};
use crate::{
    Options,
    config::{ExpertConfig, Scaling},
    dense::BlockDeclaration,
    layer::{FeedForwardDeclaration, Norms},
    sample::{self, Floats, ROUTED, Routed},
};
use serde_json::json;
use std::collections::BTreeMap;
use tandem_contracts::fake;

#[test]
fn experts_are_read_under_each_familys_names() {
    let config = read("mixtral", json!({ "rope_scaling": { "type": "linear", "factor": 2.0 } })).unwrap();
    let extents = ExpertConfig { count: 8, chosen: 2, width: 64, normalised: true, company: None };
    assert_eq!((config.experts, config.rope.scaling.clone()), (Some(extents), Scaling::None));
    assert!(declaration(&config).blocks.iter().all(is_routed));

    let qwen = json!({ "num_hidden_layers": 6, "num_experts": 4, "num_experts_per_tok": 4,
        "moe_intermediate_size": 16, "decoder_sparse_step": 2, "mlp_only_layers": [3] });
    let config = read("qwen3_moe", qwen).unwrap();
    let extents = ExpertConfig { count: 4, chosen: 4, width: 16, normalised: false, company: None };
    assert_eq!(config.experts, Some(extents));
    let routed: Vec<_> = declaration(&config).blocks.iter().map(is_routed).collect();
    assert_eq!(routed, [false, true, false, false, false, true]);

    let config = read("gpt_oss", json!({ "num_hidden_layers": 3, "sliding_window": 8 })).unwrap();
    let windows: Vec<_> = config.layers.iter().map(|layer| layer.window).collect();
    assert_eq!((windows, config.tied), (vec![Some(8), None, Some(8)], Some(false)));
    assert!(
        declaration(&config).blocks.iter().all(|block| block.attention.sinks && block.attention.input_bias)
    );

    let experts = json!({ "enable_moe_block": true, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 16 });
    let config = gemma4(experts).unwrap();
    let FeedForwardDeclaration::Routed(routed) = &declaration(&config).blocks[5].feed_forward else {
        unreachable!()
    };
    assert_eq!(routed.norms, Norms::after("post_feedforward_layernorm"));
    let unit = &routed.company.as_ref().unwrap().unit;
    assert_eq!((unit.width, unit.norms.after), (96, Some("post_feedforward_layernorm_1")));
}

fn is_routed(block: &BlockDeclaration) -> bool {
    matches!(block.feed_forward, FeedForwardDeclaration::Routed(_))
}

#[test]
fn experts_that_cannot_be_are_refused() {
    for (fields, expected) in [
        (json!({ "num_experts": 0 }), "num_experts must be a whole number from 1 to 4096, got: 0"),
        (json!({ "num_experts": 4097 }), "num_experts must be a whole number from 1 to 4096, got: 4097"),
        (json!({ "num_experts": null }), "the configuration lacks: num_experts"),
        (
            json!({ "num_experts_per_tok": 5 }),
            "num_experts_per_tok must be a whole number from 1 to 4, got: 5",
        ),
        (
            json!({ "num_experts_per_tok": 0 }),
            "num_experts_per_tok must be a whole number from 1 to 4, got: 0",
        ),
        (json!({ "moe_intermediate_size": null }), "the configuration lacks: moe_intermediate_size"),
        (
            json!({ "decoder_sparse_step": 0 }),
            "decoder_sparse_step must be a whole number from 1 to 4096, got: 0",
        ),
        (json!({ "mlp_only_layers": [2] }), "mlp_only_layers names no layer: 2"),
        (json!({ "mlp_only_layers": ["0"] }), "mlp_only_layers names no layer: \"0\""),
    ] {
        let mut all = json!({ "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16 });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(read("qwen3_moe", all).unwrap_err().to_string(), expected);
    }
}

/// What is wrong with a model's files after a change.
fn refusal(model: &Routed, change: impl Fn(&mut BTreeMap<String, Floats>)) -> String {
    let mut weights = (model.weights)();
    change(&mut weights);
    let loaded = sample::load(&(model.config)(), &weights, &fake::open(), Options::default());
    loaded.unwrap_err().to_string()
}

#[test]
fn experts_that_do_not_fit_are_refused_by_name() {
    let qwen = &ROUTED[1];
    let gate = "model.layers.1.mlp.switch_mlp.gate_proj.weight";
    assert_eq!(
        refusal(qwen, |weights| drop(weights.remove(gate))),
        format!("model.safetensors: tensor {gate}: is not there")
    );
    let down = "model.layers.1.mlp.switch_mlp.down_proj.weight";
    assert_eq!(
        refusal(qwen, |weights| weights.get_mut(down).unwrap().shape.swap(1, 2)),
        format!("model.safetensors: tensor {down}: must have the shape [4, 32, 16], has: [4, 16, 32]")
    );
    assert_eq!(
        refusal(qwen, |weights| {
            let gate = weights.get_mut(gate).unwrap();
            gate.shape[0] = 3;
            gate.values.truncate(3 * 16 * 32);
        }),
        format!("model.safetensors: tensor {gate}: must have the shape [4, 16, 32], has: [3, 16, 32]")
    );
    assert_eq!(
        refusal(qwen, |weights| {
            let one = Floats { shape: vec![16, 32], values: vec![0.0; 16 * 32] };
            weights.insert("model.layers.1.mlp.experts.0.gate_proj.weight".to_owned(), one);
        }),
        format!("tensor model.layers.1.mlp.experts.0.gate_proj.weight: the same experts are also in: {gate}")
    );
    let mut apart = qwen.apart();
    let third = "model.layers.1.mlp.experts.2.up_proj.weight";
    apart.remove(third);
    let loaded = sample::load(&(qwen.config)(), &apart, &fake::open(), Options::default());
    assert_eq!(loaded.unwrap_err().to_string(), format!("model.safetensors: tensor {third}: is not there"));
}

/// The authors' stacks of gpt-oss have gates and ups in turn, where those of others have one half for each.
#[test]
fn gates_between_ups_are_refused_by_name() {
    let gpt_oss = ROUTED.iter().find(|model| (model.config)()["model_type"] == "gpt_oss").unwrap();
    let joint = "model.layers.0.mlp.experts.gate_up_proj";
    let refused = refusal(gpt_oss, |weights| {
        weights.remove("model.layers.0.mlp.experts.gate_proj.weight").unwrap();
        let values = vec![0.0; 4 * 32 * 32];
        weights.insert(joint.to_owned(), Floats { shape: vec![4, 32, 32], values });
    });
    assert!(refused.starts_with(&format!("tensor {joint}: its gates lie between its ups")), "{refused}");
}

#[test]
fn experts_stand_in_stacks_or_apart() {
    for model in &ROUTED {
        let (config, stacked) = ((model.config)(), (model.weights)());
        assert_eq!(logits(&config, &model.apart()), logits(&config, &stacked), "{config}");
    }
}
