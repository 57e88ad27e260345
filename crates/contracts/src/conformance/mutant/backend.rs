//! The wrapper: every call goes to the inner device; the result of one operation is altered on its way back.

use super::{Mutant, Mutation, Operation, fitted, shifted, zeros};
use crate::tensor::{
    Activation, Affine, Attend, Backend, Binary, Convolution, Device, DeviceId, Dtype, KvAppend, KvWrite,
    Linear, Memory, Precision, Quantized, Recurred, Reduce, Result, Rope, RowSpan, Scalar, Scan, StateSpan,
    Tensor, Traits, Unary, Weight,
};
use std::{
    ops::Range,
    rc::{Rc, Weak},
};

#[derive(Debug)]
pub(super) struct Altered {
    this: Weak<Self>,
    inner: Device,
    mutant: Option<Mutant>,
}

impl Altered {
    pub(super) fn wrap(inner: Device, mutant: Option<Mutant>) -> Device {
        Rc::new_cyclic(|this| Self { this: Weak::clone(this), inner, mutant })
    }

    /// How this operation is to be wrong.
    fn way(&self, operation: Operation) -> Option<Mutation> {
        self.mutant.filter(|mutant| mutant.operation == operation).map(|mutant| mutant.mutation)
    }

    /// A second handle to an operand by value, only where it becomes the result: it would prevent reuse.
    fn keep(&self, operation: Operation, x: &Tensor) -> Option<Tensor> {
        self.way(operation).filter(|&way| way == Mutation::FirstOperand).map(|_| x.clone())
    }

    fn give(&self, operation: Operation, result: Result<Tensor>, first: Option<&Tensor>) -> Result<Tensor> {
        let result = result?;
        let altered = match (self.way(operation), first) {
            (None, _) | (Some(Mutation::FirstOperand), None) => result,
            (Some(Mutation::Zeros), _) => zeros(&self.inner, result.dtype(), result.shape())?,
            (Some(Mutation::Shifted), _) => shifted(&self.inner, &result)?,
            (Some(Mutation::FirstOperand), Some(first)) => {
                fitted(&self.inner, first, result.dtype(), result.shape())?
            }
        };
        Ok(self.wrapped(altered))
    }

    /// Outputs and states, each altered as an operation of its own.
    fn give_recurred(
        &self,
        [outputs, states]: [Operation; 2],
        result: Result<Recurred>,
        first: &Tensor,
    ) -> Result<Recurred> {
        let result = result?;
        let give = |state| self.give(states, Ok(state), Some(first));
        Ok(Recurred {
            outputs: self.give(outputs, Ok(result.outputs), Some(first))?,
            states: result.states.into_iter().map(give).collect::<Result<_>>()?,
        })
    }

    fn wrapped(&self, x: Tensor) -> Tensor {
        Tensor::new(x.into_storage(), self.device())
    }

    /// Bytes of `dtype`, altered.
    fn bytes(&self, operation: Operation, bytes: &[u8], dtype: Dtype) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        match self.way(operation) {
            Some(Mutation::Zeros) => bytes.fill(0),
            Some(Mutation::Shifted) if !bytes.is_empty() => bytes.rotate_left(dtype.size()),
            _ => {}
        }
        bytes
    }

    /// A part of a joined weight, altered; `first` is the first part.
    fn part(&self, way: Mutation, part: &Weight, first: &Weight) -> Result<Weight> {
        let dense = |weight: &Weight| match weight {
            Weight::Dense(weight) => Ok(weight.clone()),
            Weight::Affine(weight) => self.inner.dequantize(weight),
        };
        Ok(match (way, part) {
            (Mutation::Zeros, part) => Weight::Dense(zeros(&self.inner, Dtype::F32, &part.shape())?),
            (Mutation::Shifted, Weight::Dense(weight)) => Weight::Dense(shifted(&self.inner, weight)?),
            (Mutation::Shifted, Weight::Affine(weight)) => {
                Weight::Affine(Quantized { codes: shifted(&self.inner, &weight.codes)?, ..weight.clone() })
            }
            (Mutation::FirstOperand, part) => {
                Weight::Dense(fitted(&self.inner, &dense(first)?, Dtype::F32, &part.shape())?)
            }
        })
    }
}

impl Backend for Altered {
    fn traits(&self) -> &Traits {
        self.inner.traits()
    }

    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn device(&self) -> Device {
        // The wrapper outlives the call that borrows it, so the upgrade cannot fail.
        self.this.upgrade().map_or_else(|| self.inner.clone(), |this| this as Device)
    }

    fn upload(&self, bytes: &[u8], dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        self.inner.upload(&self.bytes(Operation::Upload, bytes, dtype), dtype, shape).map(|x| self.wrapped(x))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        Ok(self.bytes(Operation::Download, &self.inner.download(x)?, x.dtype()))
    }

    fn full(&self, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        self.give(Operation::Full, self.inner.full(value, dtype, shape), None)
    }

