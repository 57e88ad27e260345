//! Filters where Jinja on Python and the engine part ways.
//!
//! | filter | Python's way |
//! |---|---|
//! | `map`, `select`, `reject`, `selectattr`, `rejectattr` | give a generator: true, without a length, no JSON |
//! | `items` | refuses what is not a mapping |
//! | [`ITERABLE`] | refuses what cannot be iterated over, `None` first of all |
//! | [`MARKUP`] | escapes a string that is added to a safe one |

use super::{
    python::{is_iterable, type_name},
    source::{ITERABLE, MARKUP},
};
use minijinja::{
    Environment, Error, ErrorKind, State, Value, filters,
    value::{Enumerator, Object, ObjectRepr, Rest, ValueKind, ValueOrKwargs},
};
use minijinja_contrib::pycompat;
use std::{borrow::Cow, sync::Arc};

type Arguments = Rest<ValueOrKwargs>;

/// Adds the filters to an environment.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("map", |state: &mut State, value: Value, arguments: Arguments| {
        filters::map(state, value, arguments).map(generator)
    });
    environment.add_filter(
        "select",
        |state: &mut State, value: Value, test: Option<Cow<'_, str>>, arguments: Arguments| {
            filters::select(state, value, test, arguments).map(generator)
        },
    );
    environment.add_filter(
        "reject",
        |state: &mut State, value: Value, test: Option<Cow<'_, str>>, arguments: Arguments| {
            filters::reject(state, value, test, arguments).map(generator)
        },
    );
    environment.add_filter("selectattr", selectattr);
    environment.add_filter("rejectattr", rejectattr);
    environment.add_filter("items", items);
    environment.add_filter(ITERABLE, iterable);
    environment.add_filter(MARKUP, markup);
}

fn selectattr(
    state: &mut State,
    value: Value,
    attribute: Cow<'_, str>,
    test: Option<Cow<'_, str>>,
    arguments: Arguments,
) -> Result<Value, Error> {
    filters::selectattr(state, value, attribute, test, arguments).map(generator)
}

fn rejectattr(
    state: &mut State,
    value: Value,
    attribute: Cow<'_, str>,
    test: Option<Cow<'_, str>>,
    arguments: Arguments,
) -> Result<Value, Error> {
    filters::rejectattr(state, value, attribute, test, arguments).map(generator)
}

/// Values that are there already, behind the face of a Python generator.
#[derive(Debug)]
struct Generator(Vec<Value>);

impl Object for Generator {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let this = Arc::clone(self);
        let mut next = 0;
        Enumerator::Iter(Box::new(std::iter::from_fn(move || {
            next += 1;
            this.0.get(next - 1).cloned()
        })))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        None
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

fn generator(values: Vec<Value>) -> Value {
    Value::from_object(Generator(values))
}

/// An undefined value is empty, as in Jinja.
fn iterable(value: Value) -> Result<Value, Error> {
    if value.is_undefined() || is_iterable(&value) {
        return Ok(value);
    }
    let message = format!("'{}' object is not iterable", type_name(&value));
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn items(state: &mut State, value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Map => pycompat::unknown_method_callback(state, value, "items", &[]),
        ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        _ => Err(Error::new(ErrorKind::InvalidOperation, "Can only get item pairs from a mapping.")),
    }
}

/// Escapes as Python's `markupsafe` does. Values that are not strings are left for the operator to refuse.
fn markup(value: Value) -> Value {
    let Some(text) = value.as_str().filter(|_| !value.is_safe()) else { return value };
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            other => out.push(other),
        }
    }
    Value::from_safe_string(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(expression: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        install(&mut environment);
        environment.render_str(&format!("{{{{ {expression} }}}}"), ())
    }

    #[test]
    fn generators_are_true_and_iterate() {
        for (expression, want) in [
            ("'yes' if [] | select else 'no'", "yes"),
            ("[1, 2, 3] | select('odd') | list", "[1, 3]"),
            ("[1, 2, 3] | reject('odd') | join('-')", "2"),
            ("[{'a': 1}, {'a': 2}] | map(attribute='a') | sum", "3"),
            ("[{'a': 1}, {'b': 2}] | selectattr('a', 'defined') | first", "{'a': 1}"),
            ("[{'a': 1}, {'a': 2}] | rejectattr('a', 'equalto', 1) | list", "[{'a': 2}]"),
        ] {
            assert_eq!(render(expression).ok().as_deref(), Some(want), "{expression}");
        }
        assert!(render("[1] | map('string') | length").is_err());
    }

    #[test]
    fn items_are_those_of_mappings_only() {
        assert_eq!(render("{'b': 1, 'a': 2} | items | list").ok().as_deref(), Some("[('b', 1), ('a', 2)]"));
        assert_eq!(render("missing | items | list").ok().as_deref(), Some("[]"));
        let error = render("'ab' | items").expect_err("refused");
        assert_eq!(error.detail(), Some("Can only get item pairs from a mapping."));
    }
}
