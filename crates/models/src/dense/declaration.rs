//! A family's graph as a plain value: which modules there are, and where norms stand.
//!
//! [`Declaration::standard`] is what most families are; a family changes in it what it does otherwise. Numbers come
//! from the [`Config`], so that a declaration says nothing twice.

use crate::{
    config::{Config, ExpertConfig, LayerConfig},
    layer::{
        AttentionDeclaration, AttentionNames, FeedForwardDeclaration, HeadNorms, LayerInputsDeclaration,
        MlpDeclaration, Norms, RecurrentDeclaration, RoutedDeclaration, Stored, Values,
    },
    weights::Weights,
};
use tandem_kv::Kind;

/// A family's graph.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    /// Module of the embedding.
    pub(crate) embedding: String,
    /// Module of the last norm.
    pub(crate) norm: String,
    /// Module of the head, where it is not the embedding.
    pub(crate) head: String,
    /// The blocks in order.
    pub(crate) blocks: Vec<BlockDeclaration>,
    /// Embeddings of which each block reads its own part.
    pub(crate) inputs: Option<LayerInputsDeclaration>,
    /// Parts of names of tensors that files may hold and the model does not use.
    pub(crate) unneeded: Vec<String>,
    /// Beginnings of names in some files, and what stands for them here.
    pub(crate) renamed: &'static [(&'static str, &'static str)],
    /// Tells files whose norms still lack the one that belongs to their weights.
    pub(crate) lacks_one: fn(&Weights<'_>) -> bool,
}

/// One block.
#[derive(Clone, Debug)]
pub(crate) struct BlockDeclaration {
    /// Module that holds those of the block.
    pub(crate) path: String,
    pub(crate) attention: AttentionDeclaration,
    /// What stands in the place of attention, where something does.
    pub(crate) recurrent: Option<RecurrentDeclaration>,
    /// What the flow has besides.
    pub(crate) feed_forward: FeedForwardDeclaration,
    pub(crate) flow: Flow,
    /// Whether the block ends with a factor, `layer_scalar`.
    pub(crate) factor: bool,
}

/// How a block's two branches lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The gated unit, or what is in its place, reads what attention has added to.
    Serial,
    /// Both read the block's input.
    Parallel,
    /// There is no gated unit.
    Alone,
}

impl BlockDeclaration {
    /// Gives attention, and what stands in its place, other norms.
    pub(crate) fn mix_behind(&mut self, norms: Norms) {
        self.attention.norms = norms;
        if let Some(recurrent) = &mut self.recurrent {
            recurrent.norms = norms;
        }
    }
}

impl Declaration {
    /// Pre-norm blocks of attention and a gated unit, under the names that most files use.
    pub(crate) fn standard(config: &Config) -> Self {
        Self::below(config, "")
    }

    /// The same, with modules whose paths begin with `root`.
    pub(crate) fn below(config: &Config, root: &str) -> Self {
        let block = |(index, layer)| BlockDeclaration {
            path: format!("{root}model.layers.{index}"),
            attention: attention(config, layer),
            recurrent: config.recurrence.filter(|_| layer.recurrent).map(|net| RecurrentDeclaration {
                norms: Norms::before("input_layernorm"),
                net,
                stored: Stored::Apart,
            }),
            feed_forward: FeedForwardDeclaration::Gated(MlpDeclaration {
                module: "mlp",
                names: MlpDeclaration::NAMES,
                norms: Norms::before("post_attention_layernorm"),
                width: layer.intermediate,
                stored: Stored::Apart,
                bias: config.mlp_bias,
                activation: config.activation,
            }),
            flow: Flow::Serial,
            factor: false,
        };
        Self {
            embedding: format!("{root}model.embed_tokens"),
            norm: format!("{root}model.norm"),
            head: format!("{root}lm_head"),
            blocks: config.layers.iter().enumerate().map(block).collect(),
            inputs: None,
            // Old checkpoints store what follows from the configuration.
            unneeded: vec!["self_attn.rotary_emb.inv_freq".to_owned(), "rope_freqs.weight".to_owned()],
            renamed: &[],
            lacks_one: |_| false,
        }
    }

    /// The same with a change to every block.
    pub(crate) fn with_blocks(mut self, change: impl Fn(&mut BlockDeclaration)) -> Self {
        self.blocks.iter_mut().for_each(change);
        self
    }

    /// The same with a change to every gated unit.
    pub(crate) fn with_units(self, change: impl Fn(&mut MlpDeclaration)) -> Self {
        self.with_blocks(|block| {
            if let FeedForwardDeclaration::Gated(unit) = &mut block.feed_forward {
                change(unit);
            }
        })
    }

    /// The same with experts in the place of the gated units of layers that have some.
    pub(crate) fn with_experts(
        mut self,
        config: &Config,
        routed: impl Fn(&MlpDeclaration, ExpertConfig) -> RoutedDeclaration,
    ) -> Self {
        let Some(experts) = config.experts else { return self };
        for (block, _) in self.blocks.iter_mut().zip(&config.layers).filter(|(_, layer)| layer.routed) {
            if let FeedForwardDeclaration::Gated(unit) = &block.feed_forward {
                block.feed_forward = FeedForwardDeclaration::Routed(Box::new(routed(unit, experts)));
            }
        }
        self
    }

    /// What each layer keeps of a row, where activations have a width of `hidden`.
    pub(crate) fn cached(&self, hidden: usize) -> Vec<Kind> {
        let kept = |block: &BlockDeclaration| match &block.recurrent {
            Some(recurrent) => recurrent.cached(hidden),
            None => block.attention.cached(),
        };
        self.blocks.iter().map(kept).collect()
    }
}

fn attention(config: &Config, layer: &LayerConfig) -> AttentionDeclaration {
    AttentionDeclaration {
        norms: Norms::before("input_layernorm"),
        names: AttentionNames::STANDARD,
        heads: config.heads,
        shared_heads: layer.shared_heads,
        width: layer.head_width,
        stored: Stored::Apart,
        input_bias: config.attention_bias,
        output_bias: config.attention_bias,
        head_norms: HeadNorms::None,
        gated: false,
        values: Values::Projected,
        donor: layer.donor,
        window: layer.window,
        keep: (0, 0),
        rope: config.rope_of(layer).cloned(),
        scale: config.scales.scores.unwrap_or_else(|| (layer.head_width as f32).sqrt().recip()),
        sinks: false,
    }
}
