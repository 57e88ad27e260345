//! Gemma 4's text model: Gemma 3's blocks with plain norms and unscaled scores; values with a norm; wider heads and
//! rotation of a part of them in layers that see everything; the last layers read keys and values of earlier ones;
//! embeddings of which each layer reads its own part; in one size experts beside the gated unit.

use super::{
    Family,
    gemma::{GEMMA2, between_norms},
};
use crate::{
    config::{self, Config, ExpertConfig, ExpertFields, Fields, LayerInputConfig, RopeConfig, Scaling},
    dense::Declaration,
    error::{Error, Result},
    layer::{
        CompanyDeclaration, ExpertNames, HeadNorms, LayerInputsDeclaration, MlpDeclaration, Norms,
        RoutedDeclaration, RouterDeclaration, Scoring, Values,
    },
};

/// `gemma4_text`.
pub(crate) const GEMMA4_TEXT: Family = Family {
    name: "gemma4_text",
    defaults: &[
        ("hidden_size", 1536.0),
        ("num_hidden_layers", 35.0),
        ("intermediate_size", 6144.0),
        ("num_attention_heads", 8.0),
        ("num_key_value_heads", 1.0),
        ("head_dim", 256.0),
        ("global_head_dim", 512.0),
        ("rms_norm_eps", 1e-6),
        ("vocab_size", 262_144.0),
        ("vocab_size_per_layer_input", 262_144.0),
        ("hidden_size_per_layer_input", 256.0),
        ("num_kv_shared_layers", 20.0),
        ("sliding_window", 512.0),
        ("sliding_window_pattern", 5.0),
        ("max_position_embeddings", 131_072.0),
        ("final_logit_softcapping", 30.0),
    ],
    read,
    declare: |config| declare(config, ""),
    ..GEMMA2
};

/// `gemma4`: the text model inside one that also sees and hears.
pub(crate) const GEMMA4: Family = Family { name: "gemma4", declare: declare_inside, ..GEMMA4_TEXT };

/// Modules around the text model, which files may hold.
const AROUND: [&str; 6] = [
    "vision_tower.",
    "vision_embedder.",
    "multi_modal_projector.",
    "audio_tower.",
    "embed_audio.",
    "embed_vision.",
];

const EXPERT_FIELDS: ExpertFields =
    ExpertFields { count: "num_experts", chosen: "top_k_experts", width: "moe_intermediate_size" };

const EXPERT_NAMES: ExpertNames = ExpertNames {
    stacked: "experts.switch_glu",
    apart: "experts",
    own: ["gate_proj", "up_proj", "down_proj"],
};

const ROUTER: RouterDeclaration = RouterDeclaration {
    module: "router.proj",
    bias: false,
    scoring: Scoring::Chosen,
    scaled: Some("router"),
};

fn read(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    if fields.flag("enable_moe_block")? == Some(true) {
        config.experts = Some(ExpertConfig::read(fields, &EXPERT_FIELDS)?);
        config.layers.iter_mut().for_each(|layer| layer.routed = true);
    }
    config::read_pattern(fields, &mut config.layers)?;
    read_heads(fields, config)?;
    read_donors(fields, config)?;
    config.scales.embedding = (config.hidden as f32).sqrt();
    config.scales.scores = Some(1.0);
    config.scales.logit_cap = fields.positive("final_logit_softcapping")?.map(|cap| cap as f32);
    config.tied = Some(config.tied.unwrap_or(true));
    if RopeConfig::block(fields)?.is_none() {
        let plain = config.rope.clone();
        let scaling = Scaling::Proportional { factor: 1.0 };
        config.window_rope = Some(RopeConfig { base: 10_000.0, ..plain.clone() });
        config.rope = RopeConfig { base: 1e6, share: 0.25, scaling, ..plain };
    }
    config.layer_inputs = read_inputs(fields, config)?;
    Ok(())
}

