//! What tests and benchmarks across crates share.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@bench`] | speed, in turns with a peer |
//! | [`device`] | the devices that tests run on, by name |
//! | [`drive`] | a session driven as an engine drives it, without one |
//! | [`host`] | what an engine needs around it |
//! | [`parity`] | models held to the numbers that mlx-lm computes |
//! | [`quality`] | how well a model predicts a text, and how well it does in mlx-lm |
//! | [`table`] | columns of text |

pub mod bench;
pub mod device;
pub mod drive;
pub mod host;
pub mod parity;
pub mod quality;
pub mod table;

use std::{error::Error, path::PathBuf};

/// Result of whatever a test does; the message is for people.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The folder of golden data.
pub fn fixtures() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures"))
}
