//! JSON as Python writes it: its numbers may be `Infinity`, `-Infinity` and `NaN`, which are no JSON.

use serde_json::Value;

/// Reads JSON. Where it is none because of such numbers, they are read as `null`.
pub(super) fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    serde_json::from_slice(bytes).or_else(|error| {
        let replaced = without_infinities(bytes);
        if replaced.len() == bytes.len() { Err(error) } else { serde_json::from_slice(&replaced) }
    })
}

fn without_infinities(bytes: &[u8]) -> Vec<u8> {
    const NAMES: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let (mut replaced, mut rest, mut inside) = (Vec::with_capacity(bytes.len()), bytes, false);
    while let [first, ..] = rest {
        let length = match (inside, NAMES.iter().find(|name| rest.starts_with(name))) {
            (false, Some(name)) => {
                replaced.extend_from_slice(b"null");
                name.len()
            }
            _ => {
                // A backslash takes the next byte with it, which may be a quote.
                let length = if inside && *first == b'\\' { rest.len().min(2) } else { 1 };
                replaced.extend_from_slice(&rest[..length]);
                inside ^= *first == b'"';
                length
            }
        };
        rest = &rest[length..];
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_that_are_none_are_null_outside_of_text() {
        let text = r#"{"limits": [-Infinity, Infinity, NaN, 1], "it's \"NaN\\": "Infinity"}"#;
        let expected = json!({ "limits": [null, null, null, 1], "it's \"NaN\\": "Infinity" });
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        for malformed in ["", "{", "[Infinit]", "\"NaN", "[NaN", "\"\\"] {
            assert!(parse(malformed.as_bytes()).is_err(), "{malformed}");
        }
    }
}
