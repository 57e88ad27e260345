//! The workspace's rules, as tests: `cargo test -p xtask policy`.
//!
//! Each test looks at the whole workspace and, where a rule is broken, says which, where, and what to do
//! instead. A rule that cannot be told apart from taste by a program is not here.

mod ban;
mod graph;
mod layer;
mod licence;
mod manifest;
mod size;
mod source;

/// Fails with all of the breaches of one rule and with the way out.
fn forbid(breaches: &[String], rule: &str) {
    assert!(breaches.is_empty(), "\n\n{rule}\n\nIt is broken here:\n  {}\n", breaches.join("\n  "));
}
