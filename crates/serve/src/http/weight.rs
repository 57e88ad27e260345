//! What a body takes in memory once it is JSON's values, known from its bytes as they come.
//!
//! A list within a list is four bytes on the wire and some hundred and forty times as much in memory, so bytes alone bound
//! nothing.
//!
//! Invariant: what JSON of any shape holds as [`serde_json::Value`] is no more than its weight, however its bytes are cut.

/// Bytes of one more value of a list, of which up to half has no use yet, or of a key or its value in an object.
const VALUE: usize = 160;
/// Bytes of the first few places of a list or an object, which it has from its first value on.
const OPENED: usize = 480;

/// The weight of what has come so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    bytes: usize,
    /// Whether the next byte stands in a string, and whether behind a backslash there.
    quoted: bool,
    escaped: bool,
}

impl Weight {
    /// Adds what comes next.
    pub(super) fn add(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len();
        for &byte in chunk {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.quoted,
                b'"' => self.quoted = !self.quoted,
                _ if self.quoted => {}
                b',' | b':' => self.bytes += VALUE,
                b'[' | b'{' => self.bytes += OPENED,
                _ => {}
            }
        }
    }

    /// In bytes.
    pub(super) fn total(self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn weight(text: &str) -> usize {
        let mut weight = Weight::default();
        weight.add(text.as_bytes());
        weight.total()
    }

    /// Bytes that a value holds beside itself. Maps do not tell what they have in store.
    fn held(value: &Value) -> usize {
        match value {
            Value::Array(items) => {
                items.capacity() * size_of::<Value>() + items.iter().map(held).sum::<usize>()
            }
            Value::Object(fields) => {
                let field = |(key, value): (&String, &Value)| {
                    size_of::<(u64, String, Value)>() + key.capacity() + held(value)
                };
                fields.iter().map(field).sum()
            }
            Value::String(text) => text.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn text_weighs_its_bytes_and_what_stands_around_it_more() {
        assert_eq!(weight("\"a, b: [c] {d}\""), 15);
        assert_eq!(weight(r#""a\",\\", 1"#), 11 + VALUE);
        assert_eq!(weight(r#"{"a": [1, 2]}"#), 13 + 2 * OPENED + 2 * VALUE);
    }

    /// Just beyond where a list doubles its places it has the most to spare.
    #[test]
    fn no_shape_holds_more_than_its_weight() {
        for item in
            ["0", "\"\"", "\"a\"", "[]", "{}", "[0]", "[[0]]", "[0,0,0,0,0]", r#"{"":0}"#, r#"{"a":{"b":0}}"#]
        {
            let body = format!("[{}0]", format!("{item},").repeat((1 << 12) + 1));
            let value = serde_json::from_str(&body).expect("JSON");
            let (held, weight) = (held(&value) + size_of::<Value>(), weight(&body));
            assert!(held <= weight, "{item}: {held} of {weight}");
        }
    }

    proptest! {
        #[test]
        fn the_cut_makes_no_difference(text in r#"[\\"\[\]{},:a]{0,40}"#, cut in 0_usize..40) {
            let (head, tail) = text.split_at(cut.min(text.len()));
            let mut cut = Weight::default();
            cut.add(head.as_bytes());
            cut.add(tail.as_bytes());
            prop_assert_eq!(cut.total(), weight(&text));
        }
    }
}
