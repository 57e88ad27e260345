//! The layers of `ARCHITECTURE.md`: which package of the workspace may depend on which.

use std::collections::BTreeSet;

use super::forbid;
use super::graph::{Graph, sample};

/// One row of the table.
struct Layer {
    package: &'static str,
    /// What it may build on, and use in its tests.
    builds_on: &'static [&'static str],
    /// What it may use in its tests besides.
    tests_with: &'static [&'static str],
}

const fn layer(package: &'static str, builds_on: &'static [&'static str]) -> Layer {
    Layer { package, builds_on, tests_with: &[] }
}

/// The whole workspace. A new package gets a row here and one in `ARCHITECTURE.md`.
const LAYERS: &[Layer] = &[
    layer("tandem-contracts", &[]),
    Layer {
        package: "tandem-kv",
        builds_on: &["tandem-contracts"],
        // Codes are held to their references on a device that computes in its own way too.
        tests_with: &["tandem-backend-cpu"],
    },
    layer("tandem-spec", &["tandem-contracts"]),
    layer("tandem-backend-cpu", &["tandem-contracts"]),
    layer("tandem-backend-mlx", &["tandem-contracts"]),
    layer("tandem-models", &["tandem-contracts", "tandem-kv"]),
    layer("tandem-engine", &["tandem-contracts", "tandem-kv", "tandem-spec"]),
    layer("tandem-serve", &["tandem-contracts", "tandem-engine", "tandem-spec"]),
    layer("tandem", EVERYTHING_BELOW),
    layer("tandem-tests", &ALL),
    layer("xtask", &[]),
    layer("xtask-bindings", &[]),
];

const EVERYTHING_BELOW: &[&str] = &[
    "tandem-contracts",
    "tandem-kv",
    "tandem-spec",
    "tandem-backend-cpu",
    "tandem-backend-mlx",
    "tandem-models",
    "tandem-engine",
    "tandem-serve",
];

/// What the tests across crates may use.
const ALL: [&str; 9] = {
    let mut all = ["tandem"; 9];
    let mut index = 0;
    while index < EVERYTHING_BELOW.len() {
        all[index] = EVERYTHING_BELOW[index];
        index += 1;
    }
    all
};

/// Every edge within the workspace that no row allows, and every package without a row.
fn breaches(graph: &Graph, layers: &[Layer]) -> Vec<String> {
    let members: BTreeSet<_> = graph.members().map(|package| package.name.as_str()).collect();
    let mut breaches = Vec::new();
    for package in graph.members() {
        let Some(layer) = layers.iter().find(|layer| layer.package == package.name) else {
            breaches.push(format!("{} has no row", package.name));
            continue;
        };
        for edge in package.declared.iter().filter(|edge| members.contains(edge.to.as_str())) {
            let to = edge.to.as_str();
            let allowed =
                layer.builds_on.contains(&to) || (edge.development && layer.tests_with.contains(&to));
            if !allowed {
                let kind = if edge.development { " (for tests)" } else { "" };
                breaches.push(format!("{} -> {to}{kind}", package.name));
            }
        }
    }
    breaches
}

#[test]
fn packages_depend_only_on_the_layers_below() {
    forbid(
        &breaches(&Graph::load(), LAYERS),
        "A package depends only on what the table of layers allows (xtask/src/policy/layer.rs, ARCHITECTURE.md).\n\
         If the edge is wanted, the picture changes first. More often a port in `tandem-contracts`, implemented\n\
         above and used below, does without the edge.",
    );
}

#[test]
fn an_edge_needs_a_row_and_a_test_edge_only_its_own_column() {
    let mut graph = sample();
    for package in &mut graph.packages {
        package.member = true;
    }
    let rows = |tests_with| {
        let first = Layer { package: "a", builds_on: &["b"], tests_with };
        [first, layer("b", &[]), layer("c", &[])]
    };
    assert_eq!(breaches(&graph, &rows(&["d"])), ["b -> c", "d has no row"]);
    assert_eq!(breaches(&graph, &rows(&[])), ["a -> d (for tests)", "b -> c", "d has no row"]);
}
