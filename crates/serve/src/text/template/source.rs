//! Rewrites the three constructs in which the engine differs from Jinja on Python.
//!
//! - `{% generation %}` marks the assistant's own text for training; for a prompt it is transparent, so it becomes
//!   a block that is always taken.
//! - The iterable of a `for` tag goes through the filter [`ITERABLE`], which refuses what Python refuses (`None`
//!   above all, where the engine would loop zero times).
//! - `{{ a|safe + b }}`: Python escapes what is added to a safe string, so each operand of such a sum goes through
//!   the filter [`MARKUP`].
//!
//! Invariants: strings, comments and raw blocks are left alone, and no tag changes its line.

use std::borrow::Cow;

/// Name of the filter that passes on what Python can iterate over; no template spells it by chance.
pub(super) const ITERABLE: &str = "python_iterable__";

/// Name of the filter that escapes what is added to a safe string.
pub(super) const MARKUP: &str = "python_markup__";

/// The template as the engine takes it.
pub(super) fn rewrite(source: &str) -> String {
    let mut out = String::with_capacity(source.len() + 256);
    let mut rest = source;
    let mut raw = false;
    while let Some(start) = rest.find('{') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let taken = match rest.as_bytes().get(1) {
            Some(b'#') if !raw => rest.find("#}").map_or(rest.len(), |end| end + 2),
            Some(b'{') if !raw => 2 + code_end(&rest[2..], "}}"),
            Some(b'%') => 2 + code_end(&rest[2..], "%}"),
            _ => 1,
        };
        let tag = &rest[..taken];
        let (written, taken) = match tag.get(..2) {
            Some("{%") if !raw || tag_name(tag) == "endraw" => {
                raw = tag_name(tag) == "raw";
                (rewrite_tag(tag), taken)
            }
            Some("{{") if !raw => (rewrite_sum(tag), taken),
            _ if raw => (Cow::Borrowed("{"), 1),
            _ => (Cow::Borrowed(tag), taken),
        };
        out.push_str(&written);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out
}

/// Bytes up to and with `close`, which does not count inside a string. All of `code` if it never closes.
fn code_end(code: &str, close: &str) -> usize {
    let bytes = code.as_bytes();
    let mut quote = None;
    let mut at = 0;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, _) if bytes[at..].starts_with(close.as_bytes()) => return at + close.len(),
            _ => {}
        }
        at += 1;
    }
    code.len()
}

/// The words of a tag without its braces and its signs for white space: prefix, inside, suffix.
fn parts(tag: &str) -> Option<(&str, &str, &str)> {
    let inner = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let lead = inner.strip_prefix(['-', '+']).map_or(2, |_| 3);
    let tail = inner.strip_suffix(['-', '+']).map_or(2, |_| 3);
    (tag.len() >= lead + tail).then(|| (&tag[..lead], &tag[lead..tag.len() - tail], &tag[tag.len() - tail..]))
}

fn tag_name(tag: &str) -> &str {
    parts(tag).and_then(|(_, inside, _)| inside.split_whitespace().next()).unwrap_or_default()
}

fn rewrite_tag(tag: &str) -> Cow<'_, str> {
    let Some((prefix, inside, suffix)) = parts(tag) else { return Cow::Borrowed(tag) };
    let lines = || "\n".repeat(inside.matches('\n').count());
    match inside.trim() {
        "generation" => Cow::Owned(format!("{prefix} if true{} {suffix}", lines())),
        "endgeneration" => Cow::Owned(format!("{prefix} endif{} {suffix}", lines())),
        _ if tag_name(tag) == "for" => match iterable(inside) {
            Some((start, end)) => {
                let (head, iterable, tail) = (&inside[..start], &inside[start..end], &inside[end..]);
                Cow::Owned(format!("{prefix}{head} ({iterable})|{ITERABLE} {tail}{suffix}"))
            }
            None => Cow::Borrowed(tag),
        },
        _ => Cow::Borrowed(tag),
    }
}

/// `{{ a + b|safe }}` with both operands through the filter; anything but a plain sum with a safe operand stays.
fn rewrite_sum(tag: &str) -> Cow<'_, str> {
    let inner = || tag.strip_prefix("{{")?.strip_suffix("}}");
    let Some(inner) = inner().filter(|inner| inner.contains("safe")) else { return Cow::Borrowed(tag) };
    let lead = if inner.starts_with(['-', '+']) { 1 } else { 0 };
    let tail = if inner[lead..].ends_with(['-', '+']) { 1 } else { 0 };
    let expression = &inner[lead..inner.len() - tail];
    let plain = |word: &str| !matches!(word, "if" | "else" | "and" | "or" | "not" | "in" | "is");
    let Some(operands) = operands(expression) else { return Cow::Borrowed(tag) };
    let is_safe = |operand: &&str| {
        operand.trim_end().strip_suffix("safe").is_some_and(|head| head.trim_end().ends_with('|'))
    };
    if operands.len() < 2
        || !operands.iter().any(is_safe)
        || !top_level_words(expression).iter().all(|(_, word)| plain(word))
    {
        return Cow::Borrowed(tag);
    }
    let sum: Vec<String> = operands.iter().map(|operand| format!("({operand})|{MARKUP}")).collect();
    let (before, after) = (&inner[..lead], &inner[inner.len() - tail..]);
    Cow::Owned(format!("{{{{{before} {} {after}}}}}", sum.join(" + ")))
}

