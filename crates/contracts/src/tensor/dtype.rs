//! Element types of tensors.

use half::{bf16, f16};

/// Type of a tensor's elements; little-endian wherever they are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// 32-bit float.
    F32,
    /// IEEE 16-bit float.
    F16,
    /// 16-bit float with the exponent of `F32`.
    Bf16,
    /// Signed 32-bit integer; the dtype of indices.
    I32,
    /// Unsigned 32-bit integer; the dtype of packed codes.
    U32,
    /// Signed byte.
    I8,
    /// Unsigned byte.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl Dtype {
    /// Every dtype.
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::Bf16, Self::I32, Self::U32, Self::I8, Self::U8, Self::Bool];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Whether it is an integer type (booleans are not).
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I32 | Self::U32 | Self::I8 | Self::U8)
    }
}

/// A host type that stands for one [`Dtype`].
pub trait Element: Copy + PartialEq + std::fmt::Debug + 'static {
    /// The dtype.
    const DTYPE: Dtype;

    /// Appends the little-endian bytes.
    fn write(self, bytes: &mut Vec<u8>);

    /// Reads one element from exactly `DTYPE.size()` bytes.
    fn read(bytes: &[u8]) -> Self;
}

macro_rules! element {
    ($($host:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $host {
            const DTYPE: Dtype = Dtype::$dtype;

            fn write(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                let mut buffer = [0; size_of::<Self>()];
                buffer.copy_from_slice(bytes);
                Self::from_le_bytes(buffer)
            }
        }
    )*};
}

element!(f32 => F32, f16 => F16, bf16 => Bf16, i32 => I32, u32 => U32, i8 => I8, u8 => U8);

impl Element for bool {
    const DTYPE: Dtype = Dtype::Bool;

    fn write(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }

    fn read(bytes: &[u8]) -> Self {
        bytes.first().is_some_and(|&byte| byte != 0)
    }
}
