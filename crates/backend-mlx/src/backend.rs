//! The port, each operation handed to the module that translates it.

use crate::{
    arithmetic, attention, axis, cache, device::Mlx, index, layer, layout, product, transfer, weight,
};
use std::ops::Range;
use tandem_contracts::tensor::{
    Affine, Attend, Backend, Binary, Device, DeviceId, Dtype, KvWrite, Linear, Memory, Precision, Quantized,
    Reduce, Result, Rope, RowSpan, Scalar, Tensor, Traits, Unary, Weight,
};

impl Backend for Mlx {
    fn traits(&self) -> &Traits {
        self.traits()
    }

    fn id(&self) -> DeviceId {
        self.id()
    }

    fn device(&self) -> Device {
        self.handle()
    }

    fn upload(&self, bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        transfer::upload(self, bytes, dtype, shape)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        transfer::download(self, x)
    }

    fn full(&self, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        transfer::full(self, value, dtype, shape)
    }

    fn arange(&self, start: i32, count: usize) -> Result<Tensor> {
        transfer::arange(self, start, count)
    }

    fn view(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        layout::view(self, x, dtype)
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        layout::reshape(self, x, shape)
    }

    fn transpose(&self, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
        layout::transpose(self, x, axes)
    }

    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        layout::broadcast(self, x, shape)
    }

    fn concat(&self, xs: &[&Tensor], axis: usize) -> Result<Tensor> {
        layout::concat(self, xs, axis)
    }

    fn pad(&self, x: &Tensor, axis: usize, before: usize, after: usize, value: Scalar) -> Result<Tensor> {
        layout::pad(self, x, axis, (before, after), value)
    }

    fn slice(&self, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
        layout::slice(self, x, ranges)
    }

    fn slice_update(&self, x: Tensor, update: &Tensor, start: &[usize]) -> Result<Tensor> {
        layout::slice_update(self, x, update, start)
    }

    fn cast(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        arithmetic::cast(self, x, dtype)
    }

    fn take(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        index::take(self, x, indices, axis)
    }

    fn take_along_axis(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        index::take_along_axis(self, x, indices, axis)
    }

    fn put_along_axis(&self, x: Tensor, indices: &Tensor, values: &Tensor, axis: usize) -> Result<Tensor> {
        index::put_along_axis(self, x, indices, values, axis)
    }

    fn select(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        index::select(self, condition, a, b)
    }

    fn unary(&self, op: Unary, x: Tensor) -> Result<Tensor> {
        arithmetic::unary(self, op, x)
    }

    fn binary(&self, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor> {
        arithmetic::binary(self, op, a, b)
    }

    fn reduce(&self, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor> {
        axis::reduce(self, op, x, axis)
    }

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        axis::softmax(self, x, axis)
    }

    fn cumsum(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        axis::cumsum(self, x, axis)
    }

    fn argmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        axis::argmax(self, x, axis)
    }

    fn argsort(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        axis::argsort(self, x, axis)
    }

    fn argpartition(&self, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
        axis::argpartition(self, x, kth, axis)
    }

    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        product::matmul(self, a, b)
    }

    fn quantize(&self, x: &Tensor, format: Affine) -> Result<Quantized> {
        product::quantize(self, x, format)
    }

    fn dequantize(&self, q: &Quantized) -> Result<Tensor> {
        product::dequantize(self, q)
    }

    fn prepare_linear(&self, parts: &[Weight]) -> Result<Linear> {
        weight::prepare(self, parts)
    }

    // Both precisions are MLX's one arithmetic: floats over dequantised weights.
    fn linear(&self, x: &Tensor, weight: &Linear, _: Precision) -> Result<Tensor> {
        weight::linear(self, x, weight)
    }

    fn gather_linear(&self, x: &Tensor, weight: &Linear, choice: &Tensor, _: Precision) -> Result<Tensor> {
        weight::gather_linear(self, x, weight, choice)
    }

    fn embed(&self, weight: &Linear, ids: &Tensor) -> Result<Tensor> {
        weight::embed(self, weight, ids)
    }

    fn rms_norm(&self, x: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        layer::rms_norm(self, x, weight, epsilon)
    }

    fn layer_norm(
        &self,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        epsilon: f32,
    ) -> Result<Tensor> {
        layer::layer_norm(self, x, (weight, bias), epsilon)
    }

    fn rope(&self, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor> {
        layer::rope(self, x, rope, positions)
    }

    fn conv1d(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        layer::conv1d(self, x, weight)
    }

    fn eval(&self, xs: &[&Tensor]) -> Result<()> {
        let arrays = xs.iter().map(|x| self.array("eval", x)).collect::<Result<Vec<_>>>()?;
        self.evaluate("eval", arrays)
    }

    fn async_eval(&self, xs: &[&Tensor]) -> Result<()> {
        let arrays = xs.iter().map(|x| self.array("async_eval", x)).collect::<Result<Vec<_>>>()?;
        self.start("async_eval", arrays)
    }

    fn synchronize(&self) -> Result<()> {
        self.finish("synchronize")
    }

    fn memory(&self) -> Memory {
        self.meter().read()
    }

    fn reset_peak(&self) {
        self.meter().reset_peak();
    }

    fn trim(&self) {
        self.meter().trim();
    }

    fn kv_append(&self, plane: Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<Tensor> {
        cache::kv_append(self, plane, tokens, writes)
    }

    fn attend(&self, q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<Tensor> {
        attention::attend(self, q, rows, how)
    }
}
