//! Attention over row spans, and writing keys and values.

pub(crate) mod append;
