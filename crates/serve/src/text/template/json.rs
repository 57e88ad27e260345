//! `tojson` as chat templates know it: Python's `json.dumps` with `ensure_ascii`, `indent`, `separators` and
//! `sort_keys`, with the defaults that the `transformers` library gives them.
//!
//! Invariant: equal values and arguments give the bytes that `json.dumps` gives, insertion order included.

use minijinja::{
    Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};
use std::fmt::Write as _;

/// The filter `tojson`. Arguments may be positional, in the order of the reference.
pub(super) fn tojson(value: &Value, positional: Option<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let ensure_ascii = match positional {
        Some(flag) => Some(flag),
        None => kwargs.get("ensure_ascii")?,
    };
    let indent = match kwargs.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) if indent.as_str().is_some() => indent.as_str().map(str::to_owned),
        Some(indent) => Some(" ".repeat(usize::try_from(indent.as_i64().unwrap_or(0)).unwrap_or(0))),
    };
    let (item, key) = match kwargs.get::<Option<Value>>("separators")?.filter(|pair| !pair.is_none()) {
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let sort_keys = kwargs.get::<Option<Value>>("sort_keys")?.is_some_and(|flag| flag.is_true());
    kwargs.assert_all_used()?;
    let ensure_ascii = ensure_ascii.is_some_and(|flag| flag.is_true());
    let mut writer = Writer { out: String::new(), ensure_ascii, indent, item, key, sort_keys };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct Writer {
    out: String,
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
}

impl Writer {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => self.out.push_str(&scalar(value)),
            ValueKind::Seq => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.bracketed('[', ']', items.len(), depth, |writer, index| {
                    writer.value(&items[index], depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort_by_key(ToString::to_string);
                }
                self.bracketed('{', '}', keys.len(), depth, |writer, index| {
                    let key = &keys[index];
                    match key.as_str() {
                        Some(name) => writer.string(name),
                        None => writer.string(&scalar(key)),
                    }
                    let separator = writer.key.clone();
                    writer.out.push_str(&separator);
                    writer.value(&value.get_item(key)?, depth + 1)
                })?;
            }
            ValueKind::Undefined => return Err(not_serializable("Undefined")),
            ValueKind::Iterable => return Err(not_serializable("generator")),
            ValueKind::Bytes => return Err(not_serializable("bytes")),
            _ => return Err(not_serializable("function")),
        }
        Ok(())
    }

    fn bracketed(
        &mut self,
        open: char,
        close: char,
        count: usize,
        depth: usize,
        mut entry: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for index in 0..count {
            if index > 0 {
                let separator = self.item.clone();
                self.out.push_str(&separator);
            }
            self.line(depth + 1);
            entry(self, index)?;
        }
        if count > 0 {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                control if u32::from(control) < 0x20 => self.escape(control),
                other if self.ensure_ascii && !(' '..='~').contains(&other) => self.escape(other),
                other => self.out.push(other),
            }
        }
        self.out.push('"');
    }

    fn escape(&mut self, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(self.out, "\\u{unit:04x}");
        }
    }
}

fn not_serializable(kind: &str) -> Error {
    Error::new(ErrorKind::BadSerialization, format!("Object of type {kind} is not JSON serializable"))
}

/// A scalar that is not a string.
fn scalar(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => value.is_true().to_string(),
        _ if value.is_integer() => value.to_string(),
        _ => f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float),
    }
}

/// A float as Python's `repr` writes it: the shortest digits that read back, with an exponent outside 1e-4 to 1e16.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = number.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::Environment;

    fn render(expression: &str) -> String {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        environment.render_str(&format!("{{{{ {expression} }}}}"), ()).expect("renders")
    }

    /// Every expected value was printed by Python 3.11's `json.dumps`.
    #[test]
    fn json_is_python_json() {
        for (expression, want) in [
            (r#"{"b": [1, 2.0, true, none], "a": {}} | tojson"#, r#"{"b": [1, 2.0, true, null], "a": {}}"#),
            (r#"{"b": 1, "a": 2} | tojson(sort_keys=true)"#, r#"{"a": 2, "b": 1}"#),
            (r#"[1, {"a": 2}] | tojson(separators=(",", ":"))"#, r#"[1,{"a":2}]"#),
            (r#"[1, {"a": []}] | tojson(indent=2)"#, "[\n  1,\n  {\n    \"a\": []\n  }\n]"),
            (r#"[1] | tojson(indent="\t")"#, "[\n\t1\n]"),
            (r#"[[]] | tojson(indent=0)"#, "[\n[]\n]"),
            (r#""<é𝄞/'\"> " | tojson"#, r#""<é𝄞/'\"> ""#),
            (r#""é𝄞" | tojson(ensure_ascii=true)"#, r#""\u00e9\ud834\udd1e""#),
            (r#""é" | tojson(true)"#, r#""\u00e9""#),
            (
                r#"[1e16, 1e15, 0.0001, 0.00001, -0.0, 1e300] | tojson"#,
                "[1e+16, 1000000000000000.0, 0.0001, 1e-05, -0.0, 1e+300]",
            ),
            (r#"{2: 2, true: 3, none: 4} | tojson"#, r#"{"2": 2, "true": 3, "null": 4}"#),
        ] {
            assert_eq!(render(expression), want, "{expression}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        let text = "\u{0}\u{8}\u{c}\n\r\t\u{1f}\u{7f}\u{2028}";
        let out =
            environment.render_str("{{ x | tojson }}", minijinja::context! { x => text }).expect("renders");
        assert_eq!(out, "\"\\u0000\\b\\f\\n\\r\\t\\u001f\u{7f}\u{2028}\"");
    }

    #[test]
    fn what_python_cannot_serialise_is_refused() {
        let mut environment = Environment::new();
        environment.add_filter("tojson", tojson);
        let error = environment.render_str("{{ missing | tojson }}", ()).expect_err("refused");
        assert_eq!(error.detail(), Some("Object of type Undefined is not JSON serializable"));
    }
}