    fn arange(&self, start: i32, count: usize) -> Result<Tensor> {
        let first = self.inner.full(Scalar::Int(start), Dtype::I32, &[])?;
        self.give(Operation::Arange, self.inner.arange(start, count), Some(&first))
    }

    fn view(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        self.give(Operation::View, self.inner.view(x, dtype), Some(x))
    }

    fn reshape(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        self.give(Operation::Reshape, self.inner.reshape(x, shape), Some(x))
    }

    fn transpose(&self, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
        self.give(Operation::Transpose, self.inner.transpose(x, axes), Some(x))
    }

    fn broadcast(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        self.give(Operation::Broadcast, self.inner.broadcast(x, shape), Some(x))
    }

    fn concat(&self, xs: &[&Tensor], axis: usize) -> Result<Tensor> {
        self.give(Operation::Concat, self.inner.concat(xs, axis), xs.first().copied())
    }

    fn pad(&self, x: &Tensor, axis: usize, before: usize, after: usize, value: Scalar) -> Result<Tensor> {
        self.give(Operation::Pad, self.inner.pad(x, axis, before, after, value), Some(x))
    }

    fn slice(&self, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
        self.give(Operation::Slice, self.inner.slice(x, ranges), Some(x))
    }

    fn slice_update(&self, x: Tensor, update: &Tensor, start: &[usize]) -> Result<Tensor> {
        let first = self.keep(Operation::SliceUpdate, &x);
        self.give(Operation::SliceUpdate, self.inner.slice_update(x, update, start), first.as_ref())
    }

    fn cast(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        self.give(Operation::Cast, self.inner.cast(x, dtype), Some(x))
    }

