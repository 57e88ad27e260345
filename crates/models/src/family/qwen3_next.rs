//! Qwen3-Next: gated delta nets, whose projections are joined by key head, and in every fourth block attention whose
//! heads are gated and rotated in part; experts in the company of a gated unit that every token has.

use super::{
    Family,
    llama::LLAMA,
    qwen::{experts, read_experts},
};
use crate::{
    config::{Config, DeltaConfig, ExpertConfig, Fields, RecurrenceConfig, WIDEST, missing, read_interval},
    dense::Declaration,
    error::Result,
    layer::{CompanyDeclaration, HeadNorms, MlpDeclaration, Norms, RoutedDeclaration, Stored},
};

/// `qwen3_next`.
pub(crate) const QWEN3_NEXT: Family = Family {
    name: "qwen3_next",
    defaults: &[("full_attention_interval", 4.0), ("partial_rotary_factor", 0.25)],
    read: |fields, config| {
        read_nets(fields, config)?;
        read_company(fields, config, false)
    },
    declare: |config| {
        let mut declaration = gated(Declaration::standard(config), config);
        for recurrent in declaration.blocks.iter_mut().filter_map(|block| block.recurrent.as_mut()) {
            recurrent.stored = Stored::Joined;
        }
        // What guesses more than one token.
        declaration.unneeded.push("mtp.".to_owned());
        declaration.lacks_one = |weights| weights.has_part(".mlp.experts.0.up_proj.weight");
        declaration
    },
    ..LLAMA
};

/// Reads the delta nets, and which layers have them.
pub(super) fn read_nets(fields: Fields<'_>, config: &mut Config) -> Result<()> {
    config.recurrence = Some(RecurrenceConfig::Delta(DeltaConfig::read(fields)?));
    read_interval(fields, &mut config.layers)
}

/// Reads the experts and the unit in their company.
pub(super) fn read_company(fields: Fields<'_>, config: &mut Config, normalised: bool) -> Result<()> {
    read_experts(fields, config, normalised)?;
    let key = "shared_expert_intermediate_size";
    let width = fields.count(key, WIDEST)?.ok_or_else(|| missing(key))?;
    config.experts = config.experts.map(|experts| ExpertConfig { company: Some(width), ..experts });
    Ok(())
}

/// Attention with gated heads, and experts in company, as both generations have them.
pub(super) fn gated(declaration: Declaration, config: &Config) -> Declaration {
    let declaration = declaration.with_blocks(|block| {
        block.attention.head_norms = HeadNorms::Each;
        block.attention.gated = true;
    });
    declaration.with_experts(config, experts_in_company)
}

fn experts_in_company(unit: &MlpDeclaration, extents: ExpertConfig) -> RoutedDeclaration {
    let own =
        |width| MlpDeclaration { module: "mlp.shared_expert", norms: Norms::NONE, width, ..unit.clone() };
    let company = |width| CompanyDeclaration { unit: own(width), gate: Some("mlp.shared_expert_gate") };
    RoutedDeclaration { company: extents.company.map(company), ..experts(unit, extents) }
}
