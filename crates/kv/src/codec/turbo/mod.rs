//! TurboQuant: keys as affine codes with a whole zero point, values rotated and rounded to a Lloyd-Max codebook.
//!
//! Source: Zandieh, Daliri, Hadian, Mirrokni, "TurboQuant: online vector quantization with near-optimal distortion
//! rate", arXiv:2504.19874, for rotation and codebooks; keys follow the plain asymmetric scheme. The arithmetic is the
//! port's ([`tandem_contracts::tensor::fused`]); what it needs to know, codebooks and signs, is made here. Decoded
//! values are bf16.

mod codebook;
mod key;
mod sign;
mod table;
mod value;

pub use codebook::levels;
pub(super) use key::Keys;
pub(super) use value::Values;
