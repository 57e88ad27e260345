//! Key-value cache rows: each row of a batch owns its state.
