//! The text side of a language model: tokeniser, growing answers, stop strings, chat templates.
//!
//! ```text
//!   conversation -> template -> text -> tokeniser -> ids -> engine
//!   engine -> ids -> detokeniser -> stop strings -> text
//! ```
//!
//! Nothing here knows HTTP. The engine calls [`AnswerText`] on its own thread, through the port in `contracts`.

mod answer;
mod breaker;
mod detokenizer;
mod gguf;
mod piece;
mod spelling;
mod split;
mod stop;
pub mod template;
mod tokenizer;

pub use answer::AnswerText;
pub use breaker::breakers;
pub use detokenizer::Detokenizer;
pub use gguf::GgufVocabulary;
pub use tokenizer::{SpecialTokens, Tokenizer};
