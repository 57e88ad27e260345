//! How much the repository holds.

use std::fs;

use super::source::tracked;
use crate::workspace;

/// The most that the tracked files may weigh together.
const LIMIT_BYTES: u64 = 40 << 20;

#[test]
fn the_repository_stays_small() {
    let root = workspace::root();
    let mut sizes: Vec<_> = tracked()
        .into_iter()
        .filter_map(|path| Some((fs::metadata(root.join(&path)).ok()?.len(), path)))
        .collect();
    sizes.sort_unstable_by(|one, other| other.cmp(one));
    let total: u64 = sizes.iter().map(|(size, _)| size).sum();
    let largest = &sizes[..sizes.len().min(5)];
    assert!(
        total <= LIMIT_BYTES,
        "\n\nThe tracked files weigh {total} bytes, over the {LIMIT_BYTES} that keep a clone quick. Models are fetched\n\
         or made, not stored. The largest: {largest:#?}\n"
    );
}
