//! TurboQuant against its reference: codes, scales and zero points bit for bit, decoded values too.

use crate::{
    bytes, devices, encode,
    reference::{Book, Head, decode_keys, decode_values, encode_keys, encode_values, pack},
    sample::{head, normal},
};
use half::{bf16, f16};
use proptest::prelude::*;
use tandem_contracts::{
    tensor::{Attend, Device, Dtype, Plane, RowSpan, Run, Tensor},
    threefry::threefry,
};
use tandem_kv::codec::{Codec, Format, levels};

const WIDTHS: [usize; 4] = [64, 128, 256, 512];

fn book(bits: u8, width: usize) -> Book {
    // Word `i` and word `i + width / 2` come from one block; the top bit is the sign.
    let half = width / 2;
    let word = |i: usize| threefry([0, 42], [(i % half) as u32, (i % half + half) as u32])[i / half];
    let signs = (0..width).map(|i| if word(i) >> 31 == 1 { -1.0 } else { 1.0 }).collect();
    Book { levels: levels(bits), signs }
}

/// Heads of one width, `[1, heads, width]`.
fn upload(device: &Device, heads: &[Vec<f32>]) -> Tensor {
    device.upload_f32(&heads.concat(), &[1, heads.len(), heads[0].len()]).unwrap()
}

/// Encodes heads on a device and holds every field, the flags and the decoded values to the reference's.
fn check(codec: &dyn Codec, device: &Device, heads: &[Vec<f32>], expected: &[Head], decoded: &[Vec<bf16>]) {
    let encoded = encode(codec, &upload(device, heads));
    assert_eq!(encoded.sound, expected.iter().map(|head| head.sound).collect::<Vec<_>>());
    let (bits, zeros) = match codec.format() {
        Format::TurboKeys { bits } => (bits, true),
        Format::TurboValues { bits } => (bits, false),
        other => panic!("not TurboQuant: {other}"),
    };
    let fields: Vec<Vec<u8>> = encoded.fields.iter().map(bytes).collect();
    assert_eq!(fields.len(), if zeros { 3 } else { 2 });
    let values = codec.decode(&encoded.fields).unwrap();
    assert_eq!((values.dtype(), values.shape()), (Dtype::Bf16, &[1, heads.len(), codec.width()][..]));
    let values = values.to_vec::<bf16>().unwrap();
    for (i, head) in expected.iter().enumerate().filter(|(_, head)| head.sound) {
        let own = |field: &Vec<u8>| field.chunks(field.len() / heads.len()).nth(i).unwrap().to_vec();
        assert_eq!(own(&fields[0]), pack(&head.codes, bits), "codes of head {i}: {:?}", heads[i]);
        let stored = |floats: &[f16]| floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<_>>();
        assert_eq!(own(&fields[1]), stored(&head.scales), "scales of head {i}: {:?}", heads[i]);
        if zeros {
            assert_eq!(own(&fields[2]), stored(&head.zeros), "zero points of head {i}: {:?}", heads[i]);
        }
        assert_eq!(values[i * codec.width()..(i + 1) * codec.width()], decoded[i]);
    }
}

fn check_keys(heads: &[Vec<f32>], bits: u8) {
    let expected: Vec<Head> = heads.iter().map(|head| encode_keys(head, bits)).collect();
    let decoded: Vec<_> = expected.iter().map(decode_keys).collect();
    for device in devices() {
        let codec = Format::TurboKeys { bits }.open(&device, heads[0].len()).unwrap();
        check(&*codec, &device, heads, &expected, &decoded);
    }
}

fn check_values(heads: &[Vec<f32>], bits: u8) {
    let book = book(bits, heads[0].len());
    let expected: Vec<Head> = heads.iter().map(|head| encode_values(head, &book)).collect();
    let decoded: Vec<_> = expected.iter().map(|head| decode_values(head, &book)).collect();
    for device in devices() {
        let codec = Format::TurboValues { bits }.open(&device, heads[0].len()).unwrap();
        check(&*codec, &device, heads, &expected, &decoded);
    }
}

fn heads() -> impl Strategy<Value = Vec<Vec<f32>>> {
    prop::sample::select(&WIDTHS[..]).prop_flat_map(|width| prop::collection::vec(head(width), 1..4))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn keys_equal_the_reference(heads in heads(), bits in prop::sample::select(vec![2_u8, 4, 5, 8])) {
        check_keys(&heads, bits);
    }

    #[test]
    fn values_equal_the_reference(heads in heads(), bits in prop::sample::select(vec![2_u8, 3, 4, 5, 8])) {
        check_values(&heads, bits);
    }
}

