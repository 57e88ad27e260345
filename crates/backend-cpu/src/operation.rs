//! The operations, by kind. Each checks its operands with the port's rules, then computes.

pub(crate) mod arithmetic;
pub(crate) mod attention;
pub(crate) mod branch;
pub(crate) mod compare;
pub(crate) mod convolution;
pub(crate) mod convolve;
pub(crate) mod copy;
pub(crate) mod creation;
pub(crate) mod elementwise;
pub(crate) mod gate;
pub(crate) mod index;
pub(crate) mod linear;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod quantise;
pub(crate) mod reduce;
pub(crate) mod rope;
pub(crate) mod row;
pub(crate) mod scan;
pub(crate) mod softmax;
pub(crate) mod sort;
pub(crate) mod turbo;
pub(crate) mod view;
