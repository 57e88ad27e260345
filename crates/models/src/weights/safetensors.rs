//! Reads safetensors files (<https://github.com/huggingface/safetensors>), single and sharded, from bytes.
//!
//! Invariants: a header is believed only after every tensor's extent has been held against the file; tensors cover
//! the data without overlap or hole; no name occurs twice, in one file or over the shards. What is refused names the
//! file and, where there is one, the tensor. Nothing is copied but the header.

use super::{Encoding, Entry, File, Weights};
use crate::error::{Error, Result, printable};
use safetensors::tensor::{Dtype as FileDtype, TensorInfo};
use serde::{
    Deserialize,
    de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    marker::PhantomData,
};
use tandem_contracts::tensor::Dtype;

/// Bytes of the length that stands before the header.
const PREFIX: usize = 8;

/// Reads the files of one model. With an `index` (`model.safetensors.index.json`) each tensor must be in the file
/// that the index names, and the index must name no other.
pub(super) fn read<'a>(files: &[File<'a>], index: Option<&[u8]>) -> Result<Weights<'a>> {
    let mut entries = BTreeMap::new();
    for file in files {
        for (name, entry) in read_file(*file).map_err(|error| error.in_file(file.name))? {
            if let Some(other) = entries.insert(name.clone(), entry) {
                let message = format!("is also in file: {}", printable(other.file));
                return Err(Error::format(message).of_tensor(&name).in_file(file.name));
            }
        }
    }
    if let Some(index) = index {
        let placed = parse_index(index)?;
        for (name, shard) in &placed {
            let held = entries.get(name).map(|entry: &Entry<'_>| entry.file);
            if held != Some(shard) {
                let message = format!("the index places it in another file: {}", printable(shard));
                return Err(Error::format(message).of_tensor(name).in_file(held.unwrap_or(shard)));
            }
        }
        if let Some((name, entry)) = entries.iter().find(|(name, _)| !placed.contains_key(*name)) {
            return Err(Error::format("the index does not name it").of_tensor(name).in_file(entry.file));
        }
    }
    Ok(entries.into())
}

/// The shard files that an index names, sorted.
///
/// # Errors
/// The index is malformed, or a file name is more than a plain name (a path could leave the model's folder).
pub fn shards(index: &[u8]) -> Result<Vec<String>> {
    let files: BTreeSet<String> = parse_index(index)?.into_values().collect();
    for file in &files {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !file.bytes().all(plain) || file.starts_with('.') || !file.ends_with(".safetensors") {
            return Err(Error::format(format!("the index names no plain file: {}", printable(file))));
        }
    }
    Ok(files.into_iter().collect())
}

fn parse_index(index: &[u8]) -> Result<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Index {
        #[serde(deserialize_with = "places")]
        weight_map: Vec<(String, String)>,
    }
    fn places<'de, D: Deserializer<'de>>(map: D) -> std::result::Result<Vec<(String, String)>, D::Error> {
        map.deserialize_map(Named(PhantomData))
    }
    let parsed: std::result::Result<Index, _> = serde_json::from_slice(index);
    parsed
        .map(|index| index.weight_map.into_iter().collect())
        .map_err(|error| Error::format("the index of the shards is malformed").because(error))
}

fn read_file(file: File<'_>) -> Result<Vec<(String, Entry<'_>)>> {
    let bytes = file.bytes;
    let prefix =
        bytes.first_chunk::<PREFIX>().ok_or_else(|| Error::format("is too short to be safetensors"))?;
    let length = u64::from_le_bytes(*prefix);
    let stop = usize::try_from(length).ok().and_then(|length| length.checked_add(PREFIX));
    let (header, data) = stop
        .filter(|&stop| stop <= bytes.len())
        .map(|stop| (&bytes[PREFIX..stop], &bytes[stop..]))
        .ok_or_else(|| Error::format(format!("{} bytes cannot hold a header of: {length}", bytes.len())))?;
    let mut reader = serde_json::Deserializer::from_slice(header);
    let mut tensors = reader
        .deserialize_map(Named::<TensorInfo>(PhantomData))
        .and_then(|tensors| reader.end().map(|()| tensors))
        .map_err(|error| {
            Error::format(format!("the header is malformed: {}", printable(&error.to_string())))
        })?;
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, info) in tensors {
        let entry = place(file.name, &info, data, end).map_err(|error| error.of_tensor(&name))?;
        end = info.data_offsets.1;
        entries.push((name, entry));
    }
    if end != data.len() {
        return Err(Error::format(format!("its tensors end at byte {end} of: {}", data.len())));
    }
    Ok(entries)
}

/// Holds one tensor's claim against the data; `start` is where the tensor before it ends.
fn place<'a>(file: &'a str, info: &TensorInfo, data: &'a [u8], start: usize) -> Result<Entry<'a>> {
    let (from, to) = info.data_offsets;
    if from != start {
        return Err(Error::format(format!("must begin at byte {start}, got: {from}")));
    }
    let bytes = data.get(from..to).ok_or_else(|| {
        Error::format(format!("bytes {from} to {to} are not inside the data of: {}", data.len()))
    })?;
    let bits = info
        .shape
        .iter()
        .try_fold(info.dtype.bitsize(), |product, &extent| product.checked_mul(extent))
        .ok_or_else(|| Error::format(format!("too many elements: {:?}", info.shape)))?;
    if bits != bytes.len().saturating_mul(8) {
        let message = format!("{} {:?} does not take bytes: {}", info.dtype, info.shape, bytes.len());
        return Err(Error::format(message));
    }
    Ok(Entry {
        file,
        shape: info.shape.clone(),
        encoding: encoding(info.dtype)?,
        bytes,
        interleaved_heads: None,
    })
}

fn encoding(dtype: FileDtype) -> Result<Encoding> {
    Ok(Encoding::Plain(match dtype {
        FileDtype::F32 => Dtype::F32,
        FileDtype::F16 => Dtype::F16,
        FileDtype::BF16 => Dtype::Bf16,
        FileDtype::I32 => Dtype::I32,
        FileDtype::U32 => Dtype::U32,
        FileDtype::I8 => Dtype::I8,
        FileDtype::U8 => Dtype::U8,
        FileDtype::BOOL => Dtype::Bool,
        other => return Err(Error::unsupported(format!("elements of this type are not read: {other}"))),
    }))
}

/// The header as a list: a map would drop a name that occurs twice.
struct Named<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Named<T> {
    type Value = Vec<(String, T)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
        let mut tensors = Vec::new();
        let mut names = BTreeSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                return Err(A::Error::custom(format!("tensor {name} occurs twice")));
            }
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let info =
                map.next_value().map_err(|error| A::Error::custom(format!("tensor {name}: {error}")))?;
            tensors.push((name, info));
        }
        Ok(tensors)
    }
}

#[cfg(test)]
mod tests;
