//! Names of tensors: llama.cpp's to those that safetensors files use, and which of them hold permuted rows.
//!
//! Of the llama family llama.cpp rotates neighbouring pairs `(2i, 2i + 1)` where the original models rotate halves
//! `(i, i + width / 2)`; its converter therefore reorders the rows of their query and key projections. Those rows are
//! put back while loading, so that one rotary layout serves both kinds of files. Of other families it rotates halves.

/// `blk.3.attn_q.weight` becomes `model.layers.3.self_attn.q_proj.weight`; a name that is not known stays.
pub(super) fn translate(name: &str, architecture: &str) -> String {
    let translated = match name.split_once('.') {
        Some(("token_embd", rest)) => Some(format!("model.embed_tokens.{rest}")),
        Some(("output_norm", rest)) => Some(format!("model.norm.{rest}")),
        Some(("output", rest)) => Some(format!("lm_head.{rest}")),
        Some(("blk", rest)) => in_layer(rest, architecture),
        _ => None,
    };
    translated.unwrap_or_else(|| name.to_owned())
}

fn in_layer(rest: &str, architecture: &str) -> Option<String> {
    let (layer, rest) = rest.split_once('.')?;
    let (module, leaf) = rest.split_once('.')?;
    let module = match module {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_norm" if architecture == "gemma3" => "pre_feedforward_layernorm",
        "ffn_norm" | "post_attention_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => return None,
    };
    Some(format!("model.layers.{layer}.{module}.{leaf}"))
}

/// Heads of a projection whose rows llama.cpp keeps in pairs.
pub(super) fn interleaved_heads(name: &str, heads: usize, shared_heads: usize) -> Option<usize> {
    let mut parts = name.split('.');
    match (parts.next(), parts.nth(1)) {
        (Some("blk"), Some("attn_q")) => Some(heads),
        (Some("blk"), Some("attn_k")) => Some(shared_heads),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_and_unknown_ones_stay() {
        for (name, expected) in [
            ("token_embd.weight", "model.embed_tokens.weight"),
            ("output_norm.weight", "model.norm.weight"),
            ("output.weight", "lm_head.weight"),
            ("blk.12.attn_q.bias", "model.layers.12.self_attn.q_proj.bias"),
            ("blk.0.ffn_down.weight", "model.layers.0.mlp.down_proj.weight"),
            ("blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp.weight"),
            ("blk.", "blk."),
            ("rope_freqs.weight", "rope_freqs.weight"),
        ] {
            assert_eq!(translate(name, "llama"), expected);
        }
        for (name, expected) in [
            ("blk.0.attn_norm.weight", "model.layers.0.input_layernorm.weight"),
            ("blk.0.post_attention_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
            ("blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"),
            ("blk.0.post_ffw_norm.weight", "model.layers.0.post_feedforward_layernorm.weight"),
            ("blk.0.attn_k_norm.weight", "model.layers.0.self_attn.k_norm.weight"),
        ] {
            assert_eq!(translate(name, "gemma3"), expected);
        }
    }

    #[test]
    fn only_queries_and_keys_hold_pairs() {
        assert_eq!(interleaved_heads("blk.0.attn_q.weight", 9, 3), Some(9));
        assert_eq!(interleaved_heads("blk.0.attn_k.bias", 9, 3), Some(3));
        assert_eq!(interleaved_heads("blk.0.attn_v.weight", 9, 3), None);
        assert_eq!(interleaved_heads("output.weight", 9, 3), None);
    }
}
