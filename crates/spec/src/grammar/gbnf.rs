//! GBNF, the grammar notation of llama.cpp, as Lark.
//!
//! Both are rules of sequences, alternatives, groups and repetitions. What differs is written over, word by word: `::=`, the
//! rule that a text begins with, names, classes of characters, escapes and comments. A rule goes on over lines that are in
//! brackets or begin with `|`, and ends where the next one begins.
//!
//! Source: <https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md>

use super::Error;
use std::fmt::Write;

/// One word of a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Name(String),
    Defines,
    /// As Lark has it already: a text, a class, an operator.
    Lark(String),
}

/// Writes a grammar in Lark's notation; the rule `root` becomes `start`.
pub(super) fn to_lark(text: &str) -> Result<String, Error> {
    let words = words(text)?;
    let mut lark = String::new();
    let defines = |index: usize| words.get(index).is_some_and(|(word, _)| *word == Word::Defines);
    for (index, (word, line)) in words.iter().enumerate() {
        match word {
            Word::Name(name) if defines(index + 1) => {
                let _ = write!(lark, "\n{}", rule(name));
            }
            Word::Defines => match index.checked_sub(1).map(|before| &words[before].0) {
                Some(Word::Name(_)) => lark.push(':'),
                _ => return Err(at(*line, "no rule is named before ::=")),
            },
            _ if lark.is_empty() => return Err(at(*line, "a grammar begins with a rule")),
            Word::Name(name) => {
                let _ = write!(lark, " {}", rule(name));
            }
            Word::Lark(text) if matches!(text.as_bytes(), [b'*' | b'+' | b'?' | b'{', ..]) => {
                lark.push_str(text)
            }
            Word::Lark(text) => {
                let _ = write!(lark, " {text}");
            }
        }
    }
    match words.iter().any(|(word, _)| *word == Word::Name("root".to_owned())) {
        true => Ok(lark),
        false => Err(Error::new("a grammar has a rule that is named: root")),
    }
}

/// A rule's name in Lark: in small letters, and apart from those that only differ in others.
fn rule(name: &str) -> String {
    if name == "root" {
        return "start".to_owned();
    }
    let mut lark = "r_".to_owned();
    for character in name.chars() {
        match character {
            'A'..='Z' => {
                lark.push_str("_u");
                lark.push(character.to_ascii_lowercase());
            }
            '_' => lark.push_str("__"),
            other => lark.push(other),
        }
    }
    lark
}

fn at(line: usize, message: &str) -> Error {
    Error::new(format!("line {line} of the grammar: {message}"))
}

/// The words of a grammar, each with its line.
fn words(text: &str) -> Result<Vec<(Word, usize)>, Error> {
    let mut rest = text;
    let mut words = Vec::new();
    loop {
        let trimmed = rest.trim_start();
        let line = 1 + text[..text.len() - trimmed.len()].matches('\n').count();
        let Some(first) = trimmed.chars().next() else { return Ok(words) };
        let (word, length) = match first {
            '#' => {
                rest = trimmed.split_once('\n').map_or("", |(_, rest)| rest);
                continue;
            }
            ':' if trimmed.starts_with("::=") => (Word::Defines, 3),
            '"' => literal(trimmed, line)?,
            '[' => class(trimmed, line)?,
            '{' => {
                let length = trimmed.find('}').ok_or_else(|| at(line, "a { is not closed"))? + 1;
                (Word::Lark(trimmed[..length].to_owned()), length)
            }
            '.' => (Word::Lark("/(?s:.)/".to_owned()), 1),
            '|' | '(' | ')' | '*' | '+' | '?' => (Word::Lark(first.to_string()), 1),
            letter if letter.is_ascii_alphanumeric() || letter == '_' => {
                let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                let length = trimmed.bytes().take_while(|&byte| inside(byte)).count();
                (Word::Name(trimmed[..length].to_owned()), length)
            }
            other => return Err(at(line, &format!("not understood: {other:?}"))),
        };
        words.push((word, line));
        rest = &trimmed[length..];
    }
}

