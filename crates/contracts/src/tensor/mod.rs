//! The tensor port: what a device must do.
//!
//! A device is an object behind [`Backend`], held as [`Device`]; a [`Tensor`] is a cheap handle to a value on it.
//! Handles are not `Send`: MLX streams belong to a thread, so what would crash there is a compile error here. What
//! crosses threads is a closure that opens a device ([`OpenDevice`]) going in, and host bytes coming out.
//!
//! # The contract
//!
//! 1. **When.** An operation may run now (CPU) or later (MLX, the fake); [`Traits::deferred`] says which. Values
//!    are observable only through [`Backend::eval`] or [`Backend::download`].
//! 2. **Errors.** Wrong shapes and dtypes, foreign handles and host-side index lists are refused by the operation
//!    itself, on every device. Memory and device faults may surface at `eval`; they end the iteration that met
//!    them, not the process. Index *tensors* are the caller's duty where their values are not known yet.
//! 3. **Evaluation.** One `eval` for each iteration, by the engine: logits and touched cache rows together.
//! 4. **Values, not places.** An operation never changes a value that another handle can see. Those that take an
//!    operand by value may reuse its memory when the handle is the last one; views hold their base, so they are
//!    dropped before an append. The conformance suite counts the bytes allocated over 100 appends.
//! 5. **Nothing hidden.** No randomness, no operators, no default device, no global stream. Every operation
//!    returns [`Result`].
//! 6. **Few required operations.** A new one needs two callers or a measured win.
//! 7. **Fusion is provided.** What fuses is a provided method whose body is made of port operations ([`fused`]).
//!    An adapter overrides it for speed and is held to the body, or to a naive loop of its own stated arithmetic.
//! 8. **Attention takes spans, not masks**: see [`attention`]; so do layers that carry a state: see [`recurrence`].
//! 9. **Batch invariance.** Where [`Traits::batch_invariant`] holds, every output element has one arithmetic in
//!    each [`Precision`]; nothing that shares the call, no chunking and no thread count changes its bits.
//!
//! # Shapes
//!
//! Shapes are row-major, axes count from 0, and elementwise operands broadcast as in NumPy. Packed tokens are the
//! first axis: `[tokens, width]` or `[tokens, heads, width]`; there is no batch axis in a forward pass.

pub mod attention;
mod backend;
mod dtype;
mod error;
pub mod fused;
mod handle;
mod linear;
mod operation;
pub mod recurrence;
pub mod shape;
pub mod turbo;

pub use attention::{Attend, KvAppend, KvWrite, Plane, RowSpan, Run};
pub use backend::Backend;
pub use dtype::{Dtype, Element};
pub use error::{Error, ErrorKind, Result};
pub use handle::{Device, DeviceId, OpenDevice, Storage, Tensor};
pub use linear::{Activation, Affine, Linear, Prepared, Quantized, Weight};
pub use operation::{Binary, Memory, Precision, Reduce, Rope, Scalar, Traits, Unary};
pub use recurrence::{Convolution, Recurred, Rule, Scan, StateSpan};
pub use turbo::{TurboBook, TurboKeys, TurboValues};
