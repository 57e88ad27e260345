//! Tensor operations on the CPU, in pure Rust.
//!
//! Linear products over prepared weights ([`product`]) run on a small thread pool ([`pool`]) with kernels
//! chosen at run time for the instruction set of the machine ([`isa`]); buffers come from [`memory`].

mod backend;
mod device;
pub mod isa;
mod layout;
pub mod memory;
mod number;
mod operation;
pub mod pool;
pub mod product;
mod simd;
mod value;

pub use device::{Options, open};
