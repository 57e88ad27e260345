//! Values as Python and Gemma write them: where one ends in a text that grows, and what it stands for.

use super::tape::Tape;
use serde_json::{Map, Value};

/// Deepest nesting.
const DEPTH: usize = 64;

/// Gemma's quotation mark.
pub(super) const QUOTE: &str = "<|\"|>";

/// Reads a value's text up to one of these characters outside of strings and brackets. `None`: the text ends first.
pub(super) async fn operand(tape: &Tape, ends: &[char]) -> Option<String> {
    let (mut text, mut depth, mut quote) = (String::new(), 0_usize, None::<&str>);
    let mut from = 0;
    loop {
        let next = tape.peek().await?;
        if quote.is_none() && depth == 0 && ends.contains(&next) {
            return Some(text);
        }
        tape.next().await;
        text.push(next);
        match quote {
            Some(mark) => {
                if mark != QUOTE && next == '\\' {
                    text.extend(tape.next().await);
                } else if text[from..].ends_with(mark) {
                    quote = None;
                    from = text.len();
                }
            }
            None => {
                quote = ["'", "\"", QUOTE].into_iter().find(|mark| opens(&text[from..], mark));
                match next {
                    _ if quote.is_some() => from = text.len(),
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.checked_sub(1)?,
                    _ => {}
                }
            }
        }
    }
}

/// Whether a text outside of strings ends with a quotation mark. Gemma's holds a common one, which opens nothing.
fn opens(text: &str, mark: &str) -> bool {
    text.ends_with(mark) && (mark == QUOTE || !text.ends_with("<|\""))
}

/// What a text stands for; `None` if it is no value.
pub(super) fn read(text: &str) -> Option<Value> {
    let mut reader = Reader { rest: text };
    let value = reader.value(0)?;
    reader.space();
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, text: &str) -> bool {
        self.space();
        let found = self.rest.strip_prefix(text);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        self.space();
        if depth > DEPTH {
            return None;
        }
        if let Some(text) = self.string() {
            return Some(Value::from(text?));
        }
        for (open, close) in [("[", "]"), ("(", ")")] {
            if self.take(open) {
                return self.list(close, depth);
            }
        }
        if self.take("{") {
            return self.object(depth);
        }
        let end = self.rest.find([',', ']', ')', '}', ':']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word.trim() {
            "True" | "true" => Some(Value::from(true)),
            "False" | "false" => Some(Value::from(false)),
            "None" | "null" => Some(Value::Null),
            number => serde_json::from_str::<serde_json::Number>(number).ok().map(Value::from),
        }
    }

    fn list(&mut self, close: &str, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        loop {
            if self.take(close) {
                return Some(Value::from(items));
            }
            items.push(self.value(depth + 1)?);
            if !self.take(",") {
                return self.take(close).then(|| Value::from(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Value> {
        let mut fields = Map::new();
        loop {
            if self.take("}") {
                return Some(Value::from(fields));
            }
            self.space();
            let key = match self.string() {
                Some(key) => key?,
                None => {
                    let (key, _) = self.rest.split_once(':')?;
                    self.rest = &self.rest[key.len()..];
                    key.trim().to_owned()
                }
            };
            if !self.take(":") {
                return None;
            }
            fields.insert(key, self.value(depth + 1)?);
            if !self.take(",") {
                return self.take("}").then(|| Value::from(fields));
            }
        }
    }

    /// A string, if one opens here; inside it `None` if it does not close.
    fn string(&mut self) -> Option<Option<String>> {
        let mark = [QUOTE, "'", "\""].into_iter().find(|mark| self.rest.starts_with(mark))?;
        let inside = &self.rest[mark.len()..];
        if mark == QUOTE {
            let Some((text, rest)) = inside.split_once(QUOTE) else { return Some(None) };
            self.rest = rest;
            return Some(Some(text.to_owned()));
        }
        let (mut text, mut characters) = (String::new(), inside.chars());
        loop {
            match characters.next() {
                None => return Some(None),
                Some('\\') => match escaped(&mut characters) {
                    Some(character) => text.push(character),
                    None => return Some(None),
                },
                Some(character) if mark.starts_with(character) => {
                    self.rest = characters.as_str();
                    return Some(Some(text));
                }
                Some(character) => text.push(character),
            }
        }
    }
}

/// The character that an escape of Python's strings stands for.
fn escaped(characters: &mut std::str::Chars<'_>) -> Option<char> {
    let digits = match characters.next()? {
        'n' => return Some('\n'),
        't' => return Some('\t'),
        'r' => return Some('\r'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        other => return Some(other),
    };
    let code: String = characters.by_ref().take(digits).collect();
    char::from_u32(u32::from_str_radix(&code, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_as_python_and_gemma_write_them() {
        for (text, want) in [
            ("'it\\'s \\u00fc\\n'", Some(json!("it's ü\n"))),
            ("\"a'b\"", Some(json!("a'b"))),
            ("<|\"|>a \"b\" 'c' }<|\"|>", Some(json!("a \"b\" 'c' }"))),
            (" -1.5e3 ", Some(json!(-1500.0))),
            ("True", Some(json!(true))),
            ("None", Some(json!(null))),
            ("[1, 'a', (2, 3), ]", Some(json!([1, "a", [2, 3]]))),
            ("{'a': {b: [<|\"|>c<|\"|>]}, \"d\": false}", Some(json!({"a": {"b": ["c"]}, "d": false}))),
            ("{}", Some(json!({}))),
            ("'open", None),
            ("[1, 2", None),
            ("1 2", None),
            ("f(x)", None),
            ("{'a' 1}", None),
        ] {
            assert_eq!(read(text), want, "{text}");
        }
        assert_eq!(read(&("[".repeat(100) + &"]".repeat(100))), None);
    }
}
