//! Rules on the text of the sources.

use std::fs;

use super::forbid;
use crate::{process, workspace};

/// The most lines of one file.
const LINES: usize = 500;

/// Files that may be longer, because they are tables.
const TABLES: &[&str] = &[];

/// Names that say nothing about what a module holds.
const EMPTY_NAMES: &[&str] = &["common", "helper", "helpers", "misc", "types", "util", "utils"];

/// Crates that touch no file: bytes come in and go out through ports.
const WITHOUT_FILES: &[&str] = &[
    "crates/backend-cpu",
    "crates/backend-mlx",
    "crates/contracts",
    "crates/engine",
    "crates/kv",
    "crates/models",
    "crates/spec",
];

/// Crates that read no clock: time comes in through a port, so that tests decide it.
const WITHOUT_CLOCK: &[&str] =
    &["crates/contracts", "crates/engine", "crates/kv", "crates/models", "crates/spec"];

/// Where `unsafe` may stand: device code, the mapping of weights files, and the waiting for a measured program.
const WITH_UNSAFE: &[&str] = &[
    "crates/backend-cpu",
    "crates/backend-mlx",
    "crates/tandem/src/model_files.rs",
    "tests/src/bench/process.rs",
];

/// A Rust file of the workspace.
struct Source {
    /// From the workspace's directory, with slashes.
    path: String,
    text: String,
}

impl Source {
    fn within(&self, directories: &[&str]) -> bool {
        directories.iter().any(|directory| self.path.starts_with(directory))
    }

    /// Tests and benchmarks in files of their own.
    fn is_test(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| matches!(part, "tests" | "benches" | "test.rs" | "tests.rs"))
    }

    /// The lines of code with their numbers: no comments, and nothing from the unit tests on, which end a file.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let length = if self.is_test() { 0 } else { usize::MAX };
        self.all_code().take_while(|(_, line)| !line.starts_with("mod tests")).take(length)
    }

    /// The lines of code with their numbers, tests included.
    fn all_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// The paths of all files that are in the repository or about to be.
pub(super) fn tracked() -> Vec<String> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(workspace::root());
    let text = process::capture(&mut git).expect("the workspace is a git checkout");
    text.split_terminator('\0').map(str::to_owned).collect()
}

fn sources() -> Vec<Source> {
    let rust = tracked().into_iter().filter(|path| path.ends_with(".rs"));
    rust.filter_map(|path| {
        Some(Source { text: fs::read_to_string(workspace::root().join(&path)).ok()?, path })
    })
    .collect()
}