/// Keys of groups that have no range, or one too small for their size.
#[test]
fn constant_groups_come_back_as_their_mean() {
    for device in devices() {
        for bits in [2, 4, 5, 8] {
            let codec = Format::TurboKeys { bits }.open(&device, 64).unwrap();
            for value in [0.0, 0.1, -3.75, 1000.5, 65504.0, -65504.0] {
                let x = device.upload_f32(&[value; 64], &[1, 1, 64]).unwrap();
                let encoded = encode(&*codec, &x);
                let expected = bf16::from_f32(f16::from_f32(value).to_f32());
                assert_eq!(codec.decode(&encoded.fields).unwrap().to_vec::<bf16>().unwrap(), [expected; 64]);
                assert_eq!(encoded.sound, [true]);
            }
            // Zero point 254,000 at 8 bits: far beyond f16.
            let mut x = [100.0; 64];
            x[7] = 100.000_1;
            let encoded = encode(&*codec, &device.upload_f32(&x, &[1, 1, 64]).unwrap());
            let values = codec.decode(&encoded.fields).unwrap().to_vec::<bf16>().unwrap();
            assert!(values.iter().all(|value| value.to_f32() == 100.0), "{values:?}");
        }
    }
}

#[test]
fn constants_beyond_the_stored_range_are_flagged() {
    for device in devices() {
        let x = device.upload_f32(&[[1.0; 64], [70_000.0; 64]].concat(), &[1, 2, 64]).unwrap();
        for format in [Format::TurboKeys { bits: 8 }, Format::TurboValues { bits: 3 }] {
            let sound = encode(&*format.open(&device, 64).unwrap(), &x).sound;
            assert_eq!(sound, [true, false], "{format}");
        }
    }
}

/// Mean squared errors of the codebooks for a normal variable: Max, "Quantizing for minimum distortion", 1960, table I
/// (1.175e-1, 3.454e-2, 9.497e-3, 2.499e-3).
#[test]
fn values_err_as_much_as_the_codebook_must() {
    let device = &devices()[1];
    let samples = normal(64 * 512, 7);
    let x = device.upload_f32(&samples, &[64, 1, 512]).unwrap();
    let power: f32 = samples.iter().map(|x| x * x).sum();
    for (bits, expected) in [(2, 0.1175), (3, 0.034_54), (4, 0.009_497), (5, 0.002_499)] {
        let codec = Format::TurboValues { bits }.open(device, 512).unwrap();
        let values = codec.decode(&codec.encode(&x).unwrap()).unwrap().to_vec::<bf16>().unwrap();
        let error: f32 = values.iter().zip(&samples).map(|(a, b)| (a.to_f32() - b).powi(2)).sum();
        let ratio = error / power / expected;
        // Each group is scaled to its own variance, not to that of the variable: up to some percent less.
        assert!((0.85..1.05).contains(&ratio), "{bits} bits: {ratio}");
    }
}

/// Attention over codes, whose values are turned back once it has mixed them, against attention over decoded ones.
#[test]
fn attention_over_codes_is_near_that_over_decoded_values() {
    for device in devices() {
        for width in WIDTHS {
            let plane = |seed| device.upload_f32(&normal(8 * width, seed), &[1, 1, 8, width]).unwrap();
            let attend = |keys: Plane<'_>, values: Plane<'_>| {
                let runs = [Run { row: 0, column: 0, positions: 0..8 }];
                let span = RowSpan { queries: 0..1, position: 7, keys, values, runs: &runs };
                let q = device.upload_f32(&normal(width, 5), &[1, 1, width]).unwrap();
                device.attend(&q, &[span], &Attend::causal(0.1)).unwrap().to_vec::<f32>().unwrap()
            };
            let made = [(Format::TurboKeys { bits: 8 }, 3), (Format::TurboValues { bits: 4 }, 4)];
            let [keys, values] = made.map(|(format, seed)| {
                let codec = format.open(&device, width).unwrap();
                let fields = codec.encode(&plane(seed)).unwrap();
                (codec.held(&fields).unwrap(), codec.decode(&fields).unwrap())
            });
            let late = attend(keys.0.plane(), values.0.plane());
            let early = attend(Plane::Plain(&keys.1), Plane::Plain(&values.1));
            // Each element of a decoded key or value (below 4 here) is rounded to 8 bits, which moves weights too.
            assert!(late.iter().zip(&early).all(|(a, b)| (a - b).abs() < 4.0 / 64.0));
            assert_ne!(late, early);
        }
    }
}
