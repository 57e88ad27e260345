//! Affine planes against those of MLX.

use crate::{bytes, devices, encode};
use tandem_contracts::tensor::{Affine, Device, Dtype, Tensor};
use tandem_kv::codec::Format;

const GOLDEN: &str = include_str!("../../../../fixtures/operations/quantize.txt");

/// A tensor of the golden file: dtype, extents joined by `x`, and bytes.
fn golden(name: &str) -> (Dtype, Vec<usize>, Vec<u8>) {
    let line = GOLDEN.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
    let [_, dtype, extents, hex] = line.split(' ').collect::<Vec<_>>()[..] else {
        panic!("malformed: {name}")
    };
    let dtype = Dtype::ALL.into_iter().find(|known| format!("{known:?}") == dtype).unwrap();
    let extents = extents.split('x').map(|extent| extent.parse().unwrap()).collect();
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (dtype, extents, (0..hex.len()).step_by(2).map(byte).collect())
}

/// The golden values as three heads of one token.
fn upload(device: &Device, dtype: Dtype) -> Tensor {
    let (dtype, _, bytes) = golden(&format!("{dtype:?}.x"));
    device.upload(&bytes, dtype, &[1, 3, 128]).unwrap()
}

#[test]
fn planes_equal_those_of_mlx() {
    let every_group = |bits| [32, 64, 128].map(|group| (Dtype::F32, bits, group));
    let narrow = [Dtype::F16, Dtype::Bf16].into_iter().flat_map(|dtype| [4, 8].map(|bits| (dtype, bits, 64)));
    let cases: Vec<_> = [4, 8].into_iter().flat_map(every_group).chain(narrow).collect();
    for device in devices() {
        for &(dtype, bits, group) in &cases {
            let format = Format::Affine { affine: Affine { bits, group }, dtype };
            let codec = format.open(&device, 128).unwrap();
            let encoded = encode(&*codec, &upload(&device, dtype));
            for (field, name) in encoded.fields.iter().zip(["codes", "scales", "biases"]) {
                let (dtype, extents, expected) = golden(&format!("{dtype:?}.{bits}.{group}.{name}"));
                assert_eq!((field.dtype(), &field.shape()[1..]), (dtype, &extents[..]), "{format}: {name}");
                assert_eq!(bytes(field), expected, "{format}: {name}");
            }
            assert_eq!(encoded.sound, [true; 3]);
        }
    }
}

#[test]
fn values_are_rounded_to_the_scales_before_they_are_encoded() {
    for device in devices() {
        let wide = upload(&device, Dtype::F32);
        let narrow = device.cast(&wide, Dtype::Bf16).unwrap();
        let format = Format::Affine { affine: Affine { bits: 8, group: 32 }, dtype: Dtype::Bf16 };
        let codec = format.open(&device, 128).unwrap();
        let [wide, narrow] = [wide, narrow].map(|x| codec.encode(&x).unwrap());
        assert!(wide.iter().zip(&narrow).all(|(a, b)| bytes(a) == bytes(b)));
    }
}
