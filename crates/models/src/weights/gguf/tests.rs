//! Tests of reading GGUF files, damaged ones included.

use super::*;
use crate::{
    Checkpoint, Options, Source,
    error::ErrorKind,
    sample::{self, GgufWriter},
};
use proptest::prelude::*;
use tandem_contracts::{fake, tensor::Dtype};

fn parse(bytes: &[u8]) -> Result<Gguf<'_>> {
    Gguf::parse(File { name: "m.gguf", bytes })
}

fn refusal(bytes: &[u8]) -> String {
    let error = parse(bytes).unwrap_err();
    assert_eq!(error.file(), Some("m.gguf"));
    error.to_string()
}

#[test]
fn metadata_of_every_type_is_read() {
    let nested = [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec(), {
        let mut inner = 0u32.to_le_bytes().to_vec();
        inner.extend(2u64.to_le_bytes());
        inner.extend([1, 2]);
        inner
    }]
    .concat();
    let file = GgufWriter::default()
        .value("u8", 0, &[200])
        .value("i8", 1, &[0xff])
        .value("u16", 2, &513u16.to_le_bytes())
        .value("i16", 3, &(-5i16).to_le_bytes())
        .u32("u32", 7)
        .value("i32", 5, &(-7i32).to_le_bytes())
        .f32("f32", 0.5)
        .value("bool", 7, &[1])
        .string("text", "π")
        .strings("texts", &["a", "", "b"])
        .value("u64", 10, &u64::MAX.to_le_bytes())
        .value("i64", 11, &i64::MIN.to_le_bytes())
        .value("f64", 12, &0.25f64.to_le_bytes())
        .value("nested", 9, &nested)
        .finish();
    let gguf = parse(&file).unwrap();
    let unsigned = |key: &str| gguf.value(key).and_then(Value::as_unsigned);
    let float = |key: &str| gguf.value(key).and_then(Value::as_float);
    assert_eq!([unsigned("u8"), unsigned("u16"), unsigned("u32")], [Some(200), Some(513), Some(7)]);
    assert_eq!([unsigned("u64"), unsigned("i8"), unsigned("f32")], [Some(u64::MAX), None, None]);
    assert_eq!([float("i8"), float("i16"), float("i32")], [Some(-1.0), Some(-5.0), Some(-7.0)]);
    assert_eq!([float("i64"), float("f32"), float("f64")], [Some(i64::MIN as f64), Some(0.5), Some(0.25)]);
    assert_eq!(gguf.value("bool").and_then(Value::as_bool), Some(true));
    assert_eq!(gguf.value("text").and_then(Value::as_text), Some("π"));
    let texts = gguf.value("texts").and_then(Value::as_array).unwrap();
    assert_eq!(texts.iter().filter_map(Value::as_text).collect::<Vec<_>>(), ["a", "", "b"]);
    assert_eq!(gguf.value("nested").and_then(Value::as_array).map(|array| array.len()), Some(1));
}

#[test]
fn tensors_are_cut_out_in_row_major_order() {
    let file = GgufWriter::default()
        .tensor("a", &[2, 3], 1, &(0..12).collect::<Vec<u8>>())
        .tensor("b", &[32], 8, &[7; 34])
        .finish();
    let gguf = parse(&file).unwrap();
    let a = gguf.tensor("a").unwrap();
    assert_eq!((a.shape(), a.encoding), (&[2, 3][..], Encoding::Plain(Dtype::F16)));
    assert_eq!(a.bytes, (0..12).collect::<Vec<u8>>());
    assert_eq!(gguf.tensor("b").unwrap().encoding, Encoding::Block(Block::Q8_0));
}

