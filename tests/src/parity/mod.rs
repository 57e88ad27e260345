//! Models held to the numbers that mlx-lm computes with the same files.
//!
//! ```text
//!   fixtures/tiny/NAME --Case::read--> config, weights, goldens
//!                                         | check::run(case, device, tolerance)
//!                                         v
//!                                      Report --report::render--> one line of the table
//! ```
//!
//! The margin rule: a token is held against the golden one as long as both agree; where they part, it is a breach if
//! the golden run's two best logits were further apart than the tolerance's margin, and the end of the comparison of
//! that run otherwise. The share of compared tokens is part of every report.
//!
//! Real weights are held otherwise: `fixtures/NAME/greedy.json` has mlx-lm's answers to ten prompts, and every step is fed
//! the golden token before it, so that all steps count, whatever is found there ([`Held`]).

mod answered;
mod case;
mod change;
mod check;
mod complete;
mod kind;
mod real;
mod report;
mod tolerance;

pub use answered::{Answered, render_answers};
pub use case::{Case, Greedy, cases};
pub use change::{Change, changes};
pub use check::run;
pub use kind::Kind;
pub use real::{Answer, Divergence, Held, Real};
pub use report::{Report, json, render};
pub use tolerance::{Tolerance, Tolerances, Weights};
