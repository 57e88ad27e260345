//! The port, method by method: each hands over to the operation of its name.

use crate::device::CpuDevice;
use crate::operation::{
    arithmetic, attention, attention::append, branch, convolution, convolve, creation, elementwise, gate,
    index, linear, matmul, norm, quantise, reduce, rope, scan, softmax, sort, turbo, view,
};
use std::ops::Range;
use tandem_contracts::tensor::{
    Activation, Affine, Attend, Backend, Binary, Convolution, Device, DeviceId, Dtype, KvAppend, KvWrite,
    Linear, Memory, Precision, Quantized, Recurred, Reduce, Result, Rope, RowSpan, Scalar, Scan, StateSpan,
    Tensor, Traits, TurboBook, TurboKeys, TurboValues, Unary, Weight,
};

impl Backend for CpuDevice {
    fn traits(&self) -> &Traits {
        &self.traits
    }

    fn id(&self) -> DeviceId {
        self.id
    }

    fn device(&self) -> Device {
        self.handle()
    }

    fn upload(&self, bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        creation::upload(self, bytes, dtype, shape)
    }

    fn upload_with(&self, dtype: Dtype, shape: &[usize], fill: &mut dyn FnMut(&mut [u8])) -> Result<Tensor> {
        creation::upload_with(self, dtype, shape, fill)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        creation::download(self, x)
    }

    fn full(&self, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        creation::full(self, value, dtype, shape)
    }

    fn arange(&self, start: i32, count: usize) -> Result<Tensor> {
        creation::arange(self, start, count)
    }

    fn view(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        view::view(self, x, dtype)
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        view::reshape(self, x, shape)
    }

    fn transpose(&self, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
        view::transpose(self, x, axes)
    }

    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        view::broadcast(self, x, shape)
    }

    fn concat(&self, xs: &[&Tensor], axis: usize) -> Result<Tensor> {
        creation::concat(self, xs, axis)
    }

    fn pad(&self, x: &Tensor, axis: usize, before: usize, after: usize, value: Scalar) -> Result<Tensor> {
        creation::pad(self, x, creation::Margin { axis, before, after }, value)
    }

    fn slice(&self, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
        view::slice(self, x, ranges)
    }

    fn slice_update(&self, x: Tensor, update: &Tensor, start: &[usize]) -> Result<Tensor> {
        creation::slice_update(self, x, update, start)
    }

    fn cast(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        creation::cast(self, x, dtype)
    }

    fn take(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        index::take(self, x, indices, axis)
    }

    fn take_along_axis(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        index::take_along_axis(self, x, indices, axis)
    }

    fn put_along_axis(&self, x: Tensor, indices: &Tensor, values: &Tensor, axis: usize) -> Result<Tensor> {
        index::put_along_axis(self, x, (indices, values), axis)
    }

    fn select(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        creation::select(self, condition, a, b)
    }

    fn unary(&self, op: Unary, x: Tensor) -> Result<Tensor> {
        elementwise::unary(self, op, x)
    }

    fn binary(&self, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor> {
        arithmetic::binary(self, op, a, b)
    }

    fn reduce(&self, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor> {
        reduce::reduce(self, op, x, axis)
    }

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        softmax::softmax(self, x, axis)
    }

    fn cumsum(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        reduce::cumsum(self, x, axis)
    }

    fn argmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        sort::argmax(self, x, axis)
    }

    fn argsort(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        sort::argsort(self, x, axis)
    }

    fn argpartition(&self, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
        sort::argpartition(self, x, kth, axis)
    }

    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        matmul::matmul(self, a, b)
    }

    fn quantize(&self, x: &Tensor, format: Affine) -> Result<Quantized> {
        quantise::quantize(self, x, format)
    }

    fn dequantize(&self, q: &Quantized) -> Result<Tensor> {
        quantise::dequantize(self, q)
    }

    fn prepare_linear(&self, parts: &[Weight]) -> Result<Linear> {
        linear::prepare(self, parts)
    }

    fn linear(&self, x: &Tensor, weight: &Linear, precision: Precision) -> Result<Tensor> {
        linear::linear(self, x, weight, precision)
    }

    fn gather_linear(
        &self,
        x: &Tensor,
        weight: &Linear,
        choice: &Tensor,
        precision: Precision,
    ) -> Result<Tensor> {
        linear::gather(self, x, (weight, choice), precision)
    }

    fn embed(&self, weight: &Linear, ids: &Tensor) -> Result<Tensor> {
        linear::embed(self, weight, ids)
    }

    fn rms_norm(&self, x: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        norm::rms_norm(self, x, weight, epsilon)
    }

    fn layer_norm(
        &self,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        epsilon: f32,
    ) -> Result<Tensor> {
        norm::layer_norm(self, x, (weight, bias), epsilon)
    }

    fn rope(&self, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor> {
        rope::rope(self, x, rope, positions)
    }

    fn conv1d(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        convolution::conv1d(self, x, weight)
    }

    fn eval(&self, xs: &[&Tensor]) -> Result<()> {
        self.own("eval", xs)
    }

    fn async_eval(&self, xs: &[&Tensor]) -> Result<()> {
        self.own("async_eval", xs)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> Memory {
        let usage = self.memory.usage();
        Memory { active: usage.live, peak: usage.peak, cached: usage.cached, allocated: self.allocated.get() }
    }

    fn reset_peak(&self) {
        self.memory.reset_peak();
    }

    fn trim(&self) {
        self.memory.trim();
    }

    fn kv_append(&self, plane: Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<Tensor> {
        append::append(self, plane, tokens, writes)
    }

    fn kv_append_each(&self, appends: &mut [KvAppend<'_>]) -> Result<()> {
        append::each(self, appends)
    }

    fn attend(&self, q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<Tensor> {
        attention::attend(self, q, rows, how)
    }

    fn convolve(&self, x: &Tensor, rows: &[StateSpan<'_>], how: &Convolution<'_>) -> Result<Recurred> {
        convolve::convolve(self, x, rows, how)
    }

    fn scan(&self, how: &Scan<'_>, rows: &[StateSpan<'_>]) -> Result<Recurred> {
        scan::scan(self, how, rows)
    }

    fn hadamard(&self, x: &Tensor) -> Result<Tensor> {
        turbo::hadamard(self, x)
    }

    fn finite(&self, before: Option<Tensor>, xs: &[&Tensor]) -> Result<Tensor> {
        turbo::finite(self, before, xs)
    }

    fn encode_turbo_keys(&self, x: &Tensor, bits: u8) -> Result<TurboKeys> {
        turbo::encode_turbo_keys(self, x, bits)
    }

    fn encode_turbo_values(&self, x: &Tensor, book: &TurboBook) -> Result<TurboValues> {
        turbo::encode_turbo_values(self, x, book)
    }

    fn norm_linear(
        &self,
        x: &Tensor,
        norm: (&Tensor, f32),
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        branch::norm_linear(self, x, norm, weight, precision)
    }

    fn linear_add(
        &self,
        residual: Tensor,
        x: &Tensor,
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        branch::linear_add(self, residual, x, weight, precision)
    }

    fn gated_linear_add(
        &self,
        residual: Tensor,
        gate_up: (&Tensor, Activation),
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        branch::gated_linear_add(self, residual, gate_up, weight, precision)
    }

    fn gated(&self, gate_up: &Tensor, activation: Activation) -> Result<Tensor> {
        gate::gated(self, gate_up, activation)
    }
}