#[test]
fn hostile_extents_are_refused_with_the_tensor_named() {
    for (axes, kind, offset, expected) in [
        (&[u64::MAX, 2][..], 0, 0, "too many elements: [2, 18446744073709551615]"),
        (&[1 << 62, 1 << 62], 0, 0, "too many elements: [4611686018427387904, 4611686018427387904]"),
        (&[1; 9], 0, 0, "at most 4 axes are allowed, got: 9"),
        (&[128], 12, 0, "rows are no whole number of blocks of 256: 128"),
        (&[33], 2, 0, "rows are no whole number of blocks of 32: 33"),
        (&[4], 0, 1 << 60, "16 bytes at 1152921504606846976 are not inside the data of: 0"),
        (&[4], 0, u64::MAX - 31, "16 bytes at 18446744073709551584 are not inside the data of: 0"),
        (&[4], 0, 0, "16 bytes at 0 are not inside the data of: 0"),
        (&[4], 0, 7, "its offset is no multiple of 32: 7"),
        (
            &[256],
            15,
            0,
            "F32, F16, BF16, Q4_0 to Q8_0 and Q2_K to Q6_K are read, its element type is: Q8_K (15)",
        ),
        (
            &[256],
            99,
            0,
            "F32, F16, BF16, Q4_0 to Q8_0 and Q2_K to Q6_K are read, its element type is: unknown (99)",
        ),
    ] {
        let file = GgufWriter::default().info("t", axes, kind, offset).finish();
        assert_eq!(refusal(&file), format!("m.gguf: tensor t: {expected}"));
    }
}

#[test]
fn overlaps_and_duplicates_are_refused() {
    let mut writer = GgufWriter::default();
    writer.tensor("a", &[16], 0, &[0; 64]);
    let mut overlapping = writer.clone();
    overlapping.info("b", &[8], 0, 32);
    assert_eq!(refusal(&overlapping.finish()), "m.gguf: tensor b: overlaps another one at: 32");
    writer.tensor("a", &[16], 0, &[0; 64]);
    assert_eq!(refusal(&writer.finish()), "m.gguf: tensor a: occurs twice");
    // Names of two converters for one tensor.
    let mut synonyms = GgufWriter::default();
    synonyms.string("general.architecture", "qwen2");
    for name in ["blk.0.ffn_norm.weight", "blk.0.post_attention_norm.weight"] {
        synonyms.tensor(name, &[16], 0, &[0; 64]);
    }
    let bytes = synonyms.finish();
    let error = parse(&bytes).unwrap().into_entries(1, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "m.gguf: tensor blk.0.post_attention_norm.weight: is there twice, also as: \
         model.layers.0.post_attention_layernorm.weight"
    );
    let twice = GgufWriter::default().u32("k", 1).u32("k", 1).finish();
    assert_eq!(refusal(&twice), "m.gguf: metadata occurs twice: k");
}

#[test]
fn alignment_is_a_power_of_two() {
    for bad in [0, 3, 48] {
        let file = GgufWriter::default().u32("general.alignment", bad).finish();
        assert!(refusal(&file).contains("general.alignment must be a power of two"));
    }
    let text = GgufWriter::default().string("general.alignment", "x").finish();
    assert!(refusal(&text).contains("general.alignment must be a power of two"));
    assert!(parse(&GgufWriter::default().u32("general.alignment", 64).finish()).is_ok());
}

#[test]
fn lying_lengths_and_counts_end_at_the_end_of_the_file() {
    let long_text = GgufWriter::default().value("k", 8, &(1u64 << 60).to_le_bytes()).finish();
    assert!(refusal(&long_text).contains("needed: 1152921504606846976"));
    let long_array = [8u32.to_le_bytes().to_vec(), (1u64 << 60).to_le_bytes().to_vec()].concat();
    assert!(
        refusal(&GgufWriter::default().value("k", 9, &long_array).finish())
            .contains("metadata k: ends early")
    );
    // Arrays of arrays of arrays.
    let deep = [9u32.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()].concat().repeat(100);
    assert!(refusal(&GgufWriter::default().value("k", 9, &deep).finish()).contains("nested deeper"));
    let mut counts = GgufWriter::default().finish();
    counts[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refusal(&counts).contains("ends early"));
    assert!(
        refusal(&GgufWriter::default().value("k", 13, &[]).finish()).contains("no such type of metadata: 13")
    );
    assert!(refusal(&GgufWriter::default().value("k", 7, &[2]).finish()).contains("must be 0 or 1, got: 2"));
    let text = GgufWriter::default().value("k", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff]).finish();
    assert!(refusal(&text).contains("not utf-8"));
}

