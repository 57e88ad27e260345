//! JSON as Python writes it: its numbers may be `Infinity`, `-Infinity` and `NaN`, which are no JSON.
//!
//! They become text of that name, so that a field that has no use for them says so.

use serde_json::Value;

/// Reads JSON. Where it is none because of such numbers, they are read as texts.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|error| {
        let quoted = with_names_quoted(bytes);
        if quoted == bytes { Err(error) } else { serde_json::from_slice(&quoted) }
    })
}

fn with_names_quoted(bytes: &[u8]) -> Vec<u8> {
    const NAMES: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut quoted, mut rest, mut inside) = (Vec::with_capacity(bytes.len()), bytes, false);
    while let [first, ..] = rest {
        let length = match (inside, NAMES.iter().find(|name| rest.starts_with(name))) {
            (false, Some(name)) => {
                quoted.extend([b"\"", *name, b"\""].concat());
                name.len()
            }
            _ => {
                // A backslash takes the next byte with it, which may be a quote.
                let length = if inside && *first == b'\\' { rest.len().min(2) } else { 1 };
                quoted.extend_from_slice(&rest[..length]);
                inside ^= *first == b'"';
                length
            }
        };
        rest = &rest[length..];
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_are_none_are_texts() {
        let text = r#"{"limits": [-Infinity, Infinity, NaN, 1], "it's \"NaN\\": "Infinity"}"#;
        let expected = json!({ "limits": ["-Infinity", "Infinity", "NaN", 1], "it's \"NaN\\": "Infinity" });
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        for malformed in ["", "{", "[Infinit]", "\"NaN", "[NaN", "\"\\"] {
            assert!(parse(malformed.as_bytes()).is_err(), "{malformed}");
        }
    }
}
