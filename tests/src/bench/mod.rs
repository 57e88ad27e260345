//! Speed, measured in turns: ours, the peer's, ours, the peer's, so that a drifting machine drifts for both.
//!
//! | module | what it does |
//! |---|---|
//! | [`case`] | what is measured, in the words that both sides share |
//! | [`ours`] | a case on one of our devices, through the model port |
//! | [`peer`] | the same case in llama.cpp's own benchmark programs |
//! | [`engine`] | the engine against a bare loop of steps, an idle device, a cold start |
//! | [`serve`] | the server against its engine, idle connections, the time until it is ready |
//! | [`spec`] | drafts and grammars against the same without |
//! | [`mlx`] | the MLX adapter in turns with mlx-lm |
//! | [`start`], [`process`] | from the start of a program to its first token, and its memory |
//! | [`bandwidth`] | how fast this machine reads memory |
//! | [`report`] | medians, ratios, the table and the JSON beside it |
//! | [`run`] | all of it, in order |

pub mod bandwidth;
pub mod case;
pub mod engine;
pub mod mlx;
pub mod ours;
pub mod peer;
pub mod process;
pub mod report;
pub mod run;
pub mod serve;
pub mod spec;
pub mod start;
