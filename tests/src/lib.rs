//! What tests and benchmarks across crates share.
