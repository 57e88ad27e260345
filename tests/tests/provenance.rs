//! Every fixture has its hash, and a section on its origin, in `fixtures/PROVENANCE.md`.

#![allow(clippy::unwrap_used, reason = "a test ends at its first failure")]

use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use tandem_tests::fixtures;

/// Bytes that all fixtures together may take.
const LARGEST: u64 = 24_000_000;

/// Files below a folder, by their path from it.
fn files(root: &Path, below: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            files(root, &path, found);
        } else {
            let name = path.iter().map(|part| part.to_str().unwrap()).collect::<Vec<_>>().join("/");
            found.insert(name, entry.path());
        }
    }
}

fn line(name: &str, path: &Path) -> String {
    let hash: String =
        Sha256::digest(fs::read(path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("| `{name}` | `{hash}` |")
}

#[test]
fn every_fixture_is_listed_with_its_hash() {
    let mut found = BTreeMap::new();
    files(&fixtures(), Path::new(""), &mut found);
    found.remove("PROVENANCE.md");
    let text = fs::read_to_string(fixtures().join("PROVENANCE.md")).unwrap();
    let stated: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let real: Vec<String> = found.iter().map(|(name, path)| line(name, path)).collect();
    let missing: Vec<_> = real.iter().filter(|line| !stated.contains(&line.as_str())).cloned().collect();
    let wrong: Vec<_> = stated.iter().filter(|line| !real.iter().any(|real| real == *line)).collect();
    assert!(
        missing.is_empty() && wrong.is_empty(),
        "fixtures/PROVENANCE.md lacks these lines:\n{}\nand has these, which are true no more:\n{wrong:#?}",
        missing.join("\n")
    );
}

#[test]
fn fixtures_stay_small() {
    let mut found = BTreeMap::new();
    files(&fixtures(), Path::new(""), &mut found);
    let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
    assert!(found.values().map(size).sum::<u64>() <= LARGEST);
    let mut cases: BTreeMap<_, u64> = BTreeMap::new();
    for (name, path) in found.iter().filter(|(name, _)| name.contains("goldens.")) {
        *cases.entry(Path::new(name).parent()).or_default() += size(path);
    }
    for (case, size) in cases {
        assert!(size <= 400_000, "{case:?} is too large: {size}");
    }
}
