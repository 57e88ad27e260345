//! What may differ between the layers of one model, and how files say so.

use super::{LONGEST, MOST, field::Fields, missing};
use crate::error::{Error, Result};

/// One layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Positions that a query sees, its own included; all where there is none.
    pub window: Option<usize>,
    /// Whether queries and keys are rotated by their position.
    pub rotary: bool,
    /// Width of a head.
    pub head_width: usize,
    /// Key and value heads.
    pub shared_heads: usize,
    /// Width inside the gated unit.
    pub intermediate: usize,
    /// Earlier layer whose keys and values this one reads, if it makes none itself.
    pub donor: Option<usize>,
    /// Whether values are the keys before their norm, so that the layer has no projection of values.
    pub values_of_keys: bool,
    /// Whether the layer has no attention, but carries a state of fixed size.
    pub recurrent: bool,
    /// Whether the layer has experts.
    pub routed: bool,
}

impl LayerConfig {
    /// A layer that sees everything and differs in nothing.
    pub(super) fn plain(head_width: usize, shared_heads: usize, intermediate: usize) -> Self {
        Self {
            window: None,
            rotary: true,
            head_width,
            shared_heads,
            intermediate,
            donor: None,
            values_of_keys: false,
            recurrent: false,
            routed: false,
        }
    }
}

/// Reads `layer_types`, where the file lists them.
pub(super) fn read_kinds(fields: Fields<'_>, layers: &mut [LayerConfig]) -> Result<()> {
    let Some(kinds) = fields.list("layer_types")? else { return Ok(()) };
    let window = fields.count("sliding_window", LONGEST)?;
    require_each_layer("layer_types", kinds.len(), layers.len())?;
    for (layer, kind) in layers.iter_mut().zip(kinds) {
        layer.window = match kind.as_str() {
            Some("full_attention") => None,
            Some("sliding_attention") => Some(window.ok_or_else(|| missing("sliding_window"))?),
            Some("linear_attention" | "conv") => {
                layer.recurrent = true;
                None
            }
            _ => return Err(Error::unsupported(format!("layer type is not known: {kind}"))),
        };
    }
    Ok(())
}

/// Where the file does not list its layers, one in `sliding_window_pattern` sees everything, the last of each such
/// group; the others have windows.
pub(crate) fn read_pattern(fields: Fields<'_>, layers: &mut [LayerConfig]) -> Result<()> {
    if fields.list("layer_types")?.is_some() {
        return Ok(());
    }
    let key = "sliding_window_pattern";
    let pattern = fields.count(key, MOST)?.ok_or_else(|| missing(key))?;
    let window = fields.count("sliding_window", LONGEST)?.ok_or_else(|| missing("sliding_window"))?;
    for (index, layer) in layers.iter_mut().enumerate() {
        layer.window = (!(index + 1).is_multiple_of(pattern)).then_some(window);
    }
    Ok(())
}

/// Where the file does not list its layers, one in `full_attention_interval` has attention, the last of each such group;
/// the others carry a state.
pub(crate) fn read_interval(fields: Fields<'_>, layers: &mut [LayerConfig]) -> Result<()> {
    if fields.list("layer_types")?.is_some() {
        return Ok(());
    }
    let key = "full_attention_interval";
    let interval = fields.count(key, MOST)?.ok_or_else(|| missing(key))?;
    for (index, layer) in layers.iter_mut().enumerate() {
        layer.recurrent = !(index + 1).is_multiple_of(interval);
    }
    Ok(())
}

/// Reads which layers are rotated: `no_rope_layers`, or all but one in `no_rope_layer_interval`.
pub(crate) fn read_unrotated(fields: Fields<'_>, layers: &mut [LayerConfig]) -> Result<()> {
    if let Some(rotated) = fields.list("no_rope_layers")? {
        // The name says the opposite of its values: 1 is a rotary layer.
        require_each_layer("no_rope_layers", rotated.len(), layers.len())?;
        for (layer, rotates) in layers.iter_mut().zip(rotated) {
            layer.rotary = rotates.as_u64() != Some(0) && rotates.as_bool() != Some(false);
        }
    } else if let Some(interval) = fields.count("no_rope_layer_interval", MOST)? {
        layers.iter_mut().skip(interval - 1).step_by(interval).for_each(|layer| layer.rotary = false);
    }
    Ok(())
}

fn require_each_layer(key: &str, got: usize, layers: usize) -> Result<()> {
    if got == layers {
        return Ok(());
    }
    Err(Error::config(format!("{key} must name each of {layers} layers, names: {got}")))
}
