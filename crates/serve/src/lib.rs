//! The server and the text of language models: HTTP, wire formats, tokenisers, templates.
//!
//! | module | what it holds |
//! |---|---|
//! | [`http`] | OpenAI's protocol over an engine |
//! | [`text`] | tokeniser, growing answers, stop strings, chat templates; knows no HTTP |
//! | [`sampling`] | what clients say of sampling, over what holds where they say nothing |
//! | [`model`] | one served model: engine, text, and what absent fields of a request mean |
//!
//! A program that wants text without a server takes [`model`] and [`text`] alone, as `tandem generate` does.
#![forbid(unsafe_code)]

mod error;
pub mod http;
pub mod model;
pub mod sampling;
pub mod text;

pub use error::{Error, ErrorKind};
