//! LFM2 (Liquid AI): blocks of attention or of a short convolution, with norms of heads, under names of its own.

use super::{Family, llama::LLAMA};
use crate::{
    config::{self, Config, Fields, RecurrenceConfig, ShortConfig, missing},
    dense::{BlockDeclaration, Declaration},
    error::{Error, Result},
    layer::{AttentionNames, HeadNorms, MlpDeclaration, Norms},
};

/// `lfm2`.
pub(crate) const LFM2: Family = Family {
    name: "lfm2",
    defaults: &[("rope_theta", 1e6)],
    read: |fields, config| {
        config.norm_epsilon = fields.required("norm_eps")?;
        config.tied = Some(true);
        config.recurrence = Some(RecurrenceConfig::Short(ShortConfig::read(fields)?));
        read_attention(fields, config)?;
        let (width, heads) = (inner_width(fields, config)?, config.heads);
        for layer in &mut config.layers {
            (layer.intermediate, layer.head_width) = (width, config.hidden / heads);
        }
        Ok(())
    },
    declare: |config| {
        let mut declaration = Declaration::standard(config).with_blocks(name_modules).with_units(name_unit);
        declaration.norm = "model.embedding_norm".to_owned();
        declaration
    },
    ..LLAMA
};

/// `full_attn_idxs`, in files that do not list every layer.
fn read_attention(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    let key = "full_attn_idxs";
    let Some(list) = fields.list(key)? else {
        return if fields.list("layer_types")?.is_some() { Ok(()) } else { Err(missing("layer_types")) };
    };
    config.layers.iter_mut().for_each(|layer| layer.recurrent = true);
    for index in list {
        let layer = index.as_u64().and_then(|index| config.layers.get_mut(usize::try_from(index).ok()?));
        let wrong = || Error::config(format!("{key} must be indices of layers, has: {index}"));
        layer.ok_or_else(wrong)?.recurrent = false;
    }
    Ok(())
}

/// Width inside gated units. Where files have it adjusted, it is two thirds of what they say, times a factor, rounded up.
fn inner_width(fields: Fields<'_>, config: &Config) -> Result<usize> {
    let stated = fields.count("block_ff_dim", config::WIDEST)?.unwrap_or(config.intermediate);
    if fields.flag("block_auto_adjust_ff_dim")? != Some(true) {
        return Ok(stated);
    }
    let key = "block_multiple_of";
    let multiple = fields.count(key, config::WIDEST)?.ok_or_else(|| missing(key))?;
    let factor = fields.positive("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    let width = ((2 * stated / 3) as f64 * factor) as usize;
    // Below the bound of every width, so that nothing overflows.
    Ok(width.clamp(1, config::WIDEST as usize).next_multiple_of(multiple))
}

fn name_modules(block: &mut BlockDeclaration) {
    block.mix_behind(Norms::before("operator_norm"));
    block.attention.names =
        AttentionNames { output: "out_proj", query_norm: "q_layernorm", key_norm: "k_layernorm" };
    block.attention.head_norms = HeadNorms::Each;
}

fn name_unit(unit: &mut MlpDeclaration) {
    unit.norms = Norms::before("ffn_norm");
    unit.module = "feed_forward";
    unit.names = ["w1", "w3", "w2"];
}
