//! Codecs against plain references, on the naive device and on the CPU.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

mod affine;

mod reference;
mod rule;
mod sample;
mod turbo;

use tandem_contracts::{
    fake,
    tensor::{Affine, Device, Dtype, Tensor},
};
use tandem_kv::codec::{Codec, Format};

/// Every kind of device that a test can open here.
fn devices() -> [Device; 2] {
    [fake::open(), tandem_backend_cpu::open(tandem_backend_cpu::Options::default()).unwrap()]
}

/// Every format.
fn formats() -> Vec<Format> {
    let floats = [Dtype::F32, Dtype::F16, Dtype::Bf16];
    let affine = |dtype| {
        [4, 8].into_iter().flat_map(move |bits| {
            [32, 64, 128].map(|group| Format::Affine { affine: Affine { bits, group }, dtype })
        })
    };
    let mut formats: Vec<Format> = floats.map(Format::Plain).to_vec();
    formats.extend(floats.into_iter().flat_map(affine));
    formats.extend([2, 4, 5, 8].map(|bits| Format::TurboKeys { bits }));
    formats.extend([2, 3, 4, 5, 8].map(|bits| Format::TurboValues { bits }));
    formats
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.device().download(tensor).unwrap()
}

/// Fields, and whether each head could be stored.
#[derive(Debug)]
struct Encoded {
    fields: Vec<Tensor>,
    sound: Vec<bool>,
}

fn encode(codec: &dyn Codec, x: &Tensor) -> Encoded {
    let fields = codec.encode(x).unwrap();
    let device = x.device();
    let heads = x.elements() / codec.width();
    let by_head = |x: &&Tensor| device.reshape(x, &[heads, *x.shape().last().unwrap()]).unwrap();
    let witnesses: Vec<Tensor> = codec.witnesses(x, &fields).iter().map(by_head).collect();
    let sound = device.finite(None, &witnesses.iter().collect::<Vec<_>>()).unwrap();
    Encoded { sound: sound.to_vec().unwrap(), fields }
}
