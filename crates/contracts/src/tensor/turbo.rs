//! TurboQuant's codes: what keys and values become, and what is known about them besides.
//!
//! Source: Zandieh, Daliri, Hadian, Mirrokni, "TurboQuant: online vector quantization with near-optimal distortion
//! rate", arXiv:2504.19874, for rotation and codebooks; keys follow the plain asymmetric scheme.
//!
//! Codes of 2 to 5 bits are packed as one little-endian bit stream for each head, code `i` at bits `i * bits` and on;
//! those of 8 bits are bytes, of keys signed ones. Scales and zero points are f16, one for each group of 32.

use super::Tensor;

/// Elements of a head that share a scale.
pub const GROUP: usize = 32;

/// Keys. A value is `(code + zero) * scale`, in f32 and in this order.
#[derive(Clone, Debug)]
pub struct TurboKeys {
    /// Bits of a code: 2, 4, 5 or 8.
    pub bits: u8,
    /// `i8 [.., width]` for 8 bits, else `u8 [.., width * bits / 8]`.
    pub codes: Tensor,
    /// `f16 [.., width / 32]`.
    pub scales: Tensor,
    /// Whole numbers, `f16 [.., width / 32]`.
    pub zeros: Tensor,
}

/// Values. A rotated value is `levels[code] * scale`, in f32; signs and the orthonormal Hadamard transform turn it back,
/// which is linear, so that attention does it once for each query.
#[derive(Clone, Debug)]
pub struct TurboValues {
    /// How they were made.
    pub book: TurboBook,
    /// `u8 [.., width * bits / 8]`.
    pub codes: Tensor,
    /// `f16 [.., width / 32]`.
    pub scales: Tensor,
}

/// What all values of a layer share.
#[derive(Clone, Debug)]
pub struct TurboBook {
    /// Bits of a code: 2, 3, 4, 5 or 8.
    pub bits: u8,
    /// `f32 [2^bits]`, ascending.
    pub levels: Tensor,
    /// `f32 [2^bits - 1]`, ascending: between which elements each level lies.
    pub boundaries: Tensor,
    /// `f32 [width]`, each 1 or -1; the width is a power of two, at least 32.
    pub signs: Tensor,
}
