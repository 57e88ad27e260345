//! Which external packages may be used where. `deny.toml` holds the first table for cargo-deny.

use super::forbid;
use super::graph::{Graph, sample};

/// A package, and the only ones that may name it in their manifest.
const RESERVED: &[(&str, &[&str])] = &[
    ("axum", &["tandem-serve"]),
    ("clap", &["tandem", "tandem-tests", "xtask"]),
    ("mlx-rs", &["tandem-backend-mlx"]),
    ("mlx-sys", &["mlx-rs", "tandem-backend-mlx"]),
];

/// Packages that know no runtime, no network and no device but their own.
const CORE: &[&str] = &[
    "tandem-backend-cpu",
    "tandem-backend-mlx",
    "tandem-contracts",
    "tandem-engine",
    "tandem-kv",
    "tandem-models",
    "tandem-spec",
];

/// What must not be anywhere below the core packages.
const FOREIGN: &[&str] = &["axum", "clap", "hyper", "tokio"];

fn reserved(graph: &Graph, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (package, allowed) in table {
        let others =
            graph.dependents(package).filter(|dependent| !allowed.contains(&dependent.name.as_str()));
        // A registry package may name something that it never builds here (an optional dependency of it).
        let built =
            others.filter(|dependent| dependent.member || graph.tree(&dependent.name).contains(package));
        breaches.extend(built.map(|dependent| format!("{} -> {package}", dependent.name)));
    }
    breaches
}

fn foreign(graph: &Graph, core: &[&str], foreign: &[&str]) -> Vec<String> {
    let mut breaches = Vec::new();
    for name in core {
        let tree = graph.tree(name);
        let found = foreign.iter().filter(|foreign| tree.contains(*foreign));
        breaches.extend(found.map(|foreign| format!("{name} -> ... -> {foreign}")));
    }
    breaches
}

#[test]
fn reserved_packages_have_one_home() {
    forbid(
        &reserved(&Graph::load(), RESERVED),
        "MLX is used only through `tandem-backend-mlx`, axum only by `tandem-serve`, clap only by programs.\n\
         What another crate needs of them belongs behind a port in `tandem-contracts`.",
    );
}

#[test]
fn core_packages_know_no_runtime_and_no_network() {
    forbid(
        &foreign(&Graph::load(), CORE, FOREIGN),
        "The core packages and the backends run on plain threads and hold no HTTP: async code and sockets live in\n\
         `tandem-serve` and `tandem`. `cargo tree -p PACKAGE -i DEPENDENCY` shows the way it came in.",
    );
}

#[test]
fn mlx_stays_out_of_the_core() {
    let core = CORE.iter().copied().filter(|name| *name != "tandem-backend-mlx").collect::<Vec<_>>();
    forbid(&foreign(&Graph::load(), &core, &["mlx-rs", "mlx-sys"]), "Only `tandem-backend-mlx` knows MLX.");
}

#[test]
fn a_reserved_package_elsewhere_is_found() {
    assert_eq!(reserved(&sample(), &[("c", &[])]), ["b -> c"]);
    assert!(reserved(&sample(), &[("c", &["b"])]).is_empty());
}

#[test]
fn a_foreign_package_is_found_at_any_depth() {
    assert_eq!(foreign(&sample(), &["a"], &["c", "d"]), ["a -> ... -> c"]);
}
