//! Tests of reading safetensors files, damaged ones included.

use super::*;
use crate::{
    Checkpoint, Options, Source,
    error::ErrorKind,
    sample::{self, safetensors_raw},
};
use ::safetensors::SafeTensors;
use proptest::prelude::*;
use tandem_contracts::fake;

fn read_one(bytes: &[u8]) -> Result<Weights<'_>> {
    read(&[File { name: "m.safetensors", bytes }], None)
}

fn refusal(header: &str, data: usize) -> String {
    let file = safetensors_raw(header, &vec![0; data]);
    let error = read_one(&file).unwrap_err();
    assert_eq!(error.file(), Some("m.safetensors"));
    error.to_string()
}

#[test]
fn tensors_are_found_under_their_names() {
    let file = safetensors_raw(
        r#"{"__metadata__":{"format":"mlx"},"b":{"dtype":"F16","shape":[2,2],"data_offsets":[4,12]},
            "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"empty":{"dtype":"U8","shape":[0,3],"data_offsets":[12,12]}}"#,
        &(0..12).collect::<Vec<u8>>(),
    );
    let weights = read_one(&file).unwrap();
    assert_eq!(weights.entries.keys().collect::<Vec<_>>(), ["a", "b", "empty"]);
    let entry = &weights.entries["b"];
    assert_eq!((entry.shape.as_slice(), entry.encoding), (&[2, 2][..], Encoding::Plain(Dtype::F16)));
    assert_eq!(entry.bytes, [4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn lying_headers_are_refused_with_the_tensor_named() {
    for (header, data, expected) in [
        (
            r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#,
            4,
            "t: bytes 0 to 8 are not inside the data of: 4",
        ),
        (r#"{"t":{"dtype":"F32","shape":[2],"data_offsets":[9,3]}}"#, 8, "t: must begin at byte 0, got: 9"),
        (r#"{"t":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, 8, "t: F32 [3] does not take bytes: 8"),
        (
            r#"{"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#,
            8,
            "t: too many elements: [4294967296, 4294967296]",
        ),
        (
            r#"{"t":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}"#,
            8,
            "t: elements of this type are not read: F64",
        ),
        (
            r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}"#,
            6,
            "u: must begin at byte 4, got: 2",
        ),
        (
            r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}"#,
            12,
            "u: must begin at byte 4, got: 8",
        ),
    ] {
        assert_eq!(refusal(header, data), format!("m.safetensors: tensor {expected}"));
    }
}

#[test]
fn malformed_headers_are_refused() {
    for (header, data, expected) in [
        (r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[]}}"#, 4, "tensor t: "),
        (r#"{"t":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}}"#, 4, "tensor t: "),
        (r#"{"t":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4, "tensor t: "),
        (
            r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#,
            4,
            "tensor t occurs twice",
        ),
        (r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} {}"#, 4, "header is malformed"),
        (r#"{"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 5, "its tensors end at byte 4 of: 5"),
        ("[]", 0, "header is malformed"),
        ("{", 0, "header is malformed"),
        (&format!("{{\"t\":{}", "[".repeat(100_000)), 0, "header is malformed"),
    ] {
        let message = refusal(header, data);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn lengths_beyond_the_file_are_refused_before_use() {
    for length in [1, u64::MAX, i64::MAX as u64, 1 << 40] {
        let error = read_one(&length.to_le_bytes()).unwrap_err();
        assert!(error.to_string().contains(&format!("cannot hold a header of: {length}")), "{error}");
    }
    for short in 0..8 {
        assert_eq!(read_one(&vec![0; short]).unwrap_err().kind(), ErrorKind::Format);
    }
}

#[test]
fn shards_are_held_against_their_index() {
    let one = |name: &str| {
        safetensors_raw(&format!(r#"{{"{name}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}"#), &[0])
    };
    let (a, b) = (one("a"), one("b"));
    let files = [File { name: "1.safetensors", bytes: &a }, File { name: "2.safetensors", bytes: &b }];
    let read_with = |index: &str| read(&files, Some(index.as_bytes())).map(|weights| weights.entries.len());
    assert_eq!(read_with(r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}"#).unwrap(), 2);
    for (index, expected) in [
        (r#"{"weight_map":{"a":"1.safetensors"}}"#, "2.safetensors: tensor b: the index does not name it"),
        (
            r#"{"weight_map":{"a":"2.safetensors","b":"2.safetensors"}}"#,
            "1.safetensors: tensor a: the index places it in another file: 2.safetensors",
        ),
        (
            r#"{"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}}"#,
            "2.safetensors: tensor c: the index places it in another file: 2.safetensors",
        ),
        ("{}", "the index of the shards is malformed"),
        (
            r#"{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}"#,
            "the index of the shards is malformed",
        ),
    ] {
        assert_eq!(read_with(index).unwrap_err().to_string(), expected);
    }
    let twice = [files[0], File { name: "3.safetensors", bytes: &a }];
    let error = read(&twice, None).unwrap_err();
    assert_eq!(error.to_string(), "3.safetensors: tensor a: is also in file: 1.safetensors");
}

#[test]
fn an_index_names_plain_files_only() {
    let names =
        |file: &str| shards(serde_json::json!({ "weight_map": { "a": file } }).to_string().as_bytes());
    assert_eq!(names("model-00001-of-00002.safetensors").unwrap(), ["model-00001-of-00002.safetensors"]);
    for bad in [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        ".safetensors",
        "x.bin",
        "a\0.safetensors",
    ] {
        assert!(names(bad).is_err(), "{bad:?}");
    }
}

/// Opens and loads the sample with these weights; whatever the bytes are, this returns.
fn load(bytes: &[u8]) -> Result<()> {
    let (config, files) = (sample::config().to_string(), vec![File { name: "m.safetensors", bytes }]);
    let source = Source::Safetensors { config: config.as_bytes(), generation: None, index: None, files };
    Checkpoint::open(source)?.load(&fake::open(), Options::default()).map(drop)
}

proptest! {
    /// Whatever happens to the bytes, the answer is a value or an error; and what is accepted here, the format's own
    /// crate accepts too, with the same tensors.
    #[test]
    fn damaged_files_are_an_error_or_fine(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = sample::safetensors(&sample::weights());
        let header = 8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        for (at, mask) in flips {
            file[at.index(header)] ^= mask;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        drop(load(&file));
        if let Ok(weights) = read_one(&file) {
            let theirs = SafeTensors::deserialize(&file).unwrap();
            prop_assert_eq!(weights.entries.len(), theirs.len());
            for (name, entry) in &weights.entries {
                prop_assert_eq!(entry.bytes, theirs.tensor(name).unwrap().data());
            }
        }
    }
}