#[test]
fn other_versions_say_what_they_are() {
    let mut file = GgufWriter::default().finish();
    file[4] = 2;
    assert!(parse(&file).is_ok());
    for (version, expected) in [
        (1u32.to_le_bytes(), "gguf versions 2 and 3 are read, got: 1"),
        (3u32.to_be_bytes(), "is a big-endian gguf file"),
        (4u32.to_le_bytes(), "gguf versions 2 and 3 are read, got: 4"),
    ] {
        file[4..8].copy_from_slice(&version);
        let error = parse(&file).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string()),
            (ErrorKind::Unsupported, format!("m.gguf: {expected}"))
        );
    }
    assert_eq!(refusal(b"GGML"), "m.gguf: is no gguf file");
    assert_eq!(refusal(b""), "m.gguf: is no gguf file");
}

#[test]
fn a_vocabulary_is_read_and_checked() {
    let file = sample::gguf().finish();
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "m.gguf", bytes: &file })).unwrap();
    let vocabulary = checkpoint.vocabulary().unwrap();
    assert_eq!((vocabulary.model.as_str(), vocabulary.pre_tokenizer.as_deref()), ("gpt2", Some("smollm")));
    assert_eq!(vocabulary.tokens, ["<unk>", "<s>", "</s>", "a", "b", "ab"]);
    assert_eq!(vocabulary.merges, ["a b"]);
    assert_eq!((vocabulary.begin, vocabulary.end, vocabulary.unknown), (Some(1), Some(2), None));
    assert_eq!(vocabulary.chat_template.as_deref(), Some("{{ messages }}"));
    assert_eq!((checkpoint.name(), &checkpoint.config().end_tokens[..]), (Some("sample"), &[2][..]));

    let mut broken = file.clone();
    let merge = broken.windows(3).position(|bytes| bytes == b"a b").unwrap();
    broken[merge] = 0xff;
    let error = Checkpoint::open(Source::Gguf(File { name: "m.gguf", bytes: &broken })).unwrap_err();
    assert_eq!(error.to_string(), "m.gguf: tokenizer.ggml.merges must be a list of texts in utf-8");

    let mut outside = sample::gguf();
    outside.u32("tokenizer.ggml.unknown_token_id", 6);
    let mut types = sample::gguf();
    types.value(
        "tokenizer.ggml.token_type",
        9,
        &[vec![5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], vec![1, 0, 0, 0]].concat(),
    );
    for (writer, expected) in [
        (outside, "tokenizer.ggml.unknown_token_id is not among 6 tokens: 6"),
        (types, "tokenizer.ggml.token_type must hold one number for each of: 6"),
    ] {
        let file = writer.finish();
        let error = Checkpoint::open(Source::Gguf(File { name: "m.gguf", bytes: &file })).unwrap_err();
        assert_eq!(error.to_string(), format!("m.gguf: {expected}"));
    }
}

/// Opens and loads; whatever the bytes are, this returns.
fn load(bytes: &[u8]) -> Result<()> {
    let checkpoint = Checkpoint::open(Source::Gguf(File { name: "m.gguf", bytes }))?;
    checkpoint.load(&fake::open(), Options::default()).map(drop)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_an_error_or_fine(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = sample::gguf().finish();
        let header = file.len() - sample::weights().values().map(|it| it.values.len() * 4).sum::<usize>();
        for (at, mask) in flips {
            file[at.index(header)] ^= mask;
        }
        if let Some(cut) = cut {
            file.truncate(cut.index(file.len()));
        }
        drop(load(&file));
    }

    #[test]
    fn random_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = GgufWriter::default().finish();
        file[8..24].fill(1);
        file.truncate(24);
        file.extend(bytes);
        prop_assert!(load(&file).is_err());
    }
}

#[test]
fn the_undamaged_sample_loads() {
    load(&sample::gguf().finish()).unwrap();
}

#[test]
fn bytes_are_released_once_their_tensors_are_on_the_device() {
    let file = sample::gguf().finish();
    let source = || Source::Gguf(File { name: "m.gguf", bytes: &file });
    let tensors: usize = sample::weights().values().map(|it| it.values.len() * 4).sum();
    let released = std::cell::Cell::new(0);
    let release = |bytes: &[u8]| {
        assert!(file.as_ptr_range().contains(&bytes.as_ptr()));
        released.set(released.get() + bytes.len());
    };
    let checkpoint = Checkpoint::open_session(source()).unwrap();
    assert!(checkpoint.vocabulary().is_none());
    checkpoint.load_releasing(&fake::open(), Options::default(), &release).unwrap();
    assert_eq!(released.get(), tensors);
}