/// Layers that see everything have heads of another width, and may make their values of their keys.
fn read_heads(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    let width = fields.whole("global_head_dim", config::WIDEST)?.filter(|width| *width > 0);
    let joint = fields.flag("attention_k_eq_v")?.unwrap_or(false);
    let shared = fields.count("num_global_key_value_heads", config::MOST)?.filter(|_| joint);
    for layer in config.layers.iter_mut().filter(|layer| layer.window.is_none()) {
        layer.head_width = width.unwrap_or(layer.head_width);
        layer.shared_heads = shared.unwrap_or(layer.shared_heads);
        layer.values_of_keys = joint;
    }
    Ok(())
}

/// The last layers read keys and values of the last layer of their kind that makes some, and may be twice as wide.
fn read_donors(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    let sharing = fields.whole("num_kv_shared_layers", config::MOST)?.unwrap_or(0);
    let wide = fields.flag("use_double_wide_mlp")?.unwrap_or(true);
    let Some(own) = config.layers.len().checked_sub(sharing).filter(|own| *own > 0) else {
        return Err(Error::config(format!("num_kv_shared_layers leaves no layer with keys: {sharing}")));
    };
    let (making, reading) = config.layers.split_at_mut(own);
    for layer in reading {
        let donor = making.iter().rposition(|donor| donor.window == layer.window);
        layer.donor =
            Some(donor.ok_or_else(|| Error::config("a layer reads keys of a kind that no layer makes"))?);
        layer.intermediate *= if wide { 2 } else { 1 };
    }
    Ok(())
}

fn read_inputs(fields: Fields<'_>, config: &Config) -> Result<Option<LayerInputConfig>> {
    let width = fields.whole("hidden_size_per_layer_input", config::WIDEST)?.unwrap_or(0);
    if width == 0 {
        return Ok(None);
    }
    let key = "vocab_size_per_layer_input";
    let vocabulary = fields.count(key, config::LARGEST_VOCABULARY)?.unwrap_or(config.vocabulary);
    if vocabulary < config.vocabulary {
        return Err(Error::config(format!(
            "{key} must be at least {}, got: {vocabulary}",
            config.vocabulary
        )));
    }
    Ok(Some(LayerInputConfig { width, vocabulary }))
}

/// The gated unit and the experts read the same activations, each under its own norms; one more is over their sum.
fn beside_unit(unit: &MlpDeclaration, extents: ExpertConfig) -> RoutedDeclaration {
    let mut routed = RoutedDeclaration::in_place_of(unit, extents, EXPERT_NAMES, ROUTER);
    let Norms { before, after } = unit.norms;
    routed.norms = Norms { before: None, after };
    routed.experts.norms = Norms::around("pre_feedforward_layernorm_2", "post_feedforward_layernorm_2");
    let norms = Norms { before, after: Some("post_feedforward_layernorm_1") };
    routed.company = Some(CompanyDeclaration { unit: MlpDeclaration { norms, ..unit.clone() }, gate: None });
    routed
}

fn declare_inside(config: &Config) -> Declaration {
    let mut declaration = declare(config, "language_model.");
    declaration.unneeded.extend(AROUND.map(str::to_owned));
    declaration
}

fn declare(config: &Config, root: &str) -> Declaration {
    let mut declaration = between_norms(Declaration::below(config, root)).with_experts(config, beside_unit);
    for (block, layer) in declaration.blocks.iter_mut().zip(&config.layers) {
        block.attention.head_norms = HeadNorms::Each;
        block.attention.values = if layer.values_of_keys { Values::NormedKeys } else { Values::Normed };
        block.factor = true;
        if layer.donor.is_some() {
            // Some files hold what these layers do not use.
            let part = |name| format!("{}.self_attn.{name}", block.path);
            declaration.unneeded.extend(["k_proj.", "v_proj.", "k_norm."].map(part));
        }
    }
    let ranges = ["input_max", "input_min", "output_max", "output_min"];
    declaration.unneeded.extend(ranges.map(str::to_owned));
    declaration.inputs = config.layer_inputs.map(|extents| LayerInputsDeclaration {
        path: format!("{root}model"),
        extents,
        layers: config.layers.len(),
    });
    declaration
}
