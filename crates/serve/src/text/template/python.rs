//! Python's built-in types where templates rely on them: names of types, methods, tests.
//!
//! Invariant: a method that would change a value in place is refused; templates see immutable values.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    value::{ValueKind, from_args},
};
use minijinja_contrib::pycompat;

/// Methods that change a value in place.
const MUTATORS: [(&str, &[&str]); 2] = [
    ("list", &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"]),
    ("dict", &["clear", "pop", "popitem", "setdefault", "update"]),
];

/// Adds methods and tests to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(call_method);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
}

/// What Python calls the type of a value.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "Undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Seq if value.is_tuple() => "tuple",
        ValueKind::Seq => "list",
        ValueKind::Map => "dict",
        ValueKind::Iterable => "generator",
        _ => "object",
    }
}

/// Whether Python's `iter` takes the value.
pub(super) fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Whether the value has a length and items: strings and dictionaries count, as in Jinja.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

fn call_method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let kind = type_name(value);
    if MUTATORS.iter().any(|(name, methods)| *name == kind && methods.contains(&method)) {
        let message = format!("access to attribute '{method}' of '{kind}' object is unsafe.");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    if let Some(result) = value.as_str().and_then(|text| string_method(text, method, args)) {
        return result;
    }
    match pycompat::unknown_method_callback(state, value, method, args) {
        Err(error) if error.kind() == ErrorKind::UnknownMethod && !value.is_undefined() => {
            Err(Error::new(ErrorKind::UndefinedError, no_attribute(kind, method)))
        }
        result => result,
    }
}

/// Methods of strings that the engine's own collection lacks.
fn string_method(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    let result = match method {
        "removeprefix" | "removesuffix" => from_args::<(String,)>(args).map(|(affix,)| {
            let affix = affix.as_str();
            let cut =
                if method == "removeprefix" { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
            Value::from(cut.unwrap_or(text))
        }),
        "partition" => from_args::<(String,)>(args).map(|(separator,)| {
            let found = text.split_once(separator.as_str());
            found
                .map_or([text, "", ""], |(head, tail)| [head, separator.as_str(), tail])
                .map(Value::from)
                .into()
        }),
        "rpartition" => from_args::<(String,)>(args).map(|(separator,)| {
            let found = text.rsplit_once(separator.as_str());
            found
                .map_or(["", "", text], |(head, tail)| [head, separator.as_str(), tail])
                .map(Value::from)
                .into()
        }),
        _ => return None,
    };
    Some(result)
}

/// The reference's words about an attribute that a value of a type does not have.
pub(super) fn no_attribute(type_name: &str, attribute: &str) -> String {
    match type_name {
        "NoneType" => format!("'None' has no attribute '{attribute}'"),
        kind => format!("'{kind} object' has no attribute '{attribute}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every expected value was printed by Jinja 3.1.6 on Python 3.11.
    #[test]
    fn methods_and_tests_are_those_of_python() {
        let mut environment = Environment::new();
        install(&mut environment);
        for (expression, want) in [
            ("'abc'.removeprefix('a') ~ 'abc'.removesuffix('x')", "bcabc"),
            ("'a=b=c'.partition('=')[2] ~ 'a=b=c'.rpartition('=')[0]", "b=ca=b"),
            ("'abc'.partition('=')[0] ~ 'abc'.rpartition('=')[2]", "abcabc"),
            ("' a '.strip() ~ 'ab'.upper() ~ 'a,b'.split(',')[1]", "aABb"),
            ("{'a': 1}.get('b', 2) ~ {'a': 1}.items() | list | length", "21"),
            (
                "(none is iterable) ~ ('' is iterable) ~ (3 is iterable) ~ ({} is iterable)",
                "FalseTrueFalseTrue",
            ),
            (
                "('a' is sequence) ~ ({} is sequence) ~ ([] is sequence) ~ (3 is sequence)",
                "TrueTrueTrueFalse",
            ),
        ] {
            let got = environment.render_str(&format!("{{{{ {expression} }}}}"), ()).expect("renders");
            assert_eq!(got, want, "{expression}");
        }
    }
}
