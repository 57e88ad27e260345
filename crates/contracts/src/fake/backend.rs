//! The port, translated into nodes.

use super::{
    Fake, elementwise, layer, layout,
    product::{self, Matrices},
    reduction,
    value::Value,
};
use crate::tensor::{
    Affine, Backend, Binary, Device, DeviceId, Dtype, Error, Linear, Memory, Precision, Quantized, Reduce,
    Result, Rope, Scalar, Tensor, Traits, Unary, Weight, shape,
};
use std::{ops::Range, rc::Rc};

fn scalar(value: Scalar, dtype: Dtype) -> Value {
    match value {
        Scalar::Float(value) => Value::from_floats(dtype, &[], [value]),
        Scalar::Int(value) => Value::from_integers(dtype, &[], [value.into()]),
        Scalar::Bool(value) => Value::from_integers(dtype, &[], [value.into()]),
    }
}

impl Backend for Fake {
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
        shape::upload(bytes.len(), dtype, shape)?;
        let value = Value { dtype, shape: shape.to_vec(), bytes: bytes.to_vec() };
        Ok(self.fresh(shape, dtype, vec![], |_| value))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        let node = self.own("download", x)?;
        self.downloads.set(self.downloads.get() + 1);
        if node.value().is_none() {
            self.hidden_evaluations.set(self.hidden_evaluations.get() + 1);
            node.evaluate()?;
        }
        Ok(node.value().map(|value| value.bytes.clone()).unwrap_or_default())
    }

    fn full(&self, value: Scalar, dtype: Dtype, shape: &[usize]) -> Result<Tensor> {
        shape::elements("full", shape)?;
        shape::scalar("full", value, dtype)?;
        let to = shape.to_vec();
        Ok(self.fresh(shape, dtype, vec![], move |_| scalar(value, dtype).gather(&to, |_| 0)))
    }

    fn arange(&self, start: i32, count: usize) -> Result<Tensor> {
        shape::arange(start, count)?;
        let first = i64::from(start);
        Ok(self.fresh(&[count], Dtype::I32, vec![], move |_| {
            Value::from_integers(Dtype::I32, &[count], first..)
        }))
    }

    fn view(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        let to = shape::view(x, dtype)?;
        let inputs = vec![self.own("view", x)?];
        let shape = to.clone();
        Ok(self.fresh(&to, dtype, inputs, move |x| Value { dtype, shape, bytes: x[0].bytes.clone() }))
    }

    fn reshape(&self, x: &Tensor, to: &[usize]) -> Result<Tensor> {
        shape::reshape(x.shape(), to)?;
        let inputs = vec![self.own("reshape", x)?];
        let shape = to.to_vec();
        Ok(self.fresh(to, x.dtype(), inputs, move |x| x[0].gather(&shape, |i| i)))
    }

    fn transpose(&self, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
        let to = shape::transpose(x.shape(), axes)?;
        let inputs = vec![self.own("transpose", x)?];
        let (axes, shape) = (axes.to_vec(), to.clone());
        Ok(self.fresh(&to, x.dtype(), inputs, move |x| layout::transpose(x[0], &axes, &shape)))
    }

    fn broadcast(&self, x: &Tensor, to: &[usize]) -> Result<Tensor> {
        shape::broadcast_to(x.shape(), to)?;
        let inputs = vec![self.own("broadcast", x)?];
        let shape = to.to_vec();
        Ok(self.fresh(to, x.dtype(), inputs, move |x| layout::broadcast(x[0], &shape)))
    }

    fn concat(&self, xs: &[&Tensor], axis: usize) -> Result<Tensor> {
        let (to, dtype) = shape::concat(xs, axis)?;
        let inputs = xs.iter().map(|x| self.own("concat", x)).collect::<Result<_>>()?;
        let shape = to.clone();
        Ok(self.fresh(&to, dtype, inputs, move |xs| layout::concat(xs, axis, &shape)))
    }

    fn pad(&self, x: &Tensor, axis: usize, before: usize, after: usize, value: Scalar) -> Result<Tensor> {
        let to = shape::pad(x, axis, before, after, value)?;
        let inputs = vec![self.own("pad", x)?];
        let (dtype, shape) = (x.dtype(), to.clone());
        Ok(self.fresh(&to, dtype, inputs, move |x| {
            let mut start = vec![0; shape.len()];
            start[axis] = before;
            layout::slice_update(scalar(value, dtype).gather(&shape, |_| 0), x[0], &start)
        }))
    }

    fn slice(&self, x: &Tensor, ranges: &[Range<usize>]) -> Result<Tensor> {
        let to = shape::slice(x.shape(), ranges)?;
        let inputs = vec![self.own("slice", x)?];
        let ranges = ranges.to_vec();
        Ok(self.fresh(&to, x.dtype(), inputs, move |x| layout::slice(x[0], &ranges)))
    }

    fn slice_update(&self, x: Tensor, update: &Tensor, start: &[usize]) -> Result<Tensor> {
        shape::slice_update(&x, update, start)?;
        let (to, dtype, start) = (x.shape().to_vec(), x.dtype(), start.to_vec());
        let update = self.own("slice_update", update)?;
        let inputs = vec![self.taken("slice_update", x)?, update];
        Ok(self.reusing(&to, dtype, inputs, move |x, rest| Ok(layout::slice_update(x, rest[0], &start))))
    }

    fn cast(&self, x: &Tensor, dtype: Dtype) -> Result<Tensor> {
        let inputs = vec![self.own("cast", x)?];
        Ok(self.fresh(x.shape(), dtype, inputs, move |x| elementwise::cast(x[0], dtype)))
    }

    fn take(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        let to = shape::take(x, indices, axis)?;
        let inputs = vec![self.own("take", x)?, self.own("take", indices)?];
        let shape = to.clone();
        Ok(self.indexed(&to, x.dtype(), inputs, move |x| layout::take(x[0], x[1], axis, &shape)))
    }

    fn take_along_axis(&self, x: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor> {
        shape::along_axis("take_along_axis", x, indices, axis)?;
        let inputs = vec![self.own("take_along_axis", x)?, self.own("take_along_axis", indices)?];
        Ok(self
            .indexed(indices.shape(), x.dtype(), inputs, move |x| layout::take_along_axis(x[0], x[1], axis)))
    }

    fn put_along_axis(&self, x: Tensor, indices: &Tensor, values: &Tensor, axis: usize) -> Result<Tensor> {
        shape::put_along_axis(&x, indices, values, axis)?;
        let (to, dtype) = (x.shape().to_vec(), x.dtype());
        let others = [indices, values].map(|x| self.own("put_along_axis", x));
        let mut inputs = vec![self.taken("put_along_axis", x)?];
        inputs.extend(others.into_iter().collect::<Result<Vec<_>>>()?);
        Ok(self.reusing(&to, dtype, inputs, move |x, rest| layout::put_along_axis(x, rest[0], rest[1], axis)))
    }

    fn select(&self, condition: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let to = shape::select(condition, a, b)?;
        let inputs = [condition, a, b].map(|x| self.own("select", x)).into_iter().collect::<Result<_>>()?;
        let shape = to.clone();
        Ok(self.fresh(&to, a.dtype(), inputs, move |x| layout::select(x[0], x[1], x[2], &shape)))
    }

    fn unary(&self, op: Unary, x: Tensor) -> Result<Tensor> {
        shape::unary(op, &x)?;
        let (to, dtype) = (x.shape().to_vec(), x.dtype());
        let inputs = vec![self.taken("unary", x)?];
        Ok(self.reusing(&to, dtype, inputs, move |x, _| Ok(elementwise::unary(op, x))))
    }

    fn binary(&self, op: Binary, a: Tensor, b: &Tensor) -> Result<Tensor> {
        let (to, dtype) = shape::binary(op, &a, b)?;
        let b = self.own("binary", b)?;
        let inputs = vec![self.taken("binary", a)?, b];
        let shape = to.clone();
        Ok(self.reusing(&to, dtype, inputs, move |a, rest| {
            Ok(elementwise::binary(op, a, rest[0], &shape, dtype))
        }))
    }

    fn reduce(&self, op: Reduce, x: &Tensor, axis: usize) -> Result<Tensor> {
        let to = shape::reduce(op, x, axis)?;
        let inputs = vec![self.own("reduce", x)?];
        let shape = to.clone();
        Ok(self.fresh(&to, x.dtype(), inputs, move |x| reduction::reduce(op, x[0], axis, &shape)))
    }

    fn softmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        shape::along("softmax", x, axis, true)?;
        let inputs = vec![self.own("softmax", x)?];
        Ok(self.fresh(x.shape(), x.dtype(), inputs, move |x| reduction::softmax(x[0], axis)))
    }

    fn cumsum(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        shape::along("cumsum", x, axis, false)?;
        let inputs = vec![self.own("cumsum", x)?];
        Ok(self.fresh(x.shape(), x.dtype(), inputs, move |x| reduction::cumsum(x[0], axis)))
    }

    fn argmax(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        let to = shape::argmax(x, axis)?;
        let inputs = vec![self.own("argmax", x)?];
        let shape = to.clone();
        Ok(self.fresh(&to, Dtype::I32, inputs, move |x| reduction::argmax(x[0], axis, &shape)))
    }

    fn argsort(&self, x: &Tensor, axis: usize) -> Result<Tensor> {
        shape::along("argsort", x, axis, false)?;
        let inputs = vec![self.own("argsort", x)?];
        Ok(self.fresh(x.shape(), Dtype::I32, inputs, move |x| reduction::argsort(x[0], axis)))
    }

    fn argpartition(&self, x: &Tensor, kth: usize, axis: usize) -> Result<Tensor> {
        shape::argpartition(x, kth, axis)?;
        let inputs = vec![self.own("argpartition", x)?];
        Ok(self.fresh(x.shape(), Dtype::I32, inputs, move |x| reduction::argsort(x[0], axis)))
    }

    fn matmul(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        let to = shape::matmul(a, b)?;
        let inputs = vec![self.own("matmul", a)?, self.own("matmul", b)?];
        let shape = to.clone();
        Ok(self.fresh(&to, a.dtype(), inputs, move |x| product::matmul(x[0], x[1], &shape)))
    }

    fn quantize(&self, x: &Tensor, format: Affine) -> Result<Quantized> {
        let (words, groups) = shape::quantize(x, format)?;
        let input = self.own("quantize", x)?;
        // Each plane computes the whole and keeps its part: nodes have one value.
        let plane = |i: usize, shape: &[usize], dtype| {
            let inputs = vec![Rc::clone(&input)];
            self.fresh(shape, dtype, inputs, move |x| {
                let [codes, scales, biases] = product::quantize(x[0], format);
                match i {
                    0 => codes,
                    1 => scales,
                    _ => biases,
                }
            })
        };
        Ok(Quantized {
            codes: plane(0, &words, Dtype::U32),
            scales: plane(1, &groups, x.dtype()),
            biases: plane(2, &groups, x.dtype()),
            format,
        })
    }

    fn dequantize(&self, q: &Quantized) -> Result<Tensor> {
        let to = shape::dequantize(q)?;
        let inputs = self.planes("dequantize", q)?;
        let (format, dtype, shape) = (q.format, q.scales.dtype(), to.clone());
        Ok(self.fresh(&to, dtype, inputs, move |planes| product::dequantize(planes, format, dtype, &shape)))
    }

    fn prepare_linear(&self, parts: &[Weight]) -> Result<Linear> {
        let all = shape::prepare_linear(parts)?;
        let mut dense = Vec::new();
        for part in parts {
            let mut to = part.shape();
            if to.len() == 2 {
                to.insert(0, 1);
            }
            let shape = to.clone();
            dense.push(match part {
                Weight::Dense(weight) => {
                    let inputs = vec![self.own("prepare_linear", weight)?];
                    self.fresh(&to, Dtype::F32, inputs, move |x| Value {
                        shape,
                        ..elementwise::cast(x[0], Dtype::F32)
                    })
                }
                Weight::Affine(q) => {
                    let (inputs, format) = (self.planes("prepare_linear", q)?, q.format);
                    self.fresh(&to, Dtype::F32, inputs, move |planes| {
                        product::dequantize(planes, format, Dtype::F32, &shape)
                    })
                }
            });
        }
        let to = [all.experts, all.outputs, all.inputs];
        let inputs = dense.iter().map(|part| self.own("prepare_linear", part)).collect::<Result<_>>()?;
        let joined = self.fresh(&to, Dtype::F32, inputs, move |parts| layout::concat(parts, 1, &to));
        Ok(Linear(Rc::new(Matrices(self.taken("prepare_linear", joined)?))))
    }

    fn linear(&self, x: &Tensor, weight: &Linear, precision: Precision) -> Result<Tensor> {
        shape::precision("linear", &self.traits, precision)?;
        let to = shape::linear(x, weight)?;
        let inputs = vec![self.own("linear", x)?, self.matrices("linear", weight)?];
        Ok(self.fresh(&to, x.dtype(), inputs, move |x| product::linear(x[0], x[1], &to)))
    }

    fn gather_linear(
        &self,
        x: &Tensor,
        weight: &Linear,
        choice: &Tensor,
        precision: Precision,
    ) -> Result<Tensor> {
        shape::precision("gather_linear", &self.traits, precision)?;
        let to = shape::gather_linear(x, weight, choice)?;
        let inputs = vec![
            self.own("gather_linear", x)?,
            self.matrices("gather_linear", weight)?,
            self.own("gather_linear", choice)?,
        ];
        Ok(self.indexed(&to, x.dtype(), inputs, move |x| product::gather_linear(x[0], x[1], x[2], &to)))
    }

    fn embed(&self, weight: &Linear, ids: &Tensor) -> Result<Tensor> {
        let to = shape::embed(weight, ids)?;
        let inputs = vec![self.matrices("embed", weight)?, self.own("embed", ids)?];
        Ok(self.indexed(&to, Dtype::F32, inputs, move |x| product::embed(x[0], x[1], &to)))
    }

    fn rms_norm(&self, x: &Tensor, weight: Option<&Tensor>, epsilon: f32) -> Result<Tensor> {
        shape::norm("rms_norm", x, &[weight], epsilon)?;
        let inputs = [Some(x), weight]
            .into_iter()
            .flatten()
            .map(|x| self.own("rms_norm", x))
            .collect::<Result<_>>()?;
        Ok(self
            .fresh(x.shape(), x.dtype(), inputs, move |x| layer::rms_norm(x[0], x.get(1).copied(), epsilon)))
    }

    fn layer_norm(
        &self,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        epsilon: f32,
    ) -> Result<Tensor> {
        shape::norm("layer_norm", x, &[weight, bias], epsilon)?;
        let inputs = [Some(x), weight, bias]
            .into_iter()
            .flatten()
            .map(|x| self.own("layer_norm", x))
            .collect::<Result<_>>()?;
        let (has_weight, has_bias) = (weight.is_some(), bias.is_some());
        Ok(self.fresh(x.shape(), x.dtype(), inputs, move |x| {
            let weight = has_weight.then(|| x[1]);
            let bias = if has_bias { x.last().copied() } else { None };
            layer::layer_norm(x[0], weight, bias, epsilon)
        }))
    }

    fn rope(&self, x: Tensor, rope: &Rope, positions: &Tensor) -> Result<Tensor> {
        shape::rope(&x, rope, positions)?;
        let (to, dtype) = (x.shape().to_vec(), x.dtype());
        let others = [self.own("rope", &rope.frequencies)?, self.own("rope", positions)?];
        let (interleaved, scale) = (rope.interleaved, rope.scale);
        let mut inputs = vec![self.taken("rope", x)?];
        inputs.extend(others);
        Ok(self.reusing(&to, dtype, inputs, move |x, rest| {
            Ok(layer::rope(x, rest[0], rest[1], interleaved, scale))
        }))
    }

    fn conv1d(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let to = shape::conv1d(x, weight)?;
        let inputs = vec![self.own("conv1d", x)?, self.own("conv1d", weight)?];
        Ok(self.fresh(&to, x.dtype(), inputs, move |x| layer::conv1d(x[0], x[1], &to)))
    }

    fn eval(&self, xs: &[&Tensor]) -> Result<()> {
        let nodes = xs.iter().map(|x| self.own("eval", x)).collect::<Result<Vec<_>>>()?;
        self.evaluations.set(self.evaluations.get() + 1);
        nodes.iter().try_for_each(|node| node.evaluate()).map_err(Error::from)
    }

    fn async_eval(&self, xs: &[&Tensor]) -> Result<()> {
        self.eval(xs)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> Memory {
        Memory {
            active: self.ledger.active.get(),
            peak: self.ledger.peak.get(),
            cached: 0,
            allocated: self.ledger.allocated.get(),
        }
    }

    fn reset_peak(&self) {
        self.ledger.peak.set(self.ledger.active.get());
    }

    fn trim(&self) {}
}

impl Fake {
    fn planes(&self, operation: &'static str, q: &Quantized) -> Result<Vec<Rc<super::Node>>> {
        [&q.codes, &q.scales, &q.biases].into_iter().map(|x| self.own(operation, x)).collect()
    }
}
