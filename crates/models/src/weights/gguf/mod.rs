//! Reads GGUF files, versions 2 and 3, little-endian
//! (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).
//!
//! ```text
//!   header: magic, version, counts | metadata | tensor infos | padding | tensor data
//! ```
//!
//! Invariants: every count, length, extent and offset is held against the file in checked arithmetic before it is
//! used; no key and no tensor occurs twice; tensors lie inside the data and do not overlap. What the file claims is
//! never allocated: text and arrays stay in the file's bytes.

mod block;
mod name;
mod packed;
mod reader;
mod value;
mod vocabulary;

pub(crate) use block::{Block, Factors};
pub(crate) use packed::Packed;
pub(crate) use value::{Array, Value};
pub use vocabulary::GgufVocabulary;

use super::{Encoding, Entry, File};
use crate::error::{Error, Result, printable};
use reader::Reader;
use std::collections::BTreeMap;

/// Axes that a tensor may have.
const MOST_AXES: u32 = 4;

/// Alignment of tensor data where the file names none.
const DEFAULT_ALIGNMENT: usize = 32;

/// No file aligns to more than a large page.
const LARGEST_ALIGNMENT: usize = 1 << 30;

/// A parsed file: metadata, and tensors under the file's own names.
#[derive(Debug)]
pub(crate) struct Gguf<'a> {
    file: &'a str,
    metadata: BTreeMap<&'a str, Value<'a>>,
    tensors: BTreeMap<&'a str, Entry<'a>>,
}

/// One line of the table of tensors.
struct Info<'a> {
    name: &'a str,
    /// Row-major: the file's order is reversed.
    shape: Vec<usize>,
    encoding: Encoding,
    offset: u64,
    bytes: usize,
}

impl<'a> Gguf<'a> {
    /// Reads the header and checks the extent of every tensor.
    pub(crate) fn parse(file: File<'a>) -> Result<Self> {
        let parsed = Self::parse_bytes(file);
        parsed.map_err(|error| error.in_file(file.name))
    }

    fn parse_bytes(file: File<'a>) -> Result<Self> {
        let mut reader = Reader::new(file.bytes);
        let (tensor_count, value_count) = counts(&mut reader)?;
        let mut metadata = BTreeMap::new();
        for _ in 0..value_count {
            let key = reader.string()?;
            let value = Value::read(&mut reader)
                .map_err(|error| Error::format(format!("metadata {}: {error}", printable(key))))?;
            if metadata.insert(key, value).is_some() {
                return Err(Error::format(format!("metadata occurs twice: {}", printable(key))));
            }
        }
        let alignment = alignment(&metadata)?;
        let mut infos = Vec::new();
        for _ in 0..tensor_count {
            infos.push(Info::read(&mut reader, alignment)?);
        }
        // The last tensor may end the file without padding, and a file without tensors may end here.
        let start = reader.position().next_multiple_of(alignment).min(file.bytes.len());
        let tensors = place(infos, file.name, &file.bytes[start..])?;
        Ok(Self { file: file.name, metadata, tensors })
    }

    /// The file's name.
    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    /// A metadata value.
    pub(crate) fn value(&self, key: &str) -> Option<Value<'a>> {
        self.metadata.get(key).copied()
    }

    /// A tensor.
    pub(crate) fn tensor(&self, name: &str) -> Option<&Entry<'a>> {
        self.tensors.get(name)
    }

    /// The tensors under the names that safetensors files of the same model have, with their heads' rotary layout
    /// noted.
    ///
    /// # Errors
    /// Two tensors would have one name.
    pub(crate) fn into_entries(
        self,
        heads: usize,
        shared_heads: usize,
    ) -> Result<BTreeMap<String, Entry<'a>>> {
        let architecture = self.value("general.architecture").and_then(Value::as_text).unwrap_or_default();
        let mut entries = BTreeMap::new();
        for (name, mut entry) in self.tensors {
            let pairs = || name::interleaved_heads(name, heads, shared_heads);
            entry.interleaved_heads = (architecture == "llama").then(pairs).flatten();
            let translated = name::translate(name, architecture);
            if entries.insert(translated.clone(), entry).is_some() {
                return Err(Error::twice(name, &translated).in_file(self.file));
            }
        }
        Ok(entries)
    }
}