/// Where any of the words stands in lines that `lines` picks.
fn found<'a, I>(source: &'a Source, words: &[&str], lines: fn(&'a Source) -> I) -> Vec<String>
where
    I: Iterator<Item = (usize, &'a str)> + 'a,
{
    let hits = lines(source).filter(|(_, line)| words.iter().any(|word| line.contains(word)));
    hits.map(|(number, line)| format!("{}:{number}: {}", source.path, line.trim())).collect()
}

fn opens_with_purpose(source: &Source) -> bool {
    source.text.starts_with("//! ")
}

fn has_empty_name(source: &Source) -> bool {
    let mut parts = source.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    parts.any(|part| EMPTY_NAMES.contains(&part))
}

#[test]
fn files_open_with_their_purpose() {
    let sources = sources();
    let breaches: Vec<_> =
        sources.iter().filter(|s| !opens_with_purpose(s)).map(|s| s.path.clone()).collect();
    forbid(&breaches, "A file opens with `//! `: what it is for, then its invariants.");
}

#[test]
fn files_are_short() {
    let sources = sources();
    let long =
        sources.iter().filter(|s| s.text.lines().count() > LINES && !TABLES.contains(&s.path.as_str()));
    let breaches: Vec<_> = long.map(|s| format!("{}: {} lines", s.path, s.text.lines().count())).collect();
    forbid(
        &breaches,
        "A file has at most 500 lines. A longer one usually holds two things; give each its own. A file that is\n\
         one table is listed in xtask/src/policy/source.rs.",
    );
}

#[test]
fn modules_are_named_for_what_they_hold() {
    let breaches: Vec<_> = sources().into_iter().filter(has_empty_name).map(|s| s.path).collect();
    forbid(
        &breaches,
        "A module is a singular noun that says what it holds; `utils` and the like say nothing.",
    );
}

#[test]
fn nothing_is_left_undone() {
    // Written in two parts, so that this file passes.
    let words = [
        concat!("todo", "!"),
        concat!("unimplemented", "!"),
        concat!("#[", "ignore"),
        concat!("allow(", "dead_code"),
    ];
    let breaches: Vec<_> = sources().iter().flat_map(|s| found(s, &words, Source::all_code)).collect();
    forbid(&breaches, "No placeholder, no ignored test, no code without a caller: finish it or take it out.");
}

#[test]
fn files_are_read_only_at_the_top() {
    let sources = sources();
    let below = sources.iter().filter(|s| s.within(WITHOUT_FILES));
    let breaches: Vec<_> =
        below.flat_map(|s| found(s, &["std::fs", "fs::File", "File::open"], Source::code)).collect();
    forbid(
        &breaches,
        "Below `tandem` and `tandem-serve`, bytes come in as slices or through a port, never from files.",
    );
}

#[test]
fn time_comes_through_the_clock_port() {
    let sources = sources();
    let below = sources.iter().filter(|s| s.within(WITHOUT_CLOCK));
    let words = ["Instant::now", "SystemTime::now"];
    let breaches: Vec<_> = below.flat_map(|s| found(s, &words, Source::code)).collect();
    forbid(
        &breaches,
        "The core reads no clock: it takes the clock port of `tandem-contracts`, so that tests set the time.",
    );
}

#[test]
fn only_main_ends_the_process() {
    let sources = sources();
    let inner = sources.iter().filter(|s| !s.path.ends_with("/main.rs"));
    let words = [concat!("process", "::exit"), concat!("process", "::abort")];
    let breaches: Vec<_> = inner.flat_map(|s| found(s, &words, Source::code)).collect();
    forbid(&breaches, "Only `main` ends the process; everything else returns an error.");
}

#[test]
fn unsafe_stays_in_the_adapters() {
    let sources = sources();
    let outside = sources.iter().filter(|s| !s.within(WITH_UNSAFE));
    let words = [
        concat!("unsafe", " {"),
        concat!("unsafe", " fn"),
        concat!("unsafe", " impl"),
        concat!("unsafe", " extern"),
    ];
    let breaches: Vec<_> = outside.flat_map(|s| found(s, &words, Source::all_code)).collect();
    forbid(
        &breaches,
        "`unsafe` stands only where a device or the file map needs it (xtask/src/policy/source.rs).",
    );
}

fn sample(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn code_is_neither_comment_nor_test() {
    let text = "//! File::open\nuse x;\n    // File::open\n#[cfg(test)]\nmod tests {\n    File::open\n}\n";
    let source = sample("crates/kv/src/row.rs", text);
    assert_eq!(source.code().collect::<Vec<_>>(), [(2, "use x;"), (4, "#[cfg(test)]")]);
    assert_eq!(found(&source, &["File::open"], Source::all_code), ["crates/kv/src/row.rs:6: File::open"]);
    assert_eq!(sample("crates/kv/tests/row.rs", "use x;").code().count(), 0);
}

#[test]
fn names_and_openings_are_judged() {
    assert!(has_empty_name(&sample("crates/kv/src/utils.rs", "")));
    assert!(has_empty_name(&sample("crates/kv/tests/common/mod.rs", "")));
    assert!(!has_empty_name(&sample("crates/kv/src/row.rs", "")));
    assert!(opens_with_purpose(&sample("a.rs", "//! Rows.\n")));
    assert!(!opens_with_purpose(&sample("a.rs", "use x;\n//! Rows.\n")));
}
