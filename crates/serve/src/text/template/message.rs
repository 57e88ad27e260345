//! The engine's refusals in the reference's words.
//!
//! A template's own refusal (`raise_exception`) comes through as it is. Where Python itself refuses, clients and
//! template authors know its words, so the engine's are translated as far as they tell what was wrong.

use super::python::no_attribute;
use minijinja::Error;
use std::error::Error as _;

/// What to tell the client about a failed rendering.
pub(super) fn message(error: &Error) -> String {
    let error = innermost(error);
    let Some(detail) = error.detail() else {
        return format!("the chat template failed: {}", error.kind());
    };
    undefined(detail)
        .or_else(|| operator(detail))
        .or_else(|| length(detail))
        .or_else(|| filter(detail))
        .unwrap_or_else(|| detail.to_owned())
}

/// The cause at the end of the engine's chain.
fn innermost(error: &Error) -> &Error {
    let mut error = error;
    while let Some(cause) = error.source().and_then(|source| source.downcast_ref::<Error>()) {
        error = cause;
    }
    error
}

/// "… (`a.b` is undefined, from line 3)", with or without the part before.
fn undefined(detail: &str) -> Option<String> {
    let start = detail.find('`')?;
    let (expression, rest) = detail[start + 1..].split_once('`')?;
    rest.starts_with(" is undefined").then(|| {
        let attribute = expression.rsplit_once('.').map(|(_, name)| name).or_else(|| {
            let inside = expression.strip_suffix(']')?.rsplit_once('[')?.1;
            inside.strip_prefix(['\'', '"'])?.strip_suffix(['\'', '"'])
        });
        attribute.map_or_else(|| format!("'{expression}' is undefined"), |name| no_attribute("dict", name))
    })
}

/// "tried to use + operator on unsupported types string and sequence".
fn operator(detail: &str) -> Option<String> {
    let (operator, kinds) =
        detail.strip_prefix("tried to use ")?.split_once(" operator on unsupported types ")?;
    let (left, right) = kinds.split_once(" and ")?;
    let (left, right) = (python_type(left)?, python_type(right)?);
    Some(match (operator, left) {
        ("+", "str" | "list") => format!("can only concatenate {left} (not \"{right}\") to {left}"),
        _ => format!("unsupported operand type(s) for {operator}: '{left}' and '{right}'"),
    })
}

/// "cannot calculate length of value of type none".
fn length(detail: &str) -> Option<String> {
    let kind = python_type(detail.strip_prefix("cannot calculate length of value of type ")?)?;
    Some(format!("object of type '{kind}' has no len()"))
}

/// "filter from_json is unknown".
fn filter(detail: &str) -> Option<String> {
    let name = detail.strip_prefix("filter ")?.strip_suffix(" is unknown")?;
    Some(format!("No filter named '{name}' found."))
}

/// Python's name for what the engine calls the kind of a value. It does not tell integers from floats.
fn python_type(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "string" => "str",
        "sequence" => "list",
        "map" => "dict",
        "number" => "int",
        "bool" => "bool",
        "none" => "NoneType",
        "iterator" => "generator",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ChatTemplate, Conversation, Moment};

    /// Every expected message was given by Jinja 3.1.6 on Python 3.11.
    #[test]
    fn refusals_speak_as_python_does() {
        for (template, want) in [
            ("{{ raise_exception('Roles must alternate!') }}", "Roles must alternate!"),
            ("{{ 'a' + [] }}", "can only concatenate str (not \"list\") to str"),
            ("{{ [] + 'a' }}", "can only concatenate list (not \"str\") to list"),
            ("{{ 'a' + none }}", "can only concatenate str (not \"NoneType\") to str"),
            ("{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str'"),
            ("{{ {} - 1 }}", "unsupported operand type(s) for -: 'dict' and 'int'"),
            ("{{ 'a' + b }}", "'b' is undefined"),
            ("{{ b.c }}", "'b' is undefined"),
            ("{% set b = {} %}{{ 'a' + b.c }}", "'dict object' has no attribute 'c'"),
            ("{% set b = {} %}{{ 'a' + b['c'] }}", "'dict object' has no attribute 'c'"),
            ("{{ 'a'.items() }}", "'str object' has no attribute 'items'"),
            ("{{ none.items() }}", "'None' has no attribute 'items'"),
            ("{{ [].append(1) }}", "access to attribute 'append' of 'list' object is unsafe."),
            ("{% for x in none %}{% endfor %}", "'NoneType' object is not iterable"),
            ("{% for x in 3 %}{% endfor %}", "'int' object is not iterable"),
            ("{{ none | length }}", "object of type 'NoneType' has no len()"),
            ("{% if true %}{{ 'a' | from_json }}{% endif %}", "No filter named 'from_json' found."),
            ("{{ [1] | map('string') | tojson }}", "Object of type generator is not JSON serializable"),
        ] {
            let compiled = ChatTemplate::new(template, Vec::new()).expect("compiles");
            let moment = Moment::utc((2026, 1, 15), (9, 30, 0));
            let error = compiled.render(&Conversation::default(), &moment).expect_err(template);
            assert_eq!(error.message(), want, "{template}");
        }
    }
}
