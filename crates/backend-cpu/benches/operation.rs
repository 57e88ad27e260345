//! What operations cost: the fixed price of a small one, and attention by context.
//!
//! `cargo bench -p tandem-backend-cpu --bench operation -- [THREADS] [ISA] [small|decode|prefill] [TOKENS]`;
//! the best round and the median of 31, because on a shared machine a median tells of the others. Attention
//! is that of a small model (9 heads on 3, 64 wide, 30 layers with planes of their own, so that caches see
//! what they would see).

use std::num::NonZeroUsize;
use std::time::Instant;
use tandem_backend_cpu::isa::Isa;
use tandem_backend_cpu::{Options, open};
use tandem_contracts::tensor::{
    Activation, Attend, Binary, Device, Dtype, KvWrite, Plane, Result, Rope, RowSpan, Run, Scalar, Tensor,
};

const LAYERS: usize = 30;
const HEADS: usize = 9;
const SHARED: usize = 3;
const WIDTH: usize = 64;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let threads = arguments.next().map_or(Ok(2), |threads| threads.parse())?;
    let isa = arguments.next().map_or(Ok(Isa::detected()), |isa| isa.parse())?;
    let threads = NonZeroUsize::new(threads).ok_or("no threads")?;
    let device = open(Options { threads, isa, ..Options::default() })?;
    println!("{threads} threads, {isa}");
    let only = arguments.next();
    let tokens = arguments.next().map(|tokens| tokens.parse::<usize>()).transpose()?;
    let sized = |size: &usize| tokens.is_none_or(|tokens| tokens == *size);
    let wanted = |name: &str| only.as_ref().is_none_or(|only| only == name);
    if wanted("small") {
        small(&device)?;
    }
    for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16].into_iter().filter(|_| wanted("decode")) {
        for context in [128, 512, 2048, 8192].into_iter().filter(sized) {
            decode(&device, dtype, context)?;
        }
    }
    for tokens in [8, 64, 512, 2048].into_iter().filter(sized).filter(|_| wanted("prefill")) {
        prefill(&device, tokens)?;
    }
    Ok(())
}

/// Seconds of one call.
struct Time {
    best: f64,
    median: f64,
}

/// Times 31 rounds of `count` calls.
fn time(count: usize, mut call: impl FnMut(usize) -> Result<()>) -> Result<Time> {
    let mut rounds = Vec::new();
    for _ in 0..31 {
        let start = Instant::now();
        (0..count).try_for_each(&mut call)?;
        rounds.push(start.elapsed().as_secs_f64() / count as f64);
    }
    rounds.sort_by(f64::total_cmp);
    Ok(Time { best: rounds[0], median: rounds[15] })
}

/// `values` of no particular distribution, within 1.
fn values(device: &Device, shape: &[usize]) -> Result<Tensor> {
    let count = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..count).map(|i| (i * 7919 % 2003) as f32 / 1001.0 - 1.0).collect();
    device.upload_f32(&values, shape)
}

fn small(device: &Device) -> Result<()> {
    let x = values(device, &[1, 576])?;
    let weight = values(device, &[576])?;
    let heads = values(device, &[1, HEADS, WIDTH])?;
    let keys = values(device, &[1, SHARED, WIDTH])?;
    let gate = values(device, &[1, 2 * 1536])?;
    let logits = values(device, &[1, 49_152])?;
    let positions = device.upload_i32(&[700], &[1])?;
    let rope = Rope { frequencies: values(device, &[WIDTH / 2])?, interleaved: false, scale: 1.0 };
    let mut plane = Some(device.full(Scalar::Float(0.0), Dtype::F32, &[1, SHARED, 2048, WIDTH])?);
    let print = |name: &str, time: Time| {
        println!("{name:24} {:8.0} ns ({:8.0})", time.best * 1e9, time.median * 1e9);
    };
    print("slice", time(1000, |_| device.slice(&x, &[0..1, 0..64]).map(drop))?);
    print("reshape", time(1000, |_| device.reshape(&x, &[1, 9, 64]).map(drop))?);
    print("add 576", time(1000, |_| device.binary(Binary::Add, x.clone(), &x).map(drop))?);
    print("rms_norm 576", time(1000, |_| device.rms_norm(&x, Some(&weight), 1e-5).map(drop))?);
    print("rope 9 heads", time(1000, |_| device.rope(heads.clone(), &rope, &positions).map(drop))?);
    print("gated 1536", time(1000, |_| device.gated(&gate, Activation::Silu).map(drop))?);
    print("softmax 49152", time(20, |_| device.softmax(&logits, 1).map(drop))?);
    print("argmax 49152", time(20, |_| device.argmax(&logits, 1).map(drop))?);
    print("argpartition 49152", time(5, |_| device.argpartition(&logits, 49_112, 1).map(drop))?);
    let append = time(1000, |i| {
        let write = KvWrite { tokens: 0..1, row: 0, column: i };
        plane = plane.take().map(|plane| device.kv_append(plane, &keys, &[write])).transpose()?;
        Ok(())
    })?;
    print("kv_append", append);
    Ok(())
}

fn planes(device: &Device, dtype: Dtype, columns: usize) -> Result<Vec<[Tensor; 2]>> {
    let plane = || device.cast(&values(device, &[1, SHARED, columns, WIDTH])?, dtype);
    (0..LAYERS).map(|_| Ok([plane()?, plane()?])).collect()
}

fn attend(device: &Device, q: &Tensor, [keys, values]: &[Tensor; 2], context: usize) -> Result<()> {
    let tokens = q.shape()[0];
    let run = [Run { row: 0, column: 0, positions: 0..context }];
    let span = RowSpan {
        queries: 0..tokens,
        position: context - tokens,
        keys: Plane::Plain(keys),
        values: Plane::Plain(values),
        runs: &run,
    };
    device.attend(q, &[span], &Attend::causal(0.125)).map(drop)
}

fn decode(device: &Device, dtype: Dtype, context: usize) -> Result<()> {
    let planes = planes(device, dtype, context)?;
    let q = values(device, &[1, HEADS, WIDTH])?;
    let time = time(LAYERS, |layer| attend(device, &q, &planes[layer], context))?;
    let bytes = (2 * SHARED * context * WIDTH * dtype.size()) as f64;
    println!(
        "decode {dtype:?} at {context:5}: {:8.1} us a layer ({:8.1}), {:5.1} GB/s",
        time.best * 1e6,
        time.median * 1e6,
        bytes / time.best / 1e9
    );
    Ok(())
}

fn prefill(device: &Device, tokens: usize) -> Result<()> {
    let planes = planes(device, Dtype::F32, tokens)?;
    let q = values(device, &[tokens, HEADS, WIDTH])?;
    let time = time(1, |_| attend(device, &q, &planes[0], tokens))?;
    let products = 2 * HEADS * WIDTH * tokens * (tokens + 1) / 2;
    println!(
        "prefill {tokens:4}: {:8.1} us a layer ({:8.1}), {:5.1} GFLOP/s",
        time.best * 1e6,
        time.median * 1e6,
        2.0 * products as f64 / time.best / 1e9
    );
    Ok(())
}
