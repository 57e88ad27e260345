//! What holds for every codec, whatever its arithmetic.

use crate::{bytes, devices, encode, formats, sample::head};
use proptest::prelude::*;
use tandem_contracts::tensor::{Device, Dtype, ErrorKind, Tensor};
use tandem_kv::codec::Codec;

const WIDTH: usize = 128;

fn upload(device: &Device, heads: &[Vec<f32>], shape: &[usize]) -> Tensor {
    device.upload_f32(&heads.concat(), shape).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Each head of each token is encoded by itself: together or alone, in any place, the bytes are the same.
    #[test]
    fn heads_are_encoded_by_themselves(heads in prop::collection::vec(head(WIDTH), 6)) {
        for device in devices() {
            for format in formats() {
                let codec = format.open(&device, WIDTH).unwrap();
                let all = encode(&*codec, &upload(&device, &heads, &[3, 2, WIDTH]));
                for (i, head) in heads.iter().enumerate() {
                    let one = encode(&*codec, &upload(&device, std::slice::from_ref(head), &[1, WIDTH]));
                    prop_assert_eq!(one.sound[0], all.sound[i]);
                    for (all, one) in all.fields.iter().zip(&one.fields) {
                        let one = bytes(one);
                        prop_assert_eq!(&bytes(all)[i * one.len()..(i + 1) * one.len()], &one[..], "{}", format);
                    }
                }
            }
        }
    }

    /// Devices agree on every bit of what is stored, and of what comes back, where the port leaves no choice.
    #[test]
    fn devices_agree(heads in prop::collection::vec(head(WIDTH), 2)) {
        for format in formats() {
            let made = devices().map(|device| {
                let codec = format.open(&device, WIDTH).unwrap();
                let encoded = encode(&*codec, &upload(&device, &heads, &[2, 1, WIDTH]));
                let decoded = codec.decode(&encoded.fields).unwrap();
                let fields = encoded.fields.iter().map(bytes).collect::<Vec<_>>();
                (encoded.sound, fields, bytes(&decoded))
            });
            let [(sound, fields, decoded), (other_sound, other_fields, other_decoded)] = made;
            prop_assert_eq!(&sound, &other_sound, "{}", format);
            // Fields of a head that cannot be stored are anything.
            if sound == [true, true] {
                prop_assert_eq!(fields, other_fields, "{}", format);
                prop_assert_eq!(decoded, other_decoded, "{}", format);
            }
        }
    }
}

#[test]
fn fields_are_as_the_format_says() {
    for device in devices() {
        for format in formats() {
            let codec = format.open(&device, WIDTH).unwrap();
            assert_eq!((codec.format(), codec.width()), (format, WIDTH));
            for tokens in [0, 1, 3] {
                let x = device.upload_f32(&vec![0.5; tokens * 2 * WIDTH], &[tokens, 2, WIDTH]).unwrap();
                let encoded = encode(&*codec, &x);
                let needed = format.fields(WIDTH).unwrap();
                assert_eq!(encoded.fields.len(), needed.len());
                for (field, needed) in encoded.fields.iter().zip(&needed) {
                    assert_eq!(field.dtype(), needed.dtype, "{format}");
                    assert_eq!(field.shape(), [tokens, 2, needed.extent], "{format}");
                }
                assert_eq!(encoded.sound, vec![true; tokens * 2]);
                assert_eq!(codec.decode(&encoded.fields).unwrap().shape(), [tokens, 2, WIDTH]);
                let stored: usize = encoded.fields.iter().map(|field| bytes(field).len()).sum();
                assert_eq!(stored, tokens * 2 * format.bytes(WIDTH).unwrap());
            }
        }
    }
}

/// One bad element marks its own head, and no other.
#[test]
fn elements_that_are_not_finite_are_flagged() {
    for device in devices() {
        for format in formats() {
            let codec = format.open(&device, WIDTH).unwrap();
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut elements: Vec<f32> = (0..4 * WIDTH).map(|i| (i % 17) as f32 / 8.0).collect();
                elements[2 * WIDTH + 77] = bad;
                let x = device.upload_f32(&elements, &[2, 2, WIDTH]).unwrap();
                let sound = encode(&*codec, &x).sound;
                assert_eq!(sound, [true, true, false, true], "{format} and {bad}");
            }
        }
    }
}

#[test]
fn numbers_that_cannot_be_stored_are_flagged() {
    for device in devices() {
        for format in formats() {
            // In range for f32 as an element, but not its distance from its negative.
            let mut elements = [0.0; 128];
            (elements[0], elements[1]) = (3e38, -3e38);
            let x = device.upload_f32(&elements, &[1, 128]).unwrap();
            let sound = encode(&*format.open(&device, 128).unwrap(), &x).sound;
            let fits = format.is_plain() && format.fields(1).unwrap()[0].dtype != Dtype::F16;
            assert_eq!(sound, [fits], "{format}");
        }
    }
}

#[test]
fn other_operands_are_refused() {
    let kind = |result: tandem_contracts::tensor::Result<_>| result.map(drop).unwrap_err().kind();
    for device in devices() {
        for format in formats() {
            let codec = format.open(&device, WIDTH).unwrap();
            let refused = |dtype, shape: &[usize]| {
                kind(
                    codec
                        .encode(&device.cast(&device.upload_f32(&[0.0; 64], shape).unwrap(), dtype).unwrap()),
                )
            };
            assert_eq!(refused(Dtype::F32, &[64]), ErrorKind::Shape);
            assert_eq!(refused(Dtype::I32, &[64]), ErrorKind::Dtype);
            let decode = |fields: &[Tensor]| codec.decode(fields).map(drop).unwrap_err().kind();
            let fields = codec.encode(&device.upload_f32(&[0.0; WIDTH], &[1, WIDTH]).unwrap()).unwrap();
            assert_eq!(decode(&fields[1..]), ErrorKind::Shape);
            let mut wide = fields.clone();
            wide[0] = device.concat(&[&fields[0], &fields[0]], 1).unwrap();
            assert_eq!(decode(&wide), ErrorKind::Shape);
            if fields.len() > 1 {
                let mut long = fields.clone();
                long[1] = device.concat(&[&fields[1], &fields[1]], 0).unwrap();
                assert_eq!(decode(&long), ErrorKind::Shape);
            }
        }
    }
}

/// Another device's tensors are not read.
#[test]
fn foreign_operands_are_refused() {
    let [home, abroad] = devices();
    for format in formats() {
        let codec: std::rc::Rc<dyn Codec> = format.open(&home, WIDTH).unwrap();
        let x = abroad.upload_f32(&[0.0; WIDTH], &[1, WIDTH]).unwrap();
        assert_eq!(codec.encode(&x).map(drop).unwrap_err().kind(), ErrorKind::Foreign, "{format}");
    }
}