/// Magic, version, and the numbers of tensors and of metadata values.
fn counts(reader: &mut Reader<'_>) -> Result<(u64, u64)> {
    if reader.take(4).ok() != Some(b"GGUF") {
        return Err(Error::format("is no gguf file"));
    }
    match reader.u32()? {
        2 | 3 => Ok((reader.u64()?, reader.u64()?)),
        version if matches!(version.swap_bytes(), 1..=3) => {
            Err(Error::unsupported("is a big-endian gguf file"))
        }
        version => Err(Error::unsupported(format!("gguf versions 2 and 3 are read, got: {version}"))),
    }
}

fn alignment(metadata: &BTreeMap<&str, Value<'_>>) -> Result<usize> {
    let key = "general.alignment";
    let Some(value) = metadata.get(key) else { return Ok(DEFAULT_ALIGNMENT) };
    let found = value.as_unsigned();
    found
        .filter(|alignment| alignment.is_power_of_two())
        .and_then(|alignment| usize::try_from(alignment).ok())
        .filter(|&alignment| alignment <= LARGEST_ALIGNMENT)
        .ok_or_else(|| {
            Error::format(format!("{key} must be a power of two to {LARGEST_ALIGNMENT}, got: {found:?}"))
        })
}

impl<'a> Info<'a> {
    fn read(reader: &mut Reader<'a>, alignment: usize) -> Result<Self> {
        let name = reader.string()?;
        Self::read_extent(name, reader, alignment).map_err(|error| error.of_tensor(name))
    }

    fn read_extent(name: &'a str, reader: &mut Reader<'a>, alignment: usize) -> Result<Self> {
        let axes = reader.u32()?;
        if axes > MOST_AXES {
            return Err(Error::format(format!("at most {MOST_AXES} axes are allowed, got: {axes}")));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            let extent = reader.u64()?;
            shape.push(
                usize::try_from(extent)
                    .map_err(|_| Error::format(format!("an axis is too long: {extent}")))?,
            );
        }
        shape.reverse();
        let encoding = block::encoding(reader.u32()?)?;
        let offset = reader.u64()?;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(Error::format(format!("its offset is no multiple of {alignment}: {offset}")));
        }
        let bytes = block::bytes(encoding, &shape)?;
        Ok(Self { name, shape, encoding, offset, bytes })
    }
}

/// Cuts the tensors out of the data.
fn place<'a>(
    mut infos: Vec<Info<'a>>,
    file: &'a str,
    data: &'a [u8],
) -> Result<BTreeMap<&'a str, Entry<'a>>> {
    infos.sort_by_key(|info| (info.offset, info.bytes));
    let mut tensors = BTreeMap::new();
    let mut end = 0;
    for info in infos {
        let range = usize::try_from(info.offset)
            .ok()
            .and_then(|from| Some(from..from.checked_add(info.bytes)?))
            .filter(|range| range.end <= data.len())
            .ok_or_else(|| {
                let message = format!(
                    "{} bytes at {} are not inside the data of: {}",
                    info.bytes,
                    info.offset,
                    data.len()
                );
                Error::format(message).of_tensor(info.name)
            })?;
        if range.start < end {
            return Err(
                Error::format(format!("overlaps another one at: {}", range.start)).of_tensor(info.name)
            );
        }
        end = range.end;
        let entry = Entry {
            file,
            shape: info.shape,
            encoding: info.encoding,
            bytes: &data[range],
            interleaved_heads: None,
        };
        if tensors.insert(info.name, entry).is_some() {
            return Err(Error::format("occurs twice").of_tensor(info.name));
        }
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests;
