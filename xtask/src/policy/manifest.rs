//! How the packages' manifests are written: versions stand in one place, and the rest is inherited.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::forbid;
use super::graph::Graph;
use crate::workspace;

/// Keys of `[package]` that come from `[workspace.package]`.
const INHERITED: &[&str] = &["edition", "license", "publish", "rust-version", "version"];

fn read(manifest: &Path) -> Table {
    let text = fs::read_to_string(manifest).unwrap();
    toml::from_str(&text).unwrap()
}

/// The dependency tables of a manifest, those for single targets included.
fn dependencies(manifest: &Table) -> Vec<&Table> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let mut tables = kinds_of(manifest);
    tables.extend(targets.filter_map(Value::as_table).flat_map(kinds_of));
    tables
}

fn kinds_of(table: &Table) -> Vec<&Table> {
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()).collect()
}

fn inherits(value: Option<&Value>) -> bool {
    value.and_then(|value| value.get("workspace")).and_then(Value::as_bool) == Some(true)
}

/// What a manifest says for itself that it should inherit.
fn own_words(manifest: &Table) -> Vec<String> {
    let named = dependencies(manifest).into_iter().flatten().filter(|(_, value)| !inherits(Some(value)));
    let mut found: Vec<_> = named.map(|(name, _)| format!("dependency {name}")).collect();
    let package = manifest.get("package");
    let keys = INHERITED.iter().filter(|key| !inherits(package.and_then(|package| package.get(key))));
    found.extend(keys.map(|key| format!("package.{key}")));
    if !inherits(manifest.get("lints")) {
        found.push("lints".to_owned());
    }
    found
}

#[test]
fn manifests_inherit_from_the_workspace() {
    let mut breaches = Vec::new();
    for package in Graph::load().members() {
        breaches.extend(
            own_words(&read(&package.manifest)).iter().map(|word| format!("{}: {word}", package.name)),
        );
    }
    forbid(
        &breaches,
        "Versions, lints and the package's common keys stand once, in the workspace's Cargo.toml; a member writes\n\
         `name.workspace = true` or `name = { workspace = true, features = [...] }`.",
    );
}

#[test]
fn every_dependency_of_the_workspace_is_used() {
    let root = read(&workspace::root().join("Cargo.toml"));
    let named = root["workspace"]["dependencies"].as_table().unwrap();
    let manifests: Vec<_> = Graph::load().members().map(|package| read(&package.manifest)).collect();
    let used: BTreeSet<_> = manifests.iter().flat_map(dependencies).flat_map(Table::keys).collect();
    let unused: Vec<_> = named.keys().filter(|name| !used.contains(name)).cloned().collect();
    forbid(&unused, "A dependency that no member uses is taken out of [workspace.dependencies].");
}

#[test]
fn own_words_are_found() {
    let manifest = toml::from_str(
        r#"
        lints.workspace = true
        [package]
        edition.workspace = true
        license.workspace = true
        publish.workspace = true
        version = "1.0.0"
        rust-version.workspace = true
        [dependencies]
        one.workspace = true
        two = { workspace = true, features = ["x"] }
        three = "3"
        [target.'cfg(unix)'.dev-dependencies]
        four = { version = "4" }
        "#,
    )
    .unwrap();
    assert_eq!(own_words(&manifest), ["dependency three", "dependency four", "package.version"]);
}
