//! Names of elementwise operations and reductions, and the plain values that describe a device.

use super::{Dtype, Tensor};

/// One number, for fills and padding; converted to the tensor's dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float.
    Float(f32),
    /// An integer.
    Int(i32),
    /// A truth value.
    Bool(bool),
}

/// Elementwise operations of one operand. All take floats; `Negate`, `Abs` and `Square` also signed integers,
/// `Not` booleans only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// `-x`.
    Negate,
    /// `|x|`.
    Abs,
    /// `x * x`.
    Square,
    /// `e^x`.
    Exp,
    /// Natural logarithm.
    Log,
    /// `ln(1 + x)`, precise where `1 + x` rounds.
    Log1p,
    /// Square root.
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// Error function.
    Erf,
    /// Sine, argument in radians.
    Sin,
    /// Cosine, argument in radians.
    Cos,
    /// To the nearest integer, halves to even.
    Round,
    /// To the next lower integer.
    Floor,
    /// Logical not.
    Not,
}

impl Unary {
    /// Every one.
    pub const ALL: [Self; 16] = [
        Self::Negate,
        Self::Abs,
        Self::Square,
        Self::Exp,
        Self::Log,
        Self::Log1p,
        Self::Sqrt,
        Self::Rsqrt,
        Self::Sigmoid,
        Self::Tanh,
        Self::Erf,
        Self::Sin,
        Self::Cos,
        Self::Round,
        Self::Floor,
        Self::Not,
    ];

    /// Whether the operation takes elements of `dtype`.
    pub const fn takes(self, dtype: Dtype) -> bool {
        match self {
            Self::Negate | Self::Abs | Self::Square => {
                dtype.is_float() || matches!(dtype, Dtype::I32 | Dtype::I8)
            }
            Self::Not => matches!(dtype, Dtype::Bool),
            _ => dtype.is_float(),
        }
    }
}

/// Elementwise operations of two operands of one dtype, which broadcast. Integer arithmetic wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b`, floats only.
    Divide,
    /// The smaller one; NaN if either is.
    Minimum,
    /// The larger one; NaN if either is.
    Maximum,
    /// `a^b`, floats only.
    Power,
    /// Bits of integers, truth of booleans.
    And,
    /// Bits of integers, truth of booleans.
    Or,
    /// `a << b`, integers only; `b` below the width.
    ShiftLeft,
    /// `a >> b`, integers only (arithmetic where signed); `b` below the width.
    ShiftRight,
    /// `a == b`, gives booleans.
    Equal,
    /// `a < b`, gives booleans.
    Less,
    /// `a <= b`, gives booleans.
    LessEqual,
}

impl Binary {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Minimum,
        Self::Maximum,
        Self::Power,
        Self::And,
        Self::Or,
        Self::ShiftLeft,
        Self::ShiftRight,
        Self::Equal,
        Self::Less,
        Self::LessEqual,
    ];

    /// Whether the operation takes elements of `dtype`.
    pub const fn takes(self, dtype: Dtype) -> bool {
        match self {
            Self::Divide | Self::Power => dtype.is_float(),
            Self::And | Self::Or => dtype.is_integer() || matches!(dtype, Dtype::Bool),
            Self::ShiftLeft | Self::ShiftRight => dtype.is_integer(),
            Self::Equal => true,
            _ => !matches!(dtype, Dtype::Bool),
        }
    }

    /// Dtype of the result for operands of `dtype`.
    pub const fn gives(self, dtype: Dtype) -> Dtype {
        match self {
            Self::Equal | Self::Less | Self::LessEqual => Dtype::Bool,
            _ => dtype,
        }
    }
}

/// Reductions along one axis. Floats of 16 bits are accumulated in f32. On an invariant device elements are
/// combined in ascending order of index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Sum; 0 over nothing.
    Sum,
    /// Mean, floats only; an empty axis is a shape error.
    Mean,
    /// Smallest element; NaN if any is; an empty axis is a shape error.
    Minimum,
    /// Largest element; NaN if any is; an empty axis is a shape error.
    Maximum,
}

/// Rotary position embedding (Su et al., arXiv:2104.09864) of the first `2 * frequencies` elements of a head.
#[derive(Clone, Debug)]
pub struct Rope {
    /// `f32 [rotated / 2]`: radians per position of each pair. Scaling schemes are folded in.
    pub frequencies: Tensor,
    /// Whether pairs are neighbours `(2i, 2i + 1)`; else halves `(i, i + rotated / 2)`.
    pub interleaved: bool,
    /// Multiplies the rotated part (attention factor of YaRN and LongRoPE); 1 for none.
    pub scale: f32,
}

/// Which arithmetic the products of prepared weights use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Floats over dequantised weights.
    Exact,
    /// The device's fastest arithmetic of stated quality (int8 activations on the CPU).
    Fast,
}

/// Bytes of a device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Held by live values, prepared weights included.
    pub active: usize,
    /// Highest `active` since the device opened or [`super::Backend::reset_peak`].
    pub peak: usize,
    /// Kept for reuse; [`super::Backend::trim`] gives it back.
    pub cached: usize,
    /// Ever handed out, reuse of cached memory included; never falls. Stays 0 where the device cannot count.
    pub allocated: u64,
}

/// Facts that change how core crates drive a device. Values, never questions answered by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traits {
    /// For people: `cpu`, `mlx`, `fake`.
    pub name: &'static str,
    /// Dtype in which models compute and keep plain caches.
    pub compute_dtype: Dtype,
    /// Precisions that products take, the default first; `Exact` is among them. Others are `Unsupported`.
    pub precisions: &'static [Precision],
    /// One arithmetic per output element, whatever shares the call.
    pub batch_invariant: bool,
    /// Operations build a graph, and an unread token may feed the next step.
    pub deferred: bool,
    /// Attention takes rows that own their planes; joins and leaves copy nothing.
    pub ragged_attention: bool,
}