/// The operands of a sum; `None` if another operator of the same or a lower rank stands between them.
fn operands(expression: &str) -> Option<Vec<&str>> {
    let bytes = expression.as_bytes();
    let (mut operands, mut depth, mut from, mut at) = (Vec::new(), 0usize, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' | b'\'' => at = string_end(bytes, at),
            b'+' if depth == 0 => {
                operands.push(&expression[from..at]);
                from = at + 1;
            }
            b'-' | b'~' | b'<' | b'>' | b'=' | b'!' | b',' if depth == 0 => return None,
            _ => {}
        }
        at += 1;
    }
    operands.push(expression.get(from..).unwrap_or_default());
    Some(operands)
}

/// Where the string that opens at `start` closes; past the end if it does not.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != bytes[start] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at
}

/// Where the iterable of `for … in ITERABLE [if …] [recursive]` stands.
fn iterable(inside: &str) -> Option<(usize, usize)> {
    let words = top_level_words(inside);
    let start = words.iter().find(|(_, word)| *word == "in").map(|(at, _)| at + 2)?;
    let end = words
        .iter()
        .find(|(at, word)| *at >= start && matches!(*word, "if" | "recursive"))
        .map_or(inside.len(), |(at, _)| *at);
    (!inside[start..end].trim().is_empty()).then_some((start, end))
}

/// The bare words outside of strings and brackets, with their places.
fn top_level_words(code: &str) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let (mut words, mut depth, mut at) = (Vec::new(), 0usize, 0);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' | b'\'' => at = string_end(bytes, at),
            byte if is_word(byte) => {
                while at + 1 < bytes.len() && is_word(bytes[at + 1]) {
                    at += 1;
                }
                let after_dot = start > 0 && bytes[start - 1] == b'.';
                if depth == 0 && !after_dot {
                    words.push((start, &code[start..=at]));
                }
            }
            _ => {}
        }
        at += 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_blocks_become_transparent_and_keep_their_white_space_signs() {
        assert_eq!(
            rewrite("a{%- generation -%}b{% endgeneration %}{{ '{% generation %}' }}"),
            "a{%- if true -%}b{% endif %}{{ '{% generation %}' }}"
        );
    }

    #[test]
    fn iterables_go_through_the_filter_up_to_the_condition() {
        for (tag, want) in [
            ("{% for x in a %}", "{% for x in ( a )|python_iterable__ %}"),
            (
                "{%- for k, v in d.items() if v in w -%}",
                "{%- for k, v in ( d.items() )|python_iterable__ if v in w -%}",
            ),
            ("{% for x in f(a if b else c) %}", "{% for x in ( f(a if b else c) )|python_iterable__ %}"),
            ("{% for x in ' if ' recursive %}", "{% for x in ( ' if ' )|python_iterable__ recursive %}"),
            ("{% for x in a['in']['if'].if_ %}", "{% for x in ( a['in']['if'].if_ )|python_iterable__ %}"),
        ] {
            let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(squeezed(&rewrite(tag)), squeezed(want));
        }
    }

    #[test]
    fn sums_with_a_safe_operand_are_escaped_and_others_stay() {
        assert_eq!(
            rewrite("{{- 'a+b'|safe + f(c + d) -}}"),
            "{{- ( 'a+b'|safe )|python_markup__ + ( f(c + d) )|python_markup__ -}}"
        );
        for text in ["{{ a|safe }}", "{{ a + b }}", "{{ a|safe ~ b + c }}", "{{ a|safe + b if c else d }}"] {
            assert_eq!(rewrite(text), text);
        }
    }

    #[test]
    fn comments_raw_blocks_strings_and_broken_tags_stay() {
        for text in [
            "{# {% generation %} #}",
            "{% raw %}{% for x in a %}{{ {% generation %}{% endraw %}",
            "{{ \"{% for x in a %} \\\" }}\" }}",
            "{% for x %}",
            "{% unclosed ' %}",
            "{",
            "{%",
            "{%-%}",
            "{% set a = 'x' %}{{ a }}",
        ] {
            assert_eq!(rewrite(text), text);
        }
    }
}
