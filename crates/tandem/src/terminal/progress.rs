//! A bar on standard error for what takes long.
//!
//! Invariants: nothing is drawn where standard error is no terminal, nor for what is done at once; the bar is gone when
//! the value is.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// What is done sooner has no bar.
const PATIENCE: Duration = Duration::from_millis(300);

/// How often a bar is drawn, in times a second.
const PACE: u8 = 10;

const BYTES: &str = "{msg} {wide_bar:.dim} {binary_bytes} of {binary_total_bytes}";

const TOKENS: &str = "{msg} {wide_bar:.dim} {pos} of {len} tokens";

/// A piece of work of known size.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    shown: bool,
}

impl Progress {
    /// Work on so many bytes.
    pub(crate) fn of_bytes(what: &'static str, total: u64) -> Self {
        Self::new(what, total, BYTES)
    }

    /// Work on so many tokens.
    pub(crate) fn of_tokens(what: &'static str, total: u64) -> Self {
        Self::new(what, total, TOKENS)
    }

    fn new(what: &'static str, total: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("━━┄"));
        }
        Self { bar: bar.with_message(what), begun: Instant::now(), shown: false }
    }

    /// So much is done by now.
    pub(crate) fn reach(&mut self, done: u64) {
        self.bar.set_position(done);
        if !self.shown && self.begun.elapsed() > PATIENCE {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(PACE));
        }
    }

    /// So much more is done.
    pub(crate) fn advance(&mut self, more: u64) {
        self.reach(self.bar.position() + more);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_whether_it_is_drawn_or_not() {
        let mut progress = Progress::of_tokens("reading", 10);
        progress.advance(3);
        progress.advance(4);
        assert_eq!((progress.bar.position(), progress.shown), (7, false));
        progress.begun -= PATIENCE * 2;
        progress.reach(9);
        assert_eq!((progress.bar.position(), progress.bar.length(), progress.shown), (9, Some(10), true));
    }

    #[test]
    fn the_templates_are_sound() {
        assert!([BYTES, TOKENS].iter().all(|template| ProgressStyle::with_template(template).is_ok()));
    }
}
