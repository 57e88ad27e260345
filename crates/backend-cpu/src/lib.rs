//! Tensor operations on the CPU, in pure Rust.
//!
//! Linear products over prepared weights ([`product`]) run on a small thread pool ([`pool`]) with kernels
//! chosen at run time for the instruction set of the machine ([`isa`]); buffers come from [`memory`].

pub mod isa;
pub mod memory;
pub mod pool;
pub mod product;
mod simd;
mod backend;
mod device;
mod layout;
mod number;
mod operation;
mod value;

pub use device::{Options, open};
