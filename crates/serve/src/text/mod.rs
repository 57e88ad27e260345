//! The text side of a language model: tokeniser, growing answers, stop strings, chat templates, and what replies are
//! made of.
//!
//! ```text
//!   conversation -> template -> text -> tokeniser -> ids -> engine
//!   engine -> ids -> detokeniser -> stop strings -> text -> reasoning, words, calls
//! ```
//!
//! Nothing here knows HTTP. The engine calls [`AnswerText`] on its own thread, through the port in `contracts`.

mod answer;
mod breaker;
mod detokenizer;
pub mod fill;
mod gguf;
mod piece;
pub mod reply;
mod spelling;
mod split;
mod stop;
pub mod template;
mod tokenizer;

pub use answer::AnswerText;
pub use breaker::breakers;
pub use detokenizer::{Detokenizer, Shown};
pub use gguf::GgufVocabulary;
pub use tokenizer::{SpecialTokens, Tokenizer};
