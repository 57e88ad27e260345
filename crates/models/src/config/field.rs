//! Typed access to the fields of a JSON object. `null` is absence; a value of the wrong type is an error with the
//! field's name.

use super::missing;
use crate::error::{Error, Result, printable};
use serde_json::{Map, Value};
use tandem_contracts::text::TokenId;

/// A JSON object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn get<T>(self, key: &str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let wrong =
                    || Error::config(format!("{key} must be {what}, got: {}", printable(&value.to_string())));
                read(value).map(Some).ok_or_else(wrong)
            }
        }
    }

    /// A whole number from 1 to `most`.
    pub(crate) fn count(self, key: &str, most: u64) -> Result<Option<usize>> {
        self.get(key, &format!("a whole number from 1 to {most}"), |value| {
            value
                .as_u64()
                .filter(|count| (1..=most).contains(count))
                .and_then(|count| usize::try_from(count).ok())
        })
    }

    /// A whole number from 0 to `most`.
    pub(crate) fn whole(self, key: &str, most: u64) -> Result<Option<usize>> {
        self.get(key, &format!("a whole number from 0 to {most}"), |value| {
            value.as_u64().filter(|count| *count <= most).and_then(|count| usize::try_from(count).ok())
        })
    }

    /// A finite number above 0.
    pub(crate) fn positive(self, key: &str) -> Result<Option<f64>> {
        self.get(key, "a number above 0", |value| {
            value.as_f64().filter(|number| *number > 0.0 && *number <= f64::from(f32::MAX))
        })
    }

    /// As [`Self::positive`], of a field that must be there.
    pub(crate) fn required(self, key: &str) -> Result<f32> {
        Ok(self.positive(key)?.ok_or_else(|| missing(key))? as f32)
    }

    /// A truth value.
    pub(crate) fn flag(self, key: &str) -> Result<Option<bool>> {
        self.get(key, "true or false", Value::as_bool)
    }

    /// Text.
    pub(crate) fn text(self, key: &str) -> Result<Option<&'a str>> {
        self.get(key, "text", Value::as_str)
    }

    /// A list.
    pub(crate) fn list(self, key: &str) -> Result<Option<&'a Vec<Value>>> {
        self.get(key, "a list", Value::as_array)
    }

    /// An object.
    pub(crate) fn object(self, key: &str) -> Result<Option<Fields<'a>>> {
        self.get(key, "an object", |value| value.as_object().map(Fields))
    }

    /// One token id or a list of them; none where the field is absent.
    pub(crate) fn ids(self, key: &str) -> Result<Vec<TokenId>> {
        let id = |value: &Value| value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        let ids = self.get(key, "a token id or a list of them", |value| match value {
            Value::Array(values) => values.iter().map(id).collect(),
            other => id(other).map(|id| vec![id]),
        })?;
        Ok(ids.unwrap_or_default())
    }
}