/// The characters up to one that closes, with escapes resolved, each with whether it was escaped; and the bytes of all.
fn characters(text: &str, close: char, line: usize) -> Result<(Vec<(char, bool)>, usize), Error> {
    let mut found = Vec::new();
    let mut rest = text.char_indices().skip(1);
    while let Some((place, character)) = rest.next() {
        match character {
            _ if character == close => return Ok((found, place + close.len_utf8())),
            '\\' => {
                let (_, escape) = rest.next().ok_or_else(|| at(line, "a text is not closed"))?;
                let digits = match escape {
                    'x' => 2,
                    'u' => 4,
                    'U' => 8,
                    _ => 0,
                };
                let number: String = rest.by_ref().take(digits).map(|(_, digit)| digit).collect();
                let resolved = match escape {
                    'n' => Some('\n'),
                    't' => Some('\t'),
                    'r' => Some('\r'),
                    'x' | 'u' | 'U' => u32::from_str_radix(&number, 16).ok().and_then(char::from_u32),
                    other => Some(other),
                };
                found.push((resolved.ok_or_else(|| at(line, "an escape stands for no character"))?, true));
            }
            other => found.push((other, false)),
        }
    }
    Err(at(line, "a text or a class is not closed"))
}

fn literal(text: &str, line: usize) -> Result<(Word, usize), Error> {
    let (characters, length) = characters(text, '"', line)?;
    let plain: String = characters.iter().map(|(character, _)| *character).collect();
    Ok((Word::Lark(serde_json::Value::String(plain).to_string()), length))
}

fn class(text: &str, line: usize) -> Result<(Word, usize), Error> {
    let (characters, length) = characters(text, ']', line)?;
    let mut class = String::from("/[");
    for (index, &(character, escaped)) in characters.iter().enumerate() {
        match character {
            '^' if index == 0 && !escaped => class.push('^'),
            '-' if !escaped && index > 0 && index + 1 < characters.len() => class.push('-'),
            other if other.is_ascii_alphanumeric() => class.push(other),
            other => {
                let _ = write!(class, "\\u{{{:x}}}", u32::from(other));
            }
        }
    }
    if class.len() <= "/[^".len() {
        return Err(at(line, "a class has no character"));
    }
    class.push_str("]/");
    Ok((Word::Lark(class), length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_over_word_by_word() {
        let gbnf = "# a list\nroot ::= item (\", \" item){0,2}\n\nItem-2 ::= [a-z\\]^-] |\n  \"\\x41\\\"\" .+ # more\nitem ::= Item-2";
        let lark = to_lark(gbnf).expect("it is one");
        let expected = "\nstart: r_item ( \", \" r_item ){0,2}\nr__uitem-2: /[a-z\\u{5d}\\u{5e}\\u{2d}]/ | \"A\\\"\" /(?s:.)/+\nr_item: r__uitem-2";
        assert_eq!(lark, expected);
        let negated = to_lark("root ::= [^\"\\n]").expect("it is one");
        assert_eq!(negated, "\nstart: /[^\\u{22}\\u{a}]/");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (gbnf, message) in [
            ("root ::= \"a", "line 1 of the grammar: a text or a class is not closed"),
            ("root ::= a\n\na ::= [", "line 3 of the grammar: a text or a class is not closed"),
            ("root ::= []", "line 1 of the grammar: a class has no character"),
            ("root ::= &", "line 1 of the grammar: not understood: '&'"),
            ("root ::= \"\\xzz\"", "line 1 of the grammar: an escape stands for no character"),
            ("::= \"a\"", "line 1 of the grammar: no rule is named before ::="),
            ("\"a\"", "line 1 of the grammar: a grammar begins with a rule"),
            ("a ::= \"a\"", "a grammar has a rule that is named: root"),
            ("root ::= \"a\"{2", "line 1 of the grammar: a { is not closed"),
        ] {
            assert_eq!(to_lark(gbnf).map_err(|error| error.to_string()), Err(message.to_owned()), "{gbnf}");
        }
    }
}
