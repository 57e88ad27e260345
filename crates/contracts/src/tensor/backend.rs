//! The port itself.

use super::{
    Activation, Affine, Attend, Binary, Convolution, Device, DeviceId, Dtype, Element, KvAppend, KvWrite,
    Linear, Memory, Precision, Quantized, Recurred, Reduce, Result, Rope, RowSpan, Scalar, Scan, StateSpan,
    Tensor, Traits, TurboBook, TurboKeys, TurboValues, Unary, Weight, fused,
};
use std::{fmt, ops::Range};

/// A device: what it is, about 45 operations that it must have, and those that it may have faster.
///
/// The [module](super) states the contract. Every operation's shapes and dtypes are checked by the functions of
/// [`super::shape`] that bear its name; unless said otherwise the result has the dtype of the first operand.
///
/// An operand by value (`x: Tensor`) may be reused in place when the handle is the last one.
pub trait Backend: fmt::Debug {
    /// Facts about the device.
    fn traits(&self) -> &Traits;

    /// Identity, which the device's storages carry.
    fn id(&self) -> DeviceId;

    /// A handle to the device itself.
    fn device(&self) -> Device;

    // ---- creation and transfer ----

    /// Copies row-major little-endian bytes in. Booleans are 0 or 1.
    fn upload(&self, bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Tensor>;

    /// Evaluates and copies the elements out, row-major and little-endian.
    fn download(&self, x: &Tensor) -> Result<Vec<u8>>;

    /// A tensor of one value.
    fn full(&self, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor>;

    /// `start, start + 1, ..`, `count` of them, as `i32`.
    fn arange(&self, start: i32, count: usize) -> Result<Tensor>;

    // ---- layout ----

    /// The same bytes read as another dtype; the last axis grows or shrinks.
    fn view(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor>;

    /// The same elements, in row-major order, under another shape.
    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor>;

    /// Axis `i` of the result is axis `axes[i]` of `x`.
    fn transpose(&self, x: &Tensor, axes: &[usize]) -> Result<Tensor>;

    /// Repeats axes of extent 1, and adds leading ones.
    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor>;

    /// Joins along an axis.
    fn concat(&self, xs: &[&Tensor], axis: usize) -> Result<Tensor>;

    /// Adds `before` and `after` elements of `value` along an axis.
    fn pad(&self, x: &Tensor, axis: usize, before: usize, after: usize, value: Scalar) -> Result<Tensor>;

    /// Cuts a box out; one range for each axis.
    fn slice(&self, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor>;

    /// Replaces the box of the shape of `update` that begins at `start`.
    fn slice_update(&self, x: Tensor, update: &Tensor, start: &[usize]) -> Result<Tensor>;

    /// Converts elements. Floats to integers truncate towards zero and saturate (NaN becomes 0); anything to
    /// booleans is `!= 0`; floats to narrower floats round to nearest, halves to even; integers to narrower ones keep
    /// their low bits.
    fn cast(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor>;

    // ---- indexing ----
    // An index out of range is an `Index` error of the operation or of the evaluation; a device that cannot look at
    // its values (a graph not yet run) may instead clamp them. It never touches memory outside the operand.

    /// Rows of `x` along `axis` at `indices` (`i32`, any shape, which replaces the axis).
    fn take(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor>;

    /// `result[.., i, ..] = x[.., indices[.., i, ..], ..]` along `axis`.
    fn take_along_axis(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor>;

    /// `x` with `x[.., indices[.., i, ..], ..] = values[.., i, ..]`; `values` broadcasts to the indices. Of equal
    /// indices any one wins.
    fn put_along_axis(&self, x: Tensor, indices: &Tensor, values: &Tensor, axis: usize) -> Result<Tensor>;

    /// `a` where the condition holds, else `b`; all broadcast.
    fn select(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor>;

    // ---- arithmetic ----

    /// Elementwise, one operand.
    fn unary(&self, op: Unary, x: Tensor) -> Result<Tensor>;

    /// Elementwise, two operands of one dtype that broadcast.
    fn binary(&self, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor>;

    /// Reduces an axis to 1.
    fn reduce(&self, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor>;

    /// Softmax of floats along an axis, stable for large values; accumulated in f32. An axis of `-inf` gives NaN.
    fn softmax(&self, x: &Tensor, axis: usize) -> Result<Tensor>;

    /// Running sum along an axis, the element itself included.
    fn cumsum(&self, x: &Tensor, axis: usize) -> Result<Tensor>;

    /// Index (`i32`) of the largest element along an axis, which becomes 1; the smallest index among equals.
    fn argmax(&self, x: &Tensor, axis: usize) -> Result<Tensor>;

    /// Indices (`i32`) that sort an axis ascending; equal elements keep their order, NaN comes last.
    fn argsort(&self, x: &Tensor, axis: usize) -> Result<Tensor>;

    /// Indices (`i32`) of which the one at `kth` is as in [`Backend::argsort`] (up to equal elements), those before
    /// it are of no larger elements and those after it of no smaller ones.
    fn argpartition(&self, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor>;

    // ---- products ----

    /// Matrix product of the last two axes of floats of one dtype; axes before broadcast. Accumulated in f32.
    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor>;

    /// Affine codes along the last axis, as MLX's `quantize` gives them bit for bit.
    fn quantize(&self, x: &Tensor, format: Affine) -> Result<Quantized>;

    /// `fma(scale, code, bias)` in f32, rounded to the dtype of the scales. A device that is not invariant may round
    /// the product first, to either.
    fn dequantize(&self, q: &Quantized) -> Result<Tensor>;

    /// Lays weights out for products. Parts are joined by their outputs (queries, keys and values; gate and up).
    fn prepare_linear(&self, parts: &[Weight]) -> Result<Linear>;

    /// `[tokens, inputs]` times the transposed weight: `[tokens, outputs]`.
    fn linear(&self, x: &Tensor, weight: &Linear, precision: Precision) -> Result<Tensor>;

    /// Each row with its chosen experts: `[rows, inputs]` and `i32 [rows, choices]` give `[rows, choices, outputs]`.
    fn gather_linear(
        &self,
        x: &Tensor,
        weight: &Linear,
        choice: &Tensor,
        precision: Precision,
    ) -> Result<Tensor>;

    /// Rows of a prepared weight, dequantised: ids `i32 [tokens]` give `[tokens, inputs]` in the compute dtype.
    fn embed(&self, weight: &Linear, ids: &Tensor) -> Result<Tensor>;

    // ---- layers ----

    /// `x / sqrt(mean(x^2) + epsilon) * weight` over the last axis, in f32 (Zhang and Sennrich, arXiv:1910.07467).
    fn rms_norm(&self, x: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor>;

    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axis, in f32.
    fn layer_norm(
        &self,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        epsilon: f32,
    ) -> Result<Tensor>;

    /// Rotates heads `[tokens, heads, width]` to positions `i32 [tokens]`.
    fn rope(&self, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor>;

    /// Depthwise correlation: `result[r, t, c] = sum_k x[r, t + k, c] * weight[c, k]`.
    fn conv1d(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor>;

    // ---- evaluation and memory ----

    /// Computes the values and waits for them.
    fn eval(&self, xs: &[&Tensor]) -> Result<()>;

    /// Starts computing the values.
    fn async_eval(&self, xs: &[&Tensor]) -> Result<()>;

    /// Waits for everything started.
    fn synchronize(&self) -> Result<()>;

    /// Bytes in use now.
    fn memory(&self) -> Memory;

    /// Begins a new peak.
    fn reset_peak(&self);

    /// Gives cached memory back to the system.
    fn trim(&self);

    // ---- provided: what fuses ----

    /// Copies in what `fill` writes: row-major little-endian bytes, all of them, in place of what it finds. For what
    /// is converted on its way in, so that a device may have it written where it is to stay.
    ///
    /// # Errors
    /// As [`Backend::upload`].
    fn upload_with(&self, dtype: Dtype, shape: &[usize], fill: &mut dyn FnMut(&mut [u8])) -> Result<Tensor> {
        let mut bytes = vec![0; super::shape::elements("upload", shape)? * dtype.size()];
        fill(&mut bytes);
        self.upload(&bytes, dtype, shape)
    }

    /// Copies elements of a host type in.
    ///
    /// # Errors
    /// As [`Backend::upload`].
    fn upload_f32(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        self.upload(&bytes_of(values), Dtype::F32, shape)
    }

    /// Copies indices in.
    ///
    /// # Errors
    /// As [`Backend::upload`].
    fn upload_i32(&self, values: &[i32], shape: &[usize]) -> Result<Tensor> {
        self.upload(&bytes_of(values), Dtype::I32, shape)
    }

    /// Writes rows' new tokens into a plane, which may hold floats of another dtype; see [`fused::kv_append`].
    fn kv_append(&self, plane: Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<Tensor> {
        fused::kv_append(&self.device(), plane, tokens, writes)
    }

    /// Appends to each of some planes as [`Backend::kv_append`] does. Operands that do not fit change no plane; after
    /// another error each is as it was, or appended to. The body keeps a second handle to each plane meanwhile, so that a
    /// device that does not defer copies them: such a device has its own. See [`fused::kv_append_each`].
    fn kv_append_each(&self, appends: &mut [KvAppend<'_>]) -> Result<()> {
        fused::kv_append_each(&self.device(), appends)
    }

    /// Attention of packed queries over their rows; see [`super::attention`] and [`fused::attend`].
    fn attend(&self, q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<Tensor> {
        fused::attend(&self.device(), q, rows, how)
    }

    /// Short convolution of packed tokens `[tokens, channels]`, of each row after its own tail; see
    /// [`super::recurrence`] and [`fused::convolve`].
    fn convolve(&self, x: &Tensor, rows: &[StateSpan<'_>], how: &Convolution<'_>) -> Result<Recurred> {
        fused::convolve(&self.device(), x, rows, how)
    }

    /// Linear recurrence of packed tokens, of each row from its own state; see [`super::recurrence`] and
    /// [`fused::scan`].
    fn scan(&self, how: &Scan<'_>, rows: &[StateSpan<'_>]) -> Result<Recurred> {
        fused::scan(&self.device(), how, rows)
    }

    /// The orthonormal Walsh-Hadamard transform along the last axis; see [`fused::hadamard`].
    fn hadamard(&self, x: &Tensor) -> Result<Tensor> {
        fused::hadamard(&self.device(), x)
    }

    /// Whether every element of each token is finite, in all of `xs`, and was before: `[tokens, ..]` give booleans
    /// `[tokens]`; see [`fused::finite`].
    fn finite(&self, before: Option<Tensor>, xs: &[&Tensor]) -> Result<Tensor> {
        fused::finite(&self.device(), before, xs)
    }

    /// TurboQuant's codes of keys `[.., width]`; see [`fused::encode_turbo_keys`].
    fn encode_turbo_keys(&self, x: &Tensor, bits: u8) -> Result<TurboKeys> {
        fused::encode_turbo_keys(&self.device(), x, bits)
    }

    /// TurboQuant's codes of values `[.., width]`; see [`fused::encode_turbo_values`].
    fn encode_turbo_values(&self, x: &Tensor, book: &TurboBook) -> Result<TurboValues> {
        fused::encode_turbo_values(&self.device(), x, book)
    }

    /// `rms_norm`, then `linear`.
    fn norm_linear(
        &self,
        x: &Tensor,
        norm: (&Tensor, f32),
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        self.linear(&self.rms_norm(x, Some(norm.0), norm.1)?, weight, precision)
    }

    /// `residual + linear(x)`.
    fn linear_add(
        &self,
        residual: Tensor,
        x: &Tensor,
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        let y = self.linear(x, weight, precision)?;
        self.binary(Binary::Add, residual, &y)
    }

    /// `residual + linear(gated(gate_up))`: the end of a gated unit. On a device that is batch invariant it has the bits of
    /// the single operations, because rows go one way or the other by what is beside them.
    fn gated_linear_add(
        &self,
        residual: Tensor,
        gate_up: (&Tensor, Activation),
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        self.linear_add(residual, &self.gated(gate_up.0, gate_up.1)?, weight, precision)
    }

    /// `activation(gate) * up` of joined halves: `[tokens, 2 n]` gives `[tokens, n]`; see [`fused::gated`].
    fn gated(&self, gate_up: &Tensor, activation: Activation) -> Result<Tensor> {
        fused::gated(&self.device(), gate_up, activation)
    }
}

fn bytes_of<E: Element>(values: &[E]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|&value| value.write(&mut bytes));
    bytes
}