    fn take(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::Take, self.inner.take(x, indices, axis), Some(x))
    }

    fn take_along_axis(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::TakeAlongAxis, self.inner.take_along_axis(x, indices, axis), Some(x))
    }

    fn put_along_axis(&self, x: Tensor, indices: &Tensor, values: &Tensor, axis: usize) -> Result<Tensor> {
        let first = self.keep(Operation::PutAlongAxis, &x);
        self.give(
            Operation::PutAlongAxis,
            self.inner.put_along_axis(x, indices, values, axis),
            first.as_ref(),
        )
    }

    fn select(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.give(Operation::Select, self.inner.select(condition, a, b), Some(condition))
    }

    fn unary(&self, op: Unary, x: Tensor) -> Result<Tensor> {
        let first = self.keep(Operation::Unary(op), &x);
        self.give(Operation::Unary(op), self.inner.unary(op, x), first.as_ref())
    }

    fn binary(&self, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor> {
        let first = self.keep(Operation::Binary(op), &a);
        self.give(Operation::Binary(op), self.inner.binary(op, a, b), first.as_ref())
    }

    fn reduce(&self, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::Reduce(op), self.inner.reduce(op, x, axis), Some(x))
    }

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::Softmax, self.inner.softmax(x, axis), Some(x))
    }

    fn cumsum(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::Cumsum, self.inner.cumsum(x, axis), Some(x))
    }

    fn argmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::Argmax, self.inner.argmax(x, axis), Some(x))
    }

    fn argsort(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        self.give(Operation::Argsort, self.inner.argsort(x, axis), Some(x))
    }

    fn argpartition(&self, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
        self.give(Operation::Argpartition, self.inner.argpartition(x, kth, axis), Some(x))
    }

    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        self.give(Operation::Matmul, self.inner.matmul(a, b), Some(a))
    }

    fn quantize(&self, x: &Tensor, format: Affine) -> Result<Quantized> {
        let Quantized { codes, scales, biases, format } = self.inner.quantize(x, format)?;
        Ok(Quantized {
            codes: self.give(Operation::QuantizeCodes, Ok(codes), Some(x))?,
            scales: self.give(Operation::QuantizeScales, Ok(scales), Some(x))?,
            biases: self.give(Operation::QuantizeBiases, Ok(biases), Some(x))?,
            format,
        })
    }

    fn dequantize(&self, q: &Quantized) -> Result<Tensor> {
        self.give(Operation::Dequantize, self.inner.dequantize(q), Some(&q.codes))
    }

    fn prepare_linear(&self, parts: &[Weight]) -> Result<Linear> {
        let prepared = self.inner.prepare_linear(parts)?;
        let (Some(way), Some(first)) = (self.way(Operation::PrepareLinear), parts.first()) else {
            return Ok(prepared);
        };
        let altered = parts.iter().map(|part| self.part(way, part, first)).collect::<Result<Vec<_>>>()?;
        self.inner.prepare_linear(&altered)
    }

    fn linear(&self, x: &Tensor, weight: &Linear, precision: Precision) -> Result<Tensor> {
        self.give(Operation::Linear, self.inner.linear(x, weight, precision), Some(x))
    }

    fn gather_linear(
        &self,
        x: &Tensor,
        weight: &Linear,
        choice: &Tensor,
        precision: Precision,
    ) -> Result<Tensor> {
        self.give(Operation::GatherLinear, self.inner.gather_linear(x, weight, choice, precision), Some(x))
    }

    fn embed(&self, weight: &Linear, ids: &Tensor) -> Result<Tensor> {
        self.give(Operation::Embed, self.inner.embed(weight, ids), Some(ids))
    }

    fn rms_norm(&self, x: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        self.give(Operation::RmsNorm, self.inner.rms_norm(x, weight, epsilon), Some(x))
    }

    fn layer_norm(
        &self,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        epsilon: f32,
    ) -> Result<Tensor> {
        self.give(Operation::LayerNorm, self.inner.layer_norm(x, weight, bias, epsilon), Some(x))
    }

    fn rope(&self, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor> {
        let first = self.keep(Operation::Rope, &x);
        self.give(Operation::Rope, self.inner.rope(x, rope, positions), first.as_ref())
    }

    fn conv1d(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        self.give(Operation::Conv1d, self.inner.conv1d(x, weight), Some(x))
    }

    fn eval(&self, xs: &[&Tensor]) -> Result<()> {
        self.inner.eval(xs)
    }

    fn async_eval(&self, xs: &[&Tensor]) -> Result<()> {
        self.inner.async_eval(xs)
    }

    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }

    fn memory(&self) -> Memory {
        let memory = self.inner.memory();
        match self.way(Operation::Memory) {
            Some(Mutation::Zeros) => Memory::default(),
            Some(Mutation::Shifted) => {
                Memory { active: memory.cached, peak: memory.active, cached: memory.peak, ..memory }
            }
            _ => memory,
        }
    }

    fn reset_peak(&self) {
        self.inner.reset_peak();
    }

    fn trim(&self) {
        self.inner.trim();
    }

    fn upload_f32(&self, values: &[f32], shape: &[usize]) -> Result<Tensor> {
        self.give(Operation::UploadF32, self.inner.upload_f32(values, shape), None)
    }

    fn upload_i32(&self, values: &[i32], shape: &[usize]) -> Result<Tensor> {
        self.give(Operation::UploadI32, self.inner.upload_i32(values, shape), None)
    }

    fn kv_append(&self, plane: Tensor, tokens: &Tensor, writes: &[KvWrite]) -> Result<Tensor> {
        let first = self.keep(Operation::KvAppend, &plane);
        self.give(Operation::KvAppend, self.inner.kv_append(plane, tokens, writes), first.as_ref())
    }

    fn kv_append_each(&self, appends: &mut [KvAppend<'_>]) -> Result<()> {
        let operation = Operation::KvAppendEach;
        let first: Vec<_> = appends.iter().map(|append| self.keep(operation, append.plane)).collect();
        self.inner.kv_append_each(appends)?;
        for (KvAppend { plane, .. }, first) in appends.iter_mut().zip(first) {
            if self.way(operation).is_some() {
                **plane = self.give(operation, Ok(plane.clone()), first.as_ref())?;
            }
        }
        Ok(())
    }

    fn attend(&self, q: &Tensor, rows: &[RowSpan<'_>], how: &Attend<'_>) -> Result<Tensor> {
        self.give(Operation::Attend, self.inner.attend(q, rows, how), Some(q))
    }

    fn convolve(&self, x: &Tensor, rows: &[StateSpan<'_>], how: &Convolution<'_>) -> Result<Recurred> {
        let operations = [Operation::ConvolveOutputs, Operation::ConvolveTails];
        self.give_recurred(operations, self.inner.convolve(x, rows, how), x)
    }

    fn scan(&self, how: &Scan<'_>, rows: &[StateSpan<'_>]) -> Result<Recurred> {
        let operations = [Operation::ScanOutputs, Operation::ScanStates];
        self.give_recurred(operations, self.inner.scan(how, rows), how.queries)
    }

    fn norm_linear(
        &self,
        x: &Tensor,
        norm: (&Tensor, f32),
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        self.give(Operation::NormLinear, self.inner.norm_linear(x, norm, weight, precision), Some(x))
    }

    fn linear_add(
        &self,
        residual: Tensor,
        x: &Tensor,
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        let first = self.keep(Operation::LinearAdd, &residual);
        self.give(Operation::LinearAdd, self.inner.linear_add(residual, x, weight, precision), first.as_ref())
    }

    fn gated_linear_add(
        &self,
        residual: Tensor,
        gate_up: (&Tensor, Activation),
        weight: &Linear,
        precision: Precision,
    ) -> Result<Tensor> {
        let operation = Operation::GatedLinearAdd;
        let first = self.keep(operation, &residual);
        let result = self.inner.gated_linear_add(residual, gate_up, weight, precision);
        self.give(operation, result, first.as_ref())
    }

    fn gated(&self, gate_up: &Tensor, activation: Activation) -> Result<Tensor> {
        self.give(Operation::Gated, self.inner.gated(gate_up, activation), Some(gate_up))
    }
}
