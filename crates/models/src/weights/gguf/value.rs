//! Metadata values of GGUF. Arrays stay in the file's bytes and are decoded where they are read.
//!
//! Invariant: an [`Array`] was walked to its end when it was read, so that reading it again cannot leave the file. Only
//! whether its texts are UTF-8 is seen no sooner than they are read: vocabularies are long, and not always wanted.

use super::reader::Reader;
use crate::error::{Error, Result};

/// Arrays of arrays deeper than this are refused.
const DEEPEST: usize = 4;

/// A value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
    Text(&'a str),
    Array(Array<'a>),
}

/// Type codes of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    Text,
    Array,
    U64,
    I64,
    F64,
}

/// Consecutive values of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array<'a> {
    kind: Kind,
    count: u64,
    items: Reader<'a>,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Text,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let code = reader.u32()?;
        let known = usize::try_from(code).ok().and_then(|code| Self::ALL.get(code));
        known.copied().ok_or_else(|| Error::format(format!("no such type of metadata: {code}")))
    }
}

impl<'a> Value<'a> {
    /// Reads a type code and a value of that type.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self> {
        let kind = Kind::read(reader)?;
        Self::read_as(reader, kind, 0)
    }

    fn read_as(reader: &mut Reader<'a>, kind: Kind, depth: usize) -> Result<Self> {
        Ok(match kind {
            Kind::U8 => Self::Unsigned(reader.u8()?.into()),
            Kind::U16 => Self::Unsigned(reader.u16()?.into()),
            Kind::U32 => Self::Unsigned(reader.u32()?.into()),
            Kind::U64 => Self::Unsigned(reader.u64()?),
            Kind::I8 => Self::Signed(reader.i8()?.into()),
            Kind::I16 => Self::Signed(reader.i16()?.into()),
            Kind::I32 => Self::Signed(reader.i32()?.into()),
            Kind::I64 => Self::Signed(reader.i64()?),
            Kind::F32 => Self::Float(reader.f32()?.into()),
            Kind::F64 => Self::Float(reader.f64()?),
            Kind::Bool => match reader.u8()? {
                0 => Self::Bool(false),
                1 => Self::Bool(true),
                other => return Err(Error::format(format!("a truth value must be 0 or 1, got: {other}"))),
            },
            Kind::Text => Self::Text(reader.string()?),
            Kind::Array => Self::Array(Array::read(reader, depth)?),
        })
    }

    /// The value as a count or id.
    pub(crate) fn as_unsigned(self) -> Option<u64> {
        match self {
            Self::Unsigned(value) => Some(value),
            Self::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// The value as a number.
    pub(crate) fn as_float(self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(value),
            Self::Unsigned(value) => Some(value as f64),
            Self::Signed(value) => Some(value as f64),
            _ => None,
        }
    }

    /// The value as a truth value.
    pub(crate) fn as_bool(self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The value as text.
    pub(crate) fn as_text(self) -> Option<&'a str> {
        match self {
            Self::Text(value) => Some(value),
            _ => None,
        }
    }

    /// The value as an array.
    pub(crate) fn as_array(self) -> Option<Array<'a>> {
        match self {
            Self::Array(value) => Some(value),
            _ => None,
        }
    }
}

impl<'a> Array<'a> {
    fn read(reader: &mut Reader<'a>, depth: usize) -> Result<Self> {
        if depth >= DEEPEST {
            return Err(Error::format(format!("arrays are nested deeper than: {DEEPEST}")));
        }
        let kind = Kind::read(reader)?;
        let count = reader.u64()?;
        let array = Self { kind, count, items: *reader };
        // Each item takes at least one byte, so that a lying count ends at the end of the file.
        for _ in 0..count {
            match kind {
                Kind::Text => reader.skip_string()?,
                _ => drop(Value::read_as(reader, kind, depth + 1)?),
            }
        }
        Ok(array)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// The values, one by one, as far as they can be read: up to a text that is not UTF-8.
    pub(crate) fn iter(self) -> impl Iterator<Item = Value<'a>> {
        let mut items = self.items;
        (0..self.count).map_while(move |_| Value::read_as(&mut items, self.kind, 0).ok())
    }
}
