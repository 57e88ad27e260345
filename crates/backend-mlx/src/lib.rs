//! The tensor port over Apple's MLX.
//!
//! [`open`] gives a device on the thread that calls it. The crate translates: each operation of the port checks its
//! operands with the port's own rules, then becomes the MLX operation of the same name. It keeps no state but
//! MLX's arrays, one stream and counters.
//!
//! # Where it is more than a translation
//!
//! * **Indices** (`index`): MLX reads and writes wherever an index points. Values that came from the host are
//!   remembered by their bounds and refused where they do not fit; others are clamped by the graph.
//! * **Casts** (`arithmetic`): floats that an integer cannot hold are brought into range first.
//! * **Sums** of 16-bit floats (`axis`) run in f32; MLX's CPU kernels keep them in 16 bits.
//! * **Empty operands** (`device`, `axis`, `product`): a result without elements, or a sum of nothing, calls no
//!   kernel.
//! * **Weights** (`weight`): parts of one format are joined by rows. Where 16-bit floats are slow, on a CPU, those
//!   of weights, scales and biases become f32 at preparation, which holds them exactly.
//! * **Attention** (`attention`): spans become cuts of the planes and the least mask that does.
//! * **Appends** (`cache`): writes of a padded batch become one.
//!
//! `gated` and the other fused operations are the port's own bodies: MLX has no kernel of its own for them.
//!
//! # What is raw
//!
//! Calls go through `mlx-rs`, whose safe functions return errors; its operators, which panic, are not used. Module
//! `raw` holds all `unsafe` code and calls MLX's C layer where `mlx-rs` has no name: slices and their updates by
//! lists of bounds, bitwise operations and shifts, synchronisation, arrays of host bytes of any dtype, the version,
//! and whether there is a GPU.
//!
//! # Rules that come from MLX
//!
//! * A graph is evaluated by the thread that built it; handles of the port are not `Send`, so no other can try:
//!
//! ```compile_fail,E0277
//! let device = tandem_backend_mlx::open(Default::default())?;
//! std::thread::spawn(move || drop(device));
//! # Ok::<(), tandem_contracts::tensor::Error>(())
//! ```
//! * Exceptions become errors. The C layer's own handler, which would end the process, is replaced when a device
//!   opens.
//! * Memory that runs out on a CPU is a crash in MLX, not an error. Whoever drives the device admits no more work
//!   than fits ([`Traits`](tandem_contracts::tensor::Traits) and
//!   [`Memory`](tandem_contracts::tensor::Memory) are what it has to go by). On a GPU it is an error of kind
//!   `Memory`.
//! * Counts of memory are the process's; how `allocated` is estimated stands in module `meter`.
//! * Both precisions are one arithmetic, floats over dequantised weights, and the result of a row may change in its
//!   last bits with what shares the call.
//! * Nothing is compiled: MLX's compiler runs the system's C++ compiler on a CPU.

mod arithmetic;
mod attention;
mod axis;
mod backend;
mod cache;
mod device;
mod error;
mod index;
mod layer;
mod layout;
mod meter;
mod product;
mod raw;
mod transfer;
mod value;
mod weight;

pub use device::{Options, Processor, open, version};
