//! The licences that dependencies may have. `deny.toml` holds the same list for cargo-deny.

use std::fs;

use super::forbid;
use super::graph::Graph;
use crate::workspace;

/// SPDX identifiers of licences that ask for no more than notices.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Whether a choice of licences within [`ALLOWED`] satisfies an SPDX expression. A slash, which older packages
/// write, means OR.
fn satisfied(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest) && rest.is_empty()
}

/// `either := both (OR both)*`
fn either(words: &mut &[&str]) -> bool {
    let mut value = both(words);
    while let ["OR", rest @ ..] = words {
        *words = rest;
        value |= both(words);
    }
    value
}

/// `both := one (AND one)*`
fn both(words: &mut &[&str]) -> bool {
    let mut value = one(words);
    while let ["AND", rest @ ..] = words {
        *words = rest;
        value &= one(words);
    }
    value
}

/// `one := '(' either ')' | licence [WITH exception]`
fn one(words: &mut &[&str]) -> bool {
    match *words {
        ["(", inner @ ..] => {
            *words = inner;
            let value = either(words);
            let [")", rest @ ..] = *words else { return false };
            *words = rest;
            value
        }
        [licence, "WITH", exception, rest @ ..] => {
            *words = rest;
            ALLOWED.contains(&format!("{licence} WITH {exception}").as_str())
        }
        [licence, rest @ ..] => {
            *words = rest;
            ALLOWED.contains(licence)
        }
        [] => false,
    }
}

#[test]
fn dependencies_have_allowed_licences() {
    let graph = Graph::load();
    let refused = graph.packages.iter().filter(|package| !package.licence.as_deref().is_some_and(satisfied));
    let breaches: Vec<_> = refused
        .map(|package| format!("{}: {}", package.name, package.licence.as_deref().unwrap_or("no licence")))
        .collect();
    forbid(
        &breaches,
        "Every dependency has a licence of the list in xtask/src/policy/licence.rs and deny.toml. A new one is\n\
         added to both after somebody has read it; otherwise the dependency goes.",
    );
}

#[test]
fn the_list_is_that_of_cargo_deny() {
    let text = fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
    let deny: toml::Table = toml::from_str(&text).unwrap();
    let listed: Vec<_> =
        deny["licenses"]["allow"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    assert_eq!(listed, ALLOWED);
}

#[test]
fn an_expression_holds_if_a_choice_does() {
    for expression in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "GPL-3.0 OR (MIT AND ISC)",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
    ] {
        assert!(satisfied(expression), "{expression}");
    }
    for expression in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT WITH unknown-exception", "OR MIT"]
    {
        assert!(!satisfied(expression), "{expression}");
    }
}
