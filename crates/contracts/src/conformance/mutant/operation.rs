//! Names of the operations that give a value.

use crate::tensor::{Binary, Reduce, Unary};
use std::fmt;

/// An operation of the port that gives a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each bears the name of its operation")]
pub enum Operation {
    Upload,
    UploadF32,
    UploadI32,
    Download,
    Full,
    Arange,
    View,
    Reshape,
    Transpose,
    Broadcast,
    Concat,
    Pad,
    Slice,
    SliceUpdate,
    Cast,
    Take,
    TakeAlongAxis,
    PutAlongAxis,
    Select,
    Unary(Unary),
    Binary(Binary),
    Reduce(Reduce),
    Softmax,
    Cumsum,
    Argmax,
    Argsort,
    Argpartition,
    Matmul,
    QuantizeCodes,
    QuantizeScales,
    QuantizeBiases,
    Dequantize,
    PrepareLinear,
    Linear,
    GatherLinear,
    Embed,
    RmsNorm,
    LayerNorm,
    Rope,
    Conv1d,
    KvAppend,
    KvAppendEach,
    Attend,
    ConvolveOutputs,
    ConvolveTails,
    ScanOutputs,
    ScanStates,
    NormLinear,
    LinearAdd,
    GatedLinearAdd,
    Gated,
    Memory,
}

impl Operation {
    const PLAIN: [Self; 49] = [
        Self::Upload,
        Self::UploadF32,
        Self::UploadI32,
        Self::Download,
        Self::Full,
        Self::Arange,
        Self::View,
        Self::Reshape,
        Self::Transpose,
        Self::Broadcast,
        Self::Concat,
        Self::Pad,
        Self::Slice,
        Self::SliceUpdate,
        Self::Cast,
        Self::Take,
        Self::TakeAlongAxis,
        Self::PutAlongAxis,
        Self::Select,
        Self::Softmax,
        Self::Cumsum,
        Self::Argmax,
        Self::Argsort,
        Self::Argpartition,
        Self::Matmul,
        Self::QuantizeCodes,
        Self::QuantizeScales,
        Self::QuantizeBiases,
        Self::Dequantize,
        Self::PrepareLinear,
        Self::Linear,
        Self::GatherLinear,
        Self::Embed,
        Self::RmsNorm,
        Self::LayerNorm,
        Self::Rope,
        Self::Conv1d,
        Self::KvAppend,
        Self::KvAppendEach,
        Self::Attend,
        Self::ConvolveOutputs,
        Self::ConvolveTails,
        Self::ScanOutputs,
        Self::ScanStates,
        Self::NormLinear,
        Self::LinearAdd,
        Self::GatedLinearAdd,
        Self::Gated,
        Self::Memory,
    ];

    /// Every one; elementwise operations and reductions each by its own name.
    pub fn all() -> Vec<Self> {
        let reductions = [Reduce::Sum, Reduce::Mean, Reduce::Minimum, Reduce::Maximum];
        let mut all = Self::PLAIN.to_vec();
        all.extend(Unary::ALL.map(Self::Unary));
        all.extend(Binary::ALL.map(Self::Binary));
        all.extend(reductions.map(Self::Reduce));
        all
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{self:?}");
        // As the port spells it: `TakeAlongAxis` is `take_along_axis`, `Unary(Exp)` is `unary Exp`.
        let (name, variant) = name.split_once('(').unwrap_or((&name, ""));
        for (i, letter) in name.char_indices() {
            if i > 0 && letter.is_ascii_uppercase() {
                f.write_str("_")?;
            }
            write!(f, "{}", letter.to_ascii_lowercase())?;
        }
        let variant = variant.trim_end_matches(')');
        if variant.is_empty() { Ok(()) } else { write!(f, " {variant}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_port() {
        assert_eq!(Operation::TakeAlongAxis.to_string(), "take_along_axis");
        assert_eq!(Operation::Unary(Unary::Exp).to_string(), "unary Exp");
        assert_eq!(Operation::Conv1d.to_string(), "conv1d");
    }

    #[test]
    fn every_operation_is_listed_once() {
        let mut names: Vec<String> = Operation::all().iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Operation::all().len());
    }
}
