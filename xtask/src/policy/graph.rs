//! Packages and dependencies as `cargo metadata` tells them, all features on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use crate::{process, workspace};

/// A package, of the workspace or from a registry.
#[derive(Clone, Debug)]
pub(super) struct Package {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) licence: Option<String>,
    pub(super) manifest: PathBuf,
    /// Part of this workspace.
    pub(super) member: bool,
    /// The names of the packages that its manifest names, on whatever platform.
    pub(super) declared: Vec<Edge>,
}

/// A dependency that a manifest names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) to: String,
    /// For tests, examples and benchmarks only.
    pub(super) development: bool,
}

/// All packages, with what each resolved to.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) packages: Vec<Package>,
    /// By package id: the ids of the normal and build dependencies.
    resolved: BTreeMap<String, Vec<String>>,
}

impl Graph {
    /// The workspace's.
    pub(super) fn load() -> Self {
        let mut command = workspace::cargo(["metadata", "--format-version", "1", "--all-features"]);
        let text = process::capture(&mut command).expect("cargo metadata");
        Self::parse(&serde_json::from_str(&text).expect("cargo metadata prints JSON"))
    }

    fn parse(metadata: &Value) -> Self {
        let members: BTreeSet<_> = list(&metadata["workspace_members"]).map(text).collect();
        let packages = list(&metadata["packages"]).map(|package| Package {
            id: text(&package["id"]),
            name: text(&package["name"]),
            licence: package["license"].as_str().map(str::to_owned),
            manifest: text(&package["manifest_path"]).into(),
            member: members.contains(&text(&package["id"])),
            declared: list(&package["dependencies"])
                .map(|edge| Edge { to: text(&edge["name"]), development: edge["kind"] == "dev" })
                .collect(),
        });
        let resolved = list(&metadata["resolve"]["nodes"]).map(|node| {
            let built = list(&node["deps"])
                .filter(|dependency| list(&dependency["dep_kinds"]).any(|kind| kind["kind"] != "dev"));
            (text(&node["id"]), built.map(|dependency| text(&dependency["pkg"])).collect())
        });
        Self { packages: packages.collect(), resolved: resolved.collect() }
    }

    /// The packages of this workspace.
    pub(super) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.member)
    }

    /// The packages that name `to` in their manifest.
    pub(super) fn dependents<'a>(&'a self, to: &'a str) -> impl Iterator<Item = &'a Package> {
        self.packages.iter().filter(move |package| package.declared.iter().any(|edge| edge.to == to))
    }

    /// The names of all packages that end up in a build of `name`, itself included.
    pub(super) fn tree(&self, name: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> =
            self.packages.iter().filter(|p| p.name == name).map(|p| p.id.as_str()).collect();
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(self.resolved.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        let names = self.packages.iter().filter(|package| reached.contains(package.id.as_str()));
        names.map(|package| package.name.as_str()).collect()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("cargo metadata: a list").iter()
}

fn text(value: &Value) -> String {
    value.as_str().expect("cargo metadata: a string").to_owned()
}

/// A small graph for the tests of the rules: `a` is a member that builds on `b`, which builds on `c`; `a` also
/// names `d` for its tests.
pub(super) fn sample() -> Graph {
    let edge = |to: &str, development: bool| Edge { to: to.to_owned(), development };
    let package = |name: &str, declared: Vec<Edge>| Package {
        id: name.to_owned(),
        name: name.to_owned(),
        licence: Some("MIT".to_owned()),
        manifest: PathBuf::new(),
        member: name == "a",
        declared,
    };
    let packages = vec![
        package("a", vec![edge("b", false), edge("d", true)]),
        package("b", vec![edge("c", false)]),
        package("c", vec![]),
        package("d", vec![]),
    ];
    let built = |package: &Package| {
        let kept = package.declared.iter().filter(|edge| !edge.development);
        (package.id.clone(), kept.map(|edge| edge.to.clone()).collect())
    };
    let resolved = packages.iter().map(built).collect();
    Graph { packages, resolved }
}

#[test]
fn a_tree_follows_what_is_built_and_no_test_dependency() {
    assert_eq!(sample().tree("a"), BTreeSet::from(["a", "b", "c"]));
}

#[test]
fn dependents_are_found_by_name() {
    let graph = sample();
    let names = |to| graph.dependents(to).map(|package| package.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names("c"), ["b"]);
    assert_eq!(names("d"), ["a"]);
}

#[test]
fn metadata_is_read() {
    let metadata = serde_json::json!({
        "workspace_members": ["id-a"],
        "packages": [
            {"id": "id-a", "name": "a", "license": null, "manifest_path": "/a/Cargo.toml",
             "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]},
            {"id": "id-b", "name": "b", "license": "MIT", "manifest_path": "/b/Cargo.toml", "dependencies": []},
        ],
        "resolve": {"nodes": [
            {"id": "id-a", "deps": [
                {"pkg": "id-b", "dep_kinds": [{"kind": null}]}, {"pkg": "id-c", "dep_kinds": [{"kind": "dev"}]}]},
            {"id": "id-b", "deps": []},
        ]},
    });
    let graph = Graph::parse(&metadata);
    assert_eq!(graph.members().map(|package| package.name.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(graph.packages[0].declared[1], Edge { to: "c".to_owned(), development: true });
    assert_eq!(graph.tree("a"), BTreeSet::from(["a", "b"]));
}
